"""The pool of processes.

Ownership. The pool is the user's handle. Its dispatcher owns the processes. When the handle is dropped, or the program
ends, the dispatcher is closed.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from typing import Any

from ... import log, validation
from ...at_exit import at_exit
from ...display import in_bytes
from ...errors import ArgumentError, SharedMemoryWarning, WorkerWarning
from ...graph.node import Node
from ...memory.budget import BUDGET, Claim
from ...platforms import system
from ...warn import warn_consumer
from ..base import ADVICE_ON_POOL_OPTIONS, AbstractWorkerPool, worker_count
from ..parallel import LONGEST_TIMEOUT
from ..task import ONCE, STUCK_SECONDS, Call, Submission
from ..threads import WorkerThreadPool
from .dispatcher import Dispatcher
from .execution import WorkerBuffers
from .fork_server import ServerLauncher
from .future import ProcessFuture, future_of
from .process import Launcher
from .reloads import Reloads
from .schedule import START_TIMEOUT
from .serialization import can_travel
from .shared_arrays import SharedCopies, checked_folder
from .shared_constants import SharedConstant
from .shared_memory import Arena, SlotPool

START_METHODS: dict[str, type[Launcher]] = {"forkserver": ServerLauncher, "spawn": Launcher}

SHARE_FOR_SLOTS = 0.25
"""Share of the free memory for slots. With a limit, each slot asks the budget instead."""

WORKER_BYTES = 64 << 20
"""Free memory for each process by which the pool grows, in bytes."""

OWN_SHARE = 0.25
"""Share of what a limit leaves free for the own buffers of all workers together."""


class WorkerProcessPool(AbstractWorkerPool):
    """Processes that run tasks.

    Scripts need no ``__main__`` guard; lambdas, closures and notebook functions are pickled by value. Everything that a
    map or a source refers to must be picklable.

    Args:
        processes: Number of processes. None: the number of CPUs available to this process.
        threads: Number of tasks that each process runs at once, in threads.
        start_method: ``"forkserver"`` (None) forks workers from a small process that only imported this package;
            ``"spawn"`` starts an interpreter for each.
        blas_threads: Number of threads that libraries for linear algebra (OpenBLAS, MKL, OpenMP, torch) use in each
            process. None: the number that this program's environment sets. With more than one, the same bits are not
            guaranteed: products and sums of floats that threads share may differ from one thread's in the last bits.
        start_timeout: Seconds that a process may take to start. After them it counts as dead. With ``timeout=``, a
            worker may also take that long to load the source, that is, to import its modules and read its data. Pass
            more if many processes import from a slow disk.
        spill: A folder on a disk, for copies of arrays that workers share and that do not fit into memory. None: the
            temporary folder, or ``/var/tmp`` if that lies in memory.

    Raises:
        ArgumentError: a number is below 1, or there is no such method or folder.
    """

    @validation.known_names(ADVICE_ON_POOL_OPTIONS)
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
        if not system.HAS_PROCESS_POOLS:
            raise ArgumentError(
                "WorkerProcessPool needs Linux or macOS, and this system is another; use WorkerThreadPool, or "
                "pool='threads' of a Loader"
            )
        super().__init__()
        _end_forgotten()
        self.processes = worker_count(processes)
        self.threads = validation.positive_int("threads", threads)
        self.lends_threads = self.processes == 1 < self.threads
        self.buffers = WorkerBuffers()
        self._start_method = validation.one_of("start_method", start_method or "forkserver", START_METHODS)
        self._blas_threads = None if blas_threads is None else validation.positive_int("blas_threads", blas_threads)
        self._start_timeout = validation.number_between("start_timeout", start_timeout, 0.0, LONGEST_TIMEOUT)
        self._spill = checked_folder(spill)
        arena, self._no_arena = _new_arena()
        fd = -1 if arena is None else arena.file.fd
        own = 0 if BUDGET.limit is None else max(1, int(BUDGET.free() * OWN_SHARE / self.processes))
        self._own = own
        self._workers_memory = Claim("worker processes", own * self.processes)
        BUDGET.add(self._workers_memory)
        start = START_METHODS[self._start_method]
        launcher = start(self.threads, self._blas_threads, fd, self._start_timeout, own)
        copies = None if arena is None else SharedCopies(arena, self._spill)
        room = BUDGET.free() * SHARE_FOR_SLOTS if BUDGET.limit is None else BUDGET.free() + BUDGET.returnable()
        self._slots = None if arena is None else SlotPool(arena, int(min(arena.span, room)))
        self._reloads = Reloads()
        self._warned = self._warned_of_workers = False
        self._dispatcher = Dispatcher(self.processes, self.threads, launcher, copies, self._slots)
        self._finalizer = weakref.finalize(self, self._dispatcher.abandon)
        self._finalizer.atexit = False
        _open.add(self._dispatcher)
        log.note("a pool of %d worker processes was made, start_method=%r", self.processes, self._start_method)

    def submit(self, call: Call, how: Submission = ONCE) -> ProcessFuture:
        if not self._warned and (self._slots is None or self._slots.refused):
            self._warn()
        if not self._warned_of_workers and self._dispatcher.workers.degraded_reason:
            self._warn_of_workers()
        if how.flow_id > self._reloads.newest:
            self._reloads.look(how.flow_id)
        future = future_of(call, how)
        self._dispatcher.submit(future)
        return future

    def _warn(self) -> None:
        self._warned = True
        why = self._no_arena if self._slots is None else self._slots.refused
        warn_consumer(
            f"there is not enough shared memory for batches: {why}; what has no room there comes over a socket, which "
            f"is slower. Let fewer batches be ahead (buffer, buffer_bytes) or free some memory",
            SharedMemoryWarning,
        )

    def _warn_of_workers(self) -> None:
        self._warned_of_workers = True
        warn_consumer(
            f"this pool goes on with {len(self._dispatcher.pids())} of {self.processes} worker processes: "
            f"{self._dispatcher.workers.degraded_reason}",
            WorkerWarning,
        )

    def shared_constant(self, x: Any) -> SharedConstant:
        """Return a stand-in for `x`. `x` reaches each worker once and must not change afterwards.

        The first call starts the processes.

        Args:
            x: Any object that can be pickled.

        Raises:
            SerializationError: `x` cannot be pickled, and no process was started for it; or neither the memory nor a
                disk has room for a copy of its large arrays.
        """
        self.check_open()
        if isinstance(x, SharedConstant):
            return x
        constant = SharedConstant(x)
        self._dispatcher.start()  # the workers come up while arrays are copied
        constant.share(self._dispatcher.copies)
        weakref.finalize(constant, self._dispatcher.forget, constant.number, constant.copies).atexit = False
        return constant

    @validation.known_names({})
    def resize(self, processes: int) -> None:
        """Change the number of processes, also while they work. The batches do not change.

        Raises:
            ArgumentError: the memory limit has no room for so many.
        """
        processes = validation.positive_int("processes", processes)
        self._check_room(processes)
        self._dispatcher.resize(processes)
        self.processes = processes
        self.lends_threads = processes == 1 < self.threads
        self._workers_memory.nbytes = self._own * processes

    def _check_room(self, processes: int) -> None:
        """Raise unless a memory limit has room for the own buffers of additional processes."""
        more = processes - self.processes
        if more <= 0 or BUDGET.limit is None or BUDGET.within(more * self._own):
            return
        room = int(BUDGET.free() // max(1, self._own))
        raise ArgumentError(
            f"processes must be at most {self.processes + room}, not {processes}: each has {in_bytes(self._own)} for "
            f"buffers, and memory_limit has room for no more; set a higher limit, or make a new pool of {processes}, "
            f"whose processes have less each"
        )

    def room_for_more(self) -> int:
        """Return how many processes more memory has room for."""
        return max(0, int(BUDGET.free() // max(self._own, WORKER_BYTES)))

    def takes_loaders(self) -> bool:
        return not self._reloads.old_code() and self._dispatcher.at_work_for() < STUCK_SECONDS

    def _own_pool(self, source: Node, stays: bool) -> AbstractWorkerPool:
        """Return a pool of one process, or of one thread if the source holds a live iterator, which cannot move."""
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
        self._workers_memory.nbytes = 0


def _end_forgotten() -> None:
    """End the pools that a failed cell of a notebook has left.

    IPython keeps the cell's traceback in a cycle. The traceback holds the variables of the cell's functions, and
    thereby their pool. In a program that waits at its prompt, it may take long until the collector runs.
    """
    if _open and hasattr(sys, "last_traceback"):  # a traceback was shown at a prompt
        gc.collect()


def _new_arena() -> tuple[Arena | None, str]:
    """Return new shared memory, or None with the reason. Without it, all data goes over the sockets."""
    try:
        return Arena(), ""
    except OSError as error:
        return None, f"the system refuses any: {error.strerror or error}"


_open: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _close_all() -> None:
    for dispatcher in list(_open):
        dispatcher.close()


at_exit(_close_all)
