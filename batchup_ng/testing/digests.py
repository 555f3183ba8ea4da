"""Digests of batches, sample by sample: what of two readings differs, without both at hand.

Digests are BLAKE2b (RFC 7693) of dtype, shape and bytes, 64 bits of it, so that 0.0 and -0.0 are told apart and NaN
equals itself.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import MapResultError


def named_leaves(batch: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a batch, each with the way to it.

    >>> [name for name, _ in named_leaves((1, {"mask": 2}, (3,)))]
    ['[0]', "[1]['mask']", '[2][0]']
    """
    if isinstance(batch, (tuple, dict)):
        for key, part in batch.items() if isinstance(batch, dict) else enumerate(batch):
            yield from named_leaves(part, f"{path}[{key!r}]")
    else:
        yield path, batch


def layout_of(value: Any) -> str:
    """Return how a batch lies in memory: types of containers, dtypes, shapes, strides, flags.

    >>> layout_of((np.zeros((2, 3)).T, [1]))
    'tuple(ndarray float64 (3, 2) strides (8, 24) F-contiguous, list(int))'
    """
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        flags = value.flags
        words = {
            "C-contiguous": flags.c_contiguous, "F-contiguous": flags.f_contiguous, "read-only": not flags.writeable,
            "unaligned": not flags.aligned,
        }  # fmt: skip
        told = [word for word, holds in words.items() if holds]
        parts = [kind, value.dtype, value.shape, "strides", value.strides, *told]
        return " ".join(map(str, parts)) + (f" of {layout_of(value.tolist())}" if value.dtype == object else "")
    if isinstance(value, (tuple, list)):
        return f"{kind}({', '.join(map(layout_of, value))})"
    if isinstance(value, Mapping):
        return f"{kind}({', '.join(f'{name!r}: {layout_of(part)}' for name, part in value.items())})"
    if hasattr(value, "stride") and hasattr(value, "dtype"):  # a tensor
        return f"{kind} {value.dtype} {tuple(value.shape)} strides {tuple(value.stride())}"
    return kind


def has_samples(leaf: Any) -> bool:
    """Return whether a leaf holds one thing a sample, as arrays and lists do."""
    return isinstance(leaf, list) or (hasattr(leaf, "__array__") and np.ndim(leaf) > 0)


def sample_digests(batch: Any) -> np.ndarray:
    """Return a digest of each sample: ``(n,) uint64``, n of the longest leaf."""
    leaves = [(name, leaf) for name, leaf in named_leaves(batch) if has_samples(leaf)]
    hashes = [hashlib.blake2b(digest_size=8) for _ in range(max([len(leaf) for _, leaf in leaves], default=0))]
    for name, leaf in leaves:
        for one, sample in zip(hashes, leaf, strict=False):
            one.update(name.encode())
            _feed(one, sample)
    return np.array([int.from_bytes(one.digest(), "little") for one in hashes], np.uint64)


def form_digest(batch: Any) -> int:
    """Return a digest of the names, kinds and lengths of the leaves, with the values of those without samples."""
    form = hashlib.blake2b(digest_size=8)
    for name, leaf in named_leaves(batch):
        form.update(f"{name}{type(leaf).__name__}".encode())
        if has_samples(leaf):
            form.update(f"{getattr(leaf, 'dtype', '')}{len(leaf)}".encode())
        else:
            _feed(form, leaf)
    return int.from_bytes(form.digest(), "little")


def digest_of(value: Any) -> int:
    """Return a digest of anything that a batch may hold."""
    one = hashlib.blake2b(digest_size=8)
    _feed(one, value)
    return int.from_bytes(one.digest(), "little")


def _feed(digest: Any, value: Any) -> None:
    """Add a value to a digest."""
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray):
        value = _as_array(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(value.tobytes())
    elif isinstance(value, np.ndarray) and value.ndim == 0:
        digest.update(f"{value.dtype}".encode())
        _feed(digest, value.item())
    elif isinstance(value, (tuple, list, np.ndarray)):
        digest.update(f"{type(value).__name__}{len(value)}".encode())
        for part in value:
            _feed(digest, part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _feed(digest, key)
            _feed(digest, part)
    else:
        digest.update(_told(value))


def _as_array(value: Any) -> Any:
    """Return an array of what says that it can be one; else plain numbers, as of a tensor whose type NumPy lacks."""
    try:
        return np.asarray(value)
    except (TypeError, RuntimeError) as error:
        if not hasattr(value, "tolist"):
            return [repr(value)]
        try:
            return [str(getattr(value, "dtype", "")), value.tolist()]
        except RuntimeError:
            raise MapResultError(
                f"a batch holds a {type(value).__name__} whose values cannot be compared ({error}); let the map return "
                f"x.to_dense(), or a tensor in main memory"
            ) from error


def _told(value: Any) -> bytes:
    """Return bytes that tell a plain value from others; of what cannot be pickled only its type."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return f"{type(value).__name__}{value!r}".encode("utf-8", "surrogatepass")
    try:
        return pickle.dumps(value)
    except Exception:
        return type(value).__qualname__.encode()
