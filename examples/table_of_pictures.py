"""Train Keras on a table of images and numbers with several tags for each row; some numbers are missing."""

import os
import tempfile

import numpy as np
import pandas as pd
from PIL import Image
from skimage import data

os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras reads it when it is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow logs a lot
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch, for a small network; more would compete with the pool's

import keras

import batchup_ng as bu
from batchup_ng.frameworks.keras import to_keras

EPOCHS, SEED, SIDE = 6, 1, 32
keras.utils.set_random_seed(SEED)
PHOTOGRAPHS = {
    "chelsea": "animal", "coffee": "table|warm", "hubble_deep_field": "space", "retina": "medical|warm",
    "immunohistochemistry": "medical", "rocket": "space|sky",
}  # fmt: skip


def write_crops(folder, each=100):
    """Write crops of scikit-image's photographs as JPEG; return a table. The tag "evening" depends on the hour only."""
    rng, rows = np.random.default_rng(SEED), []
    for name, tags in PHOTOGRAPHS.items():
        photograph = getattr(data, name)()
        for number in range(each):
            side = rng.integers(120, 260)
            top, left = rng.integers(0, np.array(photograph.shape[:2]) - side)
            path, hour = f"{name}_{number:03}.jpg", round(rng.uniform(6, 24), 1)
            Image.fromarray(photograph[top : top + side, left : left + side]).save(os.path.join(folder, path))
            tags_of_row = f"{tags}|evening" if hour > 18 else tags
            rows.append((path, hour if rng.random() < 0.95 else np.nan, float(side), tags_of_row))
    return pd.DataFrame(rows, columns=["path", "hour", "side", "tags"])


def to_inputs(image, label, hour, side):
    """Return the two inputs by name, and the tags. A missing number becomes 0, the mean."""
    numbers = np.nan_to_num(np.stack([hour, side], axis=1))
    return {"image": image.astype(np.float32) / 127.5 - 1, "numbers": numbers}, label


def new_network(tags):
    """Return a network of two inputs with `tags` outputs: the probability of each tag."""
    image, numbers = keras.Input((SIDE, SIDE, 3), name="image"), keras.Input((2,), name="numbers")
    x = keras.layers.Conv2D(16, 5, strides=2, activation="relu")(image)
    x = keras.layers.Conv2D(32, 3, strides=2, activation="relu")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Concatenate()([x, numbers])
    x = keras.layers.Dense(32, activation="relu")(x)
    network = keras.Model({"image": image, "numbers": numbers}, keras.layers.Dense(tags, activation="sigmoid")(x))
    network.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["binary_accuracy"])
    return network


with tempfile.TemporaryDirectory() as folder:
    table = write_crops(folder)
    print(table.sample(3, random_state=0).to_string())
    options = {"separator": "|", "root": folder, "columns": ["hour", "side"], "as_dict": True}
    rows = bu.from_table(table, "path", "tags", SIDE, **options)
    print(rows.report)  # how many images have each tag

    train, test = rows.split([0.75, 0.25], SEED, stratify=table["tags"].to_numpy())
    scale = bu.standardize(bu.statistics(train, ["hour", "side"]))  # missing numbers do not count
    train, test = [part.map(scale, on=["hour", "side"]).map(to_inputs) for part in (train, test)]
    network = new_network(len(rows.class_names))
    with bu.Loader(train, 32, shuffle=SEED) as loader, bu.Loader(test, 128, pool=loader) as validation:
        batches, validation = to_keras(bu.watch(loader)), to_keras(validation)
        network.fit(batches, epochs=EPOCHS, validation_data=validation, shuffle=False, verbose=0)
        _, accuracy = network.evaluate(validation, verbose=0)
    print(f"{accuracy:.3f} of the tags right after {EPOCHS} epochs in Keras on {keras.backend.backend()}")
