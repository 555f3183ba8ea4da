"""``litdata``: a ``StreamingDataLoader`` with workers over a copy of the samples in its own chunks of 64 MB.

It reads them in order, or shuffles the chunks and the samples in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.workloads.base import Batch, Workload

CHUNK_BYTES = 64 << 20


class LitData:
    """A loader that the first epoch makes. Opening the first of them writes the copy."""

    def __init__(self, workload: Workload, workers: int) -> None:
        import litdata  # type: ignore[import-not-found]  # optional, only for this comparison

        folder = Path(workload.folder, "litdata")
        if not folder.exists():
            write(folder, Path(workload.folder))
        rows = litdata.StreamingDataset(str(folder), shuffle=workload.order != "contiguous")
        options = {"batch_size": workload.batch_size, "num_workers": workers, "persistent_workers": True}
        self.make = partial(litdata.StreamingDataLoader, rows, **options)
        self.loader: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self.loader = self.loader or self.make()
        return iter(self.loader)

    def close(self) -> None:
        """Drop the loader; its workers end with the last reference."""
        self.loader = None


def write(folder: Path, arrays: Path) -> None:
    """Write the samples of the workload's arrays."""
    from litdata.streaming.writer import BinaryWriter  # type: ignore[import-not-found]

    folder.mkdir()
    writer = BinaryWriter(str(folder), chunk_bytes=CHUNK_BYTES)
    columns = np.load(arrays / "npy" / "x.npy", mmap_mode="r"), np.load(arrays / "labels.npy")
    for row, (image, label) in enumerate(zip(*columns, strict=True)):
        writer[row] = np.array(image), int(label)
    writer.done()
    writer.merge()


VARIANTS = (
    Variant(
        name="litdata", family="litdata", module=__name__, open=LitData, needs=("litdata", "torch"),
        workloads=("storage",), usual=False,
    ),
)  # fmt: skip
