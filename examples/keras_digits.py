"""Train a Keras 3 network through `fit` on image files, on any of its backends: torch, jax or tensorflow."""

import os
import tempfile

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras reads it when it is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot

import keras

import batchup_ng as bu
from batchup_ng.demo.digits import write_digits
from batchup_ng.frameworks.keras import to_keras

EPOCHS, SEED = 10, 1
keras.utils.set_random_seed(SEED)


def to_planes(images, labels):
    """Return one grey plane per image, from 0 to 1: (n, 8, 8, 1) float32."""
    return images[..., None].astype(np.float32) / 255, labels


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
    parts = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)
    train, test = bu.Loader(parts[0], 32, shuffle=SEED, pool=pool), bu.Loader(parts[1], 128, pool=pool)

    # The loader shuffles, so `fit` must not shuffle the batches again. `watch` prints a line per epoch.
    network.fit(to_keras(bu.watch(train)), epochs=EPOCHS, validation_data=to_keras(test), shuffle=False, verbose=0)
    _, accuracy = network.evaluate(to_keras(test), verbose=0)
    backend = f"Keras {keras.__version__} on {keras.backend.backend()}"
    print(f"test accuracy {accuracy:.3f} after {EPOCHS} epochs of fit in {backend}")
