"""The three workloads at full speed: ``arrays``, ``images``, ``python``."""

from __future__ import annotations

from functools import partial

from benchmarks.case import Result
from benchmarks.peers import loaders
from benchmarks.report.readings import (
    Reading,
    batches_per_second,
    first_batch_seconds,
    gigabytes_per_second,
    samples_per_second,
    seconds,
)
from benchmarks.report.tables import against, first_column, median_and_range, median_column, table_of, times_columns
from benchmarks.studies.base import Part, Study, epochs_a_turn


def tell(result: Result) -> list[str]:
    """The rates of an epoch at full speed, then how ours compare."""
    unit, reading, outcomes = result.case.unit, result.case.reading, result.outcomes
    columns = [
        *median_and_range(f"{unit}, median", reading),
        median_column("batches/s", batches_per_second),
        first_column("first epoch, s", seconds),
        first_column("first batch, ms", lambda epoch: first_batch_seconds(epoch) * 1000),
        median_column("an epoch then, s", lambda epoch: epoch.seconds / epoch.samples * result.case.workload.samples),
        *times_columns(reading, outcomes),
    ]
    return [table_of(outcomes, columns), against(reading, outcomes)]


def _study(name: str, title: str, unit: str, reading: Reading, epochs: int = 1) -> Study:
    part = Part(
        name=name,
        title=title,
        kind=name,
        known=loaders(name),
        tell=tell,
        unit=unit,
        reading=reading,
        settings=partial(epochs_a_turn, count=epochs),
    )
    return Study(name=name, title=f"{name}: {title}", parts=(part,))


ARRAYS = _study("arrays", "shuffled batches of uint8 images in RAM", "GB/s", gigabytes_per_second, epochs=5)
IMAGES = _study("images", "JPEG files decoded to 224x224 RGB", "images/s", samples_per_second)
PYTHON = _study("python", "pure-Python work on each sample", "samples/s", samples_per_second)
