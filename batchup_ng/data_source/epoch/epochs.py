"""Epochs of a source: one by ``batch_iterator``, a series by ``epochs``.

If a pool makes the batches, the epochs of a series share one buffer. Once all batches of an epoch are submitted, its
iterator makes :class:`Epochs` begin the next epoch, whose runner uses the space left in the buffer. At most one epoch
is begun ahead, and none after the last. :class:`Epochs` owns it. An iterator has only a weak reference to
:class:`Epochs`, and a runner only one to the previous iterator. So the epoch begun ahead ends with the last reference
to :class:`Epochs`.
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
from ...graph.node import Node
from ...warn import consumer_level
from ..blocks import for_later_epochs
from ..epoch_options import EpochOptions
from .iterator import BatchIterator
from .opening import has_plan, prepare, start
from .prepared import Epoch
from .state import from_state

WARNED_OF_REPEATS = "repeats"
"""The warning of an epoch that repeats the one before."""


class Epochs(Iterator[BatchIterator]):
    """An iterator over epochs, each an iterator of batches: see the method ``epochs`` of a source.

    A request for the next epoch closes the previous iterator. If that was not at its end, its ``next()`` then raises
    ``PoolClosed``. ``with`` or :meth:`close` ends all epochs.

    Attributes:
        ahead_before: No epoch from this number on is begun ahead. The loop does not need it, as far as is known.
    """

    ahead_before: float = math.inf

    def __init__(self, node: Node, options: EpochOptions, numbers: tuple[int, float], state: Any) -> None:
        self._node = node
        self._options = options
        self._number, self._end = numbers
        self._state = state
        self._current: weakref.ref[BatchIterator] | None = None
        self._begun_ahead: BatchIterator | None = None
        # Others may draw from a generator too, so an epoch draws from it only when it is requested, as in a plain loop.
        self._may_begin_ahead = options.generator is None

    def __next__(self) -> BatchIterator:
        if self._current is not None and (current := self._current()) is not None:
            current.break_off(
                "asking epochs() for the next epoch before this one was at its end (loop over each in its turn)"
            )
        iterator, number, state = self._begun_ahead, self._number, self._state
        if iterator is not None and (iterator.torn or iterator.epoch != number):
            iterator.close()
            iterator = self._begun_ahead = None
        if iterator is None:
            began = time.perf_counter()
            iterator = self._begun(number)
            iterator.start_seconds = time.perf_counter() - began
        self._current = weakref.ref(iterator)
        try:
            self._may_begin_ahead = self._options.generator is None
            self._number, self._begun_ahead, self._state = number + 1, None, None
            return iterator
        except BaseException:  # from a signal handler: the next call returns the same epoch
            self._number, self._state = number, state
            raise

    def _begun(self, number: int, earlier: weakref.ref[BatchIterator] | None = None) -> BatchIterator:
        """Return the iterator of an epoch. It shares its buffer with the iterator `earlier`."""
        if number >= self._end:
            raise StopIteration
        options = dataclasses.replace(self._options, epoch=number, numbered=True)
        epoch = prepare(self._node, options, self._state if earlier is None else None)
        if epoch.options.history is not self._options.history:  # from a state
            self._options = dataclasses.replace(self._options, history=epoch.options.history)
        if epoch.options.order_blocks:
            later = for_later_epochs(epoch.options.order_blocks, self._options)
            self._options = dataclasses.replace(self._options, order_blocks=later)
        return BatchIterator(epoch, start(epoch, earlier), weakref.ref(self))

    @property
    def mark(self) -> tuple[int, Any]:
        """The number and the state of the next epoch, for :meth:`take_back`."""
        return self._number, self._state

    def take_back(self, mark: tuple[int, Any], by: str) -> None:
        """Return to the epoch at `mark`: its iterator did not reach the loop."""
        self._number, self._state = mark

    def go_on_with(self, history: Any) -> None:
        """Let the next epochs have another history. If one was begun ahead, it is begun again."""
        self._options = dataclasses.replace(self._options, history=history)
        begun, self._begun_ahead = self._begun_ahead, None
        if begun is not None:
            begun.close()
            self._may_begin_ahead = True

    def fill_ahead(self) -> None:
        """Begin the next epoch ahead of its turn, or fill its part of the buffer. The current iterator calls this."""
        if self._begun_ahead is not None:
            self._begun_ahead.fill()
        elif self._may_begin_ahead and self._number < self.ahead_before:
            self._may_begin_ahead = False
            with unless_of_signal_handler():  # a request for that epoch raises the error again
                self._begun_ahead = self._begun(self._number, self._current)

    def close(self) -> None:
        """End the current epoch and the one begun ahead. May be called again. ``next()`` then ends the loop."""
        self._end = 0
        for iterator in (None if self._current is None else self._current(), self._begun_ahead):
            if iterator is not None:
                iterator.close()
        self._begun_ahead = None

    def __repr__(self) -> str:
        number = self._number
        last = "without end" if self._end == math.inf else f"the last is {self._end - 1}"
        left = f"next is epoch {number}, {last}" if number < self._end else "no more"
        return f"<{type(self).__name__}: {left}, of {self._node!r}>"

    def __enter__(self) -> Epochs:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def one_epoch(node: Node, options: EpochOptions, state: Any) -> BatchIterator:
    """Return an iterator of the batches of one epoch, from `state` on if it is given."""
    opened = prepare(node, options, state)
    if state is None and not options.numbered and options.generator is None:
        _warn_of_repeats(opened)
    return BatchIterator(opened, start(opened))


def series_of_epochs(node: Node, options: EpochOptions, n: int | None, state: Any) -> Epochs:
    """Return an iterator of `n` epochs, of which `options` describe the first.

    `state` is a state, None, or an epoch that was prepared from a state.
    """
    saved = state.saved if isinstance(state, Epoch) else None if state is None else from_state(state)
    if options.generator is not None and has_plan(node):  # one seed for all epochs
        options = options.opened(None if saved is None else saved.seed)
    end = math.inf if n is None else options.epoch + validation.not_negative("n", n)
    first = options.epoch if saved is None else saved.epoch
    if saved is not None and not options.epoch <= first < end:
        raise StateError(
            f"this state is of epoch {first}, and these are the epochs from {options.epoch} to {end} (excluded); n "
            f"counts from start_epoch, not from the state"
        )
    return Epochs(node, options, (first, end), state if isinstance(state, Epoch) else saved)


def _warn_of_repeats(epoch: Epoch) -> None:
    """Warn, once per source, if an epoch has the order and shard of the previous one and neither was given a number."""
    notes, options = epoch.node.epoch_notes, epoch.options
    earlier = notes.latest
    if earlier is not None and earlier[1].batches and WARNED_OF_REPEATS not in notes.warned:
        order, own = ((one.shuffled, one.seed, one.shard) for one in (earlier[0], options))
        if order == own and (options.shuffled or epoch.node.traits.draws):
            notes.warned.add(WARNED_OF_REPEATS)
            what = f"shuffle={options.seed}" if options.shuffled else "maps with rng="
            warnings.warn(
                f"this epoch has the same order and random numbers as the one before: with {what} and without epoch= "
                f"each is epoch 0; loop over source.epochs(n, batch_size, ...), or pass epoch=",
                RepeatedEpochWarning,
                stacklevel=consumer_level(),
            )
    notes.latest = options, epoch.accounting
