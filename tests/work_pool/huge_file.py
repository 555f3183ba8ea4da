"""A user's training over a file that is far larger than memory, to be measured, killed and resumed.

    python huge_file.py FILE.npy STATE.json --pool threads --workers 2 --batches 40

It opens the file as a map, goes on from the state where there is one, saves the state after each batch, and then says
the batch's number and digest. At the end it says what all its processes held at most, the system's cache of the file
aside, and how long the first batch took from nothing but the open file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

import batchup_ng as bu
from tests.faults.tree import held

SHAPE = (20_000_000, 50, 1000, 3)
"""Of the whole file: 3 TB of uint8."""
ROW_BYTES = 150_000
BATCH_SIZE, SEED, EPOCH = 32, 11, 3


def make_file(path: Path, n_batches: int) -> None:
    """Write a file of 3 TB that takes next to no room: zeros, but for the rows of the first batches of the epoch.

    Raises:
        OSError: the file system has no files that are so large, or no room.
    """
    with path.open("wb") as file:
        header = {"descr": npy.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": SHAPE}
        npy.write_array_header_1_0(file, header)
        data = file.tell()
        file.truncate(data + SHAPE[0] * ROW_BYTES)
        plan = bu.ArrayDataSource([np.broadcast_to(np.uint8(0), SHAPE)]).plan(BATCH_SIZE, SEED, epoch=EPOCH)
        for planned in islice(plan, n_batches):
            for row in planned.rows.tolist():
                file.seek(data + row * ROW_BYTES)
                file.write(content(row))


def content(row: int) -> bytes:
    """Return what a row holds that was written: a function of its number."""
    return np.random.default_rng(row).bytes(ROW_BYTES)


def flip(rows: np.ndarray, images: np.ndarray, rng: Any) -> Any:
    """Mirror some of the images."""
    mirrored = rng.bernoulli(0.5)
    images[mirrored] = images[mirrored, :, ::-1]
    return rows, images


def source_of(path: Path) -> bu.MapDataSource:
    """Return the images of the file, augmented, with their row numbers."""
    return bu.ArrayDataSource([np.load(path, mmap_mode="r")], include_indices=True).map(flip, rng="sample")


def digest(batch: Any) -> str:
    """Return the digest of all bytes of a batch."""
    rows, images = batch
    return hashlib.blake2b(rows.tobytes() + images.tobytes(), digest_size=16).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("state", type=Path)
    parser.add_argument("--pool", choices=["threads", "processes"], default="processes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, required=True, help="batches of the epoch after which to leave off")
    options = parser.parse_args()
    began, first, most = time.perf_counter(), 0.0, 0.0
    make_pool = bu.WorkerThreadPool if options.pool == "threads" else bu.WorkerProcessPool
    with make_pool(options.workers) as pool:
        batches = pool.parallel_data_source(source_of(options.file)).batch_iterator(BATCH_SIZE, SEED, epoch=EPOCH)
        if options.state.exists():
            batches.load_state(options.state)
        number = batches.state_dict()["batches"]
        for batch in islice(batches, options.batches - number):
            first = first or time.perf_counter() - began
            batches.save_state(options.state)
            print(json.dumps([number, digest(batch)]), flush=True)
            most, number = max(most, held().memory), number + 1
        seconds = time.perf_counter() - began
    print(json.dumps({"held": most, "first": first, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
