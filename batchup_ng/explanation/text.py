"""An explanation as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..display import in_seconds
from ..meters.stopwatch import READ
from . import model, ranks
from .evidence import Evidence
from .verdict import SLOW

WIDTH = 36
"""Number of characters of the name of a stage."""

SHOWN_FROM = 2.0
"""The slowest batches are shown if the first of them took so many times the median."""


def lines(told: Any, evidence: Evidence) -> Iterator[str]:
    """Yield the lines of an :class:`~.explanation.Explanation`, first what matters most."""
    yield (
        f"The loop waited {told.wait_share:.1%} of the time. A batch came each {in_seconds(told.seconds_per_batch)}; "
        f"the loop's own work is {in_seconds(told.step_seconds)} of that ({told.batches} batches)."
    )
    yield f"{told.verdict.sentence} (confidence: {told.verdict.confidence})"
    if evidence.first_wait > 10 * told.seconds_per_batch:
        yield f"The first batch of all came after {in_seconds(evidence.first_wait)}."
    if told.headroom.measured:
        gain = f"{told.headroom.share:.0%} less than now (measured with one batch again)"
        yield f"If data cost nothing, a batch would come each {in_seconds(told.headroom.seconds)}, {gain}."
    yield ""
    yield from _advice(told)
    yield ""
    yield f"{'stage':<{WIDTH}}{'mean':>9}{'p50':>9}{'p99':>9}  ms"
    for name, of in told.stages.items():
        yield f"{clean(name)[: WIDTH - 2]:<{WIDTH}}{of['mean']:>9.3g}{of['p50']:>9.3g}{of['p99']:>9.3g}"
    yield ""
    yield from _setting(told, evidence)
    if told.slowest[0]["seconds"] > SHOWN_FROM * float(np.median(evidence.make)):
        yield "Slowest batches:"
        for each in told.slowest:
            samples = f", {clean(each['samples'])}" if each["samples"] else ""
            yield f"  epoch {each['epoch']}, batch {each['number']}: {in_seconds(each['seconds'])}{samples}"
    yield from _slow_samples(told)
    if told.ranks:
        yield from map(clean, ranks.lines(told.ranks, told.straggler))
    if told.ruled_out:
        yield "Ruled out:"
        yield from (f"  {cause}: {why}" for cause, why in told.ruled_out.items())


def _slow_samples(told: Any) -> Iterator[str]:
    slow = [each for each in told.slowest_samples if each["seconds"] > SLOW * each["typical"]]
    if not slow:
        return
    yield "Slowest samples:"
    for each in slow:
        step = "reading" if each["step"] == READ else f"map {clean(each['step'])}"
        others = f"the others of its batch {in_seconds(each['typical'])}"
        batch = f"epoch {each['epoch']}, batch {each['number']}"
        yield f"  {clean(each['sample'])}: {in_seconds(each['seconds'])} in {step}, {others} ({batch})"


def _advice(told: Any) -> Iterator[str]:
    yield "What would help:" if told.advice else "No other setting of the loader would help much."
    for number, each in enumerate(told.advice, 1):
        yield f"  {number}. {clean(each.change)}: {in_seconds(each.seconds)} a batch, {each.gain:.0%} less ({each.how})"
        yield f"     {clean(each.code)}"
    if told.tried:
        yield told.tried


def _setting(told: Any, evidence: Evidence) -> Iterator[str]:
    setting = evidence.setting
    if setting.kind == "serial":
        return
    busy = f"busy for {evidence.busy_share:.0%} of the time"
    fewer = ""
    if told.verdict.cause == "loop" and (enough := model.best_workers(evidence, setting.workers)[0]) < setting.workers:
        fewer = f"; {enough} would do"
    yield f"Workers: {setting.workers} ({setting.kind}), on {setting.cpus} CPUs, {busy}{fewer}."
    ready = evidence.ready_mean
    counted = "" if ready != ready else f", of which {ready:.1f} were ready when the loop asked"
    limited = f" (of {setting.buffer_asked} asked for)" if setting.buffer < setting.buffer_asked else ""
    yield f"Buffer: {setting.buffer} batches{limited}{counted}."


def clean(text: str) -> str:
    """Return text without control characters, which terminals obey."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
