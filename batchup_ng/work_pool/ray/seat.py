"""What the dispatcher notes of an actor, and of each process that it is in turn."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..processes.job import ProcessJob
from ..processes.schedule import ScheduledWorker
from .actor import Greeting


@dataclasses.dataclass(eq=False)
class Seat:
    """An actor, be it up or not; Ray starts it again when it dies.

    `number` is that which no other seat of the pool has, `greeting` what it said when it came up last, `absent_since`
    when it was missed first, 0.0 while it is up.
    """

    number: int
    actor: Any
    absent_since: float
    greeting: Greeting | None = None
    restarts: int = -1
    tasks: int = 0


@dataclasses.dataclass(eq=False)
class RayWorker(ScheduledWorker[ProcessJob]):
    """An actor from when it has come up to its death: the seat that it has, the constants that it was sent, its calls.

    A call is kept as Ray's reference to its result, without which that would be dropped.
    """

    seat: Seat = dataclasses.field(kw_only=True)
    constants: set[int] = dataclasses.field(default_factory=set)
    calls: set[Any] = dataclasses.field(default_factory=set)
