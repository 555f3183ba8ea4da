"""What a shuffled order costs before its first batch, by time and by memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.case import Result
from benchmarks.outcome import Epoch
from benchmarks.peers import orderers
from benchmarks.report.readings import figure, first_batch_seconds, measured, middle, seconds
from benchmarks.report.tables import Column, median_and_range, median_column, number, table_of
from benchmarks.studies.base import Part, Study
from benchmarks.studies.order_plot import Bar, plot

MEGABYTES = 1e-6
MILLISECONDS = 1e3
MILLIONS = 1e-6
EARLY = 10_000
"""The batches after which the rate is taken."""


def first_batch(epoch: Epoch) -> float:
    """Until the first batch, ms."""
    return epoch.first_batch_seconds * MILLISECONDS


def tell_order(result: Result) -> list[str]:
    """First batch, rate, the whole epoch, memory."""
    return [table_of(result.outcomes, [*_order_columns(), median_column("whole epoch, s", seconds)])]


def tell_long(result: Result) -> list[str]:
    """First batch, rate, memory, then saving and resuming."""
    columns = [
        *_order_columns(),
        median_column("`state_dict()`, ms", figure("state_seconds", MILLISECONDS)),
        median_column("resume, ms", figure("resume_seconds", MILLISECONDS)),
        median_column("then the next batch, ms", figure("resumed_batch_seconds", MILLISECONDS)),
    ]
    return [table_of(result.outcomes, columns)]


def _order_columns() -> list[Column]:
    return [
        *median_and_range("first batch, ms", first_batch),
        *median_and_range("then indices a second, M", figure("early_rate", MILLIONS)),
        median_column("memory grew by, MB", figure("growth_bytes", MEGABYTES)),
    ]


def sums(epoch: Epoch) -> float:
    """The set-up with its first batch, in plain sums over the weights."""
    return epoch.first_batch_seconds / epoch.figures["cumsum_seconds"]


def tell_draws(result: Result) -> list[str]:
    """Set-up, then batches."""
    columns = [
        *median_and_range("set-up with a batch, s", first_batch_seconds),
        *median_and_range("in `cumsum`s", sums),
        median_column("a batch, median, ms", figure("batch_seconds", MILLISECONDS)),
        median_column("mean, ms", figure("mean_batch_seconds", MILLISECONDS)),
        median_column("longest, ms", figure("longest_batch_seconds", MILLISECONDS)),
        median_column("memory grew by, MB", figure("growth_bytes", MEGABYTES)),
    ]
    return [table_of(result.outcomes, columns)]


def _early(quick: bool) -> Mapping[str, float]:
    return {"early": 50 if quick else EARLY, "all": 1}


def _early_only(quick: bool) -> Mapping[str, float]:
    return {**_early(quick), "all": 0}


def _batches(quick: bool) -> Mapping[str, float]:
    return {"batches": 20 if quick else 1000}


def draw(results: Sequence[Result]) -> dict[str, str]:
    """The plot of the time to the first batch and of the memory."""
    bars = []
    for result in results:
        if result.case.name == "weights":
            continue
        for outcome in filter(measured, result.outcomes):
            label = f"{outcome.name}, {_power(result.case.workload.samples)} rows"
            memory = middle(figure("growth_bytes", MEGABYTES), outcome)
            bars.append(Bar(label, outcome.family == "ours", middle(first_batch, outcome), memory))
    return {"order.svg": plot(bars)} if bars else {}


def _power(rows: int) -> str:
    """The number of rows, a power of ten in words that fit a plot.

    >>> _power(10**8), _power(10**12), _power(5)
    ('10⁸', '10¹²', '5')
    """
    exponent = len(str(rows)) - 1
    superscript = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{superscript}" if rows == 10**exponent and exponent > 3 else number(rows).removesuffix(".00")


STUDY = Study(
    name="order",
    title="order: a shuffle before its first batch",
    rounds=3,
    parts=(
        Part(
            name="rows",
            title="The order of 10⁸ rows",
            kind="order",
            known=orderers("order"),
            settings=_early,
            trial="order",
            fresh=True,
            unit="s to the first batch",
            reading=first_batch_seconds,
            tell=tell_order,
        ),
        Part(
            name="long",
            title=f"The order of 10¹² rows, of which {EARLY:,} batches are handed out",
            kind="long-order",
            known=orderers("long-order"),
            settings=_early_only,
            trial="order",
            fresh=True,
            unit="s to the first batch",
            reading=first_batch_seconds,
            tell=tell_long,
        ),
        Part(
            name="weights",
            title="Draws by 10⁸ weights",
            kind="weights",
            known=orderers("weights"),
            settings=_batches,
            trial="draws",
            fresh=True,
            unit="s to the first batch",
            reading=first_batch_seconds,
            tell=tell_draws,
        ),
    ),
    draw=draw,
)
