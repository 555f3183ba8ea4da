"""Train a Keras 3 network through `fit` on image files, from the same iterator as any other loop."""

import contextlib
import os
import tempfile

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras reads it when it is imported

import keras

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits

EPOCHS, BATCH_SIZE, SEED = 10, 32, 1
keras.utils.set_random_seed(SEED)


def to_planes(images, labels):
    """Return one grey plane an image, 0 to 1: (n, 8, 8, 1) float32."""
    return images[..., None].astype(np.float32) / 255, labels


def epochs_without_end(source):
    """Yield the batches of all epochs in turn; `fit` takes as many as an epoch has."""
    with source.epochs(None, BATCH_SIZE, shuffle=SEED) as epochs:
        for batches in epochs:
            yield from batches


network = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
network.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy", metrics=["accuracy"])

with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    paths, labels = write_digits(folder)
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels]).map(to_planes)
    train, test = (pool.parallel_data_source(part) for part in bu.split(digits, [0.75, 0.25], SEED, stratify=labels))

    steps = bu.num_batches(train.num_samples(), BATCH_SIZE)
    with contextlib.closing(epochs_without_end(train)) as batches:
        network.fit(batches, steps_per_epoch=steps, epochs=EPOCHS, verbose=2)
    batches = test.batch_iterator(128)
    _, accuracy = network.evaluate((batch for batch in batches), steps=len(batches), verbose=0)
    print(f"test accuracy {accuracy:.3f} after {EPOCHS} epochs of fit in Keras {keras.__version__}")
