"""Digests of what batches hold, and how it lies in memory.

Digests are BLAKE2b (RFC 7693) of dtype, shape and bytes, so that 0.0 and -0.0 are told apart and NaN equals itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np


def layout_of(value: Any) -> str:
    """Return how a batch lies in memory: types of containers, dtypes, shapes, strides, flags.

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
    """Return a digest of anything that a batch may hold; of an object that cannot be pickled, only of its type."""
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
    """Return the form and the values of an array, or of a tensor, whose dtype NumPy may lack."""
    try:
        array = np.asarray(value)
    except (TypeError, RuntimeError):
        with contextlib.suppress(RuntimeError):  # as of sparse tensors, of which NumPy's error says more
            return str(getattr(value, "dtype", "")), value.tolist()
        raise
    return f"{array.dtype}{array.shape}", array.tolist() if array.dtype.hasobject else array.tobytes()
