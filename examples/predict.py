"""Predict every row of a data set through a pool; the results are in the order of the rows."""

import tempfile

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.classifier import Classifier
from batchup_ng.demo.digits import load_digits, write_digits


def to_unit_range(images):
    return (images.astype(np.float32) / 255,)  # a batch is a tuple, also with one array


network = Classifier(64, 10, seed=1)
images, labels = load_digits()
known = bu.ArrayDataSource([images.astype(np.float32) * 15 / 255, labels.astype(np.int64)])
for batches in known.epochs(20, 32, shuffle=1):
    for x, y in batches:
        network.train_batch(x, y)


def predict(x):
    """Return two results per sample: the class, and the probability that the network gives it."""
    probabilities = network.probabilities(x)
    return probabilities.argmax(axis=1), probabilities.max(axis=1)


with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool() as pool:
    paths, _ = write_digits(folder)
    files = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L")]).map(to_unit_range)
    classes, sureness = pool.parallel_data_source(files).batch_map_concat(predict, batch_size=100)

unsure = np.argsort(sureness)[:3]
for row in unsure:
    print(f"least sure: {paths[row].name} is a {classes[row]}? ({sureness[row]:.0%})")
print(f"{len(classes)} predictions, {np.mean(classes == labels):.3f} of them right")
