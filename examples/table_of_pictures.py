"""Train Keras on a table of (id, tags, path): photographs with several tags each, pixels in [-1, 1]."""

import os
import tempfile

import numpy as np
import pandas as pd
from PIL import Image
from skimage import data

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras reads it when it is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot

import keras

import batchup_ng as bu
from batchup_ng.frameworks.keras import to_keras

EPOCHS, SEED, SIDE = 6, 1, 64
keras.utils.set_random_seed(SEED)
PHOTOGRAPHS = {
    "chelsea": "animal", "coffee": "table|warm", "hubble_deep_field": "space", "retina": "medical|warm",
    "immunohistochemistry": "medical", "rocket": "space|sky",
}  # fmt: skip


def write_crops(folder, each=150):
    """Write crops of scikit-image's photographs as JPEG; return a table of them."""
    rng, rows = np.random.default_rng(SEED), []
    for name, tags in PHOTOGRAPHS.items():
        photograph = getattr(data, name)()
        for number in range(each):
            side = rng.integers(120, 260)
            top, left = rng.integers(0, np.array(photograph.shape[:2]) - side)
            path = f"{name}_{number:03}.jpg"
            crop = photograph[top : top + side, left : left + side]
            Image.fromarray(crop).save(os.path.join(folder, path), quality=90)
            rows.append((len(rows), tags, path))
    return pd.DataFrame(rows, columns=["id", "tags", "path"])


def to_signed_range(images, tags):
    """Turn 0..255 into -1..1."""
    return images.astype(np.float32) / 127.5 - 1, tags


def new_network(tags):
    """Return a network with `tags` outputs: the probability of each tag."""
    layers = [
        keras.Input((SIDE, SIDE, 3)),
        keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dense(tags, activation="sigmoid"),
    ]
    network = keras.Sequential(layers)
    network.compile(keras.optimizers.Adam(0.005), "binary_crossentropy", metrics=["binary_accuracy"])
    return network


with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    table = write_crops(folder)
    print(table.sample(3, random_state=0).to_string())
    pictures = bu.from_table(table, "path", "tags", SIDE, separator="|", root=folder)
    print(pictures.report)  # how many images have each tag

    parts = bu.split(pictures.map(to_signed_range), [0.75, 0.25], SEED)
    train, test = bu.Loader(parts[0], 32, shuffle=SEED, pool=pool), bu.Loader(parts[1], 128, pool=pool)
    network = new_network(len(pictures.class_names))
    network.fit(to_keras(bu.watch(train)), epochs=EPOCHS, validation_data=to_keras(test), shuffle=False, verbose=0)
    _, accuracy = network.evaluate(to_keras(test), verbose=0)
    print(f"{accuracy:.3f} of the tags right after {EPOCHS} epochs in Keras on {keras.backend.backend()}")
