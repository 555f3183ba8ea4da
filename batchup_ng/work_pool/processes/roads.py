"""Which transport the large arrays of a value take to the workers: pure arithmetic on bytes.

``"shared"`` is one copy that all workers map. ``"served"`` leaves the arrays of sources where they are; the consumer's
process gathers the rows. The first costs memory once; the second costs none, and some of the consumer's time.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import validation
from ...errors import SerializationError

TRANSPORTS = ("auto", "shared", "served")

ROOM_TO_SPARE = 0.8
"""The part of the free memory that a copy may take; the rest is for batches and what else the program needs."""


def checked_road(arrays: str) -> str:
    """Return `arrays` if there is such a transport.

    Raises:
        ArgumentError: there is not.
    """
    return str(validation.one_of("arrays", arrays, TRANSPORTS))


def road_for(arrays: str, servable: int, others: int, free: float, name: Callable[[], str]) -> str:
    """Return ``"shared"`` or ``"served"``.

    Args:
        arrays: What was asked for: one of the transports, or ``"auto"``.
        servable: Bytes to copy for arrays that can be served.
        others: Bytes to copy for arrays that cannot.
        free: Bytes of memory that may still be used.
        name: Returns what the largest array that cannot be served is called.

    Raises:
        SerializationError: there is no memory for arrays that cannot be served.

    >>> road_for("auto", 600, 0, 1000, str), road_for("auto", 900, 0, 1000, str)
    ('shared', 'served')
    """
    room = free * ROOM_TO_SPARE
    if arrays != "auto":
        return arrays
    if servable + others <= room:
        return "shared"
    if others <= room:
        return "served"
    raise SerializationError(
        f"{name()} cannot be sent to worker processes: {others} bytes are needed for a copy that the workers share, "
        f"and of the {free:.0f} bytes that are free {room:.0f} may be taken. Make it smaller, open it from a file by "
        f"numpy.memmap, use WorkerThreadPool, or pass arrays='shared' to try it all the same"
    )
