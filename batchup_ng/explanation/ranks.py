"""The ranks of a training: which of them is slow, and whether its data or its own step is.

Ranks that reduce their gradients in each step go in lockstep: a batch takes the same time on all of them. If one of
them waits for its data, the others wait for it in their steps. So its wait is longer than theirs, and its step shorter.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..display import in_seconds
from .evidence import Evidence
from .verdict import CAUSES, Verdict

CLEAR = 0.1
"""A difference is clear from this share of the time from one batch to the next."""

MOST_SHOWN, SHOWN = 16, ("wait_seconds", "step_seconds", "seconds_per_batch")
"""Number of ranks in the text, and their figures there."""


class RankFigures(NamedTuple):
    """What one rank says of its loop.

    Attributes:
        rank: Its number.
        host: Name of its machine.
        seconds_per_batch: Time from one batch to the next.
        wait_seconds: How much of it the loop spent in ``next``.
        step_seconds: How much of it was its step, with waits for other ranks.
        step_cpu_seconds: CPU time of a step; NaN if it is not known.
        cause: Cause of the verdict of this rank.
        error: Why there are no figures, which are NaN then; ``""`` if there are.
    """

    rank: int
    host: str
    seconds_per_batch: float = math.nan
    wait_seconds: float = math.nan
    step_seconds: float = math.nan
    step_cpu_seconds: float = math.nan
    cause: str = ""
    error: str = ""


class Straggler(NamedTuple):
    """The rank that the others wait for.

    Attributes:
        rank: Its number.
        slow: ``"data"`` or ``"step"``: what takes it longer than the others.
        sentence: The same in words, with figures.
    """

    rank: int
    slow: str
    sentence: str


def figures_of(rank: int, evidence: Evidence, verdict: Verdict) -> RankFigures:
    """Return the figures of this process, which is `rank`."""
    step = float(np.mean(evidence.step))
    wait, cpu = evidence.interval - step, evidence.loop_cpu * step
    return RankFigures(rank, socket.gethostname(), evidence.interval, wait, step, cpu, verdict.cause)


def straggler(ranks: Sequence[RankFigures]) -> Straggler | None:
    """Return the rank that takes clearly longer than the others; None if there is none."""
    known = [each for each in ranks if not each.error]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda each: each.seconds_per_batch)
    if _excess(slowest, known, "seconds_per_batch") > CLEAR * slowest.seconds_per_batch:  # not in lockstep
        of_data = _excess(slowest, known, "wait_seconds") >= _excess(slowest, known, "step_seconds")
        return _waits(slowest, known, "") if of_data else _computes(slowest, known, "step_seconds", "")
    waits = max(known, key=lambda each: each.wait_seconds)
    if _excess(waits, known, "wait_seconds") > CLEAR * waits.seconds_per_batch:
        return _waits(waits, known, " They wait for it in their steps.")
    measured = [each for each in known if not math.isnan(each.step_cpu_seconds)]
    computes = max(measured, key=lambda each: each.step_cpu_seconds, default=slowest)
    if len(measured) > 1 and _excess(computes, measured, "step_cpu_seconds") > CLEAR * computes.seconds_per_batch:
        return _computes(computes, measured, "step_cpu_seconds", " of CPU time")
    return None


def lines(ranks: Sequence[RankFigures], found: Straggler | None) -> Iterator[str]:
    """Yield the ranks as lines of text, first those that wait longest."""
    if found is not None:
        yield found.sentence
    else:
        yield f"No rank takes {CLEAR:.0%} longer than the others."
        yield "If they reduce gradients on a device in each step, a rank whose own step is slow does not show."
    in_order = sorted(ranks, key=lambda each: -each.wait_seconds if not each.error else -math.inf)
    yield f"  {'rank':<24}{'wait':>9}{'step':>9}{'batch':>9}  ms"
    for each in in_order[:MOST_SHOWN]:
        called = f"  {f'{each.rank} ({each.host})'[:23]:<24}"
        in_ms = [f"{1e3 * getattr(each, name):>9.3g}" for name in SHOWN]
        figures = f"{''.join(in_ms)}  {CAUSES.get(each.cause, each.cause)}"
        yield called + (each.error or figures)
    if len(ranks) > MOST_SHOWN:
        yield f"  and {len(ranks) - MOST_SHOWN} more"


def _excess(one: RankFigures, ranks: Sequence[RankFigures], figure: str) -> float:
    """Return by how much a figure of a rank is above the median of the others."""
    return float(getattr(one, figure)) - _of_others(one, ranks, figure)


def _of_others(one: RankFigures, ranks: Sequence[RankFigures], figure: str) -> float:
    return float(np.median([getattr(each, figure) for each in ranks if each is not one]))


def _waits(one: RankFigures, ranks: Sequence[RankFigures], more: str) -> Straggler:
    others = in_seconds(_of_others(one, ranks, "wait_seconds"))
    said = f"Rank {one.rank} is the straggler: it waits {in_seconds(one.wait_seconds)} for each batch"
    cause = CAUSES.get(one.cause, one.cause)
    return Straggler(one.rank, "data", f"{said}, the others {others}.{more} Its cause: {cause}.")


def _computes(one: RankFigures, ranks: Sequence[RankFigures], figure: str, of: str) -> Straggler:
    own, others = in_seconds(getattr(one, figure)), in_seconds(_of_others(one, ranks, figure))
    said = f"Rank {one.rank} is the straggler: its own step takes {own}{of}, that of the others {others}{of}"
    return Straggler(one.rank, "step", f"{said}. Faster data would not help it.")
