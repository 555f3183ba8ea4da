"""Weights of a few items, for draws in proportion to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError


def check_weights(name: str, weights: np.ndarray, start: int = 0) -> None:
    """Raise :class:`ArgumentError` if one of `weights`, the first of which is number `start`, cannot be one."""
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(np.argmax(bad))
        raise ArgumentError(
            f"{name} must be finite and not negative, but {name}[{start + first}] is {weights[first]}; replace it by 0 "
            f"to leave the sample out"
        )


def cumulative_weights(name: str, weights: Any, length: int) -> np.ndarray:
    """Return the cumulative distribution of `length` weights, ending in exactly 1: ``(length,) float64``."""
    try:
        weights = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{name} must be numbers: {error}") from error
    if weights.shape != (length,):
        raise ArgumentError(f"{name} must be {length} numbers, not of shape {weights.shape}")
    check_weights(name, weights)
    with np.errstate(over="ignore"):
        total = weights.sum()
    if total == 0.0 or total == np.inf:
        raise ArgumentError(f"{name} should not sum to {total:g}; at least one must be above 0, all far below 1e308")
    cdf: np.ndarray = (weights / total).cumsum()
    cdf /= cdf[-1]
    return cdf
