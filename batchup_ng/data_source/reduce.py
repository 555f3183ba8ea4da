"""Functions that apply a function to each batch of an iterator and join or average the results."""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import batch as nests
from .. import validation
from ..batch_layout import finished
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.user import NEWER_OPTIONS
from ..memory.leases import FRESH

OPTIONS = ("n_batches", "prepend_args", "progress_iter_func", "sum_axis")
"""Options of these functions that ``batch_iterator`` does not have."""

ProgressFunction = Callable[..., Iterable[Any]]
"""Wraps an iterator to show progress, as ``tqdm.tqdm`` does: called with ``(iterator, total=..., leave=False)``."""


@validation.known_names({})
def batch_map_concat(
    func: Callable[..., Any],
    batch_iter: Iterable[Any],
    progress_iter_func: ProgressFunction | None = None,
    n_batches: int | None = None,
    prepend_args: tuple[Any, ...] | None = None,
) -> tuple[Any, ...] | None:
    """Return the results of ``func(*batch)`` joined over all batches, in order.

    Args:
        func: Called with the arrays of each batch. It returns an array, a tuple of arrays, or None for nothing. It may
            return the same array again and again.
        batch_iter: Iterator of batches.
        progress_iter_func: Wraps the iterator to show progress, for example ``tqdm.tqdm``.
        n_batches: Maximum number of batches to process; also the total of the progress display.
        prepend_args: Arguments for `func` before the arrays of the batch.

    Returns:
        One array for each result of `func`, joined along the first axis; None if there was no result.
    """
    kept = [
        _as_tuple(result, (np.ndarray,), "a single result as a NumPy array")
        for _, result in _results_of(_finishing(func), batch_iter, progress_iter_func, n_batches, prepend_args)
        if result is not None
    ]
    return tuple([np.concatenate(column, axis=0) for column in zip(*kept, strict=True)]) if kept else None


@validation.known_names({})
def batch_map_mean(
    func: Callable[..., Any],
    batch_iter: Iterable[Any],
    progress_iter_func: ProgressFunction | None = None,
    sum_axis: int | None = None,
    n_batches: int | None = None,
    prepend_args: tuple[Any, ...] | None = None,
) -> tuple[Any, ...] | None:
    """Return the results of ``func(*batch)`` added up over all batches, divided by the number of samples.

    So `func` must return *sums* over its batch, or, with `sum_axis`, one value per sample. The last batch may be
    shorter.

    Args:
        func: Called with the arrays of each batch. It returns an array, a number, a tuple of these, or None.
        sum_axis: The axis along which to add up each result. None if `func` returns sums.

    The other arguments are as for :func:`batch_map_concat`.

    Returns:
        One mean for each result of `func`, as ``float64``; None if there was no result.

    Raises:
        ArgumentError: the results of two batches differ in shape, such as one value per sample without `sum_axis`.
    """
    sums: list[Any] | None = None
    n_samples = 0
    for batch, result in _results_of(func, batch_iter, progress_iter_func, n_batches, prepend_args):
        n_samples += nests.length(batch)
        if result is None:
            continue
        values = _as_tuple(result, (np.ndarray, np.number, float, int), "a single result as a NumPy array or number")
        values = tuple(map(_wide, values))
        if sum_axis is not None:
            values = tuple([value.sum(axis=sum_axis) for value in values])
        elif sums is not None and list(map(np.shape, values)) != list(map(np.shape, sums)):
            raise ArgumentError(
                f"batch_map_mean adds up results that are sums over a batch, but they have shapes "
                f"{list(map(np.shape, sums))}, then {list(map(np.shape, values))}; if they are one value a sample, "
                f"pass sum_axis=0"
            )
        # Copy the first results: `func` may return the same array for each batch.
        sums = [value + 0 for value in values] if sums is None else list(map(operator.add, sums, values))
    if sums is None:
        return None
    return tuple([np.array(total).astype(float) / n_samples for total in sums])


def refuse_misspelt(method: str, source: Any, options: dict[str, Any]) -> None:
    """Refuse misspelt options of the method. The other options belong to ``batch_iterator``, which refuses its own."""
    theirs = inspect.signature(source.batch_iterator).parameters
    if any(each.kind is each.VAR_KEYWORD for each in theirs.values()):
        return
    known = [*OPTIONS, *theirs]
    for name in options:
        if name not in known and validation.closest(name, known) in OPTIONS:
            validation.no_unknown(method, {name: None}, known)


def shown_epoch(
    source: Any, batch_size: int, progress: ProgressFunction | None, n_batches: int | None, options: dict[str, Any]
) -> Iterable[Any]:
    """Return the batches of an epoch, wrapped in `progress` if it is given."""
    for_counting = {name: value for name, value in options.items() if name not in NEWER_OPTIONS}
    if n_batches is not None:
        n_batches = validation.positive_int("n_batches", n_batches)
    elif source.num_samples(**for_counting) == math.inf:
        raise ArgumentError(
            "Data set has infinite size or sampler will generate infinite samples but no n_batches limit specified"
            "; pass n_batches="
        )
    iterator = source.batch_iterator(batch_size, **options)
    total = n_batches
    if total is None:
        with contextlib.suppress(TypeError):  # the length is not known
            total = len(iterator)  # a user's own iterator may have none
    return iterator if progress is None else progress(iterator, total=total, leave=False)


def _finishing(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return `func` with results that nothing else refers to. It copies them if necessary."""
    return lambda *args, **named: finished(func(*args, **named), FRESH)


def _results_of(
    func: Callable[..., Any],
    batch_iter: Iterable[Any],
    progress: ProgressFunction | None,
    n_batches: int | None,
    prepend_args: tuple[Any, ...] | None,
) -> Iterator[tuple[Any, Any]]:
    """Yield each batch, at most `n_batches`, with the result of `func` for it."""
    if n_batches is not None:
        n_batches = validation.positive_int("n_batches", n_batches)
    if progress is not None:
        batch_iter = progress(batch_iter, total=n_batches, leave=False)
    before = prepend_args or ()
    for done, batch in enumerate(batch_iter, start=1):
        arguments = tuple(batch) if isinstance(batch, list) else batch
        yield arguments, func(*before, **arguments) if isinstance(arguments, Mapping) else func(*before, *arguments)
        if n_batches is not None and done >= n_batches:
            return


def _wide(value: Any) -> Any:
    """Return a value in a dtype in which sums keep their digits: float16 and small whole numbers are widened."""
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.itemsize >= (8 if dtype.kind in "iu" else 4):
        return value
    return value.astype({"f": np.float64, "i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))


def _as_tuple(result: Any, single: tuple[type, ...], wanted: str) -> tuple[Any, ...]:
    if isinstance(result, single):
        return (result,)
    if isinstance(result, tuple):
        return result
    raise ArgumentTypeError(f"Batch function should return a tuple of results, {wanted}, or None, not {type(result)}")
