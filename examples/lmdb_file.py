"""Read an LMDB file from several processes, each of which opens the file once for all its accessors."""

import os
import tempfile
from pathlib import Path

import lmdb
import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits


def environment(path):
    """Return the environment of a file; LMDB lets a process open it only once."""
    # Kept in the lmdb module, of which each process has one; a global of this script would be copied with the class.
    opened = vars(lmdb).setdefault("opened_by_path", {})
    if path not in opened:
        opened[path] = lmdb.open(path, readonly=True, lock=False, subdir=False)
    return opened[path]


class LmdbImages:
    """An accessor: it has a length, returns rows, and is pickled as a path."""

    def __init__(self, path, shape):
        self.path, self.shape = os.path.abspath(path), shape

    def begin(self):
        return environment(self.path).begin()

    def __len__(self):
        with self.begin() as transaction:
            return transaction.stat()["entries"]

    def __getitem__(self, rows):
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        with self.begin() as transaction:
            values = [transaction.get(b"%08d" % row) for row in np.atleast_1d(rows)]
        images = np.stack([np.frombuffer(value, np.uint8).reshape(self.shape) for value in values])
        return images[0] if np.ndim(rows) == 0 else images


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.lmdb"
    images, labels = load_digits()
    with lmdb.open(str(path), subdir=False, map_size=2**24) as env, env.begin(write=True) as transaction:
        for row, image in enumerate(images):
            transaction.put(b"%08d" % row, image.tobytes())

    # Two sources, as for training and validation, each with an accessor of its own over the one file.
    train, test = (
        bu.ArrayDataSource([LmdbImages(path, images.shape[1:]), labels], rows)
        for rows in np.split(np.arange(len(labels)), [1400])
    )
    with bu.WorkerProcessPool(2) as pool:
        total = count = 0
        for source in (train, test):
            for x, y in pool.parallel_data_source(source).batch_iterator(64, shuffle=1):
                total, count = total + int(x.sum()), count + len(y)

print(f"{count} rows of LMDB from 2 processes; sum {total}, in memory {images.sum()}")
