"""Read a compressed HDF5 file from two processes, in an order that decodes each chunk once."""

import tempfile
from pathlib import Path

import h5py

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.h5"
    images, labels = load_digits()
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, chunks=(64, 8, 8), compression="gzip")

    # Both processes share the chunks that are decoded, up to `cache` bytes. The sampler shuffles the rows of half as
    # many at a time: a chunk is decoded once for each pass over its window, whichever process needs it first.
    rows = bu.Hdf5Rows(path, "images", cache="100kB")
    sampler = bu.BlockShuffleSampler(len(rows), rows.natural_block, rows.natural_window)
    source = bu.ArrayDataSource([rows, labels], sampler=sampler)
    with bu.WorkerProcessPool(2) as pool:
        total = count = 0
        for x, y in pool.parallel_data_source(source).batch_iterator(64, shuffle=1):
            total, count = total + int(x.sum()), count + len(y)

print(f"{count} rows of HDF5 from 2 processes; sum {total}, in memory {images.sum()}")
