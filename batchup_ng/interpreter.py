"""The interpreter's lock (GIL), and what stands in for it on interpreters that have none.

A free-threaded build of Python (``python3.13t``, ``python3.14t``) runs the code of several threads at the same time.
There, as with the lock, each single operation of a dict, list, set or deque is atomic: ``d[key] = x``,
``d.setdefault``, ``d.pop``, ``deque.append``, ``deque.popleft``, ``list(a_dict)``, ``list(a_set)``. Not atomic are
``+=``, a check before an act, a copy of a deque or of a tuple from a set, and ``next`` of an iterator or generator that
threads share. A generator that two threads run or close at once can end the interpreter. So each generator here has a
lock that its thread holds.

Memory. Without the lock, each object belongs to the thread that made it. If another thread drops the last reference,
Python leaves the object to that thread, which frees it in its next step of Python code. A thread that waits takes no
step. So the threads of the library, which make batches, wait for :data:`IDLE_SECONDS` at a time.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .signals import InterruptsHeld

FREE_THREADED = "free-threading build" in sys.version  # sysconfig knows it too, but takes milliseconds to load
"""Whether the interpreter was built to run without its lock. It may run with it all the same."""


IDLE_SECONDS = 0.05
"""Seconds for which a thread of the library waits, if there is no lock. Then it frees what others are done with."""


def has_lock() -> bool:
    """Return whether threads of Python code take turns now: an import may turn the lock on, and so may PYTHON_GIL=1."""
    return not FREE_THREADED or bool(getattr(sys, "_is_gil_enabled", bool)())


Method = TypeVar("Method", bound=Callable[..., Any])


def alone(lock: str) -> Callable[[Method], Method]:
    """Return a decorator of a method that only one thread at a time may run. It holds the reentrant lock `lock` of the
    object. With the interpreter's lock, such a method is left as it is, because it costs a fifth of a small batch.
    """

    def decorate(method: Method) -> Method:
        if not FREE_THREADED:
            return method

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            with getattr(self, lock):
                return method(self, *args, **kwargs)

        return run  # type: ignore[return-value]  # a function of the same signature

    return decorate


def close_alone(close: Callable[[], object], lock: Any) -> None:
    """Close a generator, unless another thread runs it, which holds the reentrant lock then."""
    is_ours = not FREE_THREADED
    try:
        if FREE_THREADED:
            with InterruptsHeld():  # otherwise the lock could stay held
                is_ours = lock.acquire(blocking=False)
        if is_ours:
            with contextlib.suppress(ValueError):  # it is running, on this thread or on one that holds no lock
                close()
    finally:
        if FREE_THREADED and is_ours:
            lock.release()


def numbers(first: int = 0) -> Callable[[], int]:
    """Return a function that returns the next number, from `first` on, each once, on any thread."""
    following = itertools.count(first).__next__
    if not FREE_THREADED:
        return following
    lock = threading.RLock()  # reentrant: the garbage collector may run a finalizer that takes a number, too

    def take() -> int:
        with lock:
            return following()

    return take


def _count_twice(value: Any) -> int:
    return max(sys.getrefcount(value), sys.getrefcount(value))


getrefcount: Callable[[Any], int] = _count_twice if FREE_THREADED else sys.getrefcount
"""Returns the number of references to an object; the caller knows how many more it is by the form of its call.

Without the lock, it is the sum of the references of the thread that made the object and of those of all others.
That thread reads it exactly. For another one, a reference may pass from one number to the other between the two looks.
"""


def _taken_soon(waiting: queue.SimpleQueue[Any]) -> Any:
    while True:
        with contextlib.suppress(queue.Empty):
            return waiting.get(timeout=IDLE_SECONDS)


taken: Callable[[queue.SimpleQueue[Any]], Any] = _taken_soon if FREE_THREADED else queue.SimpleQueue.get
"""Waits for the next item of a queue and returns it, on a thread of the library."""


def values_of(values: Iterable[Any]) -> list[Any]:
    """Return the values of a deque or set, to which another thread may add at any time."""
    while True:
        try:
            return list(values)
        except RuntimeError:  # it has added one
            continue
