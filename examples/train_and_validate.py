"""Share one pool between training and validation, then end both cleanly."""

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
    paths, labels = write_digits(folder)
    digits = bu.ArrayDataSource([bu.ImageFiles(paths, size=(8, 8), mode="L"), labels]).map(to_unit_range)
    train, validation = bu.split(digits, [0.8, 0.2], 1, stratify=labels)

    # Two iterators share the two workers; each fills a prefetch buffer of its own.
    train = pool.parallel_data_source(train, batch_buffer_size=20)
    validation = pool.parallel_data_source(validation, batch_buffer_size=4)

    network = Classifier(64, 10, seed=1)
    best, epoch = 0.0, 0
    while best < 0.95 and epoch < 30:
        # Made before training starts, so that its first batches are ready when training ends.
        with validation.batch_iterator(120) as to_check, train.batch_iterator(32, shuffle=1, epoch=epoch) as to_learn:
            for x, y in to_learn:
                network.train_batch(x, y)
            accuracy = np.mean(np.concatenate([network.predict(x) == y for x, y in to_check]))
        best, epoch = max(best, accuracy), epoch + 1
        print(f"epoch {epoch}: validation accuracy {accuracy:.3f}")

print(f"stopped after {epoch} epochs; threads left: {threading.active_count() - threads_before}")
