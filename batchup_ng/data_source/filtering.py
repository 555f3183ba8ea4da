"""Which samples of a source a predicate keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import batch as batches
from ..error_context import function_name
from ..errors import ArgumentError, ArgumentTypeError
from .base import AbstractDataSource, call
from .looking import numbered_length, read_in_order
from .views import SubsetDataSource

AT_ONCE = 256
"""Samples that are read together."""


def filter_samples(source: AbstractDataSource, predicate: Callable[..., Any]) -> SubsetDataSource:
    """Return a source with the samples of `source` for which `predicate` is true: see its method ``filter``."""
    if not callable(predicate):
        raise ArgumentTypeError(f"predicate must be a function of a sample, not a {type(predicate).__name__}")
    if not source.is_random_access:
        raise ArgumentTypeError(
            f"filter reads samples by number, and this {type(source).__name__} only streams; filter what is handed "
            f"to a pool before, or leave samples out in the function that makes the batches"
        )
    n = numbered_length("source", source)
    keep = np.zeros(n, dtype=bool)
    for start in range(0, n, AT_ONCE):
        positions = np.arange(start, min(start + AT_ONCE, n))
        samples = batches.samples_of(read_in_order(source, positions))
        kept = [_decided(predicate, sample) for sample in samples]
        if len(kept) != len(positions):
            raise ArgumentError(
                f"the maps make {len(kept)} samples of {len(positions)}, so that they cannot be told apart; filter "
                f"before the map that changes their number"
            )
        keep[positions] = kept
    found = SubsetDataSource(source, np.flatnonzero(keep))
    found.kept_by = function_name(predicate)
    return found


def _decided(predicate: Callable[..., Any], sample: Any) -> bool:
    answer = call(predicate, sample)
    if isinstance(answer, (bool, np.bool_)) or (getattr(answer, "ndim", -1) == 0 and "bool" in str(answer.dtype)):
        return bool(answer)
    raise ArgumentTypeError(
        f"predicate {function_name(predicate)!r} must return True or False for one sample, not a "
        f"{type(answer).__name__}; it is called with the parts of a sample, as map_samples calls its function"
    )
