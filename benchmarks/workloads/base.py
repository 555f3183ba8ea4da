"""What a peer must deliver: the seam that every workload implements."""

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
    """The description that travels to the peers, as JSON.

    It carries sums that a complete epoch must reach in any order: a peer that drops, repeats or mixes up samples, or
    decodes to other pixels, has failed, however fast it was.

    Attributes:
        kind: The module of the workload.
        folder: Where the parent put the data.
        samples: Samples of one epoch.
        batch_size: Samples of a batch; the last one may be smaller.
        y_sum: The sum over the last array of all batches.
        x_sum: The sum of :func:`probe` over the first array of all batches.
        x_slack: How far from that it may be, where peers resize in different ways.
        nbytes: Bytes that a peer loads into memory.
        mapped: Whether arrays stay in their file, as a ``numpy.memmap``.
        order: That of an epoch: ``random``; ``contiguous``, as the rows are stored; or ``blocks``, random among rows
            that are read together.
        detail: What the workload's own ``Data`` wants besides.
    """

    kind: str
    folder: str
    samples: int
    batch_size: int = 64
    y_sum: int = 0
    x_sum: int = 0
    x_slack: int = 0
    nbytes: int = 0
    mapped: bool = False
    order: str = "random"
    detail: dict[str, Any] = field(default_factory=dict)


class Data:
    """The data of a workload in one process, read in the plainest way; picklable, so that it reaches any worker.

    All peers read by these methods or by these columns, so that all run the same decoder and the same arithmetic.

    Attributes:
        columns: What libraries index by arrays of rows.
        map: What libraries apply to a batch of the columns; None for nothing.
        rows: Which of the columns' rows are the samples; None for all.
    """

    columns: tuple[Any, ...] = ()
    map: Callable[..., Batch] | None = None
    rows: Rows | None = None

    def accessors(self) -> list[Any]:
        """What a source of ours is made of."""
        return list(self.columns)

    def batch(self, rows: Rows) -> Batch:
        """The batch of these rows, in this order, as fresh arrays."""
        read = tuple([column[rows] for column in self.columns])
        return read if self.map is None else self.map(*read)

    def sample(self, row: int) -> tuple[Any, ...]:
        """The sample of one row, for libraries that read one at a time."""
        return tuple([array[0] for array in self.batch(np.array([row]))])

    def fill(self, rows: Rows, out: Batch) -> None:
        """Write the batch of these rows into arrays of their length."""
        for place, array in zip(out, self.batch(rows), strict=True):
            place[...] = array


def probe(x: Any) -> Any:
    """One value a sample of a batch's first array, to sum: the middle pixel's red, or the sample itself."""
    return x[:, x.shape[1] // 2, x.shape[2] // 2, 0] if x.ndim == 4 else x


def shuffled(workload: Workload, epoch: int) -> Iterator[Rows]:
    """The rows of each batch, in a random order unless the workload says otherwise: what a hand-written loop does."""
    contiguous = workload.order == "contiguous"
    order = np.arange(workload.samples) if contiguous else np.random.default_rng(epoch).permutation(workload.samples)
    for start in range(0, workload.samples, workload.batch_size):
        yield order[start : start + workload.batch_size]


def save_labels(folder: Path, samples: int) -> int:
    """Write random labels, whose sum, which is returned, tells whether each came once."""
    labels = np.random.default_rng(1).integers(0, LABEL_LIMIT, samples, dtype=np.int64)
    np.save(folder / "labels.npy", labels)
    return int(labels.sum())
