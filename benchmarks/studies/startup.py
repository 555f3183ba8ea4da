"""How long a pool takes to start, by start method, with what its workers then hold."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks.case import Result
from benchmarks.outcome import Epoch
from benchmarks.peers import starters
from benchmarks.report.readings import figure, first_batch_seconds, measured, seconds
from benchmarks.report.tables import against, median_and_range, median_column, number, table_of
from benchmarks.studies.base import Part, Study
from benchmarks.workloads import Workload

MEGABYTES = 1e-6
MILLISECONDS = 1e3
COMPARED = "{} of ours, as a multiple of that of the others"


def tell_ready(result: Result) -> list[str]:
    """The time until all workers have answered."""
    return [
        table_of(result.outcomes, median_and_range("ready, s", seconds)),
        against(seconds, result.outcomes, COMPARED.format("Time until ready")),
    ]


def tell_first_batch(result: Result) -> list[str]:
    """First batches and memory, one plain copy for scale, the ratios."""
    columns = [
        *median_and_range("first batch, s", first_batch_seconds),
        median_column("less one copy, s", beyond_copy),
        median_column("another pool, s", figure("again_seconds")),
        median_column("next epoch's first, ms", figure("next_first_batch_seconds", MILLISECONDS)),
        median_column("private to a worker, MB", figure("worker_private_bytes", MEGABYTES)),
        median_column("USS of a worker, MB", figure("worker_unique_bytes", MEGABYTES)),
        median_column("all processes grew by, MB", figure("growth_bytes", MEGABYTES)),
    ]
    return [
        table_of(result.outcomes, columns),
        copies(result),
        against(first_batch_seconds, result.outcomes, COMPARED.format("Time to the first batch")),
    ]


def beyond_copy(epoch: Epoch) -> float:
    """The time to the first batch above that of one plain copy of the data, in the same process."""
    return epoch.first_batch_seconds - epoch.figures["copy_seconds"]


def copies(result: Result) -> str:
    """How long the copies took."""
    times = [
        epoch.figures["copy_seconds"] for outcome in filter(measured, result.outcomes) for epoch in outcome.rounds
    ]
    if not times:
        return ""
    told = f"{number(median(times))} s ({number(min(times))} to {number(max(times))})"
    return f"One plain copy of the images into memory never touched, in each of these processes: {told}."


def _mapped(workload: Workload) -> Workload:
    return replace(workload, mapped=True)


MEMORY = Part(
    name="memory",
    title="Data in memory, as one array",
    kind="arrays",
    known=starters("arrays"),
    trial="startup",
    fresh=True,
    unit="s",
    reading=first_batch_seconds,
    tell=tell_first_batch,
)
STUDY = Study(
    name="startup",
    title="startup: from nothing to the first batch",
    rounds=3,
    parts=(
        Part(
            name="ready",
            title="A new pool without data: until each worker has answered",
            kind="none",
            known=starters("none"),
            trial="ready",
            fresh=True,
            unit="s",
            reading=seconds,
            tell=tell_ready,
        ),
        MEMORY,
        replace(
            MEMORY,
            name="mapped",
            title="The same data mapped from a `.npy` file",
            known=tuple(variant for variant in MEMORY.known if not variant.name.endswith("-tensors")),
            adapt=_mapped,
        ),
    ),
)
