"""Holds back Ctrl-C where it would leave things half done."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

_QUICK: Any = sys.modules.get("_signal", signal)
"""The module in C below ``signal``, without the making of enums: 1 µs for what takes 8."""

_MAIN = threading.main_thread().ident


def leave_interrupts_to_others() -> None:
    """Have the calling thread never take Ctrl-C: for the first step of a thread of the pool's own.

    The system hands the signal to the main thread, but a thread that starts a process, for which it changes its mask,
    may take it first. Python then deals with it when the main thread is next in Python, and nothing wakes it: a
    ``time.sleep`` goes on to its end. (Seen twice in seven interrupts at which workers died.)
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


class InterruptsHeld:
    """Within it an interrupt is noted, to be dealt with at its end as it would have been at once.

    Python raises ``KeyboardInterrupt`` between any two steps of the main thread, so also between the writing of a
    message and the note that it was written. Blocking the signal would not do: any thread may take it, for the main one
    to act. On other threads this does nothing, nor where the program has no handler of its own.
    """

    __slots__ = ("_came", "_handler")

    def __init__(self) -> None:
        self._came: Any = None
        self._handler: Any = None

    def __enter__(self) -> None:
        if threading.get_ident() == _MAIN:
            handler = _QUICK.getsignal(signal.SIGINT)
            if callable(handler):
                _QUICK.signal(signal.SIGINT, self._note)
                self._handler = handler

    def _note(self, signum: int, frame: Any) -> None:
        self._came = signum, frame

    def __exit__(self, *exc: object) -> None:
        if self._handler is not None:
            _QUICK.signal(signal.SIGINT, self._handler)
            if self._came is not None:
                self._handler(*self._came)
