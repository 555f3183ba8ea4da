"""The first difference of batches, in words, from digests of their contents and from their layout in memory.

Digests are BLAKE2b (RFC 7693) of dtype, shape and bytes: 0.0 and -0.0 differ, and NaN equals itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Difference(NamedTuple):
    """Place and kind of the first difference of batches."""

    batch: int | None  # None if the number of batches differs
    row: int | None  # None if their form differs
    leaf: str  # the path to the array, as "[1]"; "" if they differ as a whole
    words: str


def first_difference(expected: Sequence[Any], got: Sequence[Any], cut: bool = False) -> Difference | None:
    """Return the first difference of two lists of batches; None if bytes and layout in memory are equal.

    With `cut` the two may be cut differently: only samples are compared, as many as both have.

    >>> first_difference([(np.arange(3), np.zeros(3))], [(np.arange(3), np.array([0.0, 2.0, 3.0]))])
    Difference(batch=0, row=1, leaf='[1]', words='row 1 of array [1] is 0.0, and here 2.0')
    """
    if layout_of(expected) == layout_of(got) and digest_of(expected) == digest_of(got):
        return None
    theirs = {part: value for part, _, value in _parts(got, cut)}
    found = [
        (place, part[0], value, theirs[part])
        for part, place, value in _parts(expected, cut)
        if part in theirs and digest_of(value) != digest_of(theirs[part])
    ]
    if found:
        (batch, row), leaf, one, other = min(found, key=lambda each: each[0])
        where = f"row {row} of " * (row >= 0) + (f"array {leaf}" if leaf else "all of it")
        return Difference(batch, None if row < 0 else row, leaf, f"{where} is {_values(one, other)}")
    if not cut and len(expected) != len(got):
        return Difference(None, None, "", f"it has {len(expected)} batches, and here {len(got)}")
    return None


def _parts(batches: Sequence[Any], cut: bool) -> Iterator[tuple[tuple[Any, ...], tuple[int, int], Any]]:
    """Yield the parts to compare: a name that is the same in each such list, batch and row, value.

    Parts are the samples of each leaf, counted over all batches. Unless `cut`, parts are also the values that are no
    arrays, and the layouts in memory; their rows are below 0.
    """
    counts: Counter[str] = Counter()
    for number, batch in enumerate(batches):
        leaves = dict(named_leaves(batch))
        for row, (name, part) in enumerate({} if cut else {**leaves, "": batch}.items(), -len(leaves) - 1):
            yield (name, "layout", number), (number, row), layout_of(part)
        for name, leaf in leaves.items():
            if isinstance(leaf, list) or (hasattr(leaf, "__array__") and np.ndim(leaf) > 0):
                for row, sample in enumerate(leaf):
                    yield (name, counts[name]), (number, row), sample
                    counts[name] += 1
            elif not cut:
                yield (name, "value", number), (number, -1), leaf


def named_leaves(batch: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch, each with the path to it.

    >>> [name for name, _ in named_leaves((1, {"mask": 2}, (3,)))]
    ['[0]', "[1]['mask']", '[2][0]']
    """
    if isinstance(batch, (tuple, dict)):
        for key, part in batch.items() if isinstance(batch, dict) else enumerate(batch):
            yield from named_leaves(part, f"{path}[{key!r}]")
    else:
        yield path, batch


def _values(one: Any, other: Any) -> str:
    """Return the first pair of values that differ, in words."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.shape == other.shape != ():
        at = next((i for i in np.ndindex(one.shape) if digest_of(one[i]) != digest_of(other[i])), (0,) * one.ndim)
        return f"{_values(one[at], other[at])} at {[*at]} of the sample"
    one, other = (value.item() if isinstance(value, np.generic) else value for value in (one, other))
    return f"{one!r:.120}, and here {other!r:.120}"


def layout_of(value: Any) -> str:
    """Return the layout of a batch in memory: types of containers, dtypes, shapes, strides, flags.

    >>> layout_of((np.zeros((2, 3)).T, [1]))
    'tuple(ndarray float64 (3, 2) strides (8, 24) F_CONTIGUOUS ALIGNED WRITEABLE, list(int))'
    """
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        flags = [name for name in ("C_CONTIGUOUS", "F_CONTIGUOUS", "ALIGNED", "WRITEABLE") if value.flags[name]]
        objects = f" of {layout_of(value.tolist())}" if value.dtype == object else ""
        return f"{kind} {value.dtype} {value.shape} strides {value.strides} {' '.join(flags)}{objects}"
    if isinstance(value, (tuple, list)):
        return f"{kind}({', '.join(map(layout_of, value))})"
    if isinstance(value, Mapping):
        return f"{kind}({', '.join(f'{name!r}: {layout_of(part)}' for name, part in value.items())})"
    if hasattr(value, "stride") and hasattr(value, "dtype"):  # a tensor
        return f"{kind} {value.dtype} {tuple(value.shape)} strides {tuple(value.stride())}"
    return kind


def digest_of(value: Any) -> int:
    """Return a digest of any content of a batch. For an object that cannot be pickled, only its type counts."""
    digest = hashlib.blake2b(digest_size=8)
    _feed(digest, value)
    return int.from_bytes(digest.digest(), "little")


def _feed(digest: Any, value: Any) -> None:
    """Add a value to a digest."""
    if hasattr(value, "__array__"):
        value = _parts_of(value)
    if isinstance(value, (tuple, list, Mapping)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for part in value.items() if isinstance(value, Mapping) else value:
            _feed(digest, part)
    elif isinstance(value, bytes):
        digest.update(value)
    else:
        try:
            digest.update(pickle.dumps(value))
        except Exception:
            digest.update(type(value).__qualname__.encode())


def _parts_of(value: Any) -> Any:
    """Return the form and the values of an array, or of a tensor whose dtype NumPy may lack."""
    try:
        array = np.asarray(value)
    except (TypeError, RuntimeError):
        with contextlib.suppress(RuntimeError):  # sparse tensors fail here too, and NumPy's error says more
            return str(getattr(value, "dtype", "")), value.tolist()
        raise
    return f"{array.dtype}{array.shape}", array.tolist() if array.dtype.hasobject else array.tobytes()
