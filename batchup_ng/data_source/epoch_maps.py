"""The methods of a source that apply a function to each batch of an epoch, and join or average the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import reduce
from .reduce import ProgressFunction, refuse_misspelt, shown_epoch

if TYPE_CHECKING:
    from .source import AbstractDataSource


def batch_map_concat(
    source: AbstractDataSource,
    func: Callable[..., Any],
    batch_size: int,
    progress_iter_func: ProgressFunction | None = None,
    n_batches: int | None = None,
    prepend_args: tuple[Any, ...] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...] | None:
    """Return the results of ``func(*batch)`` joined over an epoch: see :func:`~batchup_ng.batch_map_concat`.

    Args:
        batch_size: Samples per batch.
        **kwargs: Options of ``batch_iterator``.

    Raises:
        ArgumentError: the epoch never ends and `n_batches` is not given.
    """
    refuse_misspelt("batch_map_concat", source, kwargs)
    epoch = shown_epoch(source, batch_size, progress_iter_func, n_batches, kwargs)
    return reduce.batch_map_concat(func, epoch, None, n_batches, prepend_args)


def batch_map_mean(
    source: AbstractDataSource,
    func: Callable[..., Any],
    batch_size: int,
    progress_iter_func: ProgressFunction | None = None,
    sum_axis: int | None = None,
    n_batches: int | None = None,
    prepend_args: tuple[Any, ...] | None = None,
    **kwargs: Any,
) -> tuple[Any, ...] | None:
    """Return the mean of ``func(*batch)`` over an epoch: see :func:`~batchup_ng.batch_map_mean`.

    Options are as for :meth:`batch_map_concat`.
    """
    refuse_misspelt("batch_map_mean", source, kwargs)
    epoch = shown_epoch(source, batch_size, progress_iter_func, n_batches, kwargs)
    return reduce.batch_map_mean(func, epoch, None, sum_axis, n_batches, prepend_args)
