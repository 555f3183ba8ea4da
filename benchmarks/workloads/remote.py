"""``remote``: 4,000 images of 128x128x3 bytes; a worker waits 0.5 ms for each, as for a storage that is far away.

The rate is that of a clock, whatever else the machine does: what a consumer waits for beside it is the library.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.workloads import base

SECONDS, SHAPE, COLOURS = 0.0005, (128, 128, 3), 251


def make(folder: Path, quick: bool) -> base.Workload:
    """Nothing is written."""
    samples = 200 if quick else 4_000
    rows = range(samples)
    x_sum = sum(row % COLOURS for row in rows)
    return base.Workload(kind="remote", folder=str(folder), samples=samples, y_sum=sum(rows), x_sum=x_sum)


class Data(base.Data):
    """Row numbers, each of which becomes an image of one colour."""

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (np.arange(workload.samples),)

    def map(self, rows: base.Rows) -> base.Batch:
        time.sleep(SECONDS * len(rows))
        images = np.empty((len(rows), *SHAPE), np.uint8)
        images[...] = (rows % COLOURS)[:, None, None, None]
        return images, rows
