"""Functions of floats with the same bits on every machine.

NumPy's own ``log`` and ``cos`` use the processor's vector instructions; with other instructions the last bit differs.
This module uses only sums, products, quotients and roots. IEEE 754 rounds these in one way.
"""

from __future__ import annotations

import math

import numpy as np

NUMBERS_AT_A_TIME = 8192
"""How many numbers are computed at a time. Their arrays stay in a processor's cache."""

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_ARTANH = [1.0 / (2 * k + 1) for k in range(11)]
"""Coefficients of artanh(s) / s in s². Further terms are below 2^-56 for the s that occur."""

_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]
"""Coefficients of cos(x) and sin(x) / x in x². Further terms are below 2^-58 up to π/4."""


def minus_log(x: np.ndarray) -> np.ndarray:
    """Return the negative natural logarithm of numbers in (0, 1], ``(n,) float64``, to about 1 part in 10^15.

    With x = m·2^e and m near 1, ln m = 2 artanh((m - 1) / (m + 1)).
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    series = _series(_ARTANH, s * s)
    series *= s
    return np.asarray((low - exponent) * _LN2 - 2.0 * series)


def cos_of_turns(x: np.ndarray) -> np.ndarray:
    """Return cos(2πx) of numbers in [0, 1), ``(n,) float64``, to about 2^-53.

    The angle from the nearest quarter turn is at most π/4; the quarter selects the series for that angle.
    """
    quarters = np.rint(4.0 * x)
    angle = (4.0 * x - quarters) * (np.pi / 2)
    square = angle * angle
    odd = quarters % 2 == 1
    result = np.where(odd, angle * _series(_SIN, square), _series(_COS, square))
    return np.where((quarters == 1) | (quarters == 2), -result, result)


def normal_deviates(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return a normal deviate for each pair of numbers in [0, 1), by the Box-Muller transform (1958).

    The two arrays have one shape.
    """
    drawn = np.empty(first.size)
    flat = first.reshape(-1), second.reshape(-1)
    for start in range(0, drawn.size, NUMBERS_AT_A_TIME):
        u, turns = (part[start : start + NUMBERS_AT_A_TIME] for part in flat)
        drawn[start : start + NUMBERS_AT_A_TIME] = np.sqrt(2.0 * minus_log(1.0 - u)) * cos_of_turns(turns)
    return drawn.reshape(first.shape)


def _series(coefficients: list[float], x: np.ndarray) -> np.ndarray:
    """Return the polynomial in `x` with these coefficients, the constant first."""
    result = np.full(len(x), coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result *= x
        result += coefficient
    return result
