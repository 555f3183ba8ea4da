"""Peers that go wrong, each in one way; imported by name in the processes that the harness starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.workloads.base import Batch, Workload


class Good:
    """Delivers the rows and results of a tiny ``python`` workload."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.x = np.arange(workload.samples)
        self.y = self.x + 1

    def epoch(self, number: int) -> Iterator[Batch]:
        for start in range(0, len(self.x), 4):
            yield self.x[start : start + 4], self.y[start : start + 4]

    def close(self) -> None:
        pass


class RaisesInSecondEpoch(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        if number == 1:
            raise EOFError("bad\nluck")
        yield from super().epoch(number)


class Dies(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        print("about to die", file=sys.stderr, flush=True)
        os._exit(3)


class Drops(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        return iter(list(super().epoch(number))[1:])


class Repeats(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        batches = list(super().epoch(number))
        return iter([batches[0], batches[0], *batches[2:]])


class Hangs(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        time.sleep(600)
        yield from super().epoch(number)


class Litters(Good):
    """Leaves a process behind."""

    def epoch(self, number: int) -> Iterator[Batch]:
        subprocess.Popen(["sleep", "600"])
        return super().epoch(number)


class RunsOnce(Good):
    """Cannot run a second epoch."""

    ran = False

    def epoch(self, number: int) -> Iterator[Batch]:
        if self.ran:
            raise RuntimeError("this process has run an epoch before")
        RunsOnce.ran = True
        return super().epoch(number)


class Prints(Good):
    """Writes to stdout, as libraries do."""

    def epoch(self, number: int) -> Iterator[Batch]:
        print("{not an answer}", flush=True)
        os.write(1, b"{not an answer}\n")
        return super().epoch(number)


class Tells(Good):
    """Fails with what was imported from where, in this process and in a worker of a pool of ours."""

    def epoch(self, number: int) -> Iterator[Batch]:
        import batchup_ng as bu

        with bu.WorkerProcessPool(1) as pool, pool.work_stream(iter([(files,)])) as stream:
            (theirs,) = stream.retrieve_iter()
        raise RuntimeError(" ".join([*files(), *theirs]))


def files() -> list[Any]:
    import batchup_ng

    return [batchup_ng.__file__, sys.modules["benchmarks.peers.base"].__file__]


make = partial(Variant, family="other")
VARIANTS = (
    make(name="absent", open=Good, needs=("no_such_module_anywhere",)),
    make(name="good", open=Good),
    make(name="raises", family="ours", open=RaisesInSecondEpoch),
    make(name="dies", open=Dies),
    make(name="drops", open=Drops),
    make(name="repeats", open=Repeats),
    make(name="hangs", open=Hangs),
    make(name="litters", open=Litters),
    make(name="prints", open=Prints),
    make(name="runs-once", open=RunsOnce),
    make(name="tells", family="ours", open=Tells),
)
