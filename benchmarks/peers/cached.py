"""batchup_ng's ``Cached`` around image files, and as its upper limit the same images decoded in advance."""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Variant
from benchmarks.peers.ours import OurFeed
from benchmarks.workloads.base import Workload


class CachedFeed(OurFeed):
    """A source that keeps its rows in memory, or in a file in its own folder."""

    def __init__(self, workload: Workload, workers: int, pool: str, kept: str) -> None:
        super().__init__(workload, workers, pool)
        self.folder: Any = None
        source: Any = self.source
        if kept == "array":
            pictures = source.data[0]
            source.data[0] = np.concatenate([pictures[at : at + 64] for at in range(0, workload.samples, 64)])
            self.source = type(source)(source.data)
        elif kept == "memory":
            self.source = source.cache()
        else:
            self.folder = tempfile.TemporaryDirectory()
            self.source = source.cache(self.folder.name)

    def close(self) -> None:
        super().close()
        if self.folder is not None:
            self.folder.cleanup()  # the next epoch uses the open file


VARIANTS = tuple(
    Variant(
        name=f"ours-{kept}-{how}", family=OURS, module=__name__, needs=("batchup_ng",), copies=2, workloads=("images",),
        open=partial(CachedFeed, pool=pool, kept=kept), usual=False,
    )
    for kept in ("memory", "file", "array")
    for how, pool in (("threads", "WorkerThreadPool"), ("processes", "WorkerProcessPool"))
)  # fmt: skip
