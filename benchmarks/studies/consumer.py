"""How loader and consumer get on: one that sleeps for long, one that keeps the interpreter busy."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.case import Result
from benchmarks.peers import loaders
from benchmarks.report.readings import batches_per_second, figure
from benchmarks.report.tables import against, median_and_range, median_column, table_of
from benchmarks.studies.base import Part, Study
from benchmarks.workloads import calibrate_loops

STEP_SECONDS = 0.02
"""How long the busy consumer's step is where nothing disturbs it."""
PERCENT = 100.0
KINDS = {"arrays": "arrays in memory", "images": "JPEG files", "python": "pure-Python work"}
WAITING = ("ours-threads", "ours-processes", "torch-workers", "torch-getitems")
BUSY = ("ours-serial", "ours-threads", "ours-one-process", "ours-processes", "torch-workers", "torch-getitems")


def tell_slow(result: Result) -> list[str]:
    """The shares that the consumer waited."""
    columns = [
        median_column("a batch at full speed, ms", figure("pace_seconds", 1000)),
        median_column("the consumer's step, ms", figure("step_seconds", 1000)),
        *median_and_range("waits, %", figure("waited_later", PERCENT)),
        median_column("by `stats()`, %", figure("reported_later", PERCENT)),
        median_column("with the first batch, %", figure("waited", PERCENT)),
        median_column("by `stats()`, %", figure("reported", PERCENT)),
    ]
    return [table_of(result.outcomes, columns)]


def tell_busy(result: Result) -> list[str]:
    """How fast the consumer's own loop ran, how many batches it had."""
    columns = [
        *median_and_range("consumer's loops, M/s", figure("loops_per_second", 1e-6)),
        median_column("of its speed alone, %", figure("alone", PERCENT)),
        *median_and_range("batches/s", batches_per_second),
    ]
    return [table_of(result.outcomes, columns), against(batches_per_second, result.outcomes)]


def _slow(kind: str, title: str) -> Part:
    return Part(
        name=f"slow-{kind}",
        title=f"A consumer that sleeps for the time of two batches: {title}",
        kind=kind,
        known=loaders(kind),
        usual=WAITING,
        trial="slow-consumer",
        unit="share waited after the first batch",
        reading=figure("waited_later"),
        tell=tell_slow,
    )


def _busy(kind: str, title: str) -> Part:
    return Part(
        name=f"busy-{kind}",
        title=f"A consumer that runs {STEP_SECONDS * 1000:.0f} ms of Python on each batch: {title}",
        kind=kind,
        known=loaders(kind),
        usual=BUSY,
        settings=_loops,
        trial="busy-consumer",
        unit="batches/s",
        reading=batches_per_second,
        tell=tell_busy,
    )


def _loops(quick: bool) -> Mapping[str, float]:
    return {"loops": 20 if quick else calibrate_loops(STEP_SECONDS)}


STUDY = Study(
    name="consumer",
    title="consumer: how loader and training loop get on",
    rounds=3,
    parts=tuple(part(kind, title) for part in (_slow, _busy) for kind, title in KINDS.items()),
)
