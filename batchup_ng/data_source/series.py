"""The source of windows of series, with the steps to be forecast."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..accessors.column import as_column
from ..accessors.ragged import Ragged
from ..accessors.windows import Windows
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.paging import is_mapped
from ..tensors import is_any_tensor
from .array import ArrayDataSource

ADVICE_ON_OPTIONS = {
    **dict.fromkeys(["sequence_length", "size", "window", "window_size"], "pass it as length="),
    **dict.fromkeys(["sequence_stride", "shift", "step"], "pass it as stride="),
    "targets": "pass horizon=, the number of steps to forecast; zip joins windows of another array",
    "sampling_rate": "pass every such step, values[::rate]",
}
"""Remedies for options of Keras' ``timeseries_dataset_from_array`` and of ``tf.data``."""


@validation.known_names(ADVICE_ON_OPTIONS)
def windows(values: Any, length: int, stride: int = 1, horizon: int = 0) -> ArrayDataSource:
    """Return a source whose samples are windows of series: `length` consecutive steps, and the `horizon` steps after.

    Batches are ``(x,)``, or ``(x, y)`` if `horizon` is above 0: ``x`` is ``(n, length, ...)``, ``y`` is
    ``(n, horizon, ...)``, of the dtype of `values`. No window crosses the border of two series. A series of t steps has
    ``(t - length - horizon) // stride + 1`` windows, or none if t is less than ``length + horizon``. The samples are
    ordered by series, then by time.

    Nothing is copied or kept for each window: the steps are read when a batch is made. An accessor reads a step once
    for a column of a batch. The first element of ``source.data`` has the attributes ``starts``, the row of `values`
    where each window begins, and ``series``, the number of its series: both ``(windows,) int64``.

    ``source.split(fractions, seed, groups=source.data[0].series)`` keeps each series whole. In
    ``source.split(fractions, shuffle=False, gap=gap)`` the windows of two parts share no step if `gap` is at least
    ``(length + horizon - 1) // stride``.

    Args:
        values: One series, ``(steps, ...)``: an array, a memmap, or an accessor with ``shape`` and ``dtype``, such as
            :class:`~batchup_ng.NpyRows`. Several series: a :class:`~batchup_ng.Ragged` with a row for each, or a list
            of arrays ``(steps, ...)`` of one dtype, which is copied to one array. For series in several files pass
            :func:`~batchup_ng.concat` of the windows of each.
        length: Steps of a window.
        stride: Steps from the beginning of a window to the beginning of the next one.
        horizon: Steps after the window, for the second column. 0: no second column.

    Raises:
        ArgumentError: `length` or `stride` is below 1, `horizon` is negative, no series has ``length + horizon`` steps,
            or the arrays of a list differ in dtype or in another axis than the first.
        ArgumentTypeError: `values` has no shape and dtype, holds objects, or draws at random; a list holds accessors or
            mapped files.

    >>> source = windows(np.arange(10), 4, stride=3, horizon=2)
    >>> x, y = source[:]
    >>> x.tolist(), y.tolist()
    ([[0, 1, 2, 3], [3, 4, 5, 6]], [[4, 5], [7, 8]])
    >>> windows([np.arange(5), np.arange(2), np.arange(10, 14)], 3).data[0].series
    array([0, 0, 0, 2, 2])
    """
    length, stride = validation.positive_int("length", length), validation.positive_int("stride", stride)
    horizon = validation.not_negative("horizon", horizon)
    series = _as_series(values)
    steps = as_column("values", series.values)
    if is_any_tensor(steps):
        steps = np.asarray(steps)
    if np.dtype(steps.dtype).hasobject:
        raise ArgumentTypeError("values must hold numbers, not objects; pass an array of one dtype: x.astype(float)")
    if getattr(steps, "draws", False):
        raise ArgumentTypeError(
            f"values must be the same whenever they are read, and this {type(steps).__name__} draws at random; make it "
            f"without that, and draw in a map of the windows"
        )
    span = length + horizon
    if not len(series) or series.lengths.max() < span:
        longest = int(series.lengths.max(initial=0))
        raise ArgumentError(
            f"length + horizon must be at most the number of steps of the longest series, {longest}, not {span}; "
            f"pass smaller ones, or longer series"
        )
    counts = np.maximum((series.lengths - span) // stride + 1, 0)
    first = series.offsets[:-1]
    columns = [Windows(steps, first, counts, length, stride)]
    if horizon:
        columns.append(Windows(steps, first + length, counts, horizon, stride))
    return ArrayDataSource(columns)


def _as_series(values: Any) -> Ragged:
    """Return one or several series as rows."""
    if isinstance(values, Ragged):
        return values
    if not isinstance(values, (list, tuple)):
        array = as_column("values", values)
        return Ragged(array, [0, len(array)])
    for i, one in enumerate(values):
        if hasattr(one, "read_into") or (isinstance(one, np.ndarray) and is_mapped(one)):
            raise ArgumentTypeError(
                f"values[{i}] must be an array in memory, because a list is copied to one array, not a "
                f"{type(one).__name__}; join the windows of each: concat(*[windows(one, length) for one in values])"
            )
    return Ragged.from_rows([np.asarray(one) if is_any_tensor(one) else one for one in values])
