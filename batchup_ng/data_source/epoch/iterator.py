"""The iterator that hands out the batches of one epoch, whatever runner makes them."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

from ...error_context import unless_of_signal_handler
from ...errors import ArgumentTypeError, PoolClosed, StateError
from .accounting import count_of
from .iterator_views import reason
from .opening import Epoch, Runner, prepare
from .state_file import read_state, write_state

HOOKS = {"ahead", "asked", "at_end", "break_off", "buffered", "fill", "mark", "place", "state_at",
         "start_seconds", "stream_id", "take_back", "torn", "untouched"}
"""What the library calls, and users do not."""

BY_CONSUMER = ""
"""Why an iterator is over that its consumer closed, or that is at its end."""

UNKNOWN = "an exception"
"""Why an iterator is over before the exception was looked at."""

NOT_LOADED = "a state that could not be loaded"  # the user's own iterator of a stream may refuse it


class BatchIterator(Iterator[Any]):
    """Hands out batches, each a tuple of arrays, in the order of the plan.

    A loop that is broken off ends the work as soon as nothing refers to the iterator; ``with`` or :meth:`close` do
    so at once. An exception that was raised in making a batch is raised here, in that batch's turn.

    Any exception out of ``next`` but ``StopIteration``, also one of a signal's handler (Ctrl-C, SIGALRM), breaks the
    epoch off. A later ``next`` raises ``PoolClosed``, and :meth:`state_dict` is the state before the batch that was
    asked for, so an epoch that resumes from it loses and repeats nothing.

    Args:
        epoch: What it hands out.
        runner: Makes the batches.
        series: The :class:`~.epochs.Epochs` that this is one of; None if it stands alone.

    Attributes:
        at_end: Whether all of its batches were handed out and the next was asked for.
        asked: Whether a batch was asked for.
        mark: How far it was when it last handed out a batch, for :meth:`take_back`.
        start_seconds: Seconds that the call which opened the epoch took: workers may have had to start.
    """

    start_seconds = 0.0

    def __init__(self, epoch: Epoch, runner: Runner, series: weakref.ref[Any] | None = None) -> None:
        self._handed = 0, 0, 0.0  # batches, samples, and the seconds that the consumer was in ``next``
        self._series = series
        self._begin(epoch, runner)

    def _begin(self, epoch: Epoch, runner: Runner) -> None:
        self._finalizer = weakref.finalize(self, runner.abandon)
        self._finalizer.atexit = False  # daemon threads may loop then
        self._epoch = epoch
        self._runner = runner
        self._accounting = epoch.accounting
        self.at_end = self.asked = False
        self.mark = self._mark()
        self._over: str | None = None  # by what the epoch was broken off, or BY_CONSUMER; None as long as it goes on

    def __next__(self) -> Any:
        """Return the next batch; ``StopIteration`` is the end of the epoch, or follows :meth:`close`.

        Raises:
            ReentrantIteration: this is called by what is just making a batch of this iterator, such as a map.
            PoolClosed: an exception, or the next of several ``epochs``, broke the epoch off; a loop that goes on must
                not take that for its end.
        """
        if self._over is not None:
            self._raise_over()
        self._runner.check_caller()
        mark = self.mark
        began = time.perf_counter()
        self.asked = True
        try:
            batch = next(self._runner)
            if self._series is not None and self._runner.used_up and (series := self._series()) is not None:
                series.fill_ahead()
            samples, waited = count_of(batch), time.perf_counter() - began
            handed = self._handed  # read and added to without a call in between: other threads take batches as well
            self._handed = handed[0] + 1, handed[1] + samples, handed[2] + waited
            self.mark = self._accounting.counts, self._runner.latest, self._handed
            return batch
        except StopIteration:
            self._end()
            raise
        except BaseException as error:
            others = self._over  # another thread's reason
            if others is None:
                self._over = UNKNOWN  # first of all: another thread may ask for a batch
            try:
                self._taken_back(mark, error, began)
            except BaseException:  # of a second signal, which may have come in any line of that
                self._taken_back(mark, error, began)
                raise
            if others and isinstance(error, PoolClosed):
                self._raise_over()
            raise

    def _taken_back(self, mark: tuple[Any, ...], error: BaseException, began: float) -> None:
        """Break the epoch off as it was at `mark`; a second call changes nothing but the time."""
        self.take_back(mark, UNKNOWN)
        if self._over is UNKNOWN:
            self._over = reason(error)
        batches, samples, waited = self._handed
        self._handed = batches, samples, waited + time.perf_counter() - began

    def _raise_over(self) -> NoReturn:
        if self._over == BY_CONSUMER:
            raise StopIteration
        raise PoolClosed(
            f"this epoch was broken off by {self._over} after {self._handed[0]} batches, so that its iterator is "
            f"closed; make a new one, which goes on from there with state=iterator.state_dict()"
        )

    def _end(self) -> None:
        """Close the iterator behind its last batch."""
        self.at_end = True
        self.close()
        if self._epoch.plan is not None:
            self._accounting.balance(self._epoch.n_batches() or 0)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.options.epoch

    def __len__(self) -> int:
        """Return how many batches are left, where that is known.

        Raises:
            TypeError: the epoch never ends (or not before 2^63 batches), or only its end will tell.
        """
        left = self._epoch.n_left()
        return 0 if self._over is not None else left

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            f"a {type(self).__name__} cannot be pickled or copied, for what makes its batches belongs to this process; "
            f"send the source and state_dict() instead, and go on there with source.batch_iterator(..., state=state)"
        )

    def __repr__(self) -> str:
        total, ready = "", 0
        with unless_of_signal_handler():
            ready = self._runner.ready()
            n = self._epoch.n_batches()
            total = "" if n is None or n == math.inf else f"/{n}"
        state = "closed" if self._over is not None else f"{ready} buffered"
        return f"<{type(self).__name__}: {self._accounting.batches}{total} batches delivered, {state}>"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in HOOKS]

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length, which some have not

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the epoch and what was started for it; may be called again. ``next()`` then raises ``StopIteration``."""
        self.break_off(BY_CONSUMER)

    def break_off(self, by: str) -> None:
        """End the epoch as :meth:`close` does; ``next()`` then raises ``PoolClosed``, unless the epoch was over."""
        if self._over is None or self._over is UNKNOWN:
            self._over = by
        if self._finalizer.alive:
            self._runner.close()
            self._finalizer.detach()

    def _mark(self) -> tuple[Any, ...]:
        """Return how far the iterator is now, for :meth:`take_back`."""
        return self._accounting.counts, self._runner.latest, self._handed

    def take_back(self, mark: tuple[Any, ...], by: str) -> None:
        """Break the epoch off as it was at `mark`: a batch that this thread took since did not reach the loop."""
        counts, latest, handed = mark
        self._accounting.take_back(counts)
        if self._accounting.batches == counts[0]:  # no other thread has gone on
            self._runner.latest, self._handed, self.mark = latest, handed, mark
        self.break_off(by)

    # -- saving and resuming -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: what was handed out so far, not what was made ahead.

        It tells nothing of the pool: the same epoch goes on from it with another pool, other workers, another buffer,
        another number of ranks and, unless batches are what is in order (a choice of sources, buckets), another batch
        size and ``drop_last=``. JSON can hold it, in at most 4 kB (beside the state of a stream's own iterator).

        The first call of all reads the arrays of the source's samplers once, 0.7 s for 10^8 rows.

        Raises:
            StateError: the source only streams, or its order is drawn from a generator and not from an int seed; or
                several threads took batches, and an exception in one of them lost a batch before the last.
        """
        if self._accounting.gap:
            raise StateError(
                "an exception in one of several threads lost a batch of this epoch before the last; no state can say so"
            )
        return self.state_at(self.place())

    @property
    def untouched(self) -> bool:
        """Whether no batch was asked for, and the epoch goes on."""
        return self._over is None and not self.asked

    @property
    def torn(self) -> bool:
        """Whether what is ahead may lack a batch, so that the epoch must be begun again."""
        return self._runner.torn

    @property
    def stream_id(self) -> int:
        """Number of the stream that its tasks are of."""
        return self._runner.stream_id

    def place(self) -> tuple[Any, ...]:
        """Return how far the epoch is; quicker than a state, for iterators that are ahead of the consumer."""
        return (*self._accounting.counted(), self._runner.latest)

    def state_at(self, place: tuple[Any, ...]) -> dict[str, Any]:
        """Return the state that :meth:`state_dict` gave when :meth:`place` gave `place`."""
        return self._epoch.state(*place)

    def load_state_dict(self, state: Any) -> None:
        """Go on from where `state` was taken, instead of from here; nothing that was handed out then is read again.

        Raises:
            StateError: the state is damaged, or is that of another source, order, seed or epoch; the iterator goes on
                as if nothing had been asked.
        """
        epoch = prepare(self._epoch.source, self._epoch.asked, state)
        self.break_off(NOT_LOADED)
        self._over = NOT_LOADED  # also behind the end, until it is
        self._begin(epoch, epoch.source.start(epoch))

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON, which then holds what it held before or all of it, nothing else.

        A link is followed; permissions stay as they were, those of a new file are the umask's. A kill in the midst of
        it leaves what it was writing, ``.NAME.XXXXXXXX.tmp``, beside the file.

        Raises:
            StateError: as :meth:`state_dict`.
            OSError: the file cannot be written.
        """
        write_state(path, self.state_dict())

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from the state that a file holds: see :meth:`load_state_dict`.

        Raises:
            StateError: the file holds no state, or none of this epoch.
            OSError: the file cannot be read.
        """
        self.load_state_dict(read_state(path))

    # -- what happened -----------------------------------------------------------------------------------------

    @property
    def errors(self) -> list[Any]:
        """What the error policy let pass, in order: a :class:`~batchup_ng.BatchError` for each sample that failed
        and, with None as `row`, for each of the first 1,000 batches that could be made at a later try."""
        return sorted([*self._accounting.errors, *self._accounting.retries], key=lambda error: error.batch)

    def stats(self) -> dict[str, Any]:
        """Return what happened so far.

        Returns:
            ``batches`` and ``samples`` delivered; ``failed``, the samples that were left out, and ``replaced``, those
            that another row stands for; ``retried``, the batches that failed at first and could be made at a later try;
            ``wait_seconds``, for which the consumer waited in ``next()`` and for the epoch to be opened; ``buffered``,
            the number of batches that are made and wait; ``transport``, how many batches came in shared memory
            (``"slots"``), over the worker's socket (``"socket"``), through Ray's object store (``"store"``), small, in
            a message (``"message"``), or were made in this process (``"memory"``); ``arrays``, how large arrays of the
            source reached worker processes: as one copy in memory that all of them map (``"shared"``), as one in a
            temporary file (``"spilled"``), as files that they map (``"mapped"``), as a copy for each (``"sent"``), as
            one on each node (``"store"``), ``""`` where that was not needed.
        """
        return {
            "batches": self._handed[0],
            "samples": self._handed[1],
            "failed": self._accounting.failed,
            "replaced": self._accounting.replaced,
            "retried": self._accounting.retried,
            "wait_seconds": self.start_seconds + self._handed[2],
            "buffered": self.buffered(),
            "transport": dict(self._accounting.transports),
            "arrays": self._accounting.arrays,
        }

    def ahead(self) -> int:
        """Return how many batches are under way, or done and not yet handed out."""
        return 0 if self._over is not None else self._runner.ahead()

    def buffered(self) -> int:
        """Return how many batches are made and wait."""
        return 0 if self._over is not None else self._runner.ready()

    def fill(self) -> None:
        """Submit batches as far as there is room for them."""
        self._runner.fill()
