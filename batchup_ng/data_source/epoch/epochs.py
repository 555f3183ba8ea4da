"""Epochs of a source: one by ``batch_iterator``, a series by ``epochs``.

If a pool makes the batches, the epochs of a series share one buffer. Once all batches of an epoch are submitted, its
iterator makes :class:`Epochs` begin the next epoch, whose runner uses the space left in the buffer. At most one epoch
is begun ahead. :class:`Epochs` owns it. An iterator has only a weak reference to :class:`Epochs`, and a runner only one
to the previous iterator. So the epoch begun ahead ends with the last reference to :class:`Epochs`.
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
from ..hooks import SourceNode
from .accounting import Accounting
from .iterator import BatchIterator
from .opening import Epoch, OpensEpochs, prepare
from .state import from_state


class Epochs(Iterator[BatchIterator]):
    """An iterator over epochs, each an iterator of batches: see :meth:`EpochSource.epochs`.

    A request for the next epoch closes the previous iterator. If that was not at its end, its ``next()`` then raises
    ``PoolClosed``. ``with`` or :meth:`close` ends all epochs.
    """

    def __init__(self, source: MakesEpochs, options: EpochOptions, numbers: tuple[int, float], state: Any) -> None:
        self._source = source
        self._options = options
        self._number, self._end = numbers
        self._state = state
        self._current: weakref.ref[BatchIterator] | None = None
        self._ahead: BatchIterator | None = None
        # Others may draw from a generator too, so an epoch draws from it only when it is requested, as in a plain loop.
        self._may_begin_ahead = options.generator is None

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
            self._may_begin_ahead = self._options.generator is None
            self._number, self._ahead, self._state = number + 1, None, None
            return ahead
        except BaseException:  # from a signal handler: the next call returns the same epoch
            self._number, self._state = number, state
            raise

    def _begun(self, number: int, before: weakref.ref[BatchIterator] | None = None) -> BatchIterator:
        """Return the iterator of an epoch. It shares its buffer with the iterator `before`."""
        if number >= self._end:
            raise StopIteration
        options = dataclasses.replace(self._options, epoch=number, numbered=True)
        epoch = prepare(self._source, options, self._state if before is None else None)
        self._options = dataclasses.replace(self._options, chosen=epoch.options.chosen)  # for all later epochs
        return BatchIterator(epoch, self._source.start(epoch, before), weakref.ref(self))

    @property
    def mark(self) -> tuple[int, Any]:
        """The number and the state of the next epoch, for :meth:`take_back`."""
        return self._number, self._state

    def take_back(self, mark: tuple[int, Any], by: str) -> None:
        """Return to the epoch at `mark`: its iterator did not reach the loop."""
        self._number, self._state = mark

    def go_by(self, chosen: Any) -> None:
        """Use these blocks for the next epochs. A state brings its own; None leaves the choice to the next epoch."""
        self._options = dataclasses.replace(self._options, chosen=chosen)

    def fill_ahead(self) -> None:
        """Begin the next epoch ahead of its turn, or fill its part of the buffer. The current iterator calls this."""
        if self._ahead is not None:
            self._ahead.fill()
        elif self._may_begin_ahead:
            self._may_begin_ahead = False
            with unless_of_signal_handler():  # a request for that epoch raises the error again
                self._ahead = self._begun(self._number, self._current)

    def close(self) -> None:
        """End the current epoch and the one begun ahead. May be called again. ``next()`` then ends the loop."""
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
    """A source's latest epoch without a given number. A source keeps it in this process; a pickled copy has none."""

    latest: tuple[EpochOptions, Accounting] | None = None
    warned = False  # about epochs that repeat each other

    def __reduce__(self) -> tuple[type[_Unnumbered], tuple[()]]:
        return _Unnumbered, ()


def warn_of_repeats(source: SourceNode, epoch: Epoch) -> None:
    """Warn, once per source, if an epoch has the order and shard of the previous one and neither was given a number."""
    kept: _Unnumbered = vars(source).setdefault("_unnumbered", _Unnumbered())
    before, options = kept.latest, epoch.options
    if before is not None and before[1].batches and not kept.warned:
        order, own = ((one.shuffled, one.seed, one.shard) for one in (before[0], options))
        if order == own and (options.shuffled or source.traits.draws):
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
    """The methods of the library's own sources that return epochs."""

    def _noted_source(self) -> SourceNode:
        """Return the source that records its latest epoch, for the warning about repeated epochs."""
        return self

    @validation.known_names()
    def plan(self, batch_size: int, shuffle: Any = None, *, epoch: int = FIRST, drop_last: bool = False) -> BatchPlan:
        """Return the plan of an epoch: ``len(plan)``, ``plan[k]`` -> number, rows and key of batch k.

        The arguments are as for :meth:`batch_iterator`.

        Raises:
            TypeError: the source has no random access.
        """
        return self.plan_of(epoch_options(batch_size, shuffle, epoch=epoch, drop_last=drop_last))

    @validation.known_names(unless=lambda source: source.traits.takes_options)
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
            batch_size: Samples per batch. The last batch may have fewer.
            shuffle: None: in order. An int: a seed; the order is a function of it and of `epoch`. True: the seed is
                drawn from NumPy's global state when the epoch opens; a ``numpy.random.Generator``: from that. A
                ``RandomState``: the order is drawn from it, exactly as in BatchUp. ``("blocks", seed)``: a function of
                the seed, with a :class:`~batchup_ng.BlockShuffleSampler`. The accessors choose its blocks, which are
                cheap to read together, and how many to mix at a time. ``"blocks"`` draws its seed as True does.
            epoch: Number of the epoch. With a seed, each number has its own order; :meth:`epochs` counts the numbers.
                If only `state` is given, its number applies.
            drop_last: Whether to leave out a last batch that is not whole.
            shard: ``(rank, world)`` or ``"auto"``: the part of one of several processes. All have the same number of
                batches, and batch k of rank r is batch k·world + r of all. ``"auto"`` reads the environment that
                torchrun, JAX, MPI or SLURM set.
            uneven: ``"pad"``, ``"drop"`` or ``"error"``: what to do if the samples at the end cannot be divided evenly;
                see :class:`~batchup_ng.sampling.plans.sharding.Shard`.
            pad_mask: Whether each batch ends with an array, ``(n,) bool``, that is False where a sample only pads. The
                n samples are the planned ones, even if maps return more or fewer, without those that
                ``on_error="skip"`` left out.
            on_error: Action on samples that cannot be made: ``"raise"`` an error that names the sample, the default;
                ``"skip"`` it; ``"replace"`` it by another; or an :class:`~batchup_ng.ErrorPolicy`. The default of a
                pool's source is the policy given to ``parallel_data_source``.
            state: Resume from this result of ``state_dict`` of an iterator of this epoch, here or elsewhere.
            **own: Options for the user's function in a :class:`~batchup_ng.CallableDataSource`, if there is one.

        Raises:
            ArgumentError: the batch size is below 1, or an option has a value that is not allowed.
            ArgumentTypeError: an option is misspelt, or of a wrong kind.
            StateError: the state is damaged, or belongs to another source, order, seed or epoch.
        """
        began = time.perf_counter()
        options = epoch_options(batch_size, shuffle, epoch, drop_last, shard, uneven, pad_mask, on_error, own)
        opened = prepare(self, options, state)
        if state is None and not options.numbered and options.generator is None:
            warn_of_repeats(self._noted_source(), opened)
        iterator = BatchIterator(opened, self.start(opened))
        iterator.start_seconds = time.perf_counter() - began
        return iterator

    @validation.known_names(unless=lambda source: source.traits.takes_options)
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
        """Return an iterator of epochs. Each is an iterator of its batches, and its ``epoch`` is its number.

        A pool keeps its buffer full from one epoch to the next: when all batches of an epoch are under way, it makes
        the first batches of the next, within the same ``batch_buffer_size`` and ``buffer_bytes``. (With a
        ``RandomState``, or with ``pool.prefetch``, an epoch begins only when it is requested.) A request for the next
        epoch closes an unfinished iterator, whose ``next()`` then raises ``PoolClosed``. So do not collect these
        iterators in a list; loop over one after the other.

        Args:
            n: Number of epochs; None for no end.
            batch_size: This and the other arguments not listed here are as for :meth:`batch_iterator`.
            start: Number of the first epoch.
            state: Resume from this result of ``state_dict`` of one of the iterators, in the middle of its epoch, and
                continue with the epochs that follow. `n` counts from `start`, so a restarted program makes the same
                call.

        Raises:
            StateError: the state is damaged, or belongs to an epoch that is not in this range.

        >>> import numpy as np, batchup_ng as bu
        >>> for batches in bu.ArrayDataSource([np.arange(3)]).epochs(2, batch_size=2):
        ...     print(batches.epoch, [x.tolist() for (x,) in batches])
        0 [[0, 1], [2]]
        1 [[0, 1], [2]]
        """
        options = epoch_options(batch_size, shuffle, start, drop_last, shard, uneven, pad_mask, on_error, own)
        if self.has_plan:  # one seed for all epochs
            options = options.opened(None if state is None else from_state(state).seed)
        end = math.inf if n is None else options.epoch + validation.not_negative("n", n)
        first = options.epoch if state is None else from_state(state).epoch
        if state is not None and not options.epoch <= first < end:
            raise StateError(
                f"this state is of epoch {first}, and these are the epochs from {options.epoch} to {end} (excluded); n "
                f"counts from start, not from the state"
            )
        return Epochs(self, options, (first, end), state)
