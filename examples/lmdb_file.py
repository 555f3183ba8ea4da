"""Read an LMDB file from several processes, each of which opens the file for itself."""

import tempfile
from pathlib import Path

import lmdb
import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits


class LmdbImages:
    """An accessor: it has a length, gives rows, and travels to other processes as a path."""

    def __init__(self, path, shape):
        self.path, self.shape, self.env = path, shape, None

    def begin(self):
        if self.env is None:
            self.env = lmdb.open(str(self.path), readonly=True, lock=False, subdir=False)
        return self.env.begin()

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

    def __getstate__(self):
        return {"path": self.path, "shape": self.shape, "env": None}


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.lmdb"
    images, labels = load_digits()
    with lmdb.open(str(path), subdir=False, map_size=2**24) as env, env.begin(write=True) as transaction:
        for row, image in enumerate(images):
            transaction.put(b"%08d" % row, image.tobytes())

    source = bu.ArrayDataSource([LmdbImages(path, images.shape[1:]), labels])
    with bu.WorkerProcessPool(2) as pool:
        total = count = 0
        for x, y in pool.parallel_data_source(source).batch_iterator(64, shuffle=1):
            total, count = total + int(x.sum()), count + len(y)

print(f"{count} rows of LMDB from 2 processes; sum {total}, in memory {images.sum()}")
