"""Save weights and iterator state together with Orbax, and resume a JAX training from them."""

import itertools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

EPOCHS, BATCH_SIZE, SEED, RATE = 3, 32, 1, 0.1


def augment(images, labels, rng):
    """Add noise: every sample has its own row of draws."""
    noisy = images / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10
    return noisy.reshape(len(images), 64), labels.astype(np.int32)


@jax.jit
def train_batch(weights, x, y):
    """Return the weights after one step of gradient descent."""

    def loss(weights):
        scores = jax.nn.log_softmax(x @ weights["matrix"] + weights["bias"])
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    return jax.tree.map(lambda weight, slope: weight - RATE * slope, weights, jax.grad(loss)(weights))


def train(source, folder, n_batches=None):
    """Return the weights after `n_batches` batches, or all; resume from the latest checkpoint, and save another."""
    weights, state = {"matrix": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}, None
    with ocp.CheckpointManager(folder) as manager:
        if manager.latest_step() is not None:
            kinds = {"weights": ocp.args.StandardRestore(weights), "data": ocp.args.JsonRestore()}
            saved = manager.restore(manager.latest_step(), args=ocp.args.Composite(**kinds))
            weights, state = saved.weights, saved.data
        with source.batch_iterator(BATCH_SIZE, shuffle=SEED, state=state) as batches:
            for x, y in itertools.islice(batches, n_batches):
                weights = train_batch(weights, x, y)
            state = batches.state_dict()
        saved = {"weights": ocp.args.StandardSave(weights), "data": ocp.args.JsonSave(state)}
        manager.save(state["batches"], args=ocp.args.Composite(**saved))
    return weights


# One stream of all epochs, each in an order of its own.
digits = bu.repeat(bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample"), EPOCHS)
with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    unbroken = train(digits, f"{folder}/unbroken")  # without workers
    train(pool.parallel_data_source(digits), f"{folder}/broken", n_batches=100)
    resumed = train(pool.parallel_data_source(digits), f"{folder}/broken")

same = all(jnp.array_equal(unbroken[name], resumed[name]) for name in unbroken)
print(f"weights equal to those of the unbroken run: {same}")
