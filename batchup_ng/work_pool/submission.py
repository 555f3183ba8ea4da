"""How a task is to be run, beside what it does."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""A function with its arguments and keywords."""

_lanes = itertools.count(1)


def new_lane() -> int:
    """Return the number of a new lane."""
    return next(_lanes)


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """How a task is to be run.

    Attributes:
        again: Whether it may be run again if its worker dies, as the making of a batch may.
        urgent: Whether it goes before what is queued.
        alone: Whether it is run on a worker that has nothing else, so that it is to blame if the worker dies; it is
            then not run again.
        timeout: Seconds that it may run; beyond that it fails with :class:`~batchup_ng.errors.SampleTimeout`.
        lane: Number of its stream; the streams of a pool take turns.
    """

    again: bool = False
    urgent: bool = False
    alone: bool = False
    timeout: float | None = None
    lane: int = 0


ONCE = Submission()
