"""The iterator that hands out the batches of one epoch, whatever runner makes them."""

from __future__ import annotations

import contextlib
import math
import os
import time
import weakref
from collections.abc import Iterator
from typing import Any

from ...errors import ArgumentTypeError, PoolClosed
from .accounting import count_of
from .opening import Epoch, Runner, prepare
from .state_file import read_state, write_state

HOOKS = {"ahead", "at_end", "break_off", "buffered", "fill", "place", "state_at", "untouched"}
"""What the library calls, and users do not."""


class BatchIterator(Iterator[Any]):
    """Hands out batches, each a tuple of arrays, in the order of the plan.

    A loop that is broken off ends the work as soon as nothing refers to the iterator; ``with`` or :meth:`close` do
    so at once. An exception that was raised in making a batch is raised here, in that batch's turn, after which
    the iterator is closed.

    Args:
        epoch: What it hands out.
        runner: Makes the batches.
        series: The :class:`~.epochs.Epochs` that this is one of; None if it stands alone.

    Attributes:
        at_end: Whether all of its batches were handed out and the next was asked for.
    """

    def __init__(self, epoch: Epoch, runner: Runner, series: weakref.ref[Any] | None = None) -> None:
        self._delivered = 0
        self._samples = 0
        self._waited = 0.0
        self._series = series
        self._begin(epoch, runner)

    def _begin(self, epoch: Epoch, runner: Runner) -> None:
        self._epoch = epoch
        self._runner = runner
        self._accounting = epoch.accounting
        self._ended = False
        self._broken_off = ""  # by what, where it was neither at its end nor closed by the consumer
        self.at_end = False
        self._finalizer = weakref.finalize(self, runner.abandon)

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ReentrantIteration: this is called by what is just making a batch of this iterator, such as a map.
            PoolClosed: an interrupt (Ctrl-C), or the next of several ``epochs``, broke the epoch off; a loop that went
                on must not take that for its end.
        """
        if self._ended:
            if self._broken_off:
                raise PoolClosed(
                    f"this epoch was broken off by {self._broken_off} after {self._delivered} batches, so that its "
                    f"iterator is closed; make a new one"
                )
            raise StopIteration
        self._runner.check_caller()
        began = time.perf_counter()
        try:
            batch = next(self._runner)
            if self._series is not None and self._runner.used_up and (series := self._series()) is not None:
                series.fill_ahead()
        except BaseException as error:
            self.close()
            self._broken_off = "an interrupt" if type(error) is KeyboardInterrupt else ""
            self.at_end = isinstance(error, StopIteration)
            if self.at_end and self._epoch.plan is not None:
                self._accounting.balance(self._epoch.n_batches() or 0)
            raise
        finally:
            self._waited += time.perf_counter() - began
        self._delivered += 1
        self._samples += count_of(batch)
        return batch

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
        return 0 if self._ended else left

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            f"a {type(self).__name__} cannot be pickled or copied, for what makes its batches belongs to this process; "
            f"send the source and state_dict() instead, and go on there with source.batch_iterator(..., state=state)"
        )

    def __repr__(self) -> str:
        total, ready = "", 0
        with contextlib.suppress(Exception):
            ready = self._runner.ready()
            n = self._epoch.n_batches()
            total = "" if n is None or n == math.inf else f"/{n}"
        state = "closed" if self._ended else f"{ready} buffered"
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
        self._ended = True
        if self._finalizer.detach() is not None:
            self._runner.close()

    def break_off(self, by: str) -> None:
        """End the epoch as :meth:`close` does; ``next()`` then raises ``PoolClosed``, unless the epoch was over."""
        if not self._ended:
            self._broken_off = by
        self.close()

    # -- saving and resuming -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: what was handed out so far, not what was made ahead.

        It tells nothing of the pool: the same epoch goes on from it with another pool, other workers, another buffer,
        another number of ranks and, unless batches are what is in order (a choice of sources, buckets), another batch
        size and ``drop_last=``. JSON can hold it, in at most 4 kB (beside the state of a stream's own iterator).

        The first call of all reads the arrays of the source's samplers once, 0.7 s for 10^8 rows.

        Raises:
            StateError: the source only streams, or its order is drawn from a generator and not from an int seed.
        """
        return self.state_at(self.place())

    @property
    def untouched(self) -> bool:
        """Whether no batch was asked for yet."""
        return not self._ended and not self._waited

    def place(self) -> tuple[Any, ...]:
        """Return how far the epoch is; quicker than a state, for iterators that are ahead of the consumer."""
        return (*self._accounting.counted(), self._runner.latest_state())

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
        self.break_off("a state that could not be loaded")  # the user's own iterator of a stream may refuse it
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
        """The samples that the error policy let pass so far: a :class:`~batchup_ng.BatchError` for each."""
        return list(self._accounting.errors)

    def stats(self) -> dict[str, Any]:
        """Return what happened so far.

        Returns:
            ``batches`` and ``samples`` delivered; ``failed``, the samples that were left out, and ``replaced``, those
            that another row stands for; ``wait_seconds``, for which the consumer stood in ``next()``; ``buffered``, the
            number of batches that are made and wait; ``transport``, how many batches came in shared memory
            (``"slots"``), over the worker's socket (``"socket"``), through Ray's object store (``"store"``), small, in
            a message (``"message"``), or were made in this process (``"memory"``); ``arrays``, how large arrays of the
            source reached worker processes: as one copy in memory that all of them map (``"shared"``), as one in a
            temporary file (``"spilled"``), as files that they map (``"mapped"``), as a copy for each (``"sent"``), as
            one on each node (``"store"``), ``""`` where that was not needed.
        """
        return {
            "batches": self._delivered,
            "samples": self._samples,
            "failed": self._accounting.failed,
            "replaced": self._accounting.replaced,
            "wait_seconds": self._waited,
            "buffered": self.buffered(),
            "transport": dict(self._accounting.transports),
            "arrays": self._accounting.arrays,
        }

    def ahead(self) -> int:
        """Return how many batches are under way, or done and not yet handed out."""
        return 0 if self._ended else self._runner.ahead()

    def buffered(self) -> int:
        """Return how many batches are made and wait."""
        return 0 if self._ended else self._runner.ready()

    def fill(self) -> None:
        """Submit batches as far as there is room for them."""
        self._runner.fill()
