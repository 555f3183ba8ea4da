"""Words of 64 bits. Each word is a function of a key.

BLAKE2b (RFC 7693) mixes the keys. The vectorised words use the finaliser of SplitMix64 with Stafford's constants
"Mix13", as counter-based generators do (Salmon et al., SC 2011).
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15
WORD_MASK = (1 << 64) - 1
"""All bits of a word."""


def digest(*parts: int | str) -> bytes:
    """Return 16 bytes that depend on each of `parts` and on their order."""
    packed = b"".join(_packed(part) for part in parts)
    return hashlib.blake2b(packed, digest_size=16).digest()


def _packed(part: int | str) -> bytes:
    if not isinstance(part, str) and -(1 << 63) <= part < 1 << 63:
        return b"i" + struct.pack("<q", part)
    kind, data = b"s" if isinstance(part, str) else b"n", str(part).encode()
    return kind + struct.pack("<q", len(data)) + data


def word(*parts: int | str) -> int:
    """Return a 64-bit integer that depends on each of `parts`."""
    return int.from_bytes(digest(*parts)[:8], "little")


def generator(*parts: int | str) -> np.random.Generator:
    """Return a NumPy generator (Philox) keyed by `parts`."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest(*parts), "little")))


def mix64(x: np.ndarray) -> np.ndarray:
    """Return `x` (uint64) with its bits mixed: a bijection; writes into `x`."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def words_at(key: int, positions: np.ndarray) -> np.ndarray:
    """Return one 64-bit word per position: ``(n,) uint64``, keyed by `key`."""
    x = positions.astype(np.uint64)
    x *= np.uint64(_GOLDEN)
    mix64(x)
    x ^= np.uint64(key)
    return mix64(x)


def pair_words(key: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one 64-bit word per pair of numbers: ``(n,) uint64``, keyed by `key`."""
    return mix64(words_at(key, first) ^ words_at(key ^ WORD_MASK, second))


def unit_floats(words: np.ndarray) -> np.ndarray:
    """Return `words` as float64 in [0, 1), from their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * (1.0 / (1 << 53))


def high_product(words: np.ndarray, bound: int) -> np.ndarray:
    """Return ``words * bound >> 64`` (Lemire, "Fast random integer generation in an interval", 2019)."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low_bound, high_bound = np.uint64(bound & 0xFFFFFFFF), np.uint64(bound >> 32)
    low, high = words & mask, words >> half
    middle: np.ndarray = high * low_bound + (low * low_bound >> half)
    if not high_bound:
        return middle >> half
    carry: np.ndarray = (middle & mask) + low * high_bound
    product: np.ndarray = high * high_bound + (middle >> half) + (carry >> half)
    return product
