"""Options that are numbers or ranges of numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError


def number(name: str, value: Any, least: float, most: float) -> float:
    """Return a number within bounds, both included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r} of type {type(value).__name__}")
    if not (least <= value <= most and math.isfinite(value)):
        bounds = f"between {least:g} and {most:g}" if most < np.inf else f"at least {least:g}, and finite"
        raise ArgumentError(f"{name} must be {bounds}, not {value:g}")
    return float(value)


def span(name: str, value: Any, least: float, most: float, around: float | None = None) -> tuple[float, float]:
    """Return a range (low, high) within bounds. A number d means ``around - d`` to ``around + d``, cut to bounds."""
    if around is not None and not isinstance(value, (tuple, list)):
        reach = number(name, value, 0.0, np.inf if most == np.inf else most - around)
        return max(least, around - reach), around + reach
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentTypeError(f"{name} must be a pair of numbers, (low, high), not {value!r}")
    low, high = (number(f"{name}[{i}]", each, least, most) for i, each in enumerate(value))
    if low > high:
        raise ArgumentError(f"{name} must be (low, high), not {value!r}; swap them")
    return low, high


def between(limits: tuple[float, float], u: float) -> float:
    """Return the number at `u` in [0, 1) of the way from the lower to the upper limit."""
    return limits[0] + (limits[1] - limits[0]) * u
