"""The pool of processes.

Who owns what. The pool is the user's handle. The dispatcher behind it owns the processes; when the handle is
forgotten, or the program ends, the dispatcher is closed.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from typing import Any

from ... import validation
from ...data_source.base import AbstractDataSource
from ...errors import SharedMemoryWarning, WorkerWarning
from ...system_limits import available
from ...warn import warn_consumer
from ..base import ELSEWHERE, AbstractWorkerPool, worker_count
from ..parallel import LONGEST
from ..task import ONCE, Submission, Task
from ..threads import WorkerThreadPool
from .dispatcher import Dispatcher
from .execution import WorkerBuffers
from .fork_server import ServerLauncher
from .job import ProcessJob
from .process import Launcher
from .reloads import Reloads
from .schedule import START_TIMEOUT
from .serialization import can_travel
from .shared_arrays import SharedCopies, checked_folder
from .shared_constants import SharedConstant
from .shared_memory import Arena, SlotPool

START_METHODS: dict[str, type[Launcher]] = {"forkserver": ServerLauncher, "spawn": Launcher}

SHARE = 0.25
"""The part of the free memory that slots may have."""


class WorkerProcessPool(AbstractWorkerPool):
    """Processes that run tasks.

    Scripts need no ``__main__`` guard; lambdas, closures and notebook functions travel by value. What a map or a source
    holds must be such that it can be pickled.

    Args:
        processes: How many processes; None for every CPU that this process may use.
        threads: How many tasks each runs at once, in threads of its own.
        start_method: ``"forkserver"`` (None) forks workers from a small process that only imported this package;
            ``"spawn"`` starts an interpreter for each.
        blas_threads: How many threads libraries for linear algebra (OpenBLAS, MKL, OpenMP, torch) use in each process;
            None: as many as this program's environment says. More than one costs the promise of the same bits: products
            and sums of floats that are shared out to threads may differ from those of one thread in their last bits.
        start_timeout: Seconds that a process may take to start, until it counts as dead. With ``timeout=``, a worker
            may also take that long to load the source: to import its modules and read what it holds. Pass more where
            many processes import from a slow disk.
        spill: A folder on a disk, for copies of arrays that workers share and that do not fit into memory. None: the
            temporary folder, or ``/var/tmp`` if that lies in memory.

    Raises:
        ArgumentError: a number is below 1, or there is no such method or folder.
    """

    @validation.known_names(ELSEWHERE)
    def __init__(
        self,
        processes: int | None = None,
        *,
        threads: int = 1,
        start_method: str | None = None,
        blas_threads: int | None = 1,
        start_timeout: float = START_TIMEOUT,
        spill: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        _end_forgotten()
        self.processes = worker_count(processes)
        self.threads = validation.positive_int("threads", threads)
        self.lends_threads = self.processes == 1 < self.threads
        self.buffers = WorkerBuffers()
        self._start_method = validation.one_of("start_method", start_method or "forkserver", START_METHODS)
        self._blas_threads = None if blas_threads is None else validation.positive_int("blas_threads", blas_threads)
        self._start_timeout = validation.number_between("start_timeout", start_timeout, 0.0, LONGEST)
        self._spill = checked_folder(spill)
        arena, self._no_arena = _new_arena()
        fd = -1 if arena is None else arena.fd
        launcher = START_METHODS[self._start_method](self.threads, self._blas_threads, fd, self._start_timeout)
        copies = None if arena is None else SharedCopies(arena, self._spill)
        self._slots = None if arena is None else SlotPool(arena, int(min(arena.span, available()) * SHARE))
        self._reloads = Reloads()
        self._warned = self._warned_of_workers = False
        self._dispatcher = Dispatcher(self.processes, self.threads, launcher, copies, self._slots)
        self._finalizer = weakref.finalize(self, self._dispatcher.abandon)
        self._finalizer.atexit = False
        _open.add(self._dispatcher)

    def submit(self, task: Task, how: Submission = ONCE) -> ProcessJob:
        if not self._warned and (self._slots is None or self._slots.refused):
            self._warn()
        if not self._warned_of_workers and self._dispatcher.degraded_reason:
            self._warn_of_workers()
        if how.stream_id > self._reloads.newest:
            self._reloads.look(how.stream_id)
        return self._dispatcher.submit(task, how)

    def _warn(self) -> None:
        self._warned = True
        why = self._no_arena if self._slots is None else self._slots.refused
        warn_consumer(
            f"there is not enough shared memory for batches: {why}; what has no room there comes over a socket, which "
            f"is slower. Let fewer batches be ahead (batch_buffer_size, buffer_bytes) or free some memory",
            SharedMemoryWarning,
        )

    def _warn_of_workers(self) -> None:
        self._warned_of_workers = True
        warn_consumer(
            f"this pool goes on with {len(self._dispatcher.pids())} of {self.processes} worker processes: "
            f"{self._dispatcher.degraded_reason}",
            WorkerWarning,
        )

    def shared_constant(self, x: Any) -> SharedConstant:
        """Return a stand-in for `x`, which reaches each worker once; `x` must not change afterwards.

        Args:
            x: Anything that can be pickled.

        Raises:
            SerializationError: `x` cannot be pickled, and no process was started for it; or there is room for a copy of
                its large arrays neither in memory nor on a disk.
        """
        self.check_open()
        if isinstance(x, SharedConstant):
            return x
        constant = SharedConstant(x)
        self._dispatcher.start()  # the workers come up while arrays are copied
        constant.share(self._dispatcher.copies)
        weakref.finalize(constant, self._dispatcher.forget, constant.number, constant.copies).atexit = False
        return constant

    def _own_pool(self, source: AbstractDataSource, stays: bool) -> AbstractWorkerPool:
        """Return a worker process of its own; a thread where the source holds a live iterator, which cannot move."""
        if stays or not can_travel(source):
            return WorkerThreadPool(1)
        return WorkerProcessPool(
            1, start_method=self._start_method, blas_threads=self._blas_threads, start_timeout=self._start_timeout,
            spill=self._spill,
        )  # fmt: skip

    def abandon(self) -> None:
        self._dispatcher.abandon()

    def check_open(self) -> None:
        self._dispatcher.check_open()

    def close(self) -> None:
        super().close()
        _open.discard(self._dispatcher)
        self._dispatcher.close()


def _end_forgotten() -> None:
    """End the pools that a failed cell of a notebook has left.

    Its traceback, which IPython keeps in a cycle, holds the variables of its functions, hence their pool; the collector
    may take long to run in a program that waits at its prompt.
    """
    if _open and hasattr(sys, "last_traceback"):  # one was shown at a prompt
        gc.collect()


def _new_arena() -> tuple[Arena | None, str]:
    """Return new shared memory; None with the reason where there is none: then all goes over the sockets."""
    try:
        return Arena(), ""
    except AttributeError:
        return None, "this system has no memfd_create"
    except OSError as error:
        return None, f"the system refuses any: {error.strerror or error}"


_open: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for dispatcher in list(_open):
        dispatcher.close()
