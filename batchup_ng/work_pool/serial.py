"""The pool without workers: each task runs when its result is asked for, on the consumer's thread.

It is the reference that the others must equal, which makes it the place to debug a map.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..buffers import BufferPool
from ..data_source.base import AbstractDataSource
from ..errors import PoolClosed
from .base import AbstractWorkerPool
from .parallel import Pool
from .stream import Task


class SerialPool(AbstractWorkerPool):
    """Runs tasks in order, each when its result is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = BufferPool(most_free=4)
        self._closed = False

    def submit(self, task: Task) -> _Deferred:
        self.check_open()
        return _Deferred(self, task)

    def shared_constant(self, x: Any) -> Any:
        return x

    def producer(self, source: AbstractDataSource, stays: bool = False) -> tuple[Pool, Callable[[], None]]:
        return self, _nothing

    def close(self) -> None:
        self._closed = True
        self.buffers.clear()

    def check_open(self) -> None:
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")


def _nothing() -> None:
    """The end of a producer that needs none."""


class _Deferred:
    """A task that runs when its result is asked for."""

    def __init__(self, pool: SerialPool, task: Task) -> None:
        self._pool = pool
        self._task = task
        self._ran = False

    def result(self) -> Any:
        self._pool.check_open()
        self._ran = True
        fn, args, kwargs = self._task
        return fn(*args, **kwargs)

    def done(self) -> bool:
        return self._ran

    def cancel(self) -> bool:
        return True
