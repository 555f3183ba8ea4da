"""The figures of a running program, which ``python -m batchup_ng top`` asks for.

`import batchup_ng` sets what the loops call. Their first look loads the rest: a program that hands out no batch from a
pool needs none of it.
"""

import sys
from typing import Any

from ..lazy_names import on_first_use
from ..meters import batch_times
from ..platforms import system

__getattr__, __dir__ = on_first_use(__name__, {".answers": ["answers"]})


def first_look(now: float) -> None:
    """Load what looks for questions, which puts itself into the place of this function, and look."""
    room: Any = sys.modules[__name__]
    room.answers.look(now)


if system.HAS_LIVE_FIGURES:
    batch_times.look, batch_times.look_due = first_look, 0.0
