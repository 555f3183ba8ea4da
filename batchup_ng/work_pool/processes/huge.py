"""Makes huge pages of the copies that workers read, bit by bit, behind the back of whoever waits for the first batch.

Linux gives shared memory small pages, unless it is asked. A gather of rows from huge ones takes 0.87 of the time. But
to find huge pages for a copy may take four times as long as the copy itself: 2.5 s for 983 MB, on a virtual machine
whose host takes whatever lies free in such pieces (all measured). So a copy is made of small pages, is used, and is
moved to huge ones meanwhile.

Who owns what. A :class:`HugePages` belongs to the copies of one pool; its thread lives as long as there is something to
do. It holds no copy: one that nothing uses any more is left out. Nothing depends on it: where the system cannot, pages
stay small.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from typing import Protocol

from .mapping import HUGE
from .protocol import Placed
from .shared_memory import Arena, Extent

PAUSE = 1.0
"""Seconds that pass before the first page, for those who wait for their first batch."""

SHARE = 0.5
"""The share of a CPU that it takes at most."""


class Held(Protocol):
    """A copy, as long as it is used."""

    placed: Placed


class HugePages:
    """Makes huge pages of copies in an arena.

    Args:
        arena: Where they lie.
    """

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._wanted: queue.SimpleQueue[weakref.ref[Held]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def want(self, copy: Held) -> None:
        """Make huge pages of a copy, some time soon."""
        if copy.placed.size < HUGE:
            return
        self._wanted.put(weakref.ref(copy))
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._work, name="batchup_ng-huge-pages", daemon=True)
                with contextlib.suppress(RuntimeError):  # no thread is to be had: the pages stay small
                    self._thread.start()

    def _work(self) -> None:
        pause = PAUSE
        while not self._stop.wait(pause):
            with self._lock:
                if self._wanted.empty():
                    self._thread = None
                    return
            self._move(self._wanted.get())
            pause = 0.0

    def _move(self, wanted: weakref.ref[Held]) -> None:
        """Move a copy to huge pages, as long as it is used."""
        at = 0
        while (copy := wanted()) is not None and at < copy.placed.size:
            began = time.perf_counter()
            size = min(HUGE, copy.placed.size - at)
            self._arena.collapse(Extent(copy.placed.offset + at, size))
            at += size
            del copy  # or it would be held while this waits
            if self._stop.wait((time.perf_counter() - began) * (1 - SHARE) / SHARE):
                return

    def close(self) -> None:
        """End the thread and wait until it has ended; the arena may be closed then."""
        self._stop.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread.ident is not None:
            thread.join()
