"""Variants for one format or order of the ``storage`` workload.

``plain-blocks`` reads 50 groups of rows, shuffles their rows, and delivers batches. ``webdataset`` reads shards in
random order, shuffled among 1,000 rows, as in its guides. ``litdata`` reads a copy of the samples in its own chunks of
64 MB, in order, or with the chunks and the samples in each shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.formats import GROUP, SHARDS
from benchmarks.peers.base import Feed, Loaded, Variant
from benchmarks.peers.plain import Loop
from benchmarks.workloads.base import Batch, Workload
from benchmarks.workloads.storage import Storage

WINDOW = 50
"""Groups whose rows are mixed at a time."""
SHUFFLED = 1000
"""Rows among which a stream is shuffled."""
CHUNK_BYTES = 64 << 20
"""Bytes of a chunk of litdata."""


class Blocks(Loop):
    """One thread that reads a window of groups at a time, in random order, into reused memory."""

    data: Storage

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


def webdataset(workload: Workload, workers: int) -> Loaded:
    """Return a ``WebLoader``."""
    from webdataset import WebDataset, WebLoader  # type: ignore[import-untyped]  # ships no types

    mixed = workload.order != "contiguous"
    shards = sorted(map(str, Storage(workload).path.glob("*.tar")))
    data = WebDataset(shards, shardshuffle=SHARDS if mixed else False)
    data = data.shuffle(SHUFFLED) if mixed else data
    batches = data.decode().to_tuple("npy", "cls").batched(workload.batch_size)
    return Loaded(partial(WebLoader, batches, batch_size=None, num_workers=workers, persistent_workers=True))


def litdata(workload: Workload, workers: int) -> Loaded:
    """Return a ``StreamingDataLoader``. The first of them writes the copy."""
    from litdata import StreamingDataLoader, StreamingDataset  # type: ignore[import-not-found]  # seldom installed

    folder = Path(workload.folder, "litdata")
    if not folder.exists():
        write_chunks(folder, Path(workload.folder, "npy"))
    rows = StreamingDataset(str(folder), shuffle=workload.order != "contiguous")
    options = {"batch_size": workload.batch_size, "num_workers": workers, "persistent_workers": True}
    return Loaded(partial(StreamingDataLoader, rows, **options))


def write_chunks(folder: Path, arrays: Path) -> None:
    """Write the samples of the workload's arrays in litdata's format."""
    from litdata.streaming.writer import BinaryWriter  # type: ignore[import-not-found]

    folder.mkdir()
    writer = BinaryWriter(str(folder), chunk_bytes=CHUNK_BYTES)
    columns = np.load(arrays / "x.npy", mmap_mode="r"), np.load(arrays / "y.npy")
    for row, (image, label) in enumerate(zip(*columns, strict=True)):
        writer[row] = np.array(image), int(label)
    writer.done()
    writer.merge()


class HuggingFace(Feed):
    """Rows of Hugging Face's ``datasets``, without workers.

    From an Arrow file they are a ``Dataset`` over its map, in the ``arrow`` format, whose columns NumPy views; the
    ``numpy`` format would make all integers ``int64``. From a Parquet file they are an ``IterableDataset``, in order:
    if shuffled, it would sleep for 5 s in each epoch.
    """

    def __init__(self, workload: Workload, workers: int, *, stream: bool = False) -> None:
        import datasets  # type: ignore[import-untyped]  # ships no types

        self.workload, self.data, self.stream = workload, Storage(workload), stream
        if stream:
            files = str(self.data.path)
            rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
        else:
            rows = datasets.Dataset(datasets.table.InMemoryTable(self.data.file.table))
        self.rows = rows.with_format("numpy" if stream else "arrow")

    def epoch(self, number: int) -> Iterator[Batch]:
        rows = self.rows if self.workload.order == "contiguous" else self.rows.shuffle(seed=number)
        for batch in rows.iter(self.workload.batch_size):
            x: Any = batch["x"]
            pixels = x.view(np.uint8) if self.stream else x.combine_chunks().flatten().to_numpy()
            yield pixels.reshape(-1, *self.data.shape), np.asarray(batch["y"])


make = partial(Variant, workloads=("storage",), usual=False)
VARIANTS = (
    make(name="plain-blocks", family="plain", open=Blocks),
    make(name="webdataset", family="webdataset", open=webdataset, needs=("webdataset", "torch")),
    make(name="litdata", family="litdata", open=litdata, needs=("litdata", "torch")),
    make(name="datasets", family="datasets", open=HuggingFace, needs=("datasets",)),
    make(name="datasets-stream", family="datasets", open=partial(HuggingFace, stream=True), needs=("datasets",)),
)
