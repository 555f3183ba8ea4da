"""Holds back Ctrl-C, and other signals with handlers that may raise, while things are half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from .platforms import system

_QUICK: Any = sys.modules.get("_signal", signal)
"""The C module below ``signal``, which makes no enums: 1 µs instead of 8."""

_MAIN = threading.main_thread().ident


def leave_interrupts_to_others() -> None:
    """Make the calling thread never take Ctrl-C: the first step of the pool's own threads.

    The system hands the signal to the main thread. But it may hand it to a thread that starts a process and changes its
    mask for that. Python then deals with it when the main thread next runs Python, and nothing wakes that thread: a
    ``time.sleep`` goes on to its end. (Seen twice in seven interrupts at which workers died.)
    """
    system.block_interrupts()


class InterruptsHeld:
    """A context that notes signals and deals with them at its end, as they would have been dealt with at once.

    Python raises ``KeyboardInterrupt``, or the exception of another handler, between any two steps of the main thread:
    also between writing a message and noting that it was written. Blocking the signal would not help, because any
    thread may take it for the main thread to act on. On other threads, or without a handler, the context does nothing.

    Args:
        noted: Called when a signal is noted; must end the wait of this thread.

    Attributes:
        came: The signals noted so far.
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
                for number in system.HELD_SIGNALS:
                    handler = _QUICK.getsignal(number)
                    if callable(handler):
                        self._handlers[number] = handler
                        self._to_restore.append(number)
                        _QUICK.signal(number, self._note)
            except BaseException:  # from a handler that is not replaced yet
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
                # The handler gets this frame as the interrupted one, which marks its exception as a signal handler's.
                self._handlers[number](number, sys._getframe())
        finally:
            if self._to_restore or self.came:  # a handler has raised
                self.__exit__()
