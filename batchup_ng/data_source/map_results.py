"""What a map may return: a tuple or dict of arrays with one row for each sample of its batch.

A map that returns anything else is told of where it returns, alike in a plain loop and in every pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import batch as batches
from ..error_context import function_name
from ..errors import MapResultError


def checked_result(fn: Callable[..., Any], result: Any, batch: Any, resizes: bool) -> Any:
    """Return what the map `fn` made of a batch, if that is a batch of as many samples, or of others if it `resizes`."""
    if _all_of_one_length(result, batch):
        return result
    name = function_name(fn)
    if not isinstance(result, (tuple, Mapping)):
        what = f"an array of shape {result.shape}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"
        raise MapResultError(
            f"map {name!r} returned {what}; let it return a tuple of arrays: return x, y, or return (x,) "
            f"for one"
        )
    made, given = batches.lengths(result), batches.lengths(batch)
    if given and (not made or any(isinstance(part, Iterator) for part in batches.leaves(result))):
        raise MapResultError(
            f"map {name!r} returned no array, or a generator beside it; let it return arrays with one row for each "
            f"sample: return x, y"
        )
    if made <= given or not given or (resizes and (len(made) == 1 or len(given) > 1)):
        return result
    if len(made) > 1:
        raise MapResultError(
            f"map {name!r} returned arrays of different lengths, {_columns(result)}; let each have one row for each "
            f"sample"
        )
    raise MapResultError(
        f"map {name!r} returned {min(made)} samples for a batch of {max(given)}; let it return one for each, or pass "
        f"map(fn, resizes=True) if it is to make more or fewer"
    )


def _all_of_one_length(result: Any, batch: Any) -> bool:
    """Return whether `result` is a tuple of arrays as long as those of `batch`: the quick way for nearly all."""
    if type(result) is not tuple or type(batch) is not tuple or not batch or type(batch[0]) is not np.ndarray:
        return False
    length = batch[0].shape[:1]
    for part in result:
        if type(part) is not np.ndarray or part.shape[:1] != length:
            return False
    return bool(length and result)


def _columns(batch: Any) -> str:
    """Return how many rows the parts of a batch have, in words: ``8 in [0], 5 in [1]``."""
    parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch)
    found = [(name, sorted(batches.lengths((part,)))) for name, part in parts]
    return ", ".join(f"{' and '.join(map(str, rows))} in [{name!r}]" for name, rows in found if rows)
