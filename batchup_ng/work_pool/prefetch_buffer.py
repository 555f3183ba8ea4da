"""The futures that are ahead of a consumer, in the order of their tasks.

Ownership. A :class:`PrefetchBuffer` owns the futures of the jobs that are under way or done, as many as its limit
allows. It takes the next job from its iterator when a result is handed out. Only the thread that holds the buffer's
lock touches the iterator. The buffer has no reference to the user's handle. When the last reference to the handle goes,
its finalizer cancels queued jobs.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

from ..data_source.epoch.opening import CLOSED, Runner
from ..error_context import function_name, of_signal_handler
from ..errors import PoolClosed, ReentrantIteration, StallWarning
from ..warn import warn_consumer
from .task import FOREVER, Pool, Submission, Task, TaskFuture, current

STALL_SECONDS = 30.0
"""Seconds that a consumer waits for one result before it warns. A time limit of the job is added."""


class Job(NamedTuple):
    """Work for one item of a stream."""

    task: Task
    how: Submission
    about: Any  # its purpose, such as the planned batch
    made: TaskFuture | None = None  # its result, if it was made before it is submitted


class Entry(NamedTuple):
    """A job that was submitted."""

    job: Job
    future: TaskFuture


class PrefetchBuffer(Runner):
    """The futures that are ahead of one consumer."""

    def __init__(self, pool: Pool, jobs: Iterator[Job], size: int = 0) -> None:
        self._pool = pool
        self._jobs = jobs
        self._size = size  # how many may be under way or done at once
        self._entries: collections.deque[Entry] = collections.deque()
        self._beside: set[TaskFuture] = set()  # futures submitted out of turn
        # Taken only by ``with``: after a call of ``acquire`` an interrupt would leave it held.
        self._lock: Any = threading.RLock()
        self._failure: Exception | None = None  # it ended the jobs; raised after the results of earlier jobs
        self._ended = False
        self._pid = os.getpid()

    def limit(self) -> int:
        """Return how many jobs may be under way or done now."""
        return self._size

    def describe(self, job: Job) -> str:
        """Return the purpose of a job, in words."""
        return f"the result of task {function_name(job.task[0])}"

    # -- the lock: one consumer at a time ----------------------------------------------------------------------

    def check_caller(self) -> None:
        """Raise an error if the code that makes one of the items calls this, or a fork of this process does."""
        check_process(self._pid)
        mine = getattr(current, "future", None)
        own = mine is not None and (mine in self._beside or any(mine is each.future for each in tuple(self._entries)))
        if own or self._lock._is_owned():
            raise ReentrantIteration(
                "the next item of this iterator was asked for by the map or generator that is making one of its "
                "items; iterate over a second batch_iterator or work_stream there"
            )

    @property
    def used_up(self) -> bool:
        return self._ended and not self.closed

    def __next__(self) -> Any:
        with self._lock:
            if self.closed and not self.at_end:
                raise PoolClosed(CLOSED)
            try:
                return self._next()
            except StopIteration:
                raise
            except BaseException:
                self.closed = True  # with the lock: another waiting thread must not take the batch after this one
                raise

    def _next(self) -> Any:
        """Return the next item; the caller holds the lock."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    # -- with the lock held ------------------------------------------------------------------------------------

    def top_up(self) -> None:
        """Submit jobs until the buffer is full or there are no more. An exception is raised when its turn comes."""
        limit = self.limit()
        self.torn = True  # until the end: an exception of a signal handler may cost the job that was just taken
        while len(self._entries) < limit and not self._ended:
            try:
                job = next(self._jobs)
                self._entries.append(Entry(job, job.made or self._pool.submit(job.task, job.how)))
            except StopIteration:
                self._ended = True
            except Exception as error:
                if of_signal_handler(error):
                    raise
                self._ended = True
                self._failure = error
        self.torn = False
        if self.closed:  # by another thread, which may not have seen the last jobs
            self._drop_all()

    def begin(self) -> None:
        """Fill the buffer for the first time. Raise if there is an exception instead of the first job."""
        self.fill()
        if self._failure is not None and not self._entries:
            self.head()

    def head(self) -> Entry:
        """Wait for the next entry and return it. Raise ``StopIteration`` at the end.

        The entry stays in the buffer, so an exception of a signal handler during the wait changes nothing.
        """
        if self.torn:
            raise PoolClosed("an exception came while jobs were submitted, so one of them may be missing")
        if not self._entries:
            failure, self._failure = self._failure, None
            # Checked last: another thread may close it, or have ended before the buffer was full again.
            if failure is None and not self.at_end and (self.closed or not self._ended):
                raise PoolClosed(CLOSED)
            self.at_end = failure is None
            self.closed = self.closed or not self.at_end  # otherwise another thread would see a regular end
            try:
                raise StopIteration if failure is None else failure
            finally:
                del failure  # its traceback holds this frame
        entry = self._entries[0]
        self.wait(entry)
        return entry

    def taken(self) -> tuple[Any, str]:
        """Take the next result out of the buffer. Return it with its transport, or raise its task's exception."""
        entry = self.head()
        self.drop(entry)  # first: a future gives its result once, and an interrupt would leave an empty one
        try:
            return entry.future.result(), entry.future.transport
        finally:
            del entry  # otherwise an exception's traceback and the future would refer to each other

    def drop(self, entry: Entry) -> None:
        """Take an entry out of the buffer."""
        if self._entries and self._entries[0] is entry:
            self._entries.popleft()

    def wait(self, entry: Entry) -> None:
        """Wait until an entry is done. Warn once of a stall."""
        patience = STALL_SECONDS + (entry.job.how.timeout or 0.0)
        if entry.future.wait(patience):
            return
        began = entry.future.began
        at_it = f"a worker has been at it for {monotonic() - (began or 0.0):.0f} s"
        remedy = "timeout= of a Loader or parallel_data_source ends samples that take too long, and names them"
        state = "no worker has begun it, for all are busy or none has come up" if began is None else at_it
        warn_consumer(
            f"{self.describe(entry.job)} has been waited for {patience:.0f} s: {state}; {remedy}", StallWarning
        )
        entry.future.wait(FOREVER)

    def beside(self, job: Job) -> Entry:
        """Submit a job out of turn, unless the stream is closed."""
        if self.closed:
            raise PoolClosed(CLOSED)
        entry = Entry(job, self._pool.submit(job.task, job.how))
        self._beside.add(entry.future)
        return entry

    def forget(self, entry: Entry) -> None:
        """Drop a job that was submitted out of turn."""
        entry.future.cancel()
        self._beside.discard(entry.future)

    # -- any thread --------------------------------------------------------------------------------------------

    def ahead(self) -> int:
        return len(self._entries)

    def ready(self) -> int:
        return sum(entry.future.done() for entry in tuple(self._entries))

    def result(self) -> Any:
        """Return the next result and submit the next job."""
        with self._lock:
            try:
                return self.taken()[0]
            finally:
                self.top_up()

    def fill(self) -> None:
        check_process(self._pid)
        if not self._lock._is_owned():  # otherwise an outer call on this thread is filling it
            with self._lock:
                self.top_up()

    def close(self) -> None:
        """Cancel jobs that have not begun, drop the others."""
        self.closed = True  # first: a consumer on another thread must not see a regular end
        self._ended = True
        self._failure = None
        for future in tuple(self._beside):
            future.cancel()
        self._drop_all()
        close = getattr(self._jobs, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # it is running now, on another thread
                close()

    def _drop_all(self) -> None:
        """Cancel and drop all entries."""
        with contextlib.suppress(IndexError):  # no more entries
            while True:
                self._entries.pop().future.cancel()


def check_process(pid: int) -> None:
    """Raise :class:`PoolClosed` in a fork of the process `pid`, which does not have its workers."""
    if os.getpid() != pid:
        raise PoolClosed(f"this pool belongs to process {pid}, of which this is a fork; make a pool in this process")
