"""Shuffled orders of many sets at once; each entry is computed on its own.

A batch with rows of a thousand classes, each in its own order, takes one call of NumPy here, not a thousand.

The permutation is a Feistel network on pairs of numbers (left, right) below (a, b). a is the root of the size, rounded
up; b is the least even number with a·b not below the size. Halves are added modulo a and b, instead of exclusive or. A
value outside the size goes through the network again until it is inside. Both ideas are from Black and Rogaway,
"Ciphers with arbitrary finite domains", CT-RSA 2002. So the network works for any size, down to one, with few repeats.
It is a bijection for any round function. Like :mod:`~batchup_ng.sampling.plans.permutation` it is for shuffling, not
for secrets.
"""

from __future__ import annotations

import numpy as np

from .permutation import MAX_POSITIONS

HALF_ROUNDS = 12
"""Half-rounds of the network."""

SMALL_SIZE = 64
"""Below this size so few rounds make some orders likelier than others: places go through the network twice."""

_ODD = [np.uint64((0x9E3779B97F4A7C15 * (2 * i + 1)) & ((1 << 64) - 1)) for i in range(2 * HALF_ROUNDS)]
_HALF = np.uint64(32)


def each_permuted(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the image of each place under the permutation for its size and its key: ``(n,) int64``.

    Args:
        places: ``(n,) int64``, each in [0, its size).
        sizes: ``(n,) int64``, at least 1, at most 2^62: halves must fit 32 bits.
        keys: ``(n,) uint64``.

    Raises:
        IndexError: a size is too large, or a place is beyond its size; the network might never send it inside.
    """
    wide = sizes.astype(np.uint64)  # makes negative numbers huge
    if bool(((places.astype(np.uint64) >= wide) | (wide > MAX_POSITIONS)).any()):
        raise IndexError(f"places must be from 0, each below its size, and sizes at most 2^62, {MAX_POSITIONS}")
    a = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    b = (wide + a - np.uint64(1)) // a
    b += b & np.uint64(1)  # if both were odd, all permutations would be even
    values = _permuted(places.astype(np.uint64), wide, a, b, keys, 0)
    small = np.flatnonzero(sizes < SMALL_SIZE)
    if len(small):
        values[small] = _permuted(values[small], wide[small], a[small], b[small], keys[small], HALF_ROUNDS)
    return values.astype(np.int64)


def _permuted(
    values: np.ndarray, sizes: np.ndarray, a: np.ndarray, b: np.ndarray, keys: np.ndarray, first: int
) -> np.ndarray:
    values = _network(values, a, b, keys, first)
    outside = np.flatnonzero(values >= sizes)
    while len(outside):
        walked = _network(values[outside], a[outside], b[outside], keys[outside], first)
        values[outside] = walked
        outside = outside[walked >= sizes[outside]]
    return values


def _network(values: np.ndarray, a: np.ndarray, b: np.ndarray, keys: np.ndarray, first: int) -> np.ndarray:
    right = values // a
    left = values - right * a
    for i in range(first, first + HALF_ROUNDS, 2):
        left = _added(left, right, a, keys, i)
        right = _added(right, left, b, keys, i + 1)
    return np.asarray(right * a + left)


def _added(half: np.ndarray, other: np.ndarray, below: np.ndarray, keys: np.ndarray, number: int) -> np.ndarray:
    """Return `half` plus a number that depends on `other`, the key and the round's number, modulo `below`."""
    x = other + keys
    x += _ODD[number]
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> _HALF
    x *= np.uint64(0x94D049BB133111EB)
    x >>= _HALF
    x *= below
    x >>= _HALF
    x += half
    return np.asarray(np.minimum(x, x - below))  # x - below wraps to a huge number if x is the smaller
