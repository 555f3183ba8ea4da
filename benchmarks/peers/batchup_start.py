"""The process pool of BatchUp 0.2.3, whose start can be watched; it has one way to start."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from benchmarks.answers import answering, nap
from benchmarks.peers.base import Variant
from benchmarks.peers.batchup_old import BatchupFeed, source
from benchmarks.workloads import Workload


def variants(kind: str) -> tuple[Variant, ...]:
    """The process pool."""
    make = partial(Variant, module=__name__, family="batchup", needs=("batchup", "six", "joblib", "psutil"))
    return (make(name="batchup-processes", open=_open, copies=6),)


class BatchupStarter(BatchupFeed):
    """Leaves its old pool to idle when it is closed, as it cannot be ended before the process group is."""

    def workers(self) -> Sequence[int]:
        stream = self.pool.work_stream(itertools.repeat((nap, ())), 2 * self.count)
        return answering(stream.retrieve_iter(), self.count)

    def ready(self) -> Sequence[int]:
        self.make_pool()
        return self.workers()


def _open(workload: Workload, workers: int) -> BatchupStarter:
    return BatchupStarter(source(workload), workload.batch_size, "WorkerProcessPool", workers)
