"""The interface of a workload: the data that a peer must deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = "NDArray[np.int64]"
Batch: TypeAlias = "Sequence[Any]"
LABEL_LIMIT = 2**40


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The description of a workload, which the parent sends to the peers.

    It holds the sums of a complete epoch in any order. A peer that drops, repeats or mixes up samples, or decodes to
    other pixels, has failed.
    """

    kind: str = ""  # name of the workload
    folder: str  # with the data, written by the parent
    samples: int  # of one epoch
    batch_size: int = 64  # samples of a batch; the last one may be smaller
    y_sum: int = 0  # over the last array of all batches
    x_sum: int = 0  # of probe() over the first array of all batches
    x_slack: int = 0  # largest allowed difference from x_sum, because peers resize in different ways
    nbytes: int = 0  # that a peer loads into memory
    mapped: bool = False  # whether arrays stay in their file, as a numpy.memmap
    order: str = "random"  # or "contiguous", as the rows are stored; "blocks", random among rows that are read together
    detail: dict[str, Any] = field(default_factory=dict)  # further values for the workload's own Data


class Data:
    """The data of a workload in one process, read in the plainest way. It can be pickled for any worker.

    All peers read by these methods or these columns: all run the same decoder and the same arithmetic.
    """

    columns: tuple[Any, ...] = ()  # that libraries index by arrays of rows
    map: Callable[..., Batch] | None = None  # that libraries apply to a batch of the columns
    rows: Rows | None = None  # of the columns that are the samples; None for all

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @classmethod
    def make(cls, folder: Path, quick: bool) -> Workload:
        """Write the data to an empty folder; `quick` makes them tiny."""
        raise NotImplementedError

    @classmethod
    def prepare(cls, workload: Workload) -> Workload:
        """Return the workload once its data are ready for a part, which may have changed fields of it."""
        return workload

    def accessors(self, **options: Any) -> list[Any]:
        """Return the columns for a source of ours, the first one with `options`."""
        return list(self.columns)

    def batch(self, rows: Rows) -> Batch:
        """Return the batch of `rows`, in this order, as new arrays."""
        read = tuple([column[rows] for column in self.columns])
        return read if self.map is None else self.map(*read)

    def sample(self, row: int) -> tuple[Any, ...]:
        """Return the sample of a row, for libraries that read one sample at a time."""
        return tuple([array[0] for array in self.batch(np.array([row]))])

    def fill(self, rows: Rows, out: Batch) -> None:
        """Write the batch of `rows` into the arrays `out`, which have their length."""
        for place, array in zip(out, self.batch(rows), strict=True):
            place[...] = array


def probe(x: Any) -> Any:
    """Return a value per sample of a batch's first array, to sum: the middle pixel's red, or the sample itself."""
    return x[:, x.shape[1] // 2, x.shape[2] // 2, 0] if x.ndim == 4 else x


def shuffled(workload: Workload, epoch: int) -> Iterator[Rows]:
    """Yield the rows of each batch, as a hand-written loop does, in random order unless the workload has another."""
    contiguous = workload.order == "contiguous"
    order = np.arange(workload.samples) if contiguous else np.random.default_rng(epoch).permutation(workload.samples)
    for start in range(0, workload.samples, workload.batch_size):
        yield order[start : start + workload.batch_size]


def save_labels(folder: Path, samples: int) -> int:
    """Write random labels and return their sum, which shows whether each label was delivered once."""
    labels = np.random.default_rng(1).integers(0, LABEL_LIMIT, samples, dtype=np.int64)
    np.save(folder / "labels.npy", labels)
    return int(labels.sum())
