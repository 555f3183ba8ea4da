"""A shuffled order of n positions. Any part of it can be computed on its own, in constant memory.

Up to :data:`TABLE_POSITIONS` the permutation is a table, the order of as many random words. Above, it is a Feistel
network over pairs (left, right): right has half of the bits of n, and left is below n / 2^bits, rounded up. The rounds
change the halves alternately, by a function of the other half: left by a sum modulo its size, right by exclusive or.
That permutes the pairs for any function. A few results, fewer than one in 64, are not below n: they go through the
network again until they are. Black and Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA 2002), call this
"generalised Feistel" and "cycle walking".

The function adds the key of the round to a half, multiplies, mixes and multiplies by the two constants of SplitMix64.
It keeps the upper bits of the product, since lower bits depend on nothing above them. For the left half it scales them
to the size of that half, again by the upper part of a product.

docs/design.md says what the network guarantees and what it does not, with the literature;
``tests/sampling/plans/test_permutation_statistics.py`` counts it. The values never change: a saved epoch goes on with
the same order in a later release. A test holds some of them.
"""

from __future__ import annotations

import functools

import numpy as np

from ... import randomness
from ...errors import ArgumentError

TABLE_POSITIONS = 4096
"""Up to this many positions, 32 kB, the permutation is kept as a table."""

MAX_POSITIONS = 1 << 62
"""The most positions: neither a half nor a sum of positions then leaves 63 bits."""

ROUNDS = 8
"""Rounds of the network, four for each half."""

POSITIONS_AT_A_TIME = 8192
"""Positions computed at a time: the five arrays of a step then stay in a processor's cache (L2)."""

PLACES_TOGETHER = 256
"""Neighbouring places that :func:`sent_to` computes together."""

_HALF_WORD = np.uint64(32)


@functools.lru_cache(maxsize=128)
def keyed_permutation(n: int, key: int) -> KeyedPermutation:
    """Return the permutation of `n` positions that belongs to `key` (64 bits)."""
    return KeyedPermutation(n, key)


def check_length(name: str, length: int) -> None:
    """Raise :class:`ArgumentError` if `length` is negative or above :data:`MAX_POSITIONS`."""
    if length < 0:
        raise ArgumentError(f"{name} must not be negative, and is {length}; pass the number of rows")
    if length > MAX_POSITIONS:
        raise ArgumentError(f"{name} must be at most 2^62, {MAX_POSITIONS}, and is {length}; pass fewer rows")


class KeyedPermutation:
    """The permutation of [0, n) for one key.

    Safe to use from several threads.

    Args:
        n: How many positions, at most :data:`MAX_POSITIONS`.
        key: 64 bits.
        rounds: Rounds of the network, an even number; fewer are for tests.

    Raises:
        ArgumentError: `n` is above :data:`MAX_POSITIONS`.
    """

    def __init__(self, n: int, key: int, rounds: int = ROUNDS) -> None:
        check_length("n", n)
        self.n = n
        self._table: np.ndarray | None = None
        if n <= TABLE_POSITIONS:
            # By random keys: for a generator's methods NumPy promises the distribution, not the stream.
            self._table = np.argsort(randomness.words_at(key, np.arange(n, dtype=np.int64)), kind="stable")
            return
        right_bits = (n - 1).bit_length() // 2
        self._right_bits = np.uint64(right_bits)
        self._right_mask = np.uint64((1 << right_bits) - 1)
        self._right_shift = np.uint64(64 - right_bits)
        self._left_size = np.uint64(-(-n >> right_bits))
        self._keys = [np.uint64(randomness.word("round", key, i)) for i in range(rounds)]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the images of `positions` (``(m,) int64``, in [0, n)): ``(m,) int64``.

        Raises:
            IndexError: a position is out of range; the network might never send it inside.
        """
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < self.n:
            raise IndexError(
                f"positions must be from 0, below {self.n}; they reach from {positions.min()} to {positions.max()}"
            )
        if self._table is not None:
            return np.asarray(self._table[positions])
        sent = np.empty(len(positions), dtype=np.int64)
        for start in range(0, len(positions), POSITIONS_AT_A_TIME):
            sent[start : start + POSITIONS_AT_A_TIME] = self._walked(
                positions[start : start + POSITIONS_AT_A_TIME].astype(np.uint64)
            )
        return sent

    def back(self, value: int) -> int:
        """Return the position that is sent to `value`, which is in [0, n)."""
        if self._table is not None:
            return int(np.flatnonzero(self._table == value)[0])
        values = np.array([value], np.uint64)
        self._network_back(values)
        while values[0] >= self.n:
            self._network_back(values)
        return int(values[0])

    def _walked(self, values: np.ndarray) -> np.ndarray:
        """Return the images of `values` (uint64); writes into `values`."""
        self._network(values)
        outside = np.flatnonzero(values >= self.n)
        while len(outside):
            walked = values[outside]
            self._network(walked)
            values[outside] = walked
            outside = outside[walked >= self.n]
        return values

    def _network(self, values: np.ndarray) -> None:
        """Send `values` (uint64) through the network, in place."""
        left, right = values >> self._right_bits, values & self._right_mask
        word, spare = np.empty_like(values), np.empty_like(values)
        for to_left, to_right in zip(self._keys[::2], self._keys[1::2], strict=True):
            _mix(right, to_left, word, spare)
            word >>= _HALF_WORD
            word *= self._left_size
            word >>= _HALF_WORD
            left += word
            # The sum is below twice the size. If it is below the size, the difference wraps to a huge number.
            np.subtract(left, self._left_size, out=word)
            np.minimum(left, word, out=left)
            _mix(left, to_right, word, spare)
            word >>= self._right_shift
            right ^= word
        np.left_shift(left, self._right_bits, out=values)
        values |= right

    def _network_back(self, values: np.ndarray) -> None:
        """Send `values` (uint64) through the network the other way, in place."""
        left, right = values >> self._right_bits, values & self._right_mask
        word, spare = np.empty_like(values), np.empty_like(values)
        for to_left, to_right in zip(self._keys[-2::-2], self._keys[::-2], strict=True):
            _mix(left, to_right, word, spare)
            right ^= word >> self._right_shift
            _mix(right, to_left, word, spare)
            left += self._left_size - ((word >> _HALF_WORD) * self._left_size >> _HALF_WORD)
            left %= self._left_size
        np.left_shift(left, self._right_bits, out=values)
        values |= right


def sent_to(n: int, key: int, place: int) -> int:
    """Return the image of one place under the permutation of `n` positions that belongs to `key` (64 bits).

    Computes and keeps its neighbours too: asking for one place after another is cheap.
    """
    block, within = divmod(place, PLACES_TOGETHER)
    return int(_some(n, key, block)[within])


@functools.lru_cache(maxsize=64)
def _some(n: int, key: int, block: int) -> np.ndarray:
    return keyed_permutation(n, key)(np.arange(block * PLACES_TOGETHER, min((block + 1) * PLACES_TOGETHER, n)))


def _mix(half: np.ndarray, key: np.uint64, word: np.ndarray, spare: np.ndarray) -> None:
    """Write 64 bits into `word` for each of `half`; the upper bits depend on all of the half and on `key`."""
    np.add(half, key, out=word)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(word, _HALF_WORD, out=spare)
    word ^= spare
    word *= np.uint64(0x94D049BB133111EB)
