"""Exact sums of numbers and of their squares.

A float64 is a whole number of 54 bits times a power of two. The whole numbers are added up separately for each power,
in pieces of 18 bits, and the results are joined as Python ints. Nothing is rounded before the end, so a sum does not
depend on the order of the values nor on how they are divided into batches. This is a Kulisch accumulator:
U. Kulisch, "Computer Arithmetic and Validity", 2008, chapter 8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

PIECE = 18
"""Bits of a piece of a value."""

UNIT = 1128
"""A sum is a multiple of 2**-UNIT, a sum of squares of 2**(-2 * UNIT)."""

ROWS_AT_A_TIME = 2**14
"""Rows that are added up at a time: a sum of so many products of pieces, each below 2**38, is exact in float64."""

VALUES_AT_A_TIME = 2**18
"""About how many values are added up at a time."""

EXACT_IN_FLOAT64 = 2**53
"""Integers up to this size are float64 numbers."""


def exact_sums(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum and the sum of squares of each column, as Python ints in the units of :data:`UNIT`.

    Args:
        values: ``(n, groups)``, integers or finite floats.

    Returns:
        Two ``(groups,) object``.
    """
    n, groups = values.shape
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and _is_large(values):
        numbers = values.astype(object)
        zero = np.zeros(groups, object)
        return (numbers.sum(axis=0) + zero) * (1 << UNIT), ((numbers * numbers).sum(axis=0) + zero) * (1 << 2 * UNIT)
    total, squares = np.zeros(groups, object), np.zeros(groups, object)
    rows = max(1, min(ROWS_AT_A_TIME, VALUES_AT_A_TIME // max(groups, 1)))
    for start in range(0, n, rows):
        more, more_squares = _of_block(values[start : start + rows].astype(np.float64))
        total, squares = total + more, squares + more_squares
    return total, squares


def _is_large(values: np.ndarray) -> bool:
    return bool(values.size) and max(abs(int(values.min())), abs(int(values.max()))) > EXACT_IN_FLOAT64


def _of_block(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of at most :data:`ROWS_AT_A_TIME` rows."""
    groups = values.shape[1]
    fractions, exponents = np.frexp(values)
    lowest = int(exponents.min())
    span = int(exponents.max()) - lowest + 1
    bins = (exponents - lowest + span * np.arange(groups)).ravel()
    whole = (fractions * 2.0 ** (3 * PIECE)).astype(np.int64).ravel()
    mask = 2**PIECE - 1
    a = (whole >> 2 * PIECE).astype(np.float64)  # signed; the other two are not
    b, c = (whole >> PIECE & mask).astype(np.float64), (whole & mask).astype(np.float64)

    def joined(*pieces: np.ndarray) -> np.ndarray:
        """Return for each bin the number whose digits, of 18 bits each, are the sums of `pieces`."""
        result: Any = 0
        for piece in pieces:
            summed = np.bincount(bins, piece, minlength=groups * span).astype(np.int64)
            result = result * (1 << PIECE) + summed.astype(object)
        return np.asarray(result).reshape(groups, span)

    powers = np.array([1 << power - 3 * PIECE + UNIT for power in range(lowest, lowest + span)], object)
    total = (joined(a, b, c) * powers).sum(axis=1)
    squares = (joined(a * a, 2 * a * b, 2 * a * c + b * b, 2 * b * c, c * c) * (powers * powers)).sum(axis=1)
    return total, squares


def mean_and_std(total: int, squares: int, n: int) -> tuple[float, float]:
    """Return the mean and the standard deviation, without Bessel's correction, of `n` values: the float64 numbers
    next to the exact results. NaN for no values.
    """
    if n == 0:
        return math.nan, math.nan
    variance = n * squares - total * total  # times n**2, in units of 2**(-2 * UNIT)
    digits = max(0, 140 - variance.bit_length())
    digits += digits % 2
    root = math.isqrt(variance << digits)
    return _quotient(total, n << UNIT), _quotient(root, n << UNIT + digits // 2)


def _quotient(number: int, by: int) -> float:
    """Return the quotient, infinite if it is beyond float64."""
    try:
        return number / by  # Python rounds the quotient of two ints once
    except OverflowError:
        return math.inf if number > 0 else -math.inf
