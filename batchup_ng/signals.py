"""Holds back Ctrl-C, and other signals whose handlers may raise, where that would leave things half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
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


HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals whose handlers may raise, as Ctrl-C does."""


class InterruptsHeld:
    """Within it a signal is noted, to be dealt with at its end as it would have been at once.

    Python raises ``KeyboardInterrupt``, or what another handler raises, between any two steps of the main thread, so
    also between the writing of a message and the note that it was written. Blocking the signal would not do: any thread
    may take it, for the main one to act. On other threads this does nothing, nor where the program has no handler.

    Args:
        noted: Called when a signal is noted: ends what this thread waits for.

    Attributes:
        came: The signals that were noted.
    """

    __slots__ = ("_handlers", "_noted", "_to_restore", "came")

    def __init__(self, noted: Callable[[], None] | None = None) -> None:
        self._noted = noted
        self._handlers: dict[int, Any] = {}
        self._to_restore: list[int] = []
        self.came: dict[int, None] = {}

    def __enter__(self) -> InterruptsHeld:
        if threading.get_ident() == _MAIN:
            try:
                for number in HELD:
                    handler = _QUICK.getsignal(number)
                    if callable(handler):
                        self._handlers[number] = handler
                        self._to_restore.append(number)
                        _QUICK.signal(number, self._note)
            except BaseException:  # of a handler that was not replaced yet
                self.__exit__()
                raise
        return self

    def _note(self, signum: int, frame: Any) -> None:
        self.came[signum] = None
        if self._noted is not None:
            self._noted()

    def __exit__(self, *exc: object) -> None:
        try:
            while self._to_restore:
                number = self._to_restore[-1]
                _QUICK.signal(number, self._handlers[number])
                self._to_restore.pop()
            while self.came:
                number = next(iter(self.came))
                del self.came[number]
                # With this frame, which it interrupts: so an exception is known to be that of a signal's handler.
                self._handlers[number](number, sys._getframe())
        finally:
            if self._to_restore or self.came:  # a handler has raised
                self.__exit__()
