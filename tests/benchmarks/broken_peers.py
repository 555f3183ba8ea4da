"""Peers that go wrong, each in one way; imported by name in the processes that the harness starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.peers.base import Batch, Variant
from benchmarks.workloads import Workload, probe


def variants(kind: str) -> tuple[Variant, ...]:
    make = partial(Variant, module=__name__)
    return (
        make(name="absent", family="other", open=Good, needs=("no_such_module_anywhere",)),
        make(name="good", family="plain", open=Good, baseline=True),
        make(name="no-import", family="other", open=NoImport),
        make(name="raises", family="ours", open=RaisesInSecondEpoch),
        make(name="dies", family="other", open=Dies),
        make(name="drops", family="other", open=Drops),
        make(name="repeats", family="other", open=Repeats),
        make(name="hangs", family="other", open=Hangs),
        make(name="litters", family="other", open=Litters),
        make(name="prints", family="other", open=Prints),
        make(name="counts", family="other", open=RunsOnce),
    )


class Good:
    """Delivers the rows and results of a tiny ``python`` workload."""

    def __init__(self, workload: Workload, workers: int) -> None:
        self.x = np.arange(workload.samples)
        self.y = self.x + 1

    def epoch(self, number: int) -> Iterator[Batch]:
        for start in range(0, len(self.x), 4):
            yield probe(self.x[start : start + 4]), self.y[start : start + 4]

    def close(self) -> None:
        pass


class NoImport(Good):
    def __init__(self, workload: Workload, workers: int) -> None:
        raise ImportError("libnothing.so is missing")


class RaisesInSecondEpoch(Good):
    def epoch(self, number: int) -> Iterator[Batch]:
        if number == 1:
            raise ValueError("bad\nluck")
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
    """Leaves a process and a temporary file behind."""

    def epoch(self, number: int) -> Iterator[Batch]:
        subprocess.Popen(["sleep", "600"])
        with open(os.path.join(os.environ["TMPDIR"], "litter"), "w") as file:
            file.write("x")
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
