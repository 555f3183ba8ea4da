"""What a batch costs beside its work.

Batches a second where there is no work at all, CPU time where there is only copying.
"""

from __future__ import annotations

from functools import partial

from benchmarks.case import Result
from benchmarks.outcome import Epoch
from benchmarks.peers import loaders
from benchmarks.report.readings import batches_per_second, gigabytes_per_second
from benchmarks.report.tables import against, median_and_range, median_column, table_of, times_columns
from benchmarks.studies.base import Part, Study, epochs_a_turn, with_rows

EPOCHS = 10
"""How many epochs a turn of the CPU part has: a plain one lasts 50 ms."""
USUAL = (
    "plain", "ours-serial", "ours-threads", "ours-processes", "torch-workers", "torch-getitems", "batchup-threads"
)  # fmt: skip
COPYING = ("plain", "plain-threads", "ours-threads", "ours-processes")
ROWS = 64
MORE_ROWS = (213, 1365)
"""Batches of 10 and of 64 MB, by which what a batch costs beside its copying becomes small."""


def tell_empty(result: Result) -> list[str]:
    """Batches a second."""
    columns = [
        *median_and_range("batches/s, median", batches_per_second),
        median_column("µs a batch", lambda epoch: 1e6 / batches_per_second(epoch)),
        *times_columns(batches_per_second, result.outcomes),
    ]
    return [table_of(result.outcomes, columns), against(batches_per_second, result.outcomes)]


def cpu_per_gigabyte(epoch: Epoch) -> float:
    """User and system seconds of all processes for each gigabyte delivered."""
    return epoch.figures["cpu_seconds"] / (epoch.bytes / 1e9)


def tell_cpu(result: Result) -> list[str]:
    """CPU time, as a multiple of the loop's."""
    columns = [
        *median_and_range("CPU s a GB, median", cpu_per_gigabyte),
        *times_columns(cpu_per_gigabyte, result.outcomes),
        median_column("GB/s", gigabytes_per_second),
        median_column("CPUs busy", lambda epoch: epoch.figures["cpu_seconds"] / epoch.seconds),
    ]
    return [table_of(result.outcomes, columns)]


def _cpu(rows: int, usual: tuple[str, ...]) -> Part:
    """The CPU time of the arrays workload in batches of that many rows."""
    return Part(
        name="cpu" if rows == ROWS else f"cpu {rows} rows",
        title=f"CPU time of the arrays workload, all processes, {rows:,} rows a batch",
        kind="arrays",
        known=loaders("arrays"),
        usual=usual,
        adapt=partial(with_rows, rows=rows),
        settings=partial(epochs_a_turn, count=EPOCHS),
        trial="cpu",
        unit="CPU s/GB",
        reading=cpu_per_gigabyte,
        tell=tell_cpu,
    )


STUDY = Study(
    name="overhead",
    title="overhead: what a batch costs beside its work",
    parts=(
        Part(
            name="empty",
            title="Batches of 64 samples of 4 bytes, a map that does nothing",
            kind="tiny",
            known=loaders("tiny"),
            unit="batches/s",
            reading=batches_per_second,
            tell=tell_empty,
        ),
        _cpu(ROWS, USUAL),
        *(_cpu(rows, COPYING) for rows in MORE_ROWS),
    ),
)
