"""Statistics as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def table_of(columns: Sequence[Any]) -> str:
    """Return a line for each column, below a line of titles."""
    lines = [["column", "dtype", "count", "missing", "mean", "std", "min", "median", "max", "classes"]]
    for each in columns:
        numbers = [each.mean, each.std, each.min, None if each.mean is None else each.quantile(0.5), each.max]
        classes = "" if each.classes is None else str(len(each.classes))
        words = [_short(value) for value in (each.count, each.missing, *numbers)]
        lines.append([str(each.name), each.dtype, *words, classes])
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of as many words each, with the words below one another.

    >>> print(aligned([["name", "n"], ["a", "12"]]))
    name  n
    a     12
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in padded)


def _short(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, np.ndarray):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    flat = value.reshape(-1).tolist()
    if len(set(flat)) == 1:
        return _short(flat[0])
    words = [_short(each) for each in flat[:3]]
    return f"[{' '.join([*words, '...'] if len(flat) > 3 else words)}]"
