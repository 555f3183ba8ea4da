"""The trial that starts a pool on data that are there, in a process that has made none before."""

from __future__ import annotations

import mmap
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Starter, Variant
from benchmarks.processes import footprint, private_bytes, unique_bytes
from benchmarks.trials.epochs import Epochs, run_epoch
from benchmarks.workloads import Workload


class Unstartable(RuntimeError):
    """The peer offers no way to watch its workers start, or not all of them did."""


class Startup:
    """Starts, runs two epochs, starts once more; a round of it wants a ``fresh`` process.

    ``first_batch_seconds`` runs from asking for the pool and the parallel source to the first batch. Figures:
    ``next_first_batch_seconds``, the same for the second epoch; ``again_seconds``, to the first batch of another new
    pool once that one is closed; ``worker_private_bytes`` and ``worker_unique_bytes``, those of the largest worker
    after two epochs above those of a worker of a pool without data; ``growth_bytes``, by how much the memory of all
    processes grew over the two epochs; ``copy_seconds``, one plain copy of the images into memory never touched.
    """

    def __init__(self, variant: Variant, workload: Workload, workers: int, settings: Mapping[str, float]) -> None:
        self._epochs = Epochs(variant, workload, workers, settings)
        self._feed = starter(self._epochs)
        self._workload = workload

    def turn(self, number: int) -> Epoch:
        before = footprint().pss
        first = self._epochs.run(self._feed, 0)
        second = self._epochs.run(self._feed, 1)
        figures: dict[str, float] = {
            "next_first_batch_seconds": second.first_batch_seconds,
            "growth_bytes": footprint().pss - before,
        }
        busy = self._feed.workers()
        private, unique = max(map(private_bytes, busy)), max(map(unique_bytes, busy))
        self._feed.close()
        again = run_epoch(self._feed, 2, self._workload, check_x=False)
        self._feed.close()
        idle = self._feed.ready()
        figures |= {
            "again_seconds": again.first_batch_seconds,
            "worker_private_bytes": private - max(map(private_bytes, idle)),
            "worker_unique_bytes": unique - max(map(unique_bytes, idle)),
        }
        self._feed.close()
        return replace(first, figures={**figures, "copy_seconds": copy_seconds(Path(self._workload.folder))})

    def close(self) -> None:
        self._feed.close()


def starter(epochs: Epochs) -> Starter:
    """The feed of a trial, which must be one whose start can be watched."""
    if not isinstance(epochs.feed, Starter):
        raise Unstartable(f"a {type(epochs.feed).__name__} does not tell of its workers")
    return epochs.feed


def copy_seconds(folder: Path) -> float:
    """How long one plain copy of the images takes, from memory in use into memory that was never touched."""
    images = np.load(folder / "images.npy").reshape(-1)
    with mmap.mmap(-1, images.nbytes) as memory:
        fresh = np.frombuffer(memory, np.uint8)
        begin = time.perf_counter()
        fresh[...] = images
        seconds = time.perf_counter() - begin
        del fresh  # or the mapping could not be closed
    return seconds
