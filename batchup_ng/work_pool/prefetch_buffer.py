"""The tasks that are ahead of a consumer, in order.

A runner, or a stream, has a :class:`PrefetchBuffer`. It calls the buffer, the buffer calls the pool and the iterator of
tasks, and neither calls back. A buffer knows no results: it hands out an :class:`Entry` whose future is done.

Ownership. A buffer owns the futures of the tasks that are under way or done. It has no reference to the user's handle.
When the last reference to the handle goes, its finalizer calls :meth:`~PrefetchBuffer.close`.

The lock. One consumer at a time holds :attr:`~PrefetchBuffer.lock`: from the request for an item until the item is made
and the buffer is full again. The owner takes it for the whole request, so items and their accounting keep their order
for any number of threads. It is a reentrant lock, taken only by ``with``: after a call of ``acquire`` an interrupt
would leave it held. Only the thread that holds it takes tasks and entries. The guarantees:

- *A signal handler may raise at any step.* During a wait nothing changes, as the entry stays in the buffer. While tasks
  are submitted, ``torn`` is set, because the task that was just taken may be lost. The next request then raises
  ``PoolClosed`` instead of an item out of order. Between :meth:`~PrefetchBuffer.take` and the result, the owner has the
  only reference to the entry, so it has to end the epoch or the stream.
- *Another thread may close the buffer at any step*, without the lock. It sets ``closed`` first, then cancels all tasks.
  A thread that submits at that time looks at ``closed`` at the end, and cancels what it has submitted. So no task stays
  queued, and a request that waits raises ``PoolClosed``. Only the end of the tasks raises ``StopIteration``.
  The same holds for the close of the pool, which calls :meth:`~PrefetchBuffer.drop`.
- *One thread at a time runs or closes the iterator of the tasks*: two would crash a generator on an interpreter without
  a lock. That thread holds a lock of its own. A thread that closes the buffer does not wait for it.
- *An exception in one thread is no end for another.* The owner sets ``closed`` while it still holds the lock. A thread
  that waits for the lock then raises ``PoolClosed``, and does not take the item after the failed one.
- *The code that makes an item may ask for the next one*, on this thread or on a worker's. :meth:`check_caller` refuses
  that. A finalizer or a handler may call :meth:`fill` while this thread fills the buffer. That call does nothing.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import batch as nests
from ..data_source.epoch.runner import CLOSED_WHILE_WAITING, Runner
from ..display import in_bytes
from ..error_context import of_signal_handler, unless_of_signal_handler
from ..errors import BufferWarning, PoolClosed, ReentrantIteration, SharedMemoryWarning, StallWarning
from ..interpreter import FREE_THREADED, close_alone
from ..memory.budget import BUDGET, Holder, Step
from ..warn import warn_consumer
from .task import FOREVER, POOL_CLOSED, Pool, Task, TaskFuture, current

STALL_SECONDS = 30.0
"""Seconds that a consumer waits for one result before it warns. A time limit of the task is added."""

SHARE_OF_FREE_MEMORY, SHARE_OF_LIMIT = 0.25, 0.5
"""Shares for batches ahead, if the user sets no `buffer_bytes`: of the free memory; of what a limit leaves."""

SMALL_ROOM_FOR_A_BATCH = 64 << 20
"""Free bytes for each batch of the first ones below which the first is made alone, to learn its size."""

MAX_BYTES_AHEAD = 10**9
"""Upper limit of this memory, in bytes."""


class Entry(NamedTuple):
    """A task that was submitted."""

    task: Task
    future: TaskFuture
    submitted: float = 0.0  # when, by the monotonic clock


class Bound(Protocol):
    """How many tasks may be ahead of a consumer."""

    @property
    def limit(self) -> int:
        """The number of tasks that may be under way or done now."""


@dataclasses.dataclass(slots=True)
class ByteBound(Holder):
    """The number of batches that may be ahead within a number of bytes. The epochs of a source share it.

    If memory is short, it goes down to one batch a worker, and stays there.
    """

    size: int  # the most batches that may be ahead in any case
    buffer_bytes: int | None  # for all of them; None is a quarter of the free memory, 1 GB at most
    first: int  # how many may be ahead until the size of a batch is known; one if memory is short
    largest: int = 0  # bytes of the largest batch that was seen
    least: int = 1  # how many may be ahead if one fits; a batch larger than `buffer_bytes` is made alone
    limit: int = dataclasses.field(init=False)  # how many may be ahead now
    by_default: bool = dataclasses.field(init=False)  # whether the user set no number of bytes, and was not told so

    def __post_init__(self) -> None:
        self.by_default = self.buffer_bytes is None
        free, is_limited = BUDGET.free(), BUDGET.limit is not None
        self.limit = min(self.size, 1 if is_limited or free < self.first * SMALL_ROOM_FOR_A_BATCH else self.first)
        if self.buffer_bytes is None:
            room = (free + BUDGET.returnable()) * SHARE_OF_LIMIT if is_limited else free * SHARE_OF_FREE_MEMORY
            self.buffer_bytes = int(min(room, MAX_BYTES_AHEAD))
            self.least = 2
        BUDGET.add(self)

    def __str__(self) -> str:
        nbytes = self.buffer_bytes or 0
        batches = "1 batch" if self.size == 1 else f"{self.size} batches"
        return f"{batches} or {f'{nbytes / 1e6:.0f} MB' if nbytes >= 1_000_000 else f'{nbytes} bytes'}"

    def give_back(self, step: Step, nbytes: int) -> int:
        if step is Step.READ_AHEAD:
            self.size = min(self.size, max(1, self.first - 1))  # `first` is one more than the workers run at once
            self.limit = min(self.limit, self.size)
        return 0

    def saw(self, batch: Any) -> None:
        """Record the size of a batch."""
        if BUDGET.is_over:
            BUDGET.reclaim()
        nbytes = 0
        if type(batch) is tuple and all(type(part) is np.ndarray for part in batch):
            nbytes = sum([part.nbytes for part in batch])
        else:
            with unless_of_signal_handler():  # a user's object without a known size, such as a sparse tensor
                nbytes = nests.nbytes(batch)
        if nbytes > self.largest or not self.largest:
            self.largest = max(1, nbytes)
            if BUDGET.limit is not None and self.largest > BUDGET.limit:
                warn_consumer(
                    f"a batch has {self.largest} bytes, and {BUDGET.in_words()}; batches are made all the same; pass a "
                    f"smaller batch_size, or set a higher limit by memory_limit",
                    SharedMemoryWarning,
                )
            fit = (self.buffer_bytes or 0) // self.largest
            # Reserve two: the batch in use and the one being handed over. If three fit, one may be ahead; with `least`,
            # two may be, even if only one fits.
            self.limit = min(self.size, max(self.least if fit else 1, fit - 2))
            if self.by_default and self.limit < self.size:
                self.by_default = False
                warn_consumer(
                    f"{self.limit} instead of {self.size} batches are made ahead: each has "
                    f"{in_bytes(self.largest)}, and the buffer takes {in_bytes(self.buffer_bytes or 0)} of the "
                    f"free memory; pass buffer_bytes=, or a smaller batch_size",
                    BufferWarning,
                )


def _alone_at_tasks(top_up: Callable[..., None]) -> Callable[..., None]:
    """Return a method that runs the iterator of the tasks while no other thread does, and closes it if one wanted to.

    With the interpreter's lock, a generator refuses a second thread itself.
    """
    if not FREE_THREADED:
        return top_up

    def run(self: PrefetchBuffer, elsewhere: int = 0) -> None:
        with self._drawing:
            top_up(self, elsewhere)
        if self.closed:
            self._close_tasks()

    return run


class PrefetchBuffer:
    """The tasks that are ahead of one consumer.

    Args:
        pool: Runs the tasks.
        tasks: Iterator of the tasks. Only the thread that holds the lock touches it.
        bound: Says how many tasks may be under way or done at once.
        describe: Returns the purpose of a task, in words, for a warning.

    Attributes:
        lock: Held by the consumer whose turn it is.
        closed: Whether it ended before the end of its tasks.
        dropped: Whether the close of the pool cost some of its results.
        at_end: Whether a consumer got ``StopIteration``.
        torn: Whether an exception of a signal handler may have lost a task before its submission.
        used_up: Whether it submits no more tasks: there are none, or it was closed.
    """

    def __init__(self, pool: Pool, tasks: Iterator[Task], bound: Bound, describe: Callable[[Task], str]) -> None:
        self.lock: Any = threading.RLock()
        self.closed = self.dropped = self.at_end = self.torn = self.used_up = False
        self._pool = pool
        self._tasks = tasks
        self._bound = bound
        self._describe = describe
        self._entries: collections.deque[Entry] = collections.deque()
        self._beside: set[TaskFuture] = set()  # futures submitted out of turn
        self._failure: Exception | None = None  # it ended the tasks; raised after the results of earlier tasks
        self._drawing = threading.RLock()  # held by the thread that runs or closes the iterator of the tasks
        self._pid = os.getpid()
        pool.served.add(self)

    def check_caller(self) -> None:
        """Raise an error if the code that makes one of the items calls this, or a fork of this process does."""
        check_process(self._pid)
        mine = getattr(current, "future", None)
        ahead = () if mine is None else self._listed()
        own = mine is not None and (mine in self._beside or any(mine is each.future for each in ahead))
        if own or self.lock._is_owned():
            raise ReentrantIteration(
                "the next item of this iterator was asked for by the map or generator that is making one of its "
                "items; iterate over a second batch_iterator or work_stream there"
            )
        if self._pool.works_here():
            raise ReentrantIteration(
                "a function that a thread of this pool runs asked for an item that another thread of the same pool "
                "makes, and all of its threads may wait so; use another pool there, such as Loader(pool='serial')"
            )

    # -- with the lock held ------------------------------------------------------------------------------------

    def room(self) -> int:
        """Return how many more tasks may be under way or done now."""
        return self._bound.limit - len(self._entries)

    def put(self, task: Task) -> None:
        """Submit a task as the last one, unless its result is there already."""
        submitted = monotonic()
        self._entries.append(Entry(task, task.ready_made or self._pool.submit(task.call, task.how), submitted))

    @_alone_at_tasks
    def top_up(self, elsewhere: int = 0) -> None:
        """Submit tasks while there is room for them. `elsewhere` is how many items of another buffer take this room.

        An exception of the tasks or of their submission is raised when its turn comes.
        """
        room, handled = self.room() - elsewhere, sys.exc_info()[1]
        self.torn = True  # until the end: an exception of a signal handler may cost the task that was just taken
        while room > 0 and not self.used_up:
            task = None
            try:
                task = next(self._tasks)
                self.put(task)
                room -= 1
            except StopIteration:
                self.used_up = True
            except Exception as error:
                if of_signal_handler(error):
                    raise
                self.used_up = True
                self._failure = _without_callers(error, handled, is_of_tasks=task is None)
        self.torn = False
        if self.closed or self.dropped:  # by another thread, which may not have seen the last tasks
            self._drop_all()

    def take(self) -> Entry:
        """Wait for the next entry and take it out of the buffer. Raise ``StopIteration`` at the end.

        Raises:
            PoolClosed: the buffer or the pool was closed before the end of the tasks, or a task may be missing.
            Exception: the tasks ended with this exception.
        """
        if self.torn:
            raise PoolClosed("an exception came while jobs were submitted, so one of them may be missing")
        if self.dropped:
            raise PoolClosed(POOL_CLOSED)
        if self.closed and not self.at_end:
            raise PoolClosed(CLOSED_WHILE_WAITING)
        if not self._entries:
            failure, self._failure = self._failure, None
            # Checked last: another thread may close it, or have ended before the buffer was full again.
            if failure is None and not self.at_end and (self.closed or not self.used_up):
                raise PoolClosed(CLOSED_WHILE_WAITING)
            self.at_end = failure is None
            self.closed = self.closed or not self.at_end  # otherwise another thread would see a regular end
            try:
                raise StopIteration if failure is None else failure
            finally:
                del failure  # its traceback holds this frame
        try:
            entry = self._entries[0]
        except IndexError:  # another thread has just closed the buffer, or the pool
            raise PoolClosed(POOL_CLOSED if self.dropped else CLOSED_WHILE_WAITING) from None
        self.wait(entry)
        try:
            if self._entries[0] is entry:
                self._entries.popleft()
        except IndexError:  # another thread has closed the buffer
            pass
        return entry

    def wait(self, entry: Entry) -> None:
        """Wait until an entry is done. Warn once of a stall."""
        patience = STALL_SECONDS + (entry.task.how.timeout or 0.0)
        if entry.future.wait(patience):
            return
        began = entry.future.began
        at_it = f"a worker has been at it for {monotonic() - (began or 0.0):.0f} s"
        remedy = "timeout= of a Loader or parallel_data_source ends samples that take too long, and names them"
        state = "no worker has begun it, for all are busy or none has come up" if began is None else at_it
        warn_consumer(
            f"{self._describe(entry.task)} has been waited for {patience:.0f} s: {state}; {remedy}", StallWarning
        )
        entry.future.wait(FOREVER)

    @contextlib.contextmanager
    def out_of_turn(self, tasks: list[Task]) -> Iterator[list[Entry]]:
        """Submit these tasks now, unless the buffer is closed. Give their entries once all are done."""
        entries: list[Entry] = []
        try:
            for task in tasks:
                if self.closed:
                    raise PoolClosed(CLOSED_WHILE_WAITING)
                entries.append(Entry(task, self._pool.submit(task.call, task.how)))
                self._beside.add(entries[-1].future)
            for entry in entries:
                self.wait(entry)
            yield entries
        finally:
            for entry in entries:
                entry.future.cancel()
                self._beside.discard(entry.future)

    # -- any thread --------------------------------------------------------------------------------------------

    def begin(self, elsewhere: int = 0) -> None:
        """Fill the buffer for the first time. Raise if there is an exception instead of the first task."""
        self.fill(elsewhere)
        if self._failure is not None and not self._entries:
            self.take()

    def fill(self, elsewhere: int = 0) -> None:
        """Submit tasks while there is room for them."""
        check_process(self._pid)
        if not self.lock._is_owned():  # otherwise an outer call on this thread is filling it
            with self.lock:
                self.top_up(elsewhere)

    def _listed(self) -> tuple[Entry, ...]:
        while True:
            try:
                return tuple(self._entries)
            except RuntimeError:  # another thread has added or taken one: only without the interpreter's lock
                continue

    def ahead(self) -> int:
        """Return how many tasks are under way or done."""
        return len(self._entries)

    def ready(self) -> int:
        """Return how many tasks are done."""
        return sum(entry.future.done() for entry in self._listed())

    def coming(self) -> Task | None:
        """Return the task of the next entry, or None if there is none."""
        entry = next(iter(self._listed()), None)
        return None if entry is None else entry.task

    def close(self) -> None:
        """Cancel tasks that have not begun, drop the others."""
        self.closed = True  # first: a consumer on another thread must not see a regular end
        self.used_up = True
        self._failure = None
        for future in list(self._beside):
            future.cancel()
        self._drop_all()
        self._close_tasks()

    def drop(self) -> None:
        """Drop all results, because the pool is closed. The next request raises ``PoolClosed`` if one is missing."""
        if os.getpid() == self._pid:  # otherwise this is a fork by the user, and the pool goes on
            self.dropped = self.dropped or bool(self._entries) or not self.used_up
            self._drop_all()

    def _close_tasks(self) -> None:
        """Close the iterator of the tasks. If another thread runs it now, that thread closes it."""
        close = getattr(self._tasks, "close", None)
        if close is not None:
            close_alone(close, self._drawing)

    def _drop_all(self) -> None:
        """Cancel and drop all entries."""
        with contextlib.suppress(IndexError):  # no more entries
            while True:
                self._entries.pop().future.cancel()


def _without_callers(error: Exception, handled: BaseException | None, is_of_tasks: bool) -> Exception:
    """Return an error to keep, without its references to the frames that asked for a task, thus to the buffer's owner.

    A finalizer holds the buffer, which would then hold its owner until the program ends. `handled` is the exception
    that the caller handles. Frames of the iterator of tasks stay in the traceback, because they are the user's.
    """
    if error.__context__ is handled:
        error.__context__ = None
    own = error.__traceback__
    return error.with_traceback(own.tb_next if is_of_tasks and own is not None else None)


class BufferedRunner(Runner):
    """A runner that has a :class:`PrefetchBuffer`."""

    _buffer: PrefetchBuffer

    @property
    def torn(self) -> bool:
        return self._buffer.torn

    def check_caller(self) -> None:
        self._buffer.check_caller()

    def planning(self) -> Any:
        return self._buffer.lock

    def ready(self) -> int:
        return self._buffer.ready()

    def ahead(self) -> int:
        return self._buffer.ahead()

    def fill(self) -> None:
        self._buffer.fill()

    def __next__(self) -> Any:
        with self._buffer.lock:
            try:
                return self._next()
            except StopIteration:
                raise
            except BaseException:
                self._buffer.closed = True  # with the lock: a waiting thread must not take the batch after this one
                raise

    def _next(self) -> Any:
        """Do the work of ``next``. Called with the lock of the buffer held."""
        raise NotImplementedError(f"Abstract for type {type(self)}")


def check_process(pid: int) -> None:
    """Raise :class:`PoolClosed` in a fork of the process `pid`, which does not have its workers."""
    if os.getpid() != pid:
        raise in_a_fork(pid)


def in_a_fork(pid: int) -> PoolClosed:
    """Return the error of a call in a fork of the process `pid`."""
    return PoolClosed(f"this pool belongs to process {pid}, of which this is a fork; make a pool in this process")
