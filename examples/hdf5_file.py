"""Read an HDF5 data set from several processes, each of which opens the file itself."""

import tempfile
from pathlib import Path

import h5py
import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits


class Hdf5Rows:
    """An accessor: it has a length, returns rows, and is pickled as a path."""

    def __init__(self, path, name):
        self.path, self.name, self.opened = path, name, None

    def data(self):
        if self.opened is None:
            # Kept open, since HDF5 caches decompressed chunks for each open data set; the cache holds 64 MB.
            self.opened = h5py.File(self.path, "r", rdcc_nbytes=64 << 20)[self.name]
        return self.opened

    def __len__(self):
        return len(self.data())

    def __getitem__(self, rows):
        if not isinstance(rows, np.ndarray):
            return self.data()[rows]
        # HDF5 takes rows in increasing order, each once.
        rising, places = np.unique(rows, return_inverse=True)
        return self.data()[rising][places]

    def __getstate__(self):
        return {"path": self.path, "name": self.name, "opened": None}


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.h5"
    images, labels = load_digits()
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, chunks=(64, 8, 8), compression="gzip")

    source = bu.ArrayDataSource([Hdf5Rows(path, "images"), labels])
    with bu.WorkerProcessPool(2) as pool:
        total = count = 0
        for x, y in pool.parallel_data_source(source).batch_iterator(64, shuffle=1):
            total, count = total + int(x.sum()), count + len(y)

print(f"{count} rows of HDF5 from 2 processes; sum {total}, in memory {images.sum()}")
