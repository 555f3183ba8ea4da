"""Share one pool between training and validation, then close both cleanly."""

import tempfile
import threading

import numpy as np

import batchup_ng as bu
from batchup_ng.demo.classifier import Classifier
from batchup_ng.demo.digits import write_digits


def to_unit_range(images, labels):
    return images.astype(np.float32) / 255, labels


threads_before = threading.active_count()
with tempfile.TemporaryDirectory() as folder, bu.WorkerThreadPool(2) as pool:
    write_digits(folder)
    digits = bu.from_folder(folder, 8).with_images(mode="L")
    train, validation = digits.split([0.8, 0.2], 1, stratify="label")
    train, validation = train.map(to_unit_range), validation.map(to_unit_range)

    # Two loaders share the two workers. Each fills its own buffer, which stays full between epochs: the first
    # validation batches are ready when training ends.
    network = Classifier(64, 10, seed=1)
    best, epoch = 0.0, 0
    with bu.Loader(train, 32, shuffle=1, pool=pool) as train, bu.Loader(validation, 120, pool=pool) as validation:
        while best < 0.95 and epoch < 30:
            for x, y in train:
                network.train_batch(x, y)
            accuracy = np.mean(np.concatenate([network.predict(x) == y for x, y in validation]))
            best, epoch = max(best, accuracy), epoch + 1
            print(f"epoch {epoch}: validation accuracy {accuracy:.3f}")

print(f"stopped after {epoch} epochs; threads left: {threading.active_count() - threads_before}")
