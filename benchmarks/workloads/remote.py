"""``remote``: 4,000 images of 128x128x3 bytes; a worker waits 0.5 ms for each, as for remote storage.

A clock sets the rate, independent of the load of the machine. Any further wait of the consumer comes from the library.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.workloads import arrays, base

SECONDS = 0.0005


def make(folder: Path, quick: bool) -> base.Workload:
    """Write the images and the labels."""
    return arrays.write("remote", folder, *((200, 16) if quick else (4_000, 128)))


class Data(arrays.Data):
    """Arrays with a delay per row."""

    def map(self, images: Any, labels: Any) -> base.Batch:
        time.sleep(SECONDS * len(labels))
        return images, labels

    def sample(self, row: int) -> tuple[Any, ...]:
        time.sleep(SECONDS)
        return super().sample(row)

    def fill(self, rows: base.Rows, out: base.Batch) -> None:
        time.sleep(SECONDS * len(rows))
        super().fill(rows, out)
