"""Read an LMDB file from several processes, each of which opens the file once for all its accessors."""

import tempfile
from pathlib import Path

import lmdb
import numpy as np

import batchup_ng as bu
from batchup_ng.demo.digits import load_digits

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.lmdb"
    images, labels = load_digits()
    with lmdb.open(str(path), subdir=False, map_size=2**24) as env, env.begin(write=True) as transaction:
        for row, image in enumerate(images):
            transaction.put(b"%08d" % row, image.tobytes())

    # Two sources, as for training and validation, each with an accessor of its own over the one file.
    train, test = (
        bu.ArrayDataSource([bu.LmdbArray(path, images.dtype, images.shape[1:]), labels], rows)
        for rows in np.split(np.arange(len(labels)), [1400])
    )
    with bu.WorkerProcessPool(2) as pool:
        total = count = 0
        for source in (train, test):
            for x, y in pool.parallel_data_source(source).batch_iterator(64, shuffle=1):
                total, count = total + int(x.sum()), count + len(y)

print(f"{count} rows of LMDB from 2 processes; sum {total}, in memory {images.sum()}")
