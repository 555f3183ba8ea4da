"""A shuffled order of n positions of which any part can be computed on its own, in constant memory.

Up to :data:`SMALL` positions the permutation is a table, the order of as many random words. Above, it is a Feistel
network on the smallest power of two that holds n, whose values outside [0, n) are walked on until they fall inside
(Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). The network is a bijection whatever its round
function is; the round function multiplies, keyed, and keeps the upper bits. It is meant for shuffling, not for secrets:
of the n! orders there are at most 2^64, as many as there are keys.
"""

from __future__ import annotations

import functools

import numpy as np

from .. import randomness

SMALL = 4096
"""Up to this many positions, 32 kB, the permutation is kept as a table."""

ROUNDS = 8
"""Half-rounds of the network; from six on the tests of uniformity see no difference to a table."""


@functools.lru_cache(maxsize=64)
def keyed_permutation(n: int, key: int) -> KeyedPermutation:
    """Return the permutation of `n` positions that belongs to `key` (64 bits)."""
    return KeyedPermutation(n, key)


class KeyedPermutation:
    """The permutation of [0, n) that belongs to a key.

    Safe to use from several threads.
    """

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self._table: np.ndarray | None = None
        if n <= SMALL:
            # By random keys, not by a generator's method: of these NumPy promises the distribution, not the stream.
            self._table = np.argsort(randomness.words_at(key, np.arange(n, dtype=np.int64)), kind="stable")
            return
        bits = (n - 1).bit_length()
        self._right_bits = bits // 2
        self._left_bits = bits - self._right_bits
        self._keys = [np.uint64(randomness.word("round", key, i)) for i in range(ROUNDS)]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return where `positions` (int64, in [0, n)) are sent: ``(len(positions),) int64``."""
        if self._table is not None:
            return np.asarray(self._table[positions])
        values = self._network(positions.astype(np.uint64))
        outside = np.flatnonzero(values >= self.n)
        while len(outside):
            walked = self._network(values[outside])
            values[outside] = walked
            outside = outside[walked >= self.n]
        return values.astype(np.int64)

    def _network(self, values: np.ndarray) -> np.ndarray:
        right_bits, left_bits = np.uint64(self._right_bits), np.uint64(self._left_bits)
        left = values >> right_bits
        right = values & np.uint64((1 << self._right_bits) - 1)
        for i in range(0, ROUNDS, 2):
            left ^= _round(right, self._keys[i], left_bits)
            right ^= _round(left, self._keys[i + 1], right_bits)
        return (left << right_bits) | right


def _round(half: np.ndarray, key: np.uint64, bits: np.uint64) -> np.ndarray:
    """Return `bits` bits that depend on `half` and `key`."""
    x = half + key
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    x *= np.uint64(0x94D049BB133111EB)
    return x >> (np.uint64(64) - bits)
