"""Threads that run one at a time, line by line, as a test says, by a clock that is a number.

Each simulated thread is a real one that hands back control before each line of the named modules, and where it would
wait. So a test decides who runs next, how far, and where an exception strikes. The modules get the locks, the clock and
``sleep`` of a :class:`World` instead of Python's.
"""

from __future__ import annotations

import linecache
import math
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

LIMIT = 300.0
"""Seconds after which a simulated thread that does not hand back control counts as hanging."""


class Ended(BaseException):
    """Ends a simulated thread at the end of the test."""


class SimulatedThread:
    """A thread that runs when its world lets it.

    Attributes:
        error: What came out of it; None before its end, or if it returned.
        done: Whether it has ended.
        strike: An exception to be raised at its next line, or in its wait.
    """

    def __init__(self, world: World, run: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.done = False
        self.strike: BaseException | None = None
        self.ready: Callable[[], bool] | None = None  # while it waits: whether the wait is over
        self.until = math.inf
        self._world = world
        self._task = run
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    @property
    def able(self) -> bool:
        """Whether it would do anything if it ran now."""
        waits = self.ready is not None and not self.ready() and self._world.now < self.until
        return not self.done and (not waits or self.strike is not None)

    def go_on(self) -> None:
        """Let it run to its next line, wait or end."""
        self._world.current = self
        self._go.release()
        assert self._stopped.acquire(timeout=LIMIT), "a simulated thread waits for something real"
        self._world.current = None

    def run(self) -> None:
        """Let it run until it waits or ends."""
        while self.able:
            self.go_on()

    def pause(self) -> None:
        """Hand back control until it runs again. On the thread itself."""
        self._stopped.release()
        self._go.acquire()
        if self._world.over:
            raise Ended

    def join(self) -> None:
        self._thread.join(LIMIT)

    def _main(self) -> None:
        self._go.acquire()
        sys.settrace(self._trace)
        try:
            if not self._world.over:
                self._task()
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)
            self.done = True
            self._stopped.release()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self._world.files:
            return None
        if event == "line":
            self.pause()
            # Python traces a `with` line before ``__exit__`` too, where no handler of a signal can run.
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if self.strike is not None and not line.startswith("with "):
                strike, self.strike = self.strike, None
                raise strike
        return self._trace


class World:
    """The threads of a test, its clock, and what they see of Python's ``threading`` and ``time``."""

    def __init__(self, *modules: ModuleType) -> None:
        self.now = 0.0
        self.over = False
        self.current: SimulatedThread | None = None
        self.threads: list[SimulatedThread] = []
        self.files = {module.__file__ for module in modules}
        self._patches = pytest.MonkeyPatch()
        fake_threading = SimpleNamespace(Lock=lambda: Lock(self), RLock=lambda: ReentrantLock(self))
        fake_time = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda seconds: self.wait(never, seconds))
        for module in modules:
            self._patches.setattr(module, "threading", fake_threading, raising=False)
            self._patches.setattr(module, "time", fake_time)

    def replace(self, module: ModuleType, name: str, value: Any) -> None:
        """Let a module see `value` instead of something else, until the end."""
        self._patches.setattr(module, name, value)

    def start(self, run: Callable[[], object]) -> SimulatedThread:
        """Return a new thread, which has not run yet."""
        self.threads.append(SimulatedThread(self, run))
        return self.threads[-1]

    def wait(self, ready: Callable[[], bool], seconds: float = math.inf) -> None:
        """Let the thread that runs wait until `ready` returns True or the time is up."""
        me = self.current
        assert me is not None, "the test itself does not wait"
        me.ready, me.until = ready, self.now + seconds
        try:
            while not ready() and self.now < me.until:
                me.pause()
                if me.strike is not None:
                    strike, me.strike = me.strike, None
                    raise strike
        finally:
            me.ready, me.until = None, math.inf

    def settle(self, seconds: float) -> None:
        """Let all threads run, each as often as the others, until nothing happens any more within `seconds`."""
        end = self.now + seconds
        for _ in range(100_000):
            able = [thread for thread in self.threads if thread.able]
            for thread in able:
                if thread.able:
                    thread.go_on()
            if not able:
                up = min([thread.until for thread in self.threads if not thread.done], default=math.inf)
                if up > end:
                    self.now = end
                    return
                self.now = up
        raise AssertionError("threads run for ever")

    def close(self) -> None:
        """End all threads."""
        self.over = True
        for thread in self.threads:
            while not thread.done:
                thread.go_on()
            thread.join()
        self._patches.undo()


def never() -> bool:
    return False


class ReentrantLock:
    """An ``RLock`` of a world. In steps that nothing interrupts, as those that are written in C."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.owner: SimulatedThread | None = None
        self._count = 0

    def _is_owned(self) -> bool:
        return self.owner is not None and self.owner is self._world.current

    def acquire(self, blocking: bool = True) -> bool:
        if self.owner is not None and not self._is_owned():
            if not blocking:
                return False
            self._world.wait(lambda: self.owner is None)
        self.owner = self._world.current
        self._count += 1
        return True

    def release(self) -> None:
        assert self._is_owned()
        self._count -= 1
        if not self._count:
            self.owner = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        if not self._world.over:
            self.release()


class Lock:
    """A ``Lock`` of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._held and blocking:
            self._world.wait(lambda: not self._held, math.inf if timeout < 0 else timeout)
        got = not self._held
        self._held = True
        return got

    def release(self) -> None:
        assert self._held
        self._held = False
