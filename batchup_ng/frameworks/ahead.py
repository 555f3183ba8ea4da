"""An iterator that hands out batches which a thread converts ahead of the loop. The framework adapters share it.

Ownership. An :class:`AheadIterator` has one thread, which asks the iterator for batches and converts them. The consumer
and the thread share a :class:`Work`: the consumer writes how many batches there is room for, the thread stores batches
by number. A queue wakes the thread and carries the last batch but one, for the thread to free: some frameworks free a
batch without the interpreter's lock, and the training loop would have to wait for that lock. The thread has a reference
to the :class:`Work` and the iterator, but none to the :class:`AheadIterator`. When the last reference to the
:class:`AheadIterator` goes, the thread ends.

Memory. The iterator makes the next batch while the loop uses this one. A function after the pool, or an iterator of the
user's, may keep an array and fill it again. So ``results_by`` has the iterator copy what such code keeps. A plain loop
gets the results themselves.

Interrupts. A batch leaves ``next`` by one assignment: the count of batches handed out. An exception before it changes
nothing. An exception after it, for example from a signal handler, restores the old count. The batch is still in
``ready`` then.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import functools
import math
import os
import queue
import threading
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..batch_layout import unkept
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.iterator_views import IteratorView, broken_off, progress_of, reason
from ..data_source.epoch.state_file import write_state
from ..errors import ArgumentError, ArgumentTypeError, ReentrantIteration, StateError
from ..interpreter import taken
from ..signals import InterruptsHeld
from ..work_pool.prefetch_buffer import check_process

QUICK_SECONDS = 0.001
"""A loop that comes back within this time has nothing to do."""

CONVERSION = "(conversion for the framework)"
"""Name of the conversion among measurements."""

JOIN_SECONDS = 5.0
"""How long ``close`` waits for the end of the thread."""

RUNNING_THREADS: dict[threading.Thread, Callable[[], None]] = {}
"""The running threads, each with the function that ends it.

Not a weak dictionary: its callbacks are written in Python, and an interrupt in one of them would be lost.
"""

Convert = Callable[[Any], Any]
"""Converts a batch (a tuple or dict of arrays, as the pools make it) for a framework."""


class AheadIterator(IteratorView):
    """Hands out converted batches that a thread makes ahead.

    ``state_dict`` and ``len`` count the batches handed out, not the batches ahead; ``stats()["wait_seconds"]`` is the
    time that the consumer waited here. Other methods come from the iterator of batches.

    ``StopIteration`` means the end of the epoch, or ``close``. After any other exception, for example from a signal
    handler, the epoch goes on with the batch that was due. If that batch is lost, ``next`` raises ``PoolClosed``. In
    both cases the state counts the batches handed out. Several threads may call ``next``: each batch goes to one of
    them.

    Args:
        iterator: Gives the batches. States need its ``state_dict()``.
        convert: Called on the thread with each batch.
        depth: How many converted batches are ahead, including the batch in conversion.
        always: Whether the thread works in any case. If not, ``next`` converts a batch itself if the loop comes back at
            once (the way between threads would take longer than `convert`) or if the iterator is not ahead itself (it
            may read data that belongs to the consumer's thread).
        receive: Called on the consumer's thread with each converted batch. The consumer gets its result, which is freed
            when the consumer drops it.
        copies: Says of a value whether `convert` copies it in any case. What the user's code keeps of a batch, and so
            may write to again, is copied before the conversion, but for these.
        waiting: Called with the function that waits for a batch, and its argument, in place of that function. It may
            mark the wait for a profiler.
    """

    def __init__(
        self, iterator: Any, convert: Convert, depth: int = 2, always: bool = True, receive: Convert | None = None,
        waiting: Callable[[Callable[[int], Any], int], Any] | None = None,
        copies: Callable[[Any], bool] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(iterator)
        if getattr(iterator, "hands_out_again", False):
            raise ArgumentError(
                "watch(..., headroom=) must watch what your own loop iterates over, not what an adapter reads ahead; "
                "call watch(to_torch(loader), headroom=16)"
            )
        give = functools.partial(unkept, copies=copies)
        take: Convert = list.pop
        if hasattr(iterator, "results_by"):
            iterator.results_by(give)
        elif always or hasattr(iterator, "buffered"):  # an iterator of the user's, which the thread may call
            take = give
        self._convert: Convert = lambda made: convert(take(made))
        self._depth = depth
        self._always = always
        self._receive = receive
        self._waiting = waiting
        self._work = Work()
        self._meter = getattr(iterator, "meter", None)
        self._work.at = self._began_at = (0, progress_of(iterator))
        if isinstance(self._marked, BatchIterator):
            self._marked.lead(self._work)  # its own state counts the batches that this one hands out, too
        self._left = -math.inf  # when the latest batch was handed out
        self._freed: Any = None  # the last batch but one, for the thread to free
        self._n_batches = _length(iterator)
        self._waited = 0.0
        self._ended: str | None = None  # the cause if the epoch was broken off; "" for its end or close()
        self._failure = ""  # the iterator's last exception, if no batch came after it
        self._pid = os.getpid()
        self.at_end = False
        # Held by the consumer whose turn it is. Taken by ``with`` alone: after ``acquire`` an interrupt would leave it.
        self._lock: Any = threading.RLock()
        run = contextvars.copy_context().run
        arguments = (_convert_ahead, iterator, self._convert, self._work, self._meter)
        self._thread: threading.Thread | None = threading.Thread(
            target=run, args=arguments, daemon=True, name="handover"
        )
        self._finalizer = weakref.finalize(self, self._work.drop)

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            PoolClosed: an exception lost a batch, another iteration broke the epoch off, or this is a fork.
            ReentrantIteration: the conversion of a batch asks for the next batch.
        """
        check_process(self._pid)
        if self._lock._is_owned():
            raise ReentrantIteration("the conversion of a batch asked for the next one; make a second iterator there")
        began = time.perf_counter()
        at = handed = None
        try:
            with self._lock:
                if self._ended is not None:
                    raise self._over()
                at = self._work.at
                waiting = self._waiting
                batch, progress = self._item(at[0]) if waiting is None else waiting(self._item, at[0])
                if self._always or (began - self._left > QUICK_SECONDS and self._thread_can_help(at[0])):
                    self._let_thread_fill(at[0] + 1)
                if self._receive is not None:
                    batch = self._receive(batch)
                self._left = time.perf_counter()
                self._waited += self._left - began
                if self._meter is not None:
                    self._meter.handed_out.append((began, self._left, at[0] == 0))
                handed = (at[0] + 1, progress)
                self._work.at = handed
                return batch
        except BaseException as error:
            if at is not None:
                try:
                    self._take_back(at, handed, error)
                except BaseException:  # from a second signal, at any line of the call
                    self._take_back(at, handed, error)
                    raise
                if isinstance(error, StopIteration) and self._ended != "":  # from a signal handler
                    raise RuntimeError("StopIteration was raised while the next batch was waited for") from error
            raise

    def _take_back(self, at: tuple[int, Any], handed: tuple[int, Any] | None, error: BaseException) -> None:
        """Undo a call of ``next`` that `error` ended; break the epoch off if a batch is lost.

        Args:
            at: Count and progress when the call began.
            handed: Count and progress that the call was about to leave; None if it failed earlier.
            error: The exception.
        """
        gone = self._work.at is not at and self._work.at is not handed  # another thread has the next batch already
        if not gone:
            self._work.at = at
        if self._ended is not None:
            return
        item = self._work.ready.get(at[0])
        by = reason(error)
        if gone:
            self._end(by)
        elif self.at_end or item is error:  # after either, no thread uses the iterator
            self.at_end = isinstance(error, StopIteration)
            self._end("" if self.at_end else by)
        elif item is not None or self._work.span[1] > at[0]:
            pass  # the batch is ready, or the thread makes it
        elif at[1] is not None and progress_of(self._iterator) == at[1]:
            self._failure = by  # no batch is lost; the iterator may go on, or be at its end
        else:
            self._end(by)

    def _item(self, number: int) -> tuple[Any, Any]:
        """Return a converted batch and the progress after it. The batch stays in ``ready`` for two more calls."""
        ready = self._work.ready
        if self._receive is None:
            self._freed = ready.pop(number - 2, None)
        else:
            ready.pop(number - 1, None)
        item = ready.get(number)
        if item is None:
            item = self._from_thread(number) if self._work.span[1] > number else self._made_here(number)
        if isinstance(item, BaseException):
            try:
                raise item
            finally:
                del item  # its traceback holds this frame
        return item  # type: ignore[no-any-return]

    def _from_thread(self, number: int) -> Any:
        work = self._work
        while (item := work.ready.get(number)) is None:
            if self._ended is not None:
                raise self._over()
            work.room.put(None)  # again: an interrupt may have prevented the first wake-up
            work.news.acquire()
        return item

    def _made_here(self, number: int) -> Any:
        """Make a batch in ``next``, while the thread is idle."""
        made = [None]  # no variable holds the batch: it would count as a reference
        for made[0] in self._iterator:  # next() is a call, and an interrupt after it would lose the batch
            break
        else:
            if self._failure and not getattr(self._iterator, "at_end", False):
                self._end(self._failure)
                raise self._over()
            self.at_end = True
            raise StopIteration
        self._failure = ""
        converted = _converted(self._convert, made, self._meter)
        item = self._work.ready[number] = converted, progress_of(self._iterator)
        return item

    def _thread_can_help(self, number: int) -> bool:
        """Return whether the thread has begun batch `number`, or batches of the iterator wait for the consumer."""
        buffered = getattr(self._iterator, "buffered", None)
        return self._work.span[1] > number or (buffered is not None and buffered() > 0)

    def _let_thread_fill(self, number: int) -> None:
        """Have the thread make `depth` batches from batch `number` on."""
        # Not before, since some frameworks call iter() and take no batch.
        if self._thread is not None and self._thread.ident is None:
            try:
                self._thread.start()
            except BaseException as error:  # the thread may start all the same
                self._end(f"{type(error).__name__} at the start of a thread")
                raise
        work = self._work
        if work.span[1] < number + self._depth:
            work.span = number, number + self._depth
            work.room.put(self._freed)
            self._freed = None

    def _over(self) -> Exception:
        """Return the exception for ``next`` after the end: a new one each time, or its traceback would grow."""
        return broken_off(self._ended) if self._ended else StopIteration()

    def _target(self) -> Any:
        return self

    @property
    def mark(self) -> Any:
        """How far the iterator is now, for :meth:`take_back`."""
        return self._work.at

    def take_back(self, mark: Any, by: str) -> None:
        """Break the epoch off as it was at `mark`, if a batch taken after `mark` did not reach the loop."""
        if self._work.at is not mark:
            self._work.at = mark
            self._end(by)

    def __len__(self) -> int:
        if self._n_batches is None:
            raise ArgumentTypeError("the number of these batches is not known, so they have no len()")
        return 0 if self._ended is not None else self._n_batches - self._work.at[0]

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is, without the batches ahead: see ``BatchIterator.state_dict``."""
        state: dict[str, Any] = self._iterator.state_at(self._work.at[1])
        return state

    def progress(self) -> Any:
        """Return how far the epoch is: see ``BatchIterator.progress``."""
        return self._work.at[1]

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON: see ``BatchIterator.save_state``."""
        write_state(path, self.state_dict())

    def stats(self) -> dict[str, Any]:
        """Return what happened so far: see ``BatchIterator.stats``."""
        handed_out, progress = self._work.at
        waited = self._waited + getattr(self._iterator, "start_seconds", 0.0)
        samples = progress[1]["delivered"] - self._began_at[1][1]["delivered"]
        own = {"batches": handed_out, "samples": samples, "wait_seconds": waited}
        return {**self._iterator.stats(), **own}

    def load_state_dict(self, state: Any) -> None:
        """Raise :class:`~batchup_ng.StateError`: the batches ahead do not continue `state`."""
        raise StateError("batches are ahead of this iterator; load the state into the loader, or make a new iterator")

    load_state = load_state_dict

    def close(self) -> None:
        """End the thread and the iterator of the batches. May be called again."""
        self._end("")

    def break_off(self, by: str) -> None:
        """End it as :meth:`close` does. ``next()`` then raises ``PoolClosed``, unless the epoch was at its end."""
        self._end(by, lambda: self._iterator.break_off(by))

    def _end(self, by: str, close: Callable[[], object] | None = None) -> None:
        """End the epoch, unless it has ended before. After an interrupt, a second call does the rest."""
        if self._ended is None:
            self._ended = by
        self._work.end()
        close = close or getattr(self._iterator, "close", None)
        late = isinstance(self._iterator, types.GeneratorType)  # which no other thread may run meanwhile
        if close is not None and not late:
            with contextlib.suppress(ValueError):  # the thread is running a generator of it
                close()
        thread = self._thread
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            with contextlib.suppress(RuntimeError):  # an interrupt came while it was started
                thread.join(JOIN_SECONDS)
            late = late and not thread.is_alive()
            with InterruptsHeld():  # Python drops a thread in its own callback, where an interrupt would be lost
                self._thread = thread = None
        if close is not None and late:
            with contextlib.suppress(ValueError):  # this thread is running it
                close()
        self._finalizer.detach()
        self._freed = None
        self._work.ready.clear()


class Work:
    """Shared by an :class:`AheadIterator` and its thread.

    The consumer changes it by single assignments and by calls that may be repeated. An interrupt between two of these
    leaves nothing undone.

    Attributes:
        at: The number of batches handed out, and the progress after them.
        span: The number of the first batch that the thread may make, and how many batches to make in all.
        ready: The finished batches by number, each with the progress after it; or the exception that ended the
            iterator.
        room: Wakes the thread, and carries a batch to free.
        news: The thread releases it after each batch. The consumer waits by acquiring it.
        dropped: Whether the :class:`AheadIterator` is gone, without a close.
    """

    def __init__(self) -> None:
        self.at: tuple[int, Any] = (0, None)
        self.span = (0, 0)
        self.ready: dict[int, Any] = {}
        self.room: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.news = threading.Lock()
        self.news.acquire()
        self.ended = self.dropped = False

    def begun(self) -> int:
        """Return how many batches the thread may have taken."""
        return self.span[1]

    def drop(self) -> None:
        """Make the thread end after the :class:`AheadIterator`. The finalizer calls this."""
        self.dropped = True
        self.end()

    def end(self) -> None:
        """Make both sides end. Waits for no lock, because a finalizer calls it."""
        self.ended = True
        self.room.put(None)
        self.notify()

    def notify(self) -> None:
        """Wake the consumer, if it waits."""
        with contextlib.suppress(RuntimeError):  # an earlier wake-up is still unread
            self.news.release()


def _convert_ahead(iterator: Any, convert: Convert, work: Work, meter: Any) -> None:
    """Make and convert batches on demand. The thread runs only this function."""
    RUNNING_THREADS[threading.current_thread()] = work.end
    try:
        _convert_wanted(iterator, convert, work, meter)
    finally:
        del RUNNING_THREADS[threading.current_thread()]


def _convert_wanted(iterator: Any, convert: Convert, work: Work, meter: Any) -> None:
    number = 0
    while True:
        taken(work.room)  # and free the batch that comes with it
        while not work.ended and (number := max(number, work.span[0])) < work.span[1]:
            try:
                work.ready[number] = _converted(convert, [next(iterator)], meter), progress_of(iterator)
            except StopIteration as error:
                work.ready[number] = error.with_traceback(None)  # its frames would hold the thread after its end
                return
            except BaseException as error:
                work.ready[number] = error
                return
            finally:
                work.notify()
            number += 1
        if work.ended:
            return


def _converted(convert: Convert, batch: list[Any], meter: Any) -> Any:
    """Return the converted batch; `batch` is a list of it alone, and so for `convert`."""
    began = time.monotonic()
    try:
        made = convert(batch)
        if meter is not None:
            meter.add_converted(CONVERSION, time.monotonic() - began)
        return made
    except StopIteration as error:  # it would pass for the end of the epoch
        raise RuntimeError("the conversion of a batch raised StopIteration") from error


@atexit.register
def _end_threads() -> None:
    """Wait for all threads. If Python ends a thread inside compiled code of a framework, the program aborts."""
    threads = [(thread, end) for thread, end in list(RUNNING_THREADS.items()) if thread.is_alive()]
    for _, end in threads:
        end()
    for thread, _ in threads:
        thread.join(JOIN_SECONDS)


def _length(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except TypeError:
        return None
