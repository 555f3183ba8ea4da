"""Decode photographs once, keep them in a file, then train many epochs on them, each with new random crops."""

import tempfile
import time
from pathlib import Path

import numpy as np
import skimage.data
from PIL import Image

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.demo.classifier import Classifier

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "hubble_deep_field", "immunohistochemistry", "retina", "rocket")
SIDE = 28


def write_crops(folder, count=1400):
    """Write random crops of the photographs as JPEG files; return their paths and the photograph of each."""
    photographs = [Image.fromarray(getattr(skimage.data, name)()) for name in PHOTOGRAPHS]
    rng = np.random.default_rng(0)
    paths, labels = [], np.arange(count) % len(photographs)
    for number, label in enumerate(labels):
        size = rng.integers(180, 290, size=2)
        left, top = rng.integers(0, np.array(photographs[label].size) - size + 1)
        paths.append(Path(folder) / f"{number:04d}.jpg")
        photographs[label].crop((left, top, left + size[0], top + size[1])).save(paths[-1], quality=90)
    return paths, labels


normalize = augment.normalize(mean=0.5, std=0.5)
augmented = augment.compose(augment.random_crop(SIDE), augment.flip(), normalize)


def centred(images, labels):
    edge = (images.shape[1] - SIDE) // 2
    return normalize(images[:, edge : edge + SIDE, edge : edge + SIDE], labels)


with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    paths, labels = write_crops(folder)
    # The cache keeps decoded rows. Random maps come after it and differ in each epoch.
    pictures = bu.ArrayDataSource([bu.ImageFiles(paths, size=32), labels]).cache(folder, limit="1GB")
    train, test = bu.split(pictures, [0.8, 0.2], 1, stratify=labels)

    network = Classifier(SIDE * SIDE * 3, len(PHOTOGRAPHS), seed=1)
    with bu.Loader(train.map(augmented, rng="sample"), 64, shuffle=1, pool=pool) as loader:
        for epoch in range(15):
            begin = time.perf_counter()
            for x, y in loader:
                network.train_batch(x, y)
            print(f"epoch {epoch + 1}: {time.perf_counter() - begin:.2f} s")

    right = np.concatenate([network.predict(x) == y for x, y in test.map(centred).batch_iterator(100)])
    print(pictures.columns[0])
    print(f"accuracy on {len(right)} other crops: {right.mean():.3f}")
