"""The turn of a process pool: which thread reads the messages of workers now.

A consumer that waits for a result takes the turn, if it is free, and reads until its own result is there. To wake
another thread for each result, and to be woken by it, costs more than the work. Other consumers sleep until the reader
hands over their results. From time to time (:meth:`.ProcessFuture.wait`) they check whether the turn is free.

While no consumer reads, the dispatcher's thread does. A consumer that finds it reading leaves it the turn, and does not
wake it. After its next messages that thread naps for :data:`.REST_SECONDS`, in which a consumer that tries again finds
the turn free.

Locks. `_lock` is the turn. Only its owner calls `read`, and `read` may take the pool's lock. No thread waits for the
turn with the pool's lock held: only the dispatcher's thread ever waits for the turn. `open` and `_relieved` need no
lock. Each is set in one step, and an outdated `_relieved` costs one nap or one more round of messages.

On a crash: an exception at any step of :meth:`Turn.serve` leaves the turn free. Then another consumer takes it, or the
dispatcher's thread. Signals whose handlers may raise wait until the consumer has given up the turn. They end its wait.
If `read` fails, the pool is broken, and no thread waits for a result any longer. A fork of the process never reads.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ...interpreter import FREE_THREADED, IDLE_SECONDS
from ...signals import InterruptsHeld
from ..prefetch_buffer import in_a_fork
from ..task import TaskFuture
from .future import REST_SECONDS


class Turn:
    """Lets one thread at a time read.

    `read` waits for messages, at most the given seconds, and processes them. `wake` ends the wait of the thread that
    reads. `open` says whether there are workers to read from. Any thread may set it to False, and then calls `wake`.
    """

    def __init__(self, read: Callable[[float], None], wake: Callable[[], None]) -> None:
        self.open = False
        self._read = read
        self._wake = wake
        self._lock: Any = threading.RLock()  # it knows its owner; no thread takes the turn twice
        self._relieved = False
        self._owner_pid = os.getpid()

    def is_mine(self) -> bool:
        """Return whether the calling thread has the turn: it is reading, and its garbage collector has run code."""
        return bool(self._lock._is_owned())

    def serve(self, future: TaskFuture, deadline: float) -> None:
        """Read results until `future` is done or the time is up, unless another thread is reading."""
        if os.getpid() != self._owner_pid:
            raise in_a_fork(self._owner_pid)
        self._relieved = True
        with InterruptsHeld(self._wake) as held:
            if self._lock._is_owned():
                return  # called by the garbage collector in mid-read
            try:
                if self._lock.acquire(blocking=False):
                    with self._lock:  # C code gives it back: an exception cannot come before that, as in a finally
                        self._lock.release()
                        while self.open and not (future.done() or held.came):
                            left = deadline - time.monotonic()
                            if left <= 0:
                                break
                            self._read(left)
                            self._relieved = True
            finally:
                if self._lock._is_owned():  # an exception came before the with
                    self._lock.release()

    def stand_in(self, leave: Callable[[], None]) -> None:
        """Read while no consumer does, until the pool is not open. Then call `leave`, with the turn."""
        try:
            while self.open:
                if self._relieved:
                    self._relieved = False
                    time.sleep(REST_SECONDS)
                    continue
                with self._lock:
                    if self.open:  # as before another thread had the turn
                        self._read(IDLE_SECONDS if FREE_THREADED else math.inf)
        finally:
            with self._lock:
                leave()
