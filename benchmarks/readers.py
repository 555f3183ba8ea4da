"""How a peer's process reads a workload.

A reader gives the sample of one row and the batch of many rows, in the plainest way; peers whose library asks
for a per-sample or per-batch function wrap it, so that all of them run the same decoder and the same arithmetic.
Readers pickle by reference, hence work with any start method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import Workload, burn, decode, image_path, nothing

Rows = NDArray[np.int64]


class Reader(Protocol):
    """The samples of a workload, by row."""

    def one(self, row: int) -> tuple[Any, ...]:
        """The sample ``(x, y)``, or ``(x,)``, of one row."""

    def many(self, rows: Rows) -> tuple[NDArray[Any], ...]:
        """The batch ``(x, y)``, or ``(x,)``, of these rows, in this order, as fresh arrays."""


class ArrayReader:
    """Rows of arrays that lie in this process's memory, or of files that it has mapped.

    What is mapped travels to other processes as the names of the files, as those do it who take the trouble: a pickled
    ``numpy.memmap`` is a copy of the data.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.images: NDArray[np.uint8] = np.load(
            Path(workload.folder) / "images.npy", mmap_mode="r" if workload.mapped else None
        )
        self.labels = load_labels(workload)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (ArrayReader, (self._workload,)) if self._workload.mapped else super().__reduce__()

    def one(self, row: int) -> tuple[NDArray[np.uint8], np.int64]:
        return self.images[row], self.labels[row]

    def many(self, rows: Rows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return self.images[rows], self.labels[rows]


class ImageReader:
    """Pictures decoded from their files."""

    def __init__(self, workload: Workload) -> None:
        self.paths = image_paths(workload)
        self.labels = load_labels(workload)
        self.size = workload.size

    def one(self, row: int) -> tuple[NDArray[np.uint8], np.int64]:
        return decode(self.paths[row], self.size), self.labels[row]

    def many(self, rows: Rows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        pictures = np.empty((len(rows), *self.size, 3), np.uint8)
        self.decode_into(rows, pictures)
        return pictures, self.labels[rows]

    def decode_into(self, rows: Rows, out: NDArray[np.uint8]) -> None:
        """Fill ``out: (rows, height, width, 3)``."""
        for place, row in zip(out, rows.tolist(), strict=True):
            place[...] = decode(self.paths[row], self.size)


class PythonReader:
    """Results of pure-Python work."""

    def __init__(self, workload: Workload) -> None:
        self.loops = workload.loops

    def one(self, row: int) -> tuple[int, int]:
        return row, burn(row, self.loops)

    def many(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        return rows, np.array([burn(row, self.loops) for row in rows.tolist()], np.int64)


class TinyReader:
    """Rows of one array of numbers, after a map that does nothing."""

    def __init__(self, workload: Workload) -> None:
        self.numbers = np.arange(workload.samples, dtype=np.int32)

    def one(self, row: int) -> tuple[Any, ...]:
        sample: tuple[Any, ...] = nothing(self.numbers[row])
        return sample

    def many(self, rows: Rows) -> tuple[NDArray[np.int32], ...]:
        batch: tuple[NDArray[np.int32], ...] = nothing(self.numbers[rows])
        return batch


_READERS: dict[str, Callable[[Workload], Reader]] = {
    "arrays": ArrayReader,
    "images": ImageReader,
    "python": PythonReader,
    "tiny": TinyReader,
}


def open_reader(workload: Workload) -> Reader:
    """The reader of a workload; ``arrays`` are loaded into memory now."""
    return _READERS[workload.kind](workload)


def load_labels(workload: Workload) -> NDArray[np.int64]:
    """``(samples,) int64``."""
    labels: NDArray[np.int64] = np.load(Path(workload.folder) / "labels.npy")
    return labels


def image_paths(workload: Workload) -> list[str]:
    """The file of each row."""
    return [str(image_path(Path(workload.folder), row)) for row in range(workload.samples)]


def shuffled_batches(workload: Workload, epoch: int) -> Iterator[Rows]:
    """Row indices of each batch in a new random order: what a hand-written loop would do."""
    order = np.random.default_rng(epoch).permutation(workload.samples)
    for start in range(0, workload.samples, workload.batch_size):
        yield order[start : start + workload.batch_size]


class Pictures:
    """An array-like over the picture files, for libraries that index with arrays of rows."""

    def __init__(self, reader: ImageReader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader.paths)

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        return self._reader.many(np.asarray(rows))[0]
