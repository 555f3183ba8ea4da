"""The pool of processes.

Who owns what. The pool is the user's handle. The dispatcher behind it owns the processes; when the handle is
forgotten, or the program ends, the dispatcher is closed.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Any

from ... import checks
from ...data_source.base import AbstractDataSource
from ..base import AbstractWorkerPool, worker_count
from ..parallel import Pool
from ..submission import ONCE, Submission, Task
from ..threads import WorkerThreadPool
from . import channel
from .channel import Kind
from .constants import ConstantRef, SharedConstant
from .dispatcher import Dispatcher
from .jobs import ResultFuture
from .launch import launcher
from .worker import WorkerBuffers

SLOT_BYTES = 1 << 32


class WorkerProcessPool(AbstractWorkerPool):
    """Processes that run tasks.

    Scripts need no ``__main__`` guard; lambdas, closures and notebook functions travel by value. What a map or a source
    holds must be such that it can be pickled.

    Args:
        processes: How many processes; None for every CPU that this process may use.
        threads: How many tasks each runs at once, in threads of its own.
        start_method: ``"forkserver"`` (None) forks workers from a small process that only imported this package;
            ``"spawn"`` starts each anew; ``"fork"`` copies this process, with whatever state its locks are in.

    Raises:
        ArgumentError: a number is below 1, or there is no such method.
        WorkerLost: no process could be started.
    """

    def __init__(
        self, processes: int | None = None, *, threads: int = 1, start_method: str | None = None
    ) -> None:
        super().__init__()
        self.processes = worker_count(processes)
        self.threads = checks.positive_int("threads", threads)
        self.buffers = WorkerBuffers()
        self._start_method = start_method
        starter = launcher(start_method, self.threads)
        self._dispatcher = Dispatcher(self.processes, self.threads, starter, SLOT_BYTES)
        self._finalizer = weakref.finalize(self, self._dispatcher.abandon)
        self._finalizer.atexit = False
        _open.add(self._dispatcher)

    def submit(self, task: Task, how: Submission = ONCE) -> ResultFuture:
        fn, args, kwargs = task
        constants = [value for value in (*args, *kwargs.values()) if isinstance(value, SharedConstant)]
        if constants:
            args = tuple([ConstantRef(a.number) if isinstance(a, SharedConstant) else a for a in args])
            kwargs = {k: ConstantRef(v.number) if isinstance(v, SharedConstant) else v for k, v in kwargs.items()}
        return self._dispatcher.submit((fn, args, kwargs), constants, how)

    def shared_constant(self, x: Any) -> SharedConstant:
        """Return a stand-in for `x`, which reaches each worker once; `x` must not change afterwards.

        Raises:
            CannotTravel: `x` cannot be pickled.
        """
        self.check_open()
        constant = x if isinstance(x, SharedConstant) else SharedConstant(x)
        self._dispatcher.start()
        if constant is not x:
            weakref.finalize(constant, self._dispatcher.forget, constant.number).atexit = False
        return constant

    def producer(self, source: AbstractDataSource, stays: bool = False) -> tuple[Pool, Callable[[], None]]:
        """Return a worker process of its own; a thread where the source holds a live iterator, which cannot move."""
        self.check_open()
        pool: AbstractWorkerPool = (
            WorkerThreadPool(1)
            if stays or not _can_travel(source)
            else WorkerProcessPool(1, start_method=self._start_method)
        )
        return self._own(pool), pool.close

    def check_open(self) -> None:
        self._dispatcher.check_open()

    def close(self) -> None:
        self._close_producers()
        _open.discard(self._dispatcher)
        self._dispatcher.close()


def _can_travel(source: AbstractDataSource) -> bool:
    try:
        channel.encode(Kind.CONSTANT, 0, source)
    except Exception:
        return False
    return True


_open: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for dispatcher in list(_open):
        dispatcher.close()
