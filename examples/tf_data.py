"""Train a TensorFlow model from a `tf.data.Dataset` of a loader's batches."""

import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot

import tensorflow as tf

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits
from batchup_ng.frameworks.tensorflow import to_tf_dataset

EPOCHS, SEED = 12, 1
tf.random.set_seed(SEED)


def to_numbers(images, labels):
    """Return one row per image, from 0 to 1: (n, 64) float32."""
    return images.reshape(len(images), 64).astype("float32") / 255, labels


hidden = tf.Variable(tf.random.normal((64, 64), stddev=0.2, seed=SEED))
output = tf.Variable(tf.random.normal((64, 10), stddev=0.2, seed=SEED))


def scores(x):
    return tf.nn.relu(x @ hidden) @ output


@tf.function(autograph=False)
def step(x, y):
    """Take one step of gradient descent."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores(x)))
    for weights, gradient in zip((hidden, output), tape.gradient(loss, (hidden, output)), strict=True):
        weights.assign_sub(0.5 * gradient)


with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    paths, labels = write_digits(folder)
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels]).map(to_numbers)
    parts = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)
    train = to_tf_dataset(bu.Loader(parts[0], 32, shuffle=SEED, pool=pool))
    test = to_tf_dataset(bu.Loader(parts[1], 128, pool=pool))
    print(f"{len(train)} batches of {train.element_spec[0].shape} an epoch")

    watched = bu.watch(train)  # prints a line per epoch
    for _ in range(EPOCHS):  # each has its own order
        for x, y in watched:
            step(x, y)

    right = sum(int(tf.reduce_sum(tf.cast(tf.argmax(scores(x), 1) == y, tf.int32))) for x, y in test)
    print(f"test accuracy {right / len(parts[1]):.3f} after {EPOCHS} epochs in TensorFlow {tf.__version__}")
