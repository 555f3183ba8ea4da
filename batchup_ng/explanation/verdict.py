"""The cause for the waits of a loop, found from the measured times and the model.

Each cause has a function that returns its :class:`Verdict`, or None. The first verdict counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..display import in_seconds
from . import model
from .evidence import FEWEST_ALONE, Evidence
from .model import mean
from .pipeline import Pipeline

LITTLE = 0.05
"""Share of the time below which a wait is not worth a change."""

RATHER_LITTLE = 0.15
"""The same if the loop's thread lacks a CPU, which makes its waits longer, too."""

MUCH_IN_EARLIER_EPOCHS = 0.2
"""If the loop waited for this share of earlier epochs, the end of these waits is reported."""

QUEUED = 0.15
"""Share of the time without a CPU from which a thread is slowed down."""

SLOWED = 0.1
"""If workers make a step longer by this share, it is reported."""

LITTLE_LOCK = 0.3
"""Share of the CPU time of a batch with the interpreter's lock, below which the lock is not the cause."""

TINY_SECONDS, TINY_BYTES = 300e-6, 1_000_000
"""Seconds and bytes of a batch below which handing it over counts."""

SLOW, FEW = 4.0, 0.2
"""A batch that takes so many times the median is slow; share of the batches below which slow ones are the exception."""

SHORT_EPOCH = 10
"""Batches of an epoch below which its begin counts, which the model does not contain."""

NEAR = 0.75
"""If a shared resource (CPUs, the lock) is used for this share of the time between two batches, it sets the pace."""

LARGE_BUFFER = 64
"""Number of batches ahead that a buffer may be advised to have."""


class Verdict(NamedTuple):
    """Why the loop waits.

    Attributes:
        cause: A key of :data:`CAUSES`.
        sentence: The cause in one sentence, with figures.
        confidence: ``"high"``, ``"fair"`` or ``"low"``.
    """

    cause: str
    sentence: str
    confidence: str


CAUSES = {
    "loop": "the loop itself",
    "first_epoch": "data that were not in memory yet",
    "contention": "CPUs that the loop and the workers share",
    "neighbours": "other programs on the CPUs",
    "lock_loop": "threads that hold the interpreter's lock, which the loop needs",
    "tiny": "batches so small that handing them over takes longer than making them",
    "short_epochs": "epochs of few batches",
    "serial": "a pool that makes each batch in the loop's next()",
    "conversion": "a function of a view or an adapter, on the loop's thread",
    "consumer_map": "a map after the pool, on the loop's thread",
    "receive": "receiving batches on the loop's thread",
    "lock": "Python code in the maps, which one thread at a time can run",
    "buffer": "a buffer that memory makes too small",
    "slow_samples": "single slow batches",
    "transfer": "sending batches from the workers",
    "cpu": "the work for a batch, which takes all CPUs",
    "workers": "too few workers",
    "unclear": "none that these measurements show",
}
"""The causes in words."""


def judged(evidence: Evidence) -> Verdict:
    """Return the verdict."""
    share = evidence.wait_share
    if share < LITTLE or (share < RATHER_LITTLE and evidence.loop_queued > QUEUED):
        asked = [_first_epoch, _loop_without_cpu, _loop_slowed]
        if _lost_in_steps(evidence) > evidence.loop_queued * mean(evidence.step):
            asked = [_first_epoch, _loop_slowed]
        otherwise = "loop", f"{_hardly(evidence)}. The loop sets the pace; faster data would not be noticed.", "high"
    elif evidence.batches_per_epoch < SHORT_EPOCH:
        few = f"An epoch has {evidence.batches_per_epoch:.0f} batches, and its begin takes longer than a batch"
        return Verdict("short_epochs", f"{few}. Loader(source.repeat(n), ...) makes one epoch of n.", "fair")
    elif evidence.setting.kind == "serial":
        asked = [_tiny]
        made = in_seconds(mean(evidence.make))
        otherwise = "serial", f"The serial pool makes each batch in next(), which takes {made}.", "high"
    elif _lost_in_steps(evidence) > evidence.interval - mean(evidence.step):
        asked = [_loop_slowed]
        otherwise = "unclear", f"The loop waits {share:.0%} of the time for none of the known causes.", "low"
    elif mean(evidence.take) + mean(evidence.converted) >= mean(evidence.wait):
        asked = [_conversion, _consumer_map, _tiny]
        taken = in_seconds(mean(evidence.take))
        otherwise = "receive", f"The loop's thread receives each batch in next(), which takes {taken}.", "fair"
    else:
        asked = [_neighbours, _tiny_for_pool, _lock, _buffer, _slow_samples, _transfer, _cpu, _workers]
        otherwise = "unclear", f"The loop waits {share:.0%} of the time for none of the known causes.", "low"
    found = (verdict for cause in asked if (verdict := cause(evidence)) is not None)
    return next(found, Verdict(*otherwise))


def slowest_stage(evidence: Evidence) -> str:
    """Return the stage of the work of a worker that takes longest, in words."""
    stages = {"reading": mean(evidence.read), **{f"map {name}": mean(of) for name, of in evidence.maps.items()}}
    return max(stages, key=lambda name: stages[name])


def slowed_by_workers(evidence: Evidence) -> float:
    """Return the share by which steps are longer with workers than without; 0.0 if that is not clear.

    A difference of four standard errors is clear.
    """
    alone, others = model.steps_alone(evidence)
    if len(alone) < FEWEST_ALONE or len(others) < FEWEST_ALONE:
        return 0.0
    error = math.sqrt(float(np.var(alone)) / len(alone) + float(np.var(others)) / len(others))
    own = float(np.mean(alone))
    return float(np.mean(evidence.step)) / own - 1.0 if np.mean(others) - own > 4 * error and own > 0 else 0.0


def _lost_in_steps(evidence: Evidence) -> float:
    """Return how many seconds longer a step is because of the workers."""
    slowed = slowed_by_workers(evidence)
    return mean(evidence.step) * slowed / (1 + slowed) if slowed >= SLOWED else 0.0


def is_tiny(evidence: Evidence) -> bool:
    """Return whether a batch is so small that handing it over counts."""
    return mean(evidence.make - evidence.packing) < TINY_SECONDS and evidence.setting.batch_bytes < TINY_BYTES


# -- the loop hardly waits -----------------------------------------------------------------------------------------


def _first_epoch(evidence: Evidence) -> Verdict | None:
    if not evidence.earlier_wait > max(MUCH_IN_EARLIER_EPOCHS, 4 * evidence.wait_share):
        return None
    sentence = f"The loop waited {evidence.earlier_wait:.0%} of earlier epochs"
    now = f"and {evidence.wait_share:.1%} of this one: the data are in memory now."
    return Verdict("first_epoch", f"{sentence}, {now}", "high")


def _loop_without_cpu(evidence: Evidence) -> Verdict | None:
    if not evidence.loop_queued > QUEUED:
        return None
    sentence = f"{_hardly(evidence)}, but is ready without a CPU for {evidence.loop_queued:.0%} of its steps"
    if evidence.setting.kind != "serial" and _cpus_used(evidence) > NEAR * evidence.setting.cpus:
        sentence = f"{sentence}. With its workers, it needs all {evidence.setting.cpus} CPUs."
        return Verdict("contention", sentence, "fair")
    return Verdict("neighbours", f"{sentence}. Other programs use the CPUs.", "fair")


def _loop_slowed(evidence: Evidence) -> Verdict | None:
    if evidence.setting.kind == "serial" or (excess := slowed_by_workers(evidence)) < SLOWED:
        return None
    need = model.needs(evidence)
    sentence = f"{_hardly(evidence)}, but its steps take {excess:.0%} longer than without workers"
    if evidence.setting.kind == "threads" and not need.lock < LITTLE_LOCK * need.cpu:
        return Verdict("lock_loop", f"{sentence}. They hold the interpreter's lock, which the loop needs.", "fair")
    return Verdict("contention", f"{sentence}. They use its CPUs.", "fair")


def _hardly(evidence: Evidence) -> str:
    return f"The loop waits {evidence.wait_share:.1%} of the time"


# -- the loop's thread is busy in next() ---------------------------------------------------------------------------


def _tiny(evidence: Evidence) -> Verdict | None:
    if not is_tiny(evidence):
        return None
    made = f"A batch takes {in_seconds(mean(evidence.make - evidence.packing))} to make"
    if evidence.setting.kind == "serial":
        return Verdict("tiny", f"{made}, much of it the same for a larger batch.", "fair")
    handed = evidence.interval - mean(evidence.step) - mean(evidence.converted)
    return Verdict("tiny", f"{made}, and the loop gets one each {in_seconds(handed)}, for handing it over.", "high")


def _tiny_for_pool(evidence: Evidence) -> Verdict | None:
    if not is_tiny(evidence) or model.serial_seconds(evidence) > NEAR * evidence.interval:
        return None
    return _tiny(evidence)


def _conversion(evidence: Evidence) -> Verdict | None:
    converted = mean(evidence.converted)
    if converted <= mean(evidence.take):
        return None
    sentence = f"The loop's thread converts each batch in next(), for {in_seconds(converted)}."
    return Verdict("conversion", sentence, "high")


def _consumer_map(evidence: Evidence) -> Verdict | None:
    if not evidence.setting.consumer_maps:
        return None
    names, taken = ", ".join(evidence.setting.consumer_maps), in_seconds(mean(evidence.take))
    return Verdict("consumer_map", f"The loop's thread runs the map {names} in next(), for {taken} a batch.", "high")


# -- the loop waits for workers ------------------------------------------------------------------------------------


def _neighbours(evidence: Evidence) -> Verdict | None:
    queued = mean(evidence.queued) / max(mean(evidence.make), 1e-9)
    used, cpus = _cpus_used(evidence), evidence.setting.cpus
    if queued <= QUEUED or used >= NEAR * cpus:
        return None
    sentence = f"Workers are ready without a CPU for {queued:.0%} of their time, but use {used:.1f} of {cpus} CPUs"
    return Verdict("neighbours", f"{sentence}. Other programs use the others.", "fair")


def _lock(evidence: Evidence) -> Verdict | None:
    need = model.needs(evidence)
    if evidence.setting.kind != "threads" or not need.lock > NEAR * evidence.interval:
        return None
    held = f"Each batch holds the interpreter's lock for {in_seconds(need.lock)}"
    sentence = f"{held}, mostly in {slowest_stage(evidence)}"
    return Verdict("lock", f"{sentence}, so threads make one batch at a time.", _confidence(evidence))


def _buffer(evidence: Evidence) -> Verdict | None:
    setting = evidence.setting
    if setting.buffer >= setting.buffer_asked:
        return None
    if not _explains(evidence, model.with_buffer(evidence, max(LARGE_BUFFER, 4 * setting.workers))):
        return None
    sentence = f"Memory limits the buffer to {setting.buffer} of {setting.buffer_asked} batches"
    return Verdict("buffer", f"{sentence}, so workers wait for room.", _confidence(evidence))


def _slow_samples(evidence: Evidence) -> Verdict | None:
    typical = float(np.median(evidence.make))
    slow = evidence.make > SLOW * typical
    if not 0 < slow.mean() < FEW:
        return None
    if not _explains(evidence, model.with_faster(evidence, np.where(slow, evidence.make - typical, 0.0), 0.0)):
        return None
    took = in_seconds(float(evidence.make[slow].mean()))
    sentence = f"{slow.mean():.1%} of the batches take {took}, and the others {in_seconds(typical)}"
    return Verdict("slow_samples", f"{sentence}. The loop waits for the slow ones.", _confidence(evidence))


def _transfer(evidence: Evidence) -> Verdict | None:
    sent = mean(evidence.packing) + mean(evidence.transfer)
    if evidence.setting.kind not in ("processes", "ray") or sent < mean(evidence.make - evidence.packing):
        return None
    made = in_seconds(mean(evidence.make - evidence.packing))
    return Verdict("transfer", f"A batch takes {made} to make and {in_seconds(sent)} to send.", _confidence(evidence))


def _cpu(evidence: Evidence) -> Verdict | None:
    used, cpus = _cpus_used(evidence), evidence.setting.cpus
    if used <= NEAR * cpus:
        return None
    sentence = f"A batch takes {in_seconds(model.needs(evidence).cpu)} of CPU time, mostly in {slowest_stage(evidence)}"
    return Verdict("cpu", f"{sentence}, and {used:.1f} of {cpus} CPUs are busy with it.", _confidence(evidence))


def _workers(evidence: Evidence) -> Verdict | None:
    setting, need = evidence.setting, model.needs(evidence)
    more, _ = model.best_workers(evidence, model.most_workers(evidence))
    if more <= setting.workers or not _explains(evidence, model.with_workers(evidence, more), share=0.3):
        return None
    does = "waits" if need.wait > need.cpu else "computes"
    sentence = f"A worker takes {in_seconds(mean(evidence.make))} for a batch, and mostly {does}"
    busy = f"{sentence}, in {slowest_stage(evidence)}. There are only {setting.workers}."
    return Verdict("workers", busy, _confidence(evidence))


def _explains(evidence: Evidence, then: Pipeline, share: float = 0.5) -> bool:
    """Return whether a change would spare the loop this share of its wait, by the model."""
    return model.pipeline(evidence).seconds_per_batch() - then.seconds_per_batch() > share * mean(evidence.wait)


def _cpus_used(evidence: Evidence) -> float:
    """Return how many CPUs this program uses, with its workers."""
    need = model.needs(evidence)
    return (need.cpu + need.loop_cpu) / evidence.interval


def _confidence(evidence: Evidence) -> str:
    """Return how well the model agrees with what was measured, in a word."""
    ratio = model.pipeline(evidence).seconds_per_batch() / evidence.interval
    return "high" if 0.8 <= ratio <= 1.25 else "fair" if 0.5 <= ratio <= 2 else "low"
