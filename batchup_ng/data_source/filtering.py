"""The source of the samples that a predicate keeps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import batch as batches
from .. import validation
from ..accessors.map_style import MapStyle
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError
from .array import ArrayDataSource
from .base import AbstractDataSource
from .looking import numbered_length, read_in_order
from .map import call
from .views import SubsetDataSource

SAMPLES_READ_AT_ONCE = 256
"""Number of samples to read together."""


def filter_samples(source: AbstractDataSource, predicate: Callable[..., Any], columns: Any = None) -> SubsetDataSource:
    """Return a source with the samples of `source` that `predicate` keeps: see its method ``filter``."""
    if not callable(predicate):
        raise ArgumentTypeError(f"predicate must be a function of a sample, not a {type(predicate).__name__}")
    if not source.is_random_access:
        raise ArgumentTypeError(
            f"filter reads samples by number, and this {type(source).__name__} only streams; filter what is handed "
            f"to a pool before, or leave samples out in the function that makes the batches"
        )
    n = numbered_length("source", source)
    names = None if columns is None else [columns] if np.ndim(columns) == 0 else list(columns)
    narrow = None if names is None else _narrowed(source, names)
    keep = np.zeros(n, dtype=bool)
    for start in range(0, n, SAMPLES_READ_AT_ONCE):
        positions = np.arange(start, min(start + SAMPLES_READ_AT_ONCE, n))
        batch = read_in_order(source if narrow is None else narrow, positions)
        if names is not None and narrow is None:
            batch = _picked(batch, names)
        kept = [_decided(predicate, sample) for sample in batches.samples_of(batch)]
        if len(kept) != len(positions):
            raise ArgumentError(
                f"the maps make {len(kept)} samples of {len(positions)}, so that they cannot be told apart; filter "
                f"before the map that changes their number"
            )
        keep[positions] = kept
    return SubsetDataSource(source, np.flatnonzero(keep))


def _decided(predicate: Callable[..., Any], sample: Any) -> bool:
    answer = call(predicate, sample)
    if isinstance(answer, (bool, np.bool_)) or (getattr(answer, "ndim", -1) == 0 and "bool" in str(answer.dtype)):
        return bool(answer)
    raise ArgumentTypeError(
        f"predicate {function_name(predicate)!r} must return True or False for one sample, not a "
        f"{type(answer).__name__}; it is called with the parts of a sample, as map_samples calls its function"
    )


def _narrowed(source: AbstractDataSource, names: list[Any]) -> AbstractDataSource | None:
    """Return a source that reads only some columns of `source`, or None if `source` must read all."""
    if type(source) is SubsetDataSource:
        part = _narrowed(source.source, names)
        if part is None:
            return None
        narrow = copy.copy(source)  # with its rows and repeats
        narrow.source = part
        return narrow
    if type(source) is not ArrayDataSource or source.include_indices:
        return None
    if any(isinstance(array, MapStyle) for array in source.data):  # it may have several columns
        return None
    picked = _picked(source.columns, names)
    return ArrayDataSource(picked if isinstance(picked, dict) else list(picked), sampler=source.sampler)


def _picked(batch: Any, names: list[Any]) -> Any:
    """Return some columns of a batch. Raise if it does not have them."""
    if isinstance(batch, Mapping):
        return {name: batch[validation.one_of("columns", name, batch)] for name in names}
    for name in names:
        if not -len(batch) <= validation.integer("columns", name) < len(batch):
            raise ArgumentError(f"columns must be numbers of the {len(batch)} columns, from 0 on, not {name}")
    return tuple([batch[name] for name in names])
