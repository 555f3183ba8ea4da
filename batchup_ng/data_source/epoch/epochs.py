"""Epochs of a source: one by ``batch_iterator``, a series by ``epochs``.

Where a pool makes the batches, the epochs of a series share one buffer: once all batches of an epoch are submitted, its
iterator has :class:`Epochs` begin the next, whose runner takes the room in the buffer that the first leaves. At most
one epoch is begun ahead. :class:`Epochs` owns it; an iterator has a weak reference to :class:`Epochs` and a runner one
to the iterator before, so that what was begun ends with the last reference to :class:`Epochs`.
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

from ... import validation
from ...error_context import unless_of_signal_handler
from ...errors import RepeatedEpochWarning, StateError
from ...faults.policy import ErrorPolicy
from ...sampling.plans.epoch import BatchPlan
from ...warn import consumer_level
from ..epoch_options import FIRST, EpochOptions, epoch_options
from ..hooks import SourceNode, any_node
from .accounting import Accounting
from .iterator import BatchIterator
from .opening import Epoch, OpensEpochs, prepare
from .state import from_state


class Epochs(Iterator[BatchIterator]):
    """Iterators of the batches of one epoch after the other: see :meth:`EpochSource.epochs`.

    When the next epoch is asked for, the iterator of the one before is closed, whose ``next()`` then raises
    ``PoolClosed`` unless it was at its end. ``with`` or :meth:`close` end it all.
    """

    def __init__(self, source: MakesEpochs, options: EpochOptions, numbers: tuple[int, float], state: Any) -> None:
        self._source = source
        self._options = options
        self._number, self._end = numbers
        self._state = state
        self._current: weakref.ref[BatchIterator] | None = None
        self._ahead: BatchIterator | None = None
        # A generator is drawn from when its epoch is asked for, as in a plain loop: others may draw from it, too.
        self._may_begin_ahead = options.rng is None

    def __next__(self) -> BatchIterator:
        if self._current is not None and (current := self._current()) is not None:
            current.break_off(
                "asking epochs() for the next epoch before this one was at its end (loop over each in its turn)"
            )
        ahead, number, state = self._ahead, self._number, self._state
        if ahead is not None and (ahead.torn or ahead.epoch != number):
            ahead.close()
            ahead = self._ahead = None
        if ahead is None:
            began = time.perf_counter()
            ahead = self._begun(number)
            ahead.start_seconds = time.perf_counter() - began
        self._current = weakref.ref(ahead)
        try:
            self._may_begin_ahead = self._options.rng is None
            self._number, self._ahead, self._state = number + 1, None, None
            return ahead
        except BaseException:  # of a signal's handler: the next call hands the same epoch out
            self._number, self._state = number, state
            raise

    def _begun(self, number: int, before: weakref.ref[BatchIterator] | None = None) -> BatchIterator:
        """Return the iterator of an epoch, which shares its buffer with the one before."""
        if number >= self._end:
            raise StopIteration
        options = dataclasses.replace(self._options, epoch=number, numbered=True)
        epoch = prepare(self._source, options, self._state if before is None else None)
        self._options = dataclasses.replace(self._options, chosen=epoch.options.chosen)  # by which all epochs go on
        return BatchIterator(epoch, self._source.start(epoch, before), weakref.ref(self))

    @property
    def mark(self) -> tuple[int, Any]:
        """Which epoch is next, for :meth:`take_back`."""
        return self._number, self._state

    def take_back(self, mark: tuple[int, Any], by: str) -> None:
        """Begin the epoch at `mark` again: its iterator did not reach the loop."""
        self._number, self._state = mark

    def go_by(self, chosen: Any) -> None:
        """Read in these blocks, unless they are None or a state has others."""
        self._options = dataclasses.replace(self._options, chosen=chosen)

    def fill_ahead(self) -> None:
        """Begin the next epoch ahead of its turn, or fill its part of the buffer: for the current one's iterator."""
        if self._ahead is not None:
            self._ahead.fill()
        elif self._may_begin_ahead:
            self._may_begin_ahead = False
            with unless_of_signal_handler():  # it is raised again when the epoch is asked for
                self._ahead = self._begun(self._number, self._current)

    def close(self) -> None:
        """End the current epoch and what was begun ahead; may be called again. ``next()`` then ends the loop."""
        self._end = 0
        for iterator in (None if self._current is None else self._current(), self._ahead):
            if iterator is not None:
                iterator.close()
        self._ahead = None

    def __repr__(self) -> str:
        number = self._number
        last = "without end" if self._end == math.inf else f"the last is {self._end - 1}"
        left = f"next is epoch {number}, {last}" if number < self._end else "no more"
        return f"<{type(self).__name__}: {left}, of {self._source!r}>"

    def __enter__(self) -> Epochs:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Unnumbered:
    """The latest epoch of a source that was given no number; none where the source is sent, which it is kept with."""

    latest: tuple[EpochOptions, Accounting] | None = None
    warned = False  # of epochs that repeat each other

    def __reduce__(self) -> tuple[type[_Unnumbered], tuple[()]]:
        return _Unnumbered, ()


def warn_of_repeats(source: SourceNode, epoch: Epoch) -> None:
    """Warn, once a source, of an epoch that has the order and shard of the one before, both without a number."""
    kept: _Unnumbered = vars(source).setdefault("_unnumbered", _Unnumbered())
    before, options = kept.latest, epoch.options
    if before is not None and before[1].batches and not kept.warned:
        order, own = ((one.shuffled, one.seed, one.shard) for one in (before[0], options))
        if order == own and (options.shuffled or any_node(source, "rng")):
            kept.warned = True
            what = f"shuffle={options.seed}" if options.shuffled else "maps with rng="
            warnings.warn(
                f"this epoch has the same order and random numbers as the one before: with {what} and without epoch= "
                f"each is epoch 0; loop over source.epochs(n, batch_size, ...), or pass epoch=",
                RepeatedEpochWarning,
                stacklevel=consumer_level(),
            )
    kept.latest = options, epoch.accounting


class MakesEpochs(OpensEpochs):
    """The methods by which the library's own sources hand out epochs."""

    def _noted_source(self) -> SourceNode:
        """Return the source of which epochs that repeat each other are noted."""
        return self

    @validation.known_names()
    def plan(self, batch_size: int, shuffle: Any = None, *, epoch: int = FIRST, drop_last: bool = False) -> BatchPlan:
        """Return the plan of an epoch: ``len(plan)``, ``plan[k]`` -> number, rows and key of batch k.

        The arguments are those of :meth:`batch_iterator`.

        Raises:
            TypeError: the source is not random access.
        """
        return self.plan_of(epoch_options(batch_size, shuffle, epoch=epoch, drop_last=drop_last))

    @validation.known_names(unless=lambda source: any_node(source, "takes_options"))
    def batch_iterator(
        self,
        batch_size: int,
        shuffle: Any = None,
        *,
        epoch: int = FIRST,
        drop_last: bool = False,
        shard: Any = None,
        uneven: str = "pad",
        pad_mask: bool = False,
        on_error: str | ErrorPolicy | None = None,
        state: Any = None,
        **own: Any,
    ) -> BatchIterator:
        """Return an iterator of the batches of one epoch. A pool begins to make them now.

        Args:
            batch_size: Samples a batch; the last may have fewer.
            shuffle: None: in order. An int: a seed, the order being a function of it and of `epoch`. A
                ``numpy.random.RandomState`` or ``Generator``: the order is drawn from it, with a ``RandomState``
                exactly as BatchUp drew it. True: drawn from NumPy's global state. ``("blocks", seed)``: a function of
                the seed as well, by a :class:`~batchup_ng.BlockShuffleSampler`, whose blocks are those that the
                accessors say are cheap to read together, and as many at a time as they say; ``"blocks"`` draws the
                seed from NumPy's global state.
            epoch: Number of the epoch, which with a seed gives each epoch an order of its own; :meth:`epochs`
                counts them. With `state` and without a number it is the state's.
            drop_last: Whether to leave out a last batch that is not whole.
            shard: ``(rank, world)`` or ``"auto"``: the part of one of several processes, all of which have equally many
                batches; rank r's batch k is batch k·world + r of all. ``"auto"`` reads the environment that torchrun,
                JAX, MPI or SLURM set.
            uneven: ``"pad"``, ``"drop"`` or ``"error"``: what to do where the samples at the end cannot be shared out
                evenly; see :class:`~batchup_ng.sampling.plans.sharding.Shard`.
            pad_mask: Whether each batch ends with an array, ``(n,) bool``, that is False where a sample only pads; the
                n samples are those that were planned for the batch, whatever maps made of them, less those that
                ``on_error="skip"`` left out.
            on_error: What to do about samples that cannot be made: ``"raise"`` an error that names the sample, the
                default; ``"skip"`` it; ``"replace"`` it by another; or an :class:`~batchup_ng.ErrorPolicy`. A pool's
                source has as default what ``parallel_data_source`` was given.
            state: What ``state_dict`` of an iterator of this epoch returned, here or elsewhere: go on from there.
            **own: Options of a function of the user's (:class:`~batchup_ng.CallableDataSource`), where there is one.

        Raises:
            ArgumentError: the batch size is below 1, or an option has a value that it cannot have.
            ArgumentTypeError: an option is misspelt, or of a wrong kind.
            StateError: the state is damaged, or is that of another source, order, seed or epoch.
        """
        began = time.perf_counter()
        options = epoch_options(batch_size, shuffle, epoch, drop_last, shard, uneven, pad_mask, on_error, own)
        opened = prepare(self, options, state)
        if state is None and not options.numbered and options.rng is None:
            warn_of_repeats(self._noted_source(), opened)
        iterator = BatchIterator(opened, self.start(opened))
        iterator.start_seconds = time.perf_counter() - began
        return iterator

    @validation.known_names(unless=lambda source: any_node(source, "takes_options"))
    def epochs(
        self,
        n: int | None,
        batch_size: int,
        shuffle: Any = None,
        *,
        start: int = 0,
        drop_last: bool = False,
        shard: Any = None,
        uneven: str = "pad",
        pad_mask: bool = False,
        on_error: str | ErrorPolicy | None = None,
        state: Any = None,
        **own: Any,
    ) -> Epochs:
        """Return an iterator of epochs, each an iterator of its batches, whose ``epoch`` is its number.

        Where a pool makes the batches, its buffer stays full from one epoch to the next: when all batches of an epoch
        are under way, the first of the next are made, within the same ``batch_buffer_size`` and ``buffer_bytes``. (Not
        where the order is drawn from a generator, and not with ``pool.prefetch``: there an epoch begins when it is
        asked for.) An iterator that was left early is closed when the next epoch is asked for, and raises
        ``PoolClosed`` when it is asked for a batch: a list of these iterators is of no use, loop over each in its turn.

        Args:
            n: How many epochs; None for no end.
            batch_size: As for :meth:`batch_iterator`, and so are the others that are not told here.
            start: Number of the first epoch.
            state: What ``state_dict`` of one of the iterators returned: go on in the middle of that epoch, with those
                that follow. `n` counts from `start`, so that a program that is started again makes the same call.

        Raises:
            StateError: the state is damaged, or of an epoch that is not among these.

        >>> import numpy as np, batchup_ng as bu
        >>> for batches in bu.ArrayDataSource([np.arange(3)]).epochs(2, batch_size=2):
        ...     print(batches.epoch, [x.tolist() for (x,) in batches])
        0 [[0, 1], [2]]
        1 [[0, 1], [2]]
        """
        options = epoch_options(batch_size, shuffle, start, drop_last, shard, uneven, pad_mask, on_error, own)
        end = math.inf if n is None else options.epoch + validation.not_negative("n", n)
        first = options.epoch if state is None else from_state(state).epoch
        if state is not None and not options.epoch <= first < end:
            raise StateError(
                f"this state is of epoch {first}, and these are the epochs from {options.epoch} to {end} (excluded); n "
                f"counts from start, not from the state"
            )
        return Epochs(self, options, (first, end), state)
