"""Save weights and iterator state together with Orbax, and resume a JAX training from them."""

import itertools
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.jax import to_jax

EPOCHS, BATCH_SIZE, SEED, RATE = 3, 32, 1, 0.1


def augment(images, labels, rng):
    """Add noise; each sample has its own row of random numbers."""
    noisy = images / np.float32(16) + rng.normal(size=(8, 8)).astype(np.float32) / 10
    return noisy.reshape(len(images), 64), labels.astype(np.int32)


@jax.jit
def train_batch(weights, x, y):
    """Return the weights after one step of gradient descent."""

    def loss(weights):
        scores = jax.nn.log_softmax(x @ weights["matrix"] + weights["bias"])
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    return jax.tree.map(lambda weight, slope: weight - RATE * slope, weights, jax.grad(loss)(weights))


def train(pool, folder, n_batches=None):
    """Return the weights after `n_batches` batches, or all; resume from the latest checkpoint, and save another."""
    weights = {"matrix": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}
    digits = bu.ArrayDataSource(list(load_digits())).map(augment, rng="sample")
    with ocp.CheckpointManager(folder) as manager, bu.Loader(digits, BATCH_SIZE, shuffle=SEED, pool=pool) as loader:
        step = manager.latest_step() or 0
        if step:
            kinds = {"weights": ocp.args.StandardRestore(weights), "data": ocp.args.JsonRestore()}
            saved = manager.restore(step, args=ocp.args.Composite(**kinds))
            weights = saved.weights
            loader.load_state_dict(saved.data)
        epochs = [to_jax(loader)] * (EPOCHS - loader.epoch)  # each iteration is the next epoch, in its own order
        for x, y in itertools.islice(itertools.chain(*epochs), n_batches):
            weights = train_batch(weights, x, y)
            step += 1
        saved = {"weights": ocp.args.StandardSave(weights), "data": ocp.args.JsonSave(loader.state_dict())}
        manager.save(step, args=ocp.args.Composite(**saved))
    return weights


with tempfile.TemporaryDirectory() as folder:
    unbroken = train("serial", f"{folder}/unbroken")
    train("threads", f"{folder}/broken", n_batches=100)
    resumed = train("threads", f"{folder}/broken")

same = all(jnp.array_equal(unbroken[name], resumed[name]) for name in unbroken)
print(f"weights equal to those of the unbroken run: {same}")
