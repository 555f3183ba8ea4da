"""The model of the present setting, and of other settings."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from .evidence import ALONE, Evidence
from .pipeline import Pipeline

COPIED_BYTES_PER_SECOND = 1e9
"""Bytes in a second that a worker process copies to shared memory, for a prediction where there is none yet."""

HANDED_OVER_SECONDS = 50e-6
"""Seconds of the loop's thread to take a batch that needs no work there."""

OWN_NEXT_SECONDS = 15e-6
"""Seconds that ``next`` of a serial pool takes beside the work for the batch."""

CACHED_READ = 0.05
"""Share of the time of a read that remains if the rows are in memory."""


@dataclasses.dataclass(frozen=True)
class Needs:
    """The time that a batch needs of shared resources, in seconds.

    Attributes:
        cpu: CPU time in a worker.
        loop_cpu: CPU time of the loop's thread, in its step and in ``next``.
        lock: Time that a thread holds the interpreter's lock to make the batch; NaN if it is not known.
        wait: Time that a worker waits for other things, such as a disk or a network.
    """

    cpu: float
    loop_cpu: float
    lock: float
    wait: float


def mean(values: np.ndarray) -> float:
    """Return the mean of the known values; 0.0 without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def needs(evidence: Evidence) -> Needs:
    """Return the time that a batch needs of shared resources."""
    alone = evidence.alone
    own = mean(evidence.make) * _own_share(evidence)
    cpu = mean(evidence.cpu)
    if not np.any(~np.isnan(evidence.cpu)):
        cpu = own if alone is None else alone.cpu
    lock = math.nan if alone is None else alone.lock * max(alone.cpu, cpu)
    share = 0.0 if math.isnan(evidence.loop_cpu) else evidence.loop_cpu
    in_next = mean(evidence.take) + mean(evidence.converted)
    return Needs(cpu, share * mean(evidence.step) + in_next, lock, max(0.0, own - cpu))


def steps_alone(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of the loop while no worker ran, and the others.

    For the latest steps it is not known: a worker may have made a batch that the loop has not got yet.
    """
    known = len(evidence.step) - evidence.setting.buffer
    step, overlap = evidence.step[: max(0, known)], evidence.overlap[: max(0, known)]
    return step[overlap < ALONE], step[overlap >= ALONE]


def _own_share(evidence: Evidence) -> float:
    """Return the share of the time of a worker that a batch takes on a machine of its own."""
    make = max(mean(evidence.make), 1e-9)
    share = max(1.0 - mean(evidence.queued) / make, mean(evidence.cpu) / make)
    if evidence.alone is not None and evidence.setting.kind == "threads":  # the rest is a wait for the lock
        share = min(share, evidence.alone.seconds / max(float(np.median(evidence.make)), 1e-9))
    return min(1.0, max(0.0, share))


def floor(evidence: Evidence, kind: str, spared: float = 0.0) -> float:
    """Return the least time between two batches with a pool of this kind, if a batch needs `spared` CPU time less."""
    need = needs(evidence)
    by_cpus = max(0.0, need.cpu + need.loop_cpu - spared) / max(1, evidence.setting.cpus)
    return max(by_cpus, need.lock) if kind == "threads" and not math.isnan(need.lock) else by_cpus


def pipeline(evidence: Evidence) -> Pipeline:
    """Return the model of the present setting, with the times that a batch would take on a machine of its own."""
    setting = evidence.setting
    serial = setting.kind == "serial"
    return Pipeline(
        make=evidence.make * _own_share(evidence),
        step=evidence.step * (1.0 - (0.0 if math.isnan(evidence.loop_queued) else evidence.loop_queued)),
        take=evidence.converted if serial else evidence.take + evidence.converted,
        transfer=np.minimum(evidence.transfer, 3 * np.median(evidence.transfer)),
        workers=0 if serial else setting.workers,
        buffer=max(1, setting.buffer),
        floor=0.0 if serial else floor(evidence, setting.kind),
    )


def in_processes(evidence: Evidence, workers: int, step: float | None = None) -> Pipeline:
    """Return the model with a pool of processes. `step` is how long a step takes then, if not as now."""
    now = pipeline(evidence)
    if step is not None:
        now = dataclasses.replace(now, step=np.full(len(now.step), step))
    packing = evidence.setting.batch_bytes / COPIED_BYTES_PER_SECOND
    return dataclasses.replace(
        now, make=now.make + packing, workers=workers, buffer=max(now.buffer, workers + 1),
        floor=floor(evidence, "processes"), take=np.maximum(now.take, HANDED_OVER_SECONDS),
    )  # fmt: skip


def in_threads(evidence: Evidence, workers: int) -> Pipeline:
    """Return the model with a pool of threads, which sends nothing."""
    now = pipeline(evidence)
    take = np.minimum(evidence.take, HANDED_OVER_SECONDS)
    spared = mean(evidence.packing) + mean(evidence.take) - mean(take)
    return dataclasses.replace(
        now, make=np.maximum(now.make - evidence.packing, 0.0), workers=workers, buffer=max(now.buffer, workers + 1),
        floor=floor(evidence, "threads", spared), take=take + evidence.converted, transfer=np.zeros(len(take)),
    )  # fmt: skip


def serial_seconds(evidence: Evidence) -> float:
    """Return the time from one batch to the next if the loop's thread makes each batch."""
    made = mean(evidence.make - evidence.packing) if evidence.alone is None else evidence.alone.seconds
    return mean(evidence.step) + mean(evidence.converted) + made + OWN_NEXT_SECONDS


def with_workers(evidence: Evidence, workers: int) -> Pipeline:
    """Return the model with another number of workers."""
    now = pipeline(evidence)
    return dataclasses.replace(now, workers=workers, buffer=max(now.buffer, workers + 1))


def best_workers(evidence: Evidence, most: int, near: float = 1.1) -> tuple[int, float]:
    """Return the least number of workers that is nearly as fast as any up to `most`, and its time for a batch."""
    times = {n: with_workers(evidence, n).seconds_per_batch() for n in _tried(evidence.setting.workers, most)}
    least = min(times.values())
    chosen = min(n for n, seconds in times.items() if seconds <= near * least)
    return chosen, times[chosen]


def most_workers(evidence: Evidence) -> int:
    """Return how many workers may help: as many as CPUs, and more if they mostly wait."""
    need = needs(evidence)
    busy = need.cpu / max(need.cpu + need.wait, 1e-12)
    return int(min(128, math.ceil(evidence.setting.cpus / max(busy, 0.02))))


def _tried(now: int, most: int) -> list[int]:
    return sorted({n for n in (*range(1, 17), 20, 24, 32, 48, 64, 96, 128, now) if n <= max(most, now)})


def with_buffer(evidence: Evidence, buffer: int) -> Pipeline:
    """Return the model with another number of batches ahead."""
    return dataclasses.replace(pipeline(evidence), buffer=buffer)


def with_faster(evidence: Evidence, spared: np.ndarray, spared_cpu: float) -> Pipeline:
    """Return the model with batches that take less time to make; `spared_cpu` is the CPU time saved."""
    now, need = pipeline(evidence), needs(evidence)
    share = min(1.0, spared_cpu / need.cpu) if need.cpu > 0 else 0.0
    left = (need.cpu * (1 - share) + need.loop_cpu) / max(1, evidence.setting.cpus)
    if evidence.setting.kind == "threads" and not math.isnan(need.lock):
        left = max(left, need.lock * (1 - share))
    make = np.maximum(now.make - spared * (now.make / np.maximum(evidence.make, 1e-9)), 0.0)
    return dataclasses.replace(now, make=make, floor=left if now.workers else 0.0)


def with_conversion_in_workers(evidence: Evidence) -> Pipeline:
    """Return the model if workers do what a view does to each batch now."""
    now = pipeline(evidence)
    return dataclasses.replace(now, make=now.make + evidence.converted, take=evidence.take)


def taken_seconds(evidence: Evidence) -> float:
    """Return how long the loop's thread takes to receive a batch of arrays with as many bytes, at most."""
    return HANDED_OVER_SECONDS + evidence.setting.batch_bytes / COPIED_BYTES_PER_SECOND


def with_arrays(evidence: Evidence) -> Pipeline:
    """Return the model if batches are arrays, which are not pickled."""
    now = pipeline(evidence)
    copied = evidence.setting.batch_bytes / COPIED_BYTES_PER_SECOND
    spared = mean(evidence.packing) + mean(evidence.take)
    return dataclasses.replace(
        now, make=np.maximum(now.make - evidence.packing, 0.0) + copied, floor=floor(evidence, "processes", spared),
        take=np.full(len(now.take), HANDED_OVER_SECONDS) + evidence.converted, transfer=np.zeros(len(now.transfer)),
    )  # fmt: skip


def with_maps_in_workers(evidence: Evidence) -> Pipeline:
    """Return the model if workers run the maps that the loop's thread runs now."""
    now = pipeline(evidence)
    return dataclasses.replace(now, make=now.make + now.take, take=np.minimum(now.take, HANDED_OVER_SECONDS))
