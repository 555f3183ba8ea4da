"""Train a convolutional network in JAX on batches that are made ahead; print how long each epoch waited for them."""

import jax
import jax.numpy as jnp
import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits
from batchup_ng.frameworks.jax import to_jax

EPOCHS, SEED, RATE, MOMENTUM = 10, 1, 0.05, 0.9


def shift(images, labels, rng):
    """Shift each image by up to a pixel each way; each sample has its own row of random numbers."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    step = rng.integers(0, 3, size=2)
    rows, columns = step[:, :1] + np.arange(8), step[:, 1:] + np.arange(8)
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]], labels


def to_planes(images, labels):
    """Return one plane per image, from 0 to 1: (n, 8, 8, 1) float32."""
    return images[..., None].astype(np.float32) / 16, labels


def scores(weights, x):
    """Return a score per class: (n, 10)."""
    for kernel in (weights["first"], weights["second"]):
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x)
    x = x.reshape(len(x), 4, 2, 4, 2, -1).max((2, 4))  # the largest of each 2 × 2 pixels
    return x.reshape(len(x), -1) @ weights["matrix"] + weights["bias"]


@jax.jit
def train_batch(weights, speed, x, y):
    """Return weights and their speed after one step of gradient descent with momentum."""

    def loss(weights):
        return -jnp.take_along_axis(jax.nn.log_softmax(scores(weights, x)), y[:, None], axis=1).mean()

    speed = jax.tree.map(lambda one, slope: MOMENTUM * one - RATE * slope, speed, jax.grad(loss)(weights))
    return jax.tree.map(jnp.add, weights, speed), speed


@jax.jit
def n_right(weights, x, y):
    return (scores(weights, x).argmax(1) == y).sum()


images, labels = load_digits()
train, test = bu.split(bu.ArrayDataSource([images, labels]), [0.75, 0.25], SEED, stratify=labels)
shapes = {"first": (3, 3, 1, 32), "second": (3, 3, 32, 64), "matrix": (4 * 4 * 64, 10), "bias": (10,)}
keys = dict(zip(shapes, jax.random.split(jax.random.key(SEED), len(shapes)), strict=True))
start = jax.nn.initializers.he_normal()
weights = {name: start(keys[name], shape) if shape[1:] else jnp.zeros(shape) for name, shape in shapes.items()}
speed = jax.tree.map(jnp.zeros_like, weights)

with bu.Loader(train.map(shift, rng="sample").map(to_planes), 64, shuffle=SEED, pool="threads") as loader:
    batches = bu.watch(to_jax(loader))
    for _ in range(EPOCHS):
        for x, y in batches:
            weights, speed = train_batch(weights, speed, x, y)
            jax.block_until_ready(weights)  # otherwise the loop runs ahead of its steps, and its waits mean nothing

with to_jax(bu.Loader(test.map(to_planes), 128)) as batches:
    right = sum(int(n_right(weights, x, y)) for x, y in batches)
print(f"test accuracy {right / test.num_samples():.3f} after {EPOCHS} epochs in JAX {jax.__version__}")
