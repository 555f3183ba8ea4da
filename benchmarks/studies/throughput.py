"""The three workloads at full speed: ``arrays``, ``images``, ``python``."""

from __future__ import annotations

from benchmarks.case import Result
from benchmarks.peers import loaders
from benchmarks.report.readings import (
    Reading,
    batches_per_second,
    first_batch_seconds,
    gigabytes_per_second,
    measured,
    samples_per_second,
    seconds,
)
from benchmarks.report.tables import (
    against,
    first_column,
    median_column,
    range_column,
    table_of,
    times_column,
)
from benchmarks.studies.base import Part, Study

RATIO_TITLE = "How many times as fast ours are (median over the rounds of the ratio within a round):"


def tell(result: Result) -> list[str]:
    """The rates of an epoch at full speed, then how ours compare."""
    unit, reading, outcomes = result.case.unit, result.case.reading, result.outcomes
    columns = [
        median_column(f"{unit}, median", reading),
        range_column("range", reading),
        median_column("batches/s", batches_per_second),
        first_column("first epoch, s", seconds),
        first_column("first batch, ms", lambda epoch: first_batch_seconds(epoch) * 1000),
        median_column("steady, s", seconds),
        *(times_column(reading, outcome) for outcome in outcomes if outcome.baseline and measured(outcome)),
    ]
    return [table_of(outcomes, columns), against(RATIO_TITLE, reading, outcomes)]


def _study(name: str, title: str, unit: str, reading: Reading) -> Study:
    part = Part(name=name, title=title, kind=name, known=loaders(name), tell=tell, unit=unit, reading=reading)
    return Study(name=name, title=f"{name}: {title}", parts=(part,))


ARRAYS = _study("arrays", "shuffled batches of uint8 images in RAM", "GB/s", gigabytes_per_second)
IMAGES = _study("images", "JPEG files decoded to 224x224 RGB", "images/s", samples_per_second)
PYTHON = _study("python", "pure-Python work on each sample", "samples/s", samples_per_second)
