"""The columns of a source as a table: dtypes, ranges, missing values, class counts, lengths."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..data_source.faces import shown
from ..data_source.source import AbstractDataSource
from ..data_statistics.column import ColumnStatistics, column_statistics
from ..data_statistics.compute import checked_pool, merged_parts
from ..data_statistics.partial import ColumnPartial
from ..data_statistics.table import aligned
from ..display import counted, printable, progress_of
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.node import Classes, numbered_length
from ..randomness import OrderKey
from ..randomness.numpy_rng import globals_kept
from ..sampling.standard import StandardSampler
from .columns import ColumnPart, ColumnParts
from .panels import LABEL, LABELS
from .samples import refuse_used_up, source_or_batch, with_copied_maps
from .values import number_in_words, numbered, shortened

SEED = 0
"""Seed of the samples that are drawn."""

SHOWN_VALUES = 3
"""The most common values of a column that the table shows."""

MOST_VALUES = 100
"""The most common values of a column that are kept."""

MOST_CHARS = 24
"""Characters of a value in the table."""

TITLES = ("column", "dtype", "shape", "missing", "min", "mean", "max", "lengths", "most common")


@dataclasses.dataclass(frozen=True)
class ColumnSummary:
    """A column in a :class:`Summary`.

    Attributes:
        name: Its name, or its place as text. A column inside a dict or tuple has a dotted name: ``target.boxes``.
        dtype: dtype of its samples; of other samples the type, such as ``str``. Several are separated by commas.
        shape: Shape of a sample, with None for an axis whose length varies; None if the number of axes varies, or
            samples are no arrays.
        missing: Values that are NaN, and samples that are None.
        min: The least value, NaN left out; None without numbers.
        mean: The mean of the values.
        max: The greatest value.
        lengths: Least, mean and greatest length of texts, of lists, and of arrays whose first axis varies; None for
            others.
        distinct: How many different integers or texts there are; None for other columns, or above 10,000.
        common: The most common values with how often each occurs, at most 100; ties in their order.
        names: The names of the classes, if the values are their numbers.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    missing: int
    min: float | None
    mean: float | None
    max: float | None
    lengths: tuple[int, float, int] | None
    distinct: int | None
    common: tuple[tuple[Any, int], ...]
    names: tuple[str, ...]

    def words(self) -> list[str]:
        """Return the words of a line of the table."""
        shape = "" if self.shape is None else f"({', '.join('any' if n is None else str(n) for n in self.shape)})"
        numbers = ["" if each is None else number_in_words(each) for each in (self.min, self.mean, self.max)]
        lengths = ""
        if self.lengths is not None:
            least, mean, most = self.lengths
            lengths = str(least) if least == most else f"{least} to {most}, mean {number_in_words(mean)}"
        found = [f"{self._value(value)}: {count:,}" for value, count in self.common[:SHOWN_VALUES]]
        more = "" if self.distinct is None or self.distinct <= SHOWN_VALUES else f"; {self.distinct:,} values"
        name = shortened(printable(self.name), 2 * MOST_CHARS)
        return [name, self.dtype, shape, f"{self.missing:,}", *numbers, lengths, ", ".join(found) + more]

    def _value(self, value: Any) -> str:
        if isinstance(value, int) and self.names:
            return numbered(value, self.names, MOST_CHARS)
        return shortened(printable(str(value)), MOST_CHARS)


class Summary(Mapping[str, ColumnSummary]):
    """The columns of a source by their names, as :func:`batchup_ng.summary` finds them; ``print`` shows a table.

    Attributes:
        samples: How many samples were read.
        total: How many an epoch has; None if it is not known, ``math.inf`` without end.
        drawn: Whether the samples were drawn from all, by a fixed seed. Otherwise they are the first ones, or all.
    """

    def __init__(self, columns: Sequence[ColumnSummary], samples: int, total: float | None, drawn: bool) -> None:
        self._columns = {column.name: column for column in columns}
        self.samples, self.total, self.drawn = samples, total, drawn

    def __getitem__(self, name: str) -> ColumnSummary:
        if str(name) in self._columns:
            return self._columns[str(name)]
        raise KeyError(f"there is no column {name!r}; the columns are {list(self._columns)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, numbers and texts, which JSON can hold; NaN and infinity are None."""
        columns = {name: _plain(dataclasses.asdict(column)) for name, column in self._columns.items()}
        return {"samples": self.samples, "total": _plain(self.total), "drawn": self.drawn, "columns": columns}

    def __repr__(self) -> str:
        return f"{self._head()}\n{aligned([TITLES, *[column.words() for column in self._columns.values()]])}"

    def _repr_html_(self) -> str:
        lines = [f"<tr>{''.join(f'<th>{title}</th>' for title in TITLES)}</tr>"]
        for column in self._columns.values():
            lines.append(f"<tr>{''.join(f'<td>{html.escape(word)}</td>' for word in column.words())}</tr>")
        return f"<p>{html.escape(self._head())}</p><table>{''.join(lines)}</table>"

    def _head(self) -> str:
        if self.total == self.samples:
            return f"all {counted(self.samples, 'sample')}"
        if not self.drawn:
            return f"the first {counted(self.samples, 'sample')}"
        of = "" if self.total is None or self.total == math.inf else f" of {self.total:,}"
        return f"{self.samples:,}{of} samples, drawn by the seed {SEED}"


@validation.known_names({})
def summary(
    data: Any, samples: int | None = 1000, *, pool: Any = None, batch_size: int = 64,
    progress: bool | Callable[..., Any] = True,
) -> Summary:  # fmt: skip
    """Return a table of the columns of a source: dtypes, shapes, ranges, missing values, common values, lengths.

    It takes columns of any kind. Ranges and means are over all values of a column, and as exact as in
    :func:`batchup_ng.statistics`. NumPy's global state stays as it is. Copies of the functions of maps are called, if
    they can be pickled. Random maps draw the numbers of an epoch 0. An exception of a sample is raised, as in an epoch.

    Args:
        data: A source, any data that a :class:`~batchup_ng.Loader` takes, or a batch.
        samples: How many samples to read, drawn without repetition by a fixed seed. A source that only streams gives
            its first ones. None: all samples of an epoch.
        pool: Whose workers read and count, as for :func:`batchup_ng.statistics`. None: this thread.
        batch_size: Samples that are read together.
        progress: Whether to show progress in a terminal if tqdm is installed; or a function like ``tqdm.tqdm``.

    Raises:
        ArgumentError: there is no sample; or `samples` is None, and the epoch has no end.
        ArgumentTypeError: an argument is of the wrong kind.

    >>> import numpy as np, batchup_ng as bu
    >>> bu.summary({"age": np.array([20.0, 40.0, np.nan]), "tag": ["a", "bc", "a"]})
    all 3 samples
    column  dtype    shape  missing  min  mean  max  lengths               most common
    age     float64  ()     1        20   30    40
    tag     str             0                        1 to 2, mean 1.333  a: 2, bc: 1
    """
    source = _with_copied_maps(source_or_batch(data))
    wanted = None if samples is None else validation.positive_int("samples", samples)
    pool, batch_size = checked_pool(pool), validation.positive_int("batch_size", batch_size)
    shown = progress_of(progress, "summary", " batches")
    refuse_used_up(source.node)
    total = source.node.num_samples()
    if total == math.inf and wanted is None:
        raise ArgumentError("samples must be a number for data whose epoch has no end, not None; pass samples=1000")
    part, drawn = _some(source, wanted, total)
    with globals_kept():  # maps of the user may draw from them
        merged = merged_parts(
            part, ColumnParts(source.node.form()), pool, batch_size, shown, **({"shuffle": SEED} if drawn else {})
        )
    if not merged:
        raise ArgumentError("data must have samples to be summed up, and has none")
    classes = source.node.classes()
    columns = [_summed_up(name, found, classes) for name, found in merged.items()]
    return Summary(columns, max(found.n for found in merged.values()), total, drawn)


def _with_copied_maps(source: AbstractDataSource) -> AbstractDataSource:
    node = source.node
    copied = with_copied_maps(node)
    return source if copied is node else shown(copied)


def _some(source: AbstractDataSource, n: int | None, total: float | None) -> tuple[Any, bool]:
    """Return a source of `n` samples, and whether they are drawn from all."""
    if n is None or (total is not None and total <= n):
        return source, False
    if not source.is_random_access:
        return source.take(n), False
    try:
        length = numbered_length("data", source.node)
    except (ArgumentError, ArgumentTypeError):  # without an end, or in an order that is drawn
        return source.take(n), True
    plan = StandardSampler(length).row_plan(n, OrderKey(SEED, 0), False)
    return source.subset(np.sort(plan.rows_between(0, n))), True


def _summed_up(name: str, part: ColumnPart, classes: Classes | None) -> ColumnSummary:
    """Return the summary of a column whose samples are all in `part`."""
    values, lengths = _statistics(name, part.values), _statistics(name, part.lengths)
    shape = None
    if len(part.shapes) == 1 and not any(dtype in ("str", "bytes") for dtype in part.dtypes):
        ((least, most),) = part.shapes.values()
        shape = tuple([a if a == b else None for a, b in zip(least, most, strict=True)])
    if shape and shape[0] is not None:
        lengths = None
    numbers = values is not None and values.mean is not None and values.count
    distinct: int | None = None
    common: tuple[tuple[Any, int], ...] = ()
    if values is not None and values.classes is not None and (shape is None or len(shape) <= 1):
        distinct = len(values.classes)
        assert values.class_counts is not None
        order = np.argsort(-values.class_counts, kind="stable")[:MOST_VALUES]
        common = tuple([(values.classes[i].item(), int(values.class_counts[i])) for i in order])
    is_label = classes is not None and (name == str(classes.column) or name.rpartition(".")[2] in (LABEL, LABELS))
    return ColumnSummary(
        name,
        ", ".join(part.dtypes) or "None",
        shape,
        part.values.missing if values is None else values.missing,
        values.min if numbers and values is not None else None,
        float(values.mean) if numbers and values is not None else None,
        values.max if numbers and values is not None else None,
        None if lengths is None or not lengths.count else (int(lengths.min), float(lengths.mean), int(lengths.max)),
        distinct,
        common,
        classes.names if is_label and classes is not None else (),
    )


def _statistics(name: str, part: ColumnPartial) -> ColumnStatistics | None:
    """Return the statistics of values, or None if they are of kinds that have none together."""
    try:
        whole = part.result(name)
    except ArgumentError:
        return None
    return None if whole is None else column_statistics(name, whole)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
