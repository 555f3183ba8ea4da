"""A function for maps that standardises columns."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import validation
from ..columns import column_names
from ..errors import ArgumentError, ArgumentTypeError, MapCallError
from ..validation import one_of
from .column import ColumnStatistics
from .partial import STRINGS
from .result import Statistics


class standardize:
    """A function for ``source.map`` that returns ``(x - mean) / std`` of columns. A std of 0 counts as 1.

    The values must be in the unit of the statistics. `uint8` and floats are usually in different ones, 0 to 255 and
    0 to 1, so statistics of one are refused for a column of the other.

    Without `columns`, it takes all columns of a batch and standardises the columns of floats in `stats`. The others
    stay as they are: integers may be classes. With `columns`, it standardises these. If a batch is a dict, it finds
    them by name. If it is called by place, it takes these columns only, in this order. With the statistics of one
    column, it takes this column. ``map(..., on=columns)`` says the columns, too.

    >>> import numpy as np, batchup_ng as bu
    >>> source = bu.ArrayDataSource({"age": np.array([20, 40]), "label": np.array([0, 1])})
    >>> stats = bu.statistics(source)
    >>> source.map(bu.standardize(stats["age"]), on="age")[:]["age"].tolist()
    [-1.0, 1.0]

    Args:
        stats: From :func:`batchup_ng.statistics`: all of it, or one column of it.
        columns: Names or places of columns in `stats`.
        dtype: ``"float32"``, ``"float64"`` or ``"float16"``: the dtype of the results. They are computed in float64.

    Raises:
        ArgumentError: `columns` are not in `stats`; in a call: a column of floats was `uint8` in `stats`, or the other
            way round.
        MapCallError: in a call: nothing says the columns, and `stats` has none of floats.
        ArgumentTypeError: `stats` are no statistics, or a column holds strings.
    """

    @validation.known_names({})
    def __init__(self, stats: Any, columns: Any = None, dtype: Any = "float32") -> None:
        self.dtype = np.dtype(one_of("dtype", np.dtype(dtype).name, ("float32", "float64", "float16")))
        self._in_order: Sequence[Any] | None = None
        if isinstance(stats, ColumnStatistics):
            stats, columns = Statistics({stats.name: stats}), [stats.name] if columns is None else columns
        if not isinstance(stats, Statistics):
            raise ArgumentTypeError(f"stats must be statistics, not a {type(stats).__name__}; see bu.statistics")
        self._of_all = {name: one.mean_and_std() for name, one in stats.items() if one.dtype != STRINGS}
        if columns is not None:
            self._in_order = column_names("columns", columns)
            for name in self._in_order:
                one_of("columns", name, stats)
        self._dtypes = {name: one.dtype for name, one in stats.items()}
        names = self._in_order or [name for name in stats if stats[name].dtype == "float64"]
        self._numbers = {name: stats[name].mean_and_std() for name in names}

    def for_columns(self, columns: Sequence[Any]) -> standardize:
        """Return this function for a map of these columns: ``source.map(standardize(stats), on=columns)``."""
        if self._in_order is not None and set(columns) != set(self._in_order) and len(self._in_order) > 1:
            raise ArgumentError(
                f"on must name the columns of standardize, {list(self._in_order)}, not {list(columns)}; leave them out "
                f"there"
            )
        if self._in_order is not None and len(self._in_order) == 1:  # such as stats["age"] on a column of another name
            return self
        made = copy.copy(self)
        missing = [name for name in columns if name not in self._of_all]
        if missing:
            raise ArgumentError(f"on must name columns of numbers in stats, {list(self._of_all)}, not {missing[0]!r}")
        made._in_order = list(columns)
        made._numbers = {name: self._of_all[name] for name in columns}
        return made

    def __call__(self, /, *columns: Any, **by_name: Any) -> Any:
        """Return the columns of a batch, as a tuple or as a dict."""
        if not self._numbers:
            raise MapCallError(
                f"columns must name columns of stats, {list(self._of_all)}, since none of them holds floats; pass "
                f"standardize(stats, columns), or map(..., on=columns)"
            )
        if by_name:
            missing = [name for name in self._numbers if name not in by_name]
            if missing:
                raise ArgumentError(
                    f"a batch must have the columns to standardise, and {list(by_name)} lacks {missing}; pass columns="
                )
            return {name: self._standardized(name, column) for name, column in by_name.items()}
        names = range(len(columns)) if self._in_order is None else self._in_order
        if self._in_order is None and not all(name in names for name in self._numbers):
            raise ArgumentError(
                f"standardize was called without names, and the columns of stats are {list(self._numbers)}; name those "
                f"to take: standardize(stats, columns)"
            )
        if len(names) != len(columns):
            raise ArgumentError(
                f"standardize takes the columns {list(names)}, not {len(columns)} columns; pass them to map as on="
            )
        return tuple([self._standardized(name, column) for name, column in zip(names, columns, strict=True)])

    def __repr__(self) -> str:
        return f"standardize({', '.join(map(repr, self._numbers))})"

    def _check_unit(self, name: Any, column: np.ndarray) -> None:
        """Refuse floats for statistics of `uint8`, and the reverse."""
        pair = {self._dtypes[name] == "uint8": self._dtypes[name], column.dtype == np.uint8: column.dtype.name}
        if column.size and len(pair) == 2 and np.dtype(pair[False]).kind == "f":
            raise ArgumentError(
                f"column {name!r} must be {self._dtypes[name]}, as in stats, not {column.dtype}, which may be in "
                f"another unit; compute stats from the source as it is before this map: bu.statistics(source)"
            )

    def _standardized(self, name: Any, column: Any) -> Any:
        if name not in self._numbers:
            return column
        mean, std = self._numbers[name]
        if isinstance(column, list):
            return [self._standardized(name, np.asarray(each)) for each in column]
        self._check_unit(name, np.asarray(column))
        result = np.subtract(column, mean, dtype=np.float64)
        result /= std
        return result.astype(self.dtype)
