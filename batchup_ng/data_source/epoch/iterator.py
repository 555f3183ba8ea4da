"""The iterator over the batches of one epoch, for all runners."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ...error_context import unless_of_signal_handler
from ...errors import ArgumentTypeError, PoolClosed, StateError
from ...interpreter import FREE_THREADED
from .accounting import count_of
from .history import adopted
from .iterator_views import reason
from .opening import prepare, start
from .prepared import Epoch
from .runner import Give, Runner
from .state_file import read_state, write_state

HIDDEN_NAMES = {
    "ahead", "ahead_of", "asked", "at_end", "break_off", "broken_off_before_first", "buffered", "changing",
    "epoch_progress", "fill", "flow_id", "lead", "mark", "n_batches", "plan", "results_by", "shard_world",
    "start_seconds", "state_at", "take_back", "torn", "untouched", "warned",
}  # fmt: skip
"""Methods and attributes for the library, not for users."""

BY_CONSUMER = ""
"""Reason for the end of an iterator that its consumer closed, or that is at its end."""

UNKNOWN_REASON = "an exception"
"""Reason for the end of an iterator before its exception is described."""

NOT_LOADED = "a state that could not be loaded"  # the user's own iterator of a stream may reject it


class BatchIterator(Iterator[Any]):
    """An iterator over batches, each a tuple of arrays, in the order of the plan.

    After a break out of the loop, the work ends as soon as nothing refers to the iterator. ``with`` or :meth:`close`
    end it at once. An exception in making a batch is raised here, when it is that batch's turn.

    Any exception out of ``next`` but ``StopIteration``, also from a signal handler (Ctrl-C, SIGALRM), breaks the epoch
    off. A later ``next`` raises ``PoolClosed``, and :meth:`state_dict` returns the state before the batch that was
    requested. An epoch that resumes from it loses and repeats nothing.

    Args:
        epoch: The epoch to hand out.
        runner: Makes the batches.
        series: The :class:`~.epochs.Epochs` that this iterator is part of, or None.

    Attributes:
        at_end: Whether all batches were handed out and one more was requested.
        asked: Whether a batch was requested.
        mark: The progress when it last handed out a batch, for :meth:`take_back`.
        ahead_of: If an adapter takes batches ahead of the loop, an object that knows how far the loop is: see
            :meth:`lead`.
        start_seconds: Duration in seconds of the call that opened the epoch. It may have started workers.
    """

    start_seconds = 0.0

    def __init__(self, epoch: Epoch, runner: Runner, series: weakref.ref[Any] | None = None) -> None:
        self._handed = 0, 0, 0.0  # batches, samples, and seconds of the consumer in ``next``
        self._counting = threading.RLock()  # held while these change
        self._give: Give | None = None
        self._series = series
        self._begin(epoch, runner)

    def _begin(self, epoch: Epoch, runner: Runner) -> None:
        self._finalizer = weakref.finalize(self, runner.abandon)
        self._finalizer.atexit = False  # daemon threads may loop then
        self._epoch = epoch
        self._runner = runner
        runner.results_by(self._give)
        self._accounting = epoch.accounting
        self.at_end = self.asked = False
        self.ahead_of: Any = None
        self._led_from = 0  # how many batches the loop had before the adapter
        self.mark = self._mark()
        self._over: str | None = None  # the reason for its end, or BY_CONSUMER; None while it goes on

    def __next__(self) -> Any:
        """Return the next batch. ``StopIteration`` means the end of the epoch, or follows :meth:`close`.

        Raises:
            ReentrantIteration: the caller is making a batch of this iterator, for example in a map.
            PoolClosed: an exception, or the next of several ``epochs``, broke the epoch off. A loop must not mistake
                that for its end.
        """
        if self._over is not None:
            self._raise_over()
        if self.ahead_of is not None and self.ahead_of.dropped:
            self._go_on_alone()
        self._runner.check_caller()
        mark = self.mark
        began = time.perf_counter()
        self.asked = True
        try:
            batch = next(self._runner)
            if self._series is not None and self._runner.used_up and (series := self._series()) is not None:
                series.fill_ahead()
            samples, waited = count_of(batch), time.perf_counter() - began
            if FREE_THREADED:
                self._count(samples, waited)
            else:
                handed = self._handed  # no call between read and write: other threads take batches too
                self._handed = handed[0] + 1, handed[1] + samples, handed[2] + waited
                self.mark = self._accounting.counts, self._runner.latest, self._handed
            return batch
        except StopIteration:
            self._end()
            raise
        except BaseException as error:
            others = self._over  # another thread's reason
            if others is None:
                self._over = UNKNOWN_REASON  # set at once: another thread may request a batch
            try:
                self._taken_back(mark, error, began)
            except BaseException:  # from a second signal, which may come at any line
                self._taken_back(mark, error, began)
                raise
            if others and isinstance(error, PoolClosed):
                self._raise_over()
            raise

    def _count(self, samples: int, waited: float) -> None:
        with self._counting:
            handed = self._handed
            self._handed = handed[0] + 1, handed[1] + samples, handed[2] + waited
            self.mark = self._accounting.counts, self._runner.latest, self._handed

    def _taken_back(self, mark: tuple[Any, ...], error: BaseException, began: float) -> None:
        """Break the epoch off as it was at `mark`. A second call only changes the time."""
        self.take_back(mark, UNKNOWN_REASON)
        if self._over is UNKNOWN_REASON:
            self._over = reason(error)
        with self._counting:
            batches, samples, waited = self._handed
            self._handed = batches, samples, waited + time.perf_counter() - began

    def _raise_over(self) -> NoReturn:
        if self._over == BY_CONSUMER:
            raise StopIteration
        raise PoolClosed(
            f"this epoch was broken off by {self._over} after {self._n_got()} batches, so that its iterator is "
            f"closed; make a new one, which goes on from there with state=iterator.state_dict()"
        )

    def _end(self) -> None:
        """Close the iterator after its last batch."""
        self.at_end = True
        self.close()
        if self._epoch.plan is not None:
            self._accounting.balance(self._epoch.n_batches() or 0)

    @property
    def over(self) -> bool:
        """Whether it hands out no more batches."""
        return self._over is not None

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.options.epoch

    @property
    def shard_world(self) -> int | None:
        """The number of processes that share the data; None for a stream, of which only its author knows."""
        return None if self._epoch.plan is None else self._epoch.options.shard.world

    @property
    def warned(self) -> set[str]:
        """The kinds of warnings that were given for its source."""
        return self._epoch.node.epoch_notes.warned

    def __len__(self) -> int:
        """Return the number of batches left, if it is known.

        Raises:
            TypeError: the epoch never ends (or not before 2^63 batches), or the number is not known before its end.
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
        return [name for name in super().__dir__() if name not in HIDDEN_NAMES]

    def __bool__(self) -> bool:
        return True  # otherwise Python calls len(), which some do not have

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the epoch and its work. May be called again. ``next()`` then raises ``StopIteration``."""
        self.break_off(BY_CONSUMER)

    def break_off(self, by: str) -> None:
        """End the epoch as :meth:`close` does. Unless the epoch was over, ``next()`` then raises ``PoolClosed``."""
        if self._over is None or self._over is UNKNOWN_REASON:
            self._over = by
        if self._finalizer.alive:
            self._runner.close()
            self._finalizer.detach()

    def _mark(self) -> tuple[Any, ...]:
        """Return the present progress of the iterator, for :meth:`take_back`."""
        return self._accounting.counts, self._runner.latest, self._handed

    def take_back(self, mark: tuple[Any, ...], by: str) -> None:
        """Break the epoch off as it was at `mark`: a batch that this thread took after it did not reach the loop."""
        counts, latest, handed = mark
        self._accounting.take_back(counts)
        with self._counting:
            if self._accounting.batches == counts[0]:  # no other thread has gone on
                self._runner.latest, self._handed, self.mark = latest, handed, mark
            elif self._runner.latest is not latest:  # the state of a stream may be that after the lost batch
                self._accounting.gap = True
        self.break_off(by)

    def _n_got(self) -> int:
        """Return how many batches the loop got."""
        return self._handed[0] if self.ahead_of is None else self._led_from + int(self.ahead_of.at[0])

    # -- an adapter that is ahead of the loop ------------------------------------------------------------------

    def lead(self, work: Any) -> None:
        """Let an adapter take batches ahead of the loop.

        Args:
            work: ``at`` has the number of batches that the adapter has handed out, and the progress after them.
                ``dropped`` says whether the adapter is gone, ``begun()`` how many batches it may have taken.

        Raises:
            PoolClosed: an earlier adapter is gone, with batches that the loop did not get.
        """
        if self.ahead_of is not None and self.ahead_of.dropped:
            if self._over is None:
                self._go_on_alone()
            elif self._over != BY_CONSUMER:
                self._raise_over()
            else:
                return  # its state stays that of the loop
        self.ahead_of, self._led_from = work, self._handed[0]

    def _go_on_alone(self) -> None:
        """Go on after an adapter that is gone. If batches went with it, break the epoch off before them."""
        got = self.ahead_of.at[0]
        if self.ahead_of.begun() > got or self._handed[0] - self._led_from != got:
            self.break_off("the loss of an adapter, such as to_torch(iterator), which had taken batches ahead,")
            self._raise_over()
        self.ahead_of = None

    # -- saving and resuming -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the epoch: the batches handed out, without those made ahead.

        The state does not depend on the pool. The epoch can resume from it with another pool, other workers, another
        buffer and another number of ranks. Unless its order consists of batches (a choice of sources, buckets), the
        batch size and ``drop_last=`` may change too. The state can be written as JSON, in at most 4 kB (without the
        state of a stream's own iterator).

        The very first call reads the arrays of the source's samplers once, 0.7 s for 10^8 rows.

        Raises:
            StateError: the source only streams, or its order is drawn from a ``RandomState``; or several threads took
                batches, and an exception in one of them lost a batch before the last.
        """
        if self._accounting.gap:
            raise StateError(
                "an exception in one of several threads lost a batch of this epoch before the last; no state can say so"
            )
        return self.state_at(self.epoch_progress() if self.ahead_of is None else self.ahead_of.at[1])

    @property
    def broken_off_before_first(self) -> bool:
        """Whether the epoch was ended before the loop got a batch, though it has one."""
        return self._over is not None and not self._n_got() and not (self.at_end and not self._handed[0])

    @property
    def untouched(self) -> bool:
        """Whether no batch was requested yet and the epoch goes on."""
        return self._over is None and not self.asked

    @property
    def torn(self) -> bool:
        """Whether the batches made ahead may lack one. The epoch must then be begun again."""
        return self._runner.torn

    @property
    def flow_id(self) -> int:
        """Number of the flow that its tasks belong to."""
        return self._runner.flow_id

    @property
    def is_requested(self) -> bool:
        """Whether the caller has listed the batches, by their numbers."""
        return self._epoch.requested is not None

    @property
    def made_of(self) -> tuple[Any, Any]:
        """The node of the source, and the options of the epoch."""
        return self._epoch.node, self._epoch.options

    @contextlib.contextmanager
    def changing(self) -> Iterator[Epoch]:
        """Give access to the epoch while no batch is planned."""
        with self._runner.planning():
            yield self._epoch

    @property
    def plan(self) -> Any:
        """The plan of the epoch; None for a stream."""
        return self._epoch.plan

    @property
    def meter(self) -> Any:
        """Takes the times of the batches; None if nothing is measured."""
        return self._runner.meter

    def n_batches(self) -> float | None:
        """Return the number of batches of the whole epoch: an int, ``math.inf``, or None if it is not known."""
        return self._epoch.n_batches()

    def epoch_progress(self) -> tuple[Any, ...]:
        """Return the progress of the epoch. It is faster than a state, for iterators ahead of the consumer."""
        return (*self._accounting.counted(), self._runner.latest)

    def state_at(self, progress: tuple[Any, ...]) -> dict[str, Any]:
        """Return the result of :meth:`state_dict` at the time when :meth:`epoch_progress` returned `progress`."""
        return self._epoch.state(*progress)

    def load_state_dict(self, state: Any, *, adopt: Sequence[str] = ()) -> None:
        """Continue from `state` instead of from here. Batches handed out before `state` are not read again.

        Args:
            state: What ``state_dict()`` returned.
            adopt: What may differ between the source of the state and this one. ``"weights"``: the weights of a
                mixture. ``"rows"``: rows that were added behind the others, rows that are left out now by
                ``subset(exclude=...)``, rows that are not left out any more. The rest of the epoch has what is here: no
                row is lost, and none that was handed out comes again before its part begins again. See
                docs/mixtures.md.

        Raises:
            StateError: the state is damaged, or belongs to another source, order, seed or epoch. The iterator then
                continues as before the call.
        """
        epoch = prepare(self._epoch.node, self._epoch.asked, adopted(state, self._epoch.node, adopt))
        self.break_off(NOT_LOADED)
        self._over = NOT_LOADED  # also after the end, until the state is loaded
        self._begin(epoch, start(epoch))

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON. The file then has either its old content or the whole new state.

        Links are followed. An existing file keeps its permissions; a new file gets them from the umask. A kill during
        the write leaves the temporary file ``.NAME.XXXXXXXX.tmp`` in the same folder.

        Raises:
            StateError: as :meth:`state_dict`.
            OSError: the file cannot be written.
        """
        write_state(path, self.state_dict())

    def load_state(self, path: str | os.PathLike[str], *, adopt: Sequence[str] = ()) -> None:
        """Continue from the state in a file: see :meth:`load_state_dict`.

        Raises:
            StateError: the file contains no state, or none of this epoch.
            OSError: the file cannot be read.
        """
        self.load_state_dict(read_state(path), adopt=adopt)

    # -- what happened -----------------------------------------------------------------------------------------

    @property
    def errors(self) -> list[Any]:
        """Errors that the policy tolerated, in order: a :class:`~batchup_ng.BatchError` for each sample that failed
        and, with None as `row`, for each of the first 1,000 batches that succeeded at a later attempt."""
        return sorted([*self._accounting.errors, *self._accounting.retries], key=lambda error: error.batch)

    def stats(self) -> dict[str, Any]:
        """Return statistics of the epoch so far.

        Returns:
            ``batches`` and ``samples``, the numbers delivered; ``failed``, the samples left out; ``replaced``, the
            samples replaced by another row; ``retried``, the batches that failed at first and succeeded at a later
            attempt; ``wait_seconds``, the time that the consumer waited in ``next()`` and for the epoch to open;
            ``buffered``, the number of finished batches that wait; ``transport``, the number of batches that came in
            shared memory (``"slots"``), over the worker's socket (``"socket"``), through Ray's object store
            (``"store"``), small ones in a message (``"message"``), or were made in this process (``"memory"``);
            ``arrays``, the way large arrays of the source reached worker processes: one copy in memory that all of them
            map (``"shared"``), one in a temporary file (``"spilled"``), files that they map (``"mapped"``), a copy for
            each (``"sent"``), one on each node (``"store"``), or ``""`` if that was not needed.
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
        """Return the number of batches that are under way, or done and not yet handed out."""
        return 0 if self._over is not None else self._runner.ahead()

    def buffered(self) -> int:
        """Return the number of finished batches that wait."""
        return 0 if self._over is not None else self._runner.ready()

    def results_by(self, give: Give) -> None:
        """Hand out what `give` returns for each result of a map after the pool: see ``Runner.results_by``."""
        self._give = give
        self._runner.results_by(give)

    def fill(self) -> None:
        """Submit batches while there is room for them."""
        self._runner.fill()
