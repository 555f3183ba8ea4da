"""Variants for one format or order of the ``storage`` workload.

``plain-blocks`` reads 50 groups of rows, shuffles their rows, and delivers batches. ``webdataset`` reads shards in
random order, shuffled among 1,000 rows, as in its guides.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.formats import GROUP, SHARDS
from benchmarks.peers.base import Variant
from benchmarks.peers.plain import Loop
from benchmarks.peers.torch_loader import Loaded
from benchmarks.workloads.base import Batch, Workload
from benchmarks.workloads.storage import Data

WINDOW = 50
"""Groups whose rows are mixed at a time."""
SHUFFLED = 1000
"""Rows among which a stream is shuffled."""


class Blocks(Loop):
    """One thread that reads a window of groups at a time, in random order, into reused memory."""

    data: Data

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers)
        self.window = [np.empty((WINDOW * GROUP, *column.shape[1:]), column.dtype) for column in self.slot]

    def epoch(self, number: int) -> Iterator[Batch]:
        drawn, file, size = np.random.default_rng(number), self.data.file, self.workload.batch_size
        starts = drawn.permutation(np.arange(0, self.workload.samples, GROUP)).tolist()
        for first in range(0, len(starts), WINDOW):
            end = 0
            for start in starts[first : first + WINDOW]:
                begin, end = end, end + min(GROUP, self.workload.samples - start)
                file.slice(start, *[column[begin:end] for column in self.window])
            order = drawn.permutation(end)
            for begin in range(0, end, size):
                rows = order[begin : begin + size]
                out = [array[: len(rows)] for array in self.slot]
                for column, place in zip(self.window, out, strict=True):
                    np.take(column, rows, axis=0, out=place, mode="clip")
                yield out


class WebDataset(Loaded):
    """A ``WebLoader``."""

    def __init__(self, workload: Workload, workers: int) -> None:
        import webdataset  # type: ignore[import-untyped]  # ships no types

        mixed = workload.order != "contiguous"
        shards = sorted(map(str, Data(workload).path.glob("*.tar")))
        data = webdataset.WebDataset(shards, shardshuffle=SHARDS if mixed else False)
        data = data.shuffle(SHUFFLED) if mixed else data
        batches = data.decode().to_tuple("npy", "cls").batched(workload.batch_size)
        options = {"batch_size": None, "num_workers": workers, "persistent_workers": True}
        self.make = partial(webdataset.WebLoader, batches, **options)


class HuggingFace:
    """A ``datasets.Dataset`` over Arrow's map of a file. It has no workers.

    It uses the ``arrow`` format, whose columns NumPy views; the ``numpy`` format would make all integers ``int64``.
    """

    format = "arrow"

    def __init__(self, workload: Workload, workers: int) -> None:
        self.workload, self.data = workload, Data(workload)
        self.rows = self.opened().with_format(self.format)

    def opened(self) -> Any:
        """Return the rows in the order of the file."""
        import datasets  # type: ignore[import-untyped]  # ships no types

        return datasets.Dataset(datasets.table.InMemoryTable(self.data.file.table))

    def epoch(self, number: int) -> Iterator[Batch]:
        rows = self.rows if self.workload.order == "contiguous" else self.rows.shuffle(seed=number)
        for batch in rows.iter(self.workload.batch_size):
            yield self.images(batch["x"]).reshape(-1, *self.data.shape), np.asarray(batch["y"])

    def images(self, column: Any) -> np.ndarray:
        """Return the pixels of a batch of lists of a fixed size."""
        pixels: np.ndarray = column.combine_chunks().flatten().to_numpy()
        return pixels

    def close(self) -> None:
        """Do nothing, because nothing was started."""


class HuggingFaceStream(HuggingFace):
    """An ``IterableDataset`` over a Parquet file, in order. If shuffled, it would sleep for 5 s in each epoch."""

    format = "numpy"

    def opened(self) -> Any:
        import datasets

        return datasets.load_dataset("parquet", data_files=str(self.data.path), split="train", streaming=True)

    def images(self, column: Any) -> np.ndarray:
        pixels: np.ndarray = column.view(np.uint8)
        return pixels


make = partial(Variant, module=__name__, workloads=("storage",), usual=False)
VARIANTS = (
    make(name="plain-blocks", family="plain", open=Blocks),
    make(name="webdataset", family="webdataset", open=WebDataset, needs=("webdataset", "torch")),
    make(name="datasets", family="datasets", open=HuggingFace, needs=("datasets",)),
    make(name="datasets-stream", family="datasets", open=HuggingFaceStream, needs=("datasets",)),
)
