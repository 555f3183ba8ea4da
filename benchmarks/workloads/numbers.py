"""Workloads of computed numbers, which have no files."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.workloads import base

MULTIPLIER, MODULUS = 48271, 2**31 - 1


class Computed(base.Data):
    """Samples that are their own row numbers, in one column."""

    sizes: ClassVar[tuple[int, int]]  # samples; of a quick run
    batch_size: ClassVar[int] = 64

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        samples = cls.sizes[quick]
        total = samples * (samples - 1) // 2
        return base.Workload(
            folder=str(folder), samples=samples, batch_size=cls.batch_size, y_sum=total, x_sum=total
        )


class Empty(Computed):
    """320,000 samples of one number of 4 bytes, with a map that does nothing: all cost is the loader's."""

    sizes = (320_000, 640)

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (np.arange(workload.samples, dtype=np.int32),)

    @staticmethod
    def map(x: Any) -> Any:
        """Return the array unchanged, in the tuple that a map returns."""
        return (x,)

    def sample(self, row: int) -> tuple[Any, ...]:
        return (self.columns[0][row],)


STRUCK = "struck"
"""Name of the file that the blow leaves, with the time of the monotonic clock, so that it hits once."""


class Numbered(Computed):
    """8,000 row numbers; a worker waits 0.5 ms for each, as for remote storage.

    If the workload's detail has a ``blow``, the first worker that comes to its ``row`` gets it: ``kill``, a SIGKILL to
    its own process; ``memory``, a MemoryError; ``error``, a ValueError.
    """

    sizes, seconds = (8_000, 640), 0.0005

    def __init__(self, workload: base.Workload) -> None:
        super().__init__(workload)
        self.columns = (np.arange(workload.samples),)

    def map(self, rows: base.Rows) -> base.Batch:
        time.sleep(self.seconds * len(rows))
        if self.workload.detail.get("blow") and self.workload.detail["row"] in rows:
            self.strike()
        return (rows,)

    def sample(self, row: int) -> tuple[Any, ...]:
        return (self.map(np.array([row]))[0][0],)

    def strike(self) -> None:
        """Hit this worker, unless another was hit before."""
        try:
            with open(os.path.join(self.workload.folder, STRUCK), "x") as file:
                file.write(repr(time.monotonic()))
        except FileExistsError:
            return
        blow = self.workload.detail["blow"]
        if blow == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError("no memory for this sample") if blow == "memory" else ValueError("this sample is damaged")


class Numbers:
    """A column whose row k is k."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, rows: Any) -> Any:
        return np.array(rows)


class Order(Computed):
    """10**8 computed rows, each equal to its number: only their order has a cost."""

    sizes, batch_size = (10**8, 10**5), 1024

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (Numbers(workload.samples),)


def burn(row: int, loops: int) -> int:
    """Keep the interpreter busy for `loops` steps; return a result that depends only on the row.

    >>> burn(5, 1000) == 6 * pow(MULTIPLIER, 1000, MODULUS) % MODULUS
    True
    """
    state = row + 1
    for _ in range(loops):
        state = state * MULTIPLIER % MODULUS
    return state


class Python(Computed):
    """4,000 row numbers. A map adds a result to each, after about 0.5 ms of pure-Python arithmetic.

    Each step is one of a Lehmer generator. Its n-th state has a closed form, which gives the expected sum without the
    work.
    """

    sizes = (4_000, 200)

    @classmethod
    def make(cls, folder: Path, quick: bool) -> base.Workload:
        loops = 20 if quick else 8_000
        y_sum = sum((row + 1) * pow(MULTIPLIER, loops, MODULUS) % MODULUS for row in range(cls.sizes[quick]))
        return replace(super().make(folder, quick), y_sum=y_sum, detail={"loops": loops})

    def __init__(self, workload: base.Workload) -> None:
        self.columns = (np.arange(workload.samples),)
        self.loops = workload.detail["loops"]

    def map(self, rows: base.Rows) -> base.Batch:
        return rows, np.array([burn(row, self.loops) for row in rows.tolist()], np.int64)

    def sample(self, row: int) -> tuple[int, int]:
        return row, burn(row, self.loops)
