"""The dispatcher's record of an actor, and of each process that the actor runs in."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..processes.future import ProcessFuture
from ..processes.schedule import ScheduledWorker
from .actor import Greeting


@dataclasses.dataclass(eq=False)
class Seat:
    """An actor, up or not. Ray starts it again when it dies.

    `number` is unique among the seats of the pool. `greeting` is its answer when it last came up. `absent_since` is the
    time when it was first missed, 0.0 while it is up.
    """

    number: int
    actor: Any
    absent_since: float
    greeting: Greeting | None = None
    restarts: int = -1
    tasks: int = 0


@dataclasses.dataclass(eq=False)
class RayWorker(ScheduledWorker[ProcessFuture]):
    """An actor from its start to its death: its seat, the constants that were sent to it, its calls.

    A call is kept as Ray's reference to its result. Without the reference, Ray would drop the result.
    """

    seat: Seat = dataclasses.field(kw_only=True)
    constants: set[int] = dataclasses.field(default_factory=set)
    calls: set[Any] = dataclasses.field(default_factory=set)
