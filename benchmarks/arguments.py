"""Types of arguments on the command lines of the benchmarks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from datetime import date
from pathlib import Path


def positive(text: str) -> float:
    """Return a number above 0."""
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0 and finite; got {text}")
    return value


def count(text: str) -> int:
    """Return a whole number above 0."""
    positive(text)
    return int(text)


def day(text: str) -> date:
    """Return a day."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a day, as 2026-11-28; got {text!r}") from None


def checkout(text: str) -> Path:
    """Return the folder of another checkout of this library."""
    if not Path(text, "batchup_ng", "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"must be a checkout with batchup_ng/__init__.py; got {text!r}")
    return Path(text)


def names_in(text: str | None, what: str, choices: Iterable[str]) -> list[str] | None:
    """Return the names in a comma-separated list, None for no list.

    Raises:
        ValueError: the list is empty, or a name is not among the choices.
    """
    if text is None:
        return None
    names, known = [name.strip() for name in text.split(",") if name.strip()], dict.fromkeys(choices)
    if not names or not known.keys() >= set(names):
        raise ValueError(f"{what} must be among {', '.join(known)}; got {text!r}")
    return names
