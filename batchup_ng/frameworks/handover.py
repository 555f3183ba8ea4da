"""What the modules of all frameworks share: iterators that convert the batches of others, in the loop or ahead of it.

Who owns what. An :class:`AheadIterator` has one thread, which alone calls ``next`` of the iterator of batches, and
converts them. The consumer takes them from a queue; a second queue tells the thread that there is room for another,
and takes it the batch that the consumer had two before: some frameworks free a batch without the interpreter's lock,
which the training loop would then have to wait for. The thread knows the queues and that iterator, not the
:class:`AheadIterator`, so that it ends with the last reference to it.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..data_source.epoch.epochs import Epochs
from ..data_source.epoch.iterator_views import IteratorView, MappedIterator
from ..data_source.epoch.state_file import write_state
from ..errors import ArgumentTypeError, PoolClosed, StateError
from ..loader import Loader
from ..work_pool.parallel import WithConsumerMaps
from ..work_pool.prefetch_buffer import check_process

QUICK_SECONDS = 0.001
"""A loop that comes back within this time has nothing to do."""

JOIN_SECONDS = 5.0
"""How long ``close`` waits for the end of the thread."""

THREADS: weakref.WeakKeyDictionary[threading.Thread, Callable[[], None]] = weakref.WeakKeyDictionary()
"""The threads, each with what tells it to end."""

Convert = Callable[[Any], Any]
"""Makes what a framework wants of a batch, a tuple or dict of arrays as the pools make it."""


def handed_over(batches: Any, view: Callable[[Any], Any]) -> Any:
    """Return what iterates as `batches` does, with `view` applied to each iterator of batches.

    A loader becomes a view of it, a source that a pool works for a source of such iterators, an iterator another one.
    """
    if isinstance(batches, Loader):
        return batches.view(view)
    if isinstance(batches, WithConsumerMaps):
        return HandedOverSource(batches, view)
    if isinstance(batches, Iterator) and not isinstance(batches, Epochs):
        return view(batches)
    remedy = "pass each of them" if isinstance(batches, Epochs) else "make a loader of data: Loader(data, batch_size)"
    raise ArgumentTypeError(
        f"batches must be a Loader, a source that a pool works for or an iterator of batches, not {type(batches)}; "
        f"{remedy}"
    )


def converted(batches: Any, convert: Convert) -> Any:
    """Return what iterates as `batches` does, each batch converted in ``next``."""
    return handed_over(batches, lambda iterator: MappedIterator(iterator, convert))


class HandedOverSource:
    """A source that a pool works for whose ``batch_iterator`` and ``epochs`` give converted batches."""

    def __init__(self, source: WithConsumerMaps, view: Callable[[Any], Any]) -> None:
        self._source = source
        self._view = view

    def batch_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """Return an iterator of one epoch: see :meth:`~batchup_ng.AbstractDataSource.batch_iterator`."""
        return self._view(self._source.batch_iterator(*args, **kwargs))

    def epochs(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Return the iterators of epochs, one after the other."""
        epochs = self._source.epochs(*args, **kwargs)

        def each() -> Iterator[Any]:
            with epochs:
                yield from map(self._view, epochs)

        return each()

    def __iter__(self) -> Iterator[Any]:
        raise ArgumentTypeError("a source is no loader; loop over its .batch_iterator(batch_size), or .epochs(n, ...)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._source!r}>"


class AheadIterator(IteratorView):
    """Hands out converted batches that a thread makes ahead.

    ``state_dict`` and ``len`` count what was handed out, not what is ahead; ``stats()["wait_seconds"]`` is the time
    that the consumer waited here. Other methods are those of the iterator that the batches come from.

    Args:
        iterator: Gives the batches; with ``state_dict()`` if states are to be had.
        convert: Called on the thread with each batch.
        depth: How many converted batches are ahead, with the one that is being converted.
        always: Whether the thread works in any case. If not, a batch is converted in ``next`` where that is better: for
            a loop that comes back at once, since from thread to thread takes longer than `convert`; and where the
            iterator is not ahead itself, for it may read what belongs to the consumer's thread.
        receive: Called on the consumer's thread with each converted batch; returns what is handed out, which then is
            freed where the consumer lets go of it.
    """

    def __init__(
        self, iterator: Any, convert: Convert, depth: int = 2, always: bool = True, receive: Convert | None = None
    ) -> None:
        super().__init__(iterator)
        self._convert = convert
        self._depth = depth
        self._always = always
        self._receive = receive
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ahead = 0  # how many batches the thread has room for, or has made; without any it does nothing
        self._left = -math.inf  # when the latest batch was handed out
        self._latest: Any = None  # what was handed out last,
        self._before: Any = None  # and before it, which the consumer lets go of when it has the latest
        end = Ending(self._room)
        self._place = _place(iterator)  # behind what was handed out last; the iterator may be farther on
        self._n_batches = _length(iterator)
        self._handed_out = 0
        self._waited = 0.0
        self._ended: BaseException | None = None
        self._pid = os.getpid()
        self.at_end = False
        arguments = (iterator, convert, self._ready, end)
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(_convert_ahead, *arguments), daemon=True, name="handover")
        self._finalizer = weakref.finalize(self, end)
        THREADS[self._thread] = end

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            PoolClosed: an interrupt (Ctrl-C) or another iteration broke the epoch off, or this is a fork.
        """
        if self._ended is not None:
            raise self._ended.with_traceback(None)  # or it would grow with each call
        check_process(self._pid)
        began = time.perf_counter()
        try:
            if self._ahead:
                item = self._ready.get()
                self._ahead -= 1
                if isinstance(item, BaseException):
                    raise item
                batch, self._place = item
            else:  # the thread does nothing, so that the iterator is this one's to use
                batch, self._place = self._convert(next(self._iterator)), _place(self._iterator)
            if self._always or (began - self._left > QUICK_SECONDS and (self._ahead or _is_ahead(self._iterator))):
                self._let_thread_fill()
            if self._receive is None:
                self._before, self._latest = self._latest, batch
            else:
                batch = self._receive(batch)
        except BaseException as error:  # an interrupt may have taken a batch out of the queue
            self.at_end = isinstance(error, StopIteration)
            self._end(StopIteration() if isinstance(error, Exception) else _broken_off("an interrupt"))
            raise
        finally:
            self._left = time.perf_counter()
            self._waited += self._left - began
        self._handed_out += 1
        return batch

    def _let_thread_fill(self) -> None:
        """Have the thread make batches until so many are ahead."""
        if self._thread.ident is None:  # not before, since some frameworks call iter() and take no batch
            self._thread.start()
        while self._ahead < self._depth:
            self._ahead += 1
            self._room.put(self._before)
            self._before = None

    def __len__(self) -> int:
        if self._n_batches is None:
            raise ArgumentTypeError("the number of these batches is not known, so they have no len()")
        return 0 if self._ended else self._n_batches - self._handed_out

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: what was handed out, not what is ahead; see ``BatchIterator.state_dict``."""
        state: dict[str, Any] = self._iterator.state_at(self._place)
        return state

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON: see ``BatchIterator.save_state``."""
        write_state(path, self.state_dict())

    def stats(self) -> dict[str, Any]:
        """Return what happened so far: see ``BatchIterator.stats``."""
        samples = self._place[1]["delivered"]
        waited = self._iterator.opening + self._waited
        own = {"batches": self._handed_out, "samples": samples, "wait_seconds": waited}
        return {**self._iterator.stats(), **own}

    def load_state_dict(self, state: Any) -> None:
        """Raise :class:`~batchup_ng.StateError`: batches are ahead that are not those from `state` on."""
        raise StateError("batches are ahead of this iterator; load the state into the loader, or make a new iterator")

    load_state = load_state_dict

    def close(self) -> None:
        """End the thread and the iterator that the batches come from; may be called again."""
        self._end(StopIteration())

    def break_off(self, by: str) -> None:
        """End it as :meth:`close` does; ``next()`` then raises ``PoolClosed``, unless it was at its end."""
        self._end(_broken_off(by), lambda: self._iterator.break_off(by))

    def _end(self, error: BaseException, close: Callable[[], object] | None = None) -> None:
        """Be at the end: ``next()`` raises `error` from now on, unless it has ended before."""
        if self._ended is None:
            self._ended = error
        self._finalizer()
        close = close or getattr(self._iterator, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # a generator that the thread is running just now
                close()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
        self._latest = self._before = None
        with contextlib.suppress(queue.Empty):
            while True:
                self._ready.get_nowait()


class Ending:
    """Tells a thread that waits for room to end; called by a finalizer, so that it must take no lock."""

    def __init__(self, room: queue.SimpleQueue[Any]) -> None:
        self.room = room
        self.begun = False

    def __call__(self) -> None:
        self.begun = True
        self.room.put(None)


def _convert_ahead(iterator: Any, convert: Convert, ready: queue.SimpleQueue[Any], end: Ending) -> None:
    """Make a batch, converted, with the place of the iterator after it, each time there is room; then what ended it.

    This is all that the thread runs.
    """
    while True:
        end.room.get()  # and free what comes with it
        if end.begun:
            return
        try:
            ready.put((convert(next(iterator)), _place(iterator)))
        except BaseException as error:
            ready.put(error)
            return


@atexit.register
def _end_threads() -> None:
    """Wait for all threads: one that Python ends while it runs compiled code of a framework aborts the program."""
    threads = [(thread, end) for thread, end in list(THREADS.items()) if thread.is_alive()]
    for _, end in threads:
        end()
    for thread, _ in threads:
        thread.join(JOIN_SECONDS)


def _place(iterator: Any) -> Any:
    """Return how far an iterator is; None where it has no states."""
    place = getattr(iterator, "place", None)
    return None if place is None else place()


def _is_ahead(iterator: Any) -> bool:
    """Return whether an iterator has batches that wait for the consumer."""
    buffered = getattr(iterator, "buffered", None)
    return buffered is not None and buffered() > 0


def _length(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except TypeError:
        return None


def _broken_off(by: str) -> PoolClosed:
    return PoolClosed(f"this epoch was broken off by {by}, so that its iterator is closed; make a new one")
