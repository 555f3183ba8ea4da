"""Train a small network on image files, decoded and augmented in the background."""

import tempfile

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.classifier import Classifier
from batchup_ng.demo.digits import write_digits

EPOCHS, SEED = 20, 1


def shift(images, labels, rng):
    """Shift half of the images by up to a pixel each way; each sample has its own row of random numbers."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    step = rng.integers(-1, 2, size=2) * rng.bernoulli(0.5)[:, None]
    rows = 1 + step[:, :1] + np.arange(8)
    columns = 1 + step[:, 1:] + np.arange(8)
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]], labels


def to_unit_range(images, labels):
    return images.astype(np.float32) / 255, labels


with tempfile.TemporaryDirectory() as folder:
    paths, labels = write_digits(folder)  # folder/0/0000.png, folder/1/0001.png, ...
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels])
    train, test = bu.split(digits, [0.75, 0.25], SEED, stratify=labels)

    network = Classifier(64, 10, seed=SEED)
    with bu.Loader(train.map(shift, rng="sample").map(to_unit_range), 32, shuffle=SEED) as loader:
        loader = bu.watch(loader)  # prints how long the loop waited
        for _ in range(EPOCHS):
            for x, y in loader:
                network.train_batch(x, y)
        print(loader)

    with bu.Loader(test.map(to_unit_range), 32) as loader:
        right = sum(int((network.predict(x) == y).sum()) for x, y in loader)
    print(f"test accuracy {right / test.num_samples():.3f} after {EPOCHS} epochs")
