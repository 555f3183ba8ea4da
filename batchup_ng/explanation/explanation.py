"""An explanation of the waits of a loop: figures as attributes, text, a dict or a page."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import model, page, ranks, text
from .advice import Advice, advised
from .evidence import Evidence
from .model import mean
from .ranks import RankFigures, Straggler
from .verdict import CAUSES, QUEUED, Verdict, judged

SLOWEST = 5
"""Number of slow batches, and of slow samples, that are listed."""

VALUES = (
    "wait_share", "seconds_per_batch", "step_seconds", "batches", "stages", "slowest", "slowest_samples", "ruled_out"
)  # fmt: skip
"""Attributes that are plain values."""

RULED_OUT_BELOW = 0.5
"""A cause is ruled out if its figure is below this share of the least figure of a true cause."""


class Headroom(NamedTuple):
    """What the loop would gain if data cost nothing.

    Attributes:
        seconds: Time of a step of the loop with a batch that is there.
        share: Share of the present time from one batch to the next that it would save, 0 to 1.
        measured: Whether ``watch(..., headroom=n)`` measured the steps with one batch handed out again. If not, it
            is the time of the loop's own steps, from each batch to the request for the next, while workers make others.
    """

    seconds: float
    share: float
    measured: bool


class Explanation:
    """Why a loop waits for its batches, or that it does not. ``print`` it, or read its attributes.

    The figures describe the latest epoch if 30 of its batches were measured, otherwise the latest 1,024 batches. The
    first batches of the program are left out, because workers may have to start for them.

    Attributes:
        wait_share: Share of the time that the loop spent in ``next``, 0 to 1.
        seconds_per_batch: Time from one batch to the next.
        step_seconds: Time of the loop between two batches. Without waits, a batch would take this time.
        headroom: What the loop would gain if data cost nothing: seconds, share and whether it was measured apart.
        verdict: The cause in one word and one sentence, with a confidence: ``"high"`` if a simulation with the measured
            times agrees with the measured time of a batch to 25 %, otherwise ``"fair"`` or ``"low"``.
        advice: At most three changes. The first ones answer the verdict. Each has its predicted gain.
        stages: Milliseconds of each stage, by name: a dict with ``"mean"``, ``"p50"`` and ``"p99"``.
        slowest: The five batches that took a worker longest: a dict with epoch, number, seconds, and samples in words.
        slowest_samples: The five samples that took a step longest, at most one of each batch: a dict with the sample in
            words (its name, or its row), its seconds, the typical seconds of the others in its batch, the step
            (``"read"`` or the name of a map), and epoch and number of the batch. Only steps that make one sample after
            the other time them: ``map_samples``, lazy filters, image files, map-style data sets. Samples below 1 ms are
            left out. Samples that take less than 100 µs are timed several together.
        ruled_out: Causes that the measurements exclude, in words, with the reason.
        ranks: What each rank of a training says of its loop, if ``explain(ranks=...)`` asked them: the time of a batch,
            the wait and the step in seconds, the cause of its wait, its host.
        straggler: The rank that the others wait for, and whether its data or its own step is slow; None without
            ``explain(ranks=...)``, or if there is none.
        batches: Number of batches that the figures describe.
    """

    def __init__(self, evidence: Evidence, name_of: Callable[[int, int], str] | None = None) -> None:
        self._evidence = evidence
        self.wait_share = evidence.wait_share
        self.seconds_per_batch = evidence.interval
        self.step_seconds = mean(evidence.step)
        self.batches = len(evidence.step)
        self.headroom = _headroom(evidence)
        self.verdict: Verdict = judged(evidence)
        self.advice: list[Advice] = advised(evidence, self.verdict)
        self.stages = _stages(evidence)
        self.slowest = _slowest(evidence, name_of)
        self.slowest_samples = _slowest_samples(evidence)
        self.ruled_out = _ruled_out(evidence, self.verdict)
        self.tried = ""  # how an advice was tried, in words
        self.ranks: list[RankFigures] = []
        self.straggler: Straggler | None = None

    def own_figures(self, rank: int) -> RankFigures:
        """Return the figures of this process, which is `rank`, for the other ranks."""
        return ranks.figures_of(rank, self._evidence, self.verdict)

    def compare(self, of_all: list[RankFigures]) -> None:
        """Take the figures of all ranks."""
        self.ranks, self.straggler = of_all, ranks.straggler(of_all)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, which JSON can hold; None for what is not known."""
        evidence = self._evidence
        told = {name: getattr(self, name) for name in VALUES}
        of_loop = {"loop_cpus": evidence.loop_cpu, "loop_queued_share": evidence.loop_queued}
        told["headroom"] = self.headroom._asdict()
        told |= {"verdict": self.verdict._asdict(), "advice": [each._asdict() for each in self.advice]}
        told["ranks"] = [each._asdict() for each in self.ranks]
        told["straggler"] = None if self.straggler is None else self.straggler._asdict()
        told |= {"busy_share": evidence.busy_share, "ready_mean": evidence.ready_mean, **of_loop}
        return _plain({**told, "setting": evidence.setting._asdict()})  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return "\n".join(text.lines(self, self._evidence))

    __repr__ = __str__

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write a page for a browser, without scripts and without anything from elsewhere.

        Raises:
            OSError: the file cannot be written.
        """
        page.write(self, path)


def _headroom(evidence: Evidence) -> Headroom:
    measured = not math.isnan(evidence.headroom)
    seconds = evidence.headroom if measured else mean(evidence.step)
    return Headroom(seconds, max(0.0, 1.0 - seconds / max(evidence.interval, 1e-9)), measured)


def _stages(evidence: Evidence) -> dict[str, dict[str, float]]:
    """Return the milliseconds of each stage, first of the workers in their order, then of the loop."""
    parts = {"worker: read": evidence.read, **{f"worker: map {name}": of for name, of in evidence.maps.items()}}
    parts |= {"worker: packing": evidence.packing, "worker: all": evidence.make, "worker: on a CPU": evidence.cpu}
    parts |= {"worker: ready, without a CPU": evidence.queued}
    if evidence.setting.kind != "serial":
        parts["on the way"] = evidence.transfer
    parts |= {"loop: wait": evidence.wait, "loop: receive": evidence.take, "loop: convert": evidence.converted}
    told = {}
    for name, values in {**parts, "loop: step": evidence.step}.items():
        known = values[~np.isnan(values)]
        if known.any():
            p50, p99 = np.percentile(known, [50, 99])
            told[name] = {"mean": 1e3 * float(known.mean()), "p50": 1e3 * float(p50), "p99": 1e3 * float(p99)}
    return told


def _slowest(evidence: Evidence, name_of: Callable[[int, int], str] | None) -> list[dict[str, Any]]:
    told = []
    for k in np.argsort(evidence.make)[::-1][:SLOWEST]:
        epoch, number = int(evidence.epoch[k]), int(evidence.number[k])
        samples = "" if name_of is None else name_of(epoch, number)
        told.append({"epoch": epoch, "number": number, "seconds": float(evidence.make[k]), "samples": samples})
    return told


def _slowest_samples(evidence: Evidence) -> list[dict[str, Any]]:
    told: dict[str, dict[str, Any]] = {}  # by name: a sample may be slow in several epochs
    for k, slowest in sorted(evidence.slowest.items(), key=lambda each: -each[1].seconds):
        batch = {"epoch": int(evidence.epoch[k]), "number": int(evidence.number[k])}
        of = {"sample": slowest.names, "seconds": slowest.seconds, "typical": slowest.typical, "step": slowest.step}
        told.setdefault(slowest.names, {**of, **batch})
    return list(told.values())[:SLOWEST]


def _ruled_out(evidence: Evidence, verdict: Verdict) -> dict[str, str]:
    need, interval, cpus = model.needs(evidence), evidence.interval, evidence.setting.cpus
    used = (need.cpu + need.loop_cpu) / interval
    taken = (mean(evidence.take) + mean(evidence.converted)) / interval
    queued = mean(evidence.queued) / max(mean(evidence.make), 1e-9)
    shares = {
        "cpu": (used / cpus, f"this program uses {used:.1f} of {cpus} CPUs"),
        "receive": (taken, f"that takes {taken:.0%} of the time"),
    }
    if evidence.setting.kind == "threads" and not math.isnan(need.lock):
        shares["lock"] = need.lock / interval, f"workers hold the lock for {need.lock / interval:.0%} of the time"
    if not np.isnan(evidence.queued).all():
        shares["neighbours"] = queued / (2 * QUEUED), f"workers are ready without a CPU for {queued:.0%} of their time"
    excluded = [cause for cause, (share, _) in shares.items() if share < RULED_OUT_BELOW and cause != verdict.cause]
    return {CAUSES[cause]: shares[cause][1] for cause in excluded}


def _plain(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no tuples."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
