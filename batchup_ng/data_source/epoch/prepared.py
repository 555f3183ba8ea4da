"""A prepared epoch: its options, its plan, how far it is, its state."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

from ...errors import ArgumentTypeError, StateError
from ...graph.node import Node
from ...sampling.plans.epoch import START, BatchPlan, PlannedBatch, Reached
from ..epoch_options import EpochOptions
from .accounting import Accounting
from .checkpoint import order_of
from .described import Described, description
from .history import History, plain_parts
from .state import NO_STATE_OF_STREAM, SavedEpoch, as_state, identity


@dataclasses.dataclass
class Epoch:
    """A prepared epoch."""

    node: Node
    asked: EpochOptions  # as given
    options: EpochOptions  # the same with changes by a state
    plan: BatchPlan | None  # None for a stream
    saved: SavedEpoch | None = None  # the state that it resumes from
    requested: Iterable[PlannedBatch] | None = None  # the requested batches, if not all in order
    n_requested: int = 0
    accounting: Accounting = dataclasses.field(default_factory=Accounting)
    _identity: tuple[str, str, Described | None] | None = None  # digest and words of the source, and more

    def n_batches(self) -> float | None:
        """Return the number of batches: an int, ``math.inf``, or None if it is not known before the end."""
        if self.requested is not None:
            return self.n_requested
        return self.node.stream_count(self.options) if self.plan is None else self.plan.n_batches

    def n_left(self) -> int:
        """Return the number of batches not handed out yet.

        Raises:
            TypeError: the epoch never ends (or not before 2^63 batches), or the number is not known before its end.
        """
        total = self.n_batches()
        if total is None:
            raise ArgumentTypeError("the number of batches of this stream is not known, so it has no len()")
        if total > sys.maxsize:
            raise ArgumentTypeError("this epoch never ends, so it has no len(); bound it with batchup_ng.take")
        return max(0, int(total) - self.accounting.batches)

    @property
    def at_its_start(self) -> bool:
        """Whether it has handed out nothing and is no stream."""
        # `first` of the plan may be 0 after a state: with larger batches, or more ranks, less than one batch was done.
        return self.plan is not None and self.options.reached == START and not self.accounting.batches

    @property
    def at_its_end(self) -> bool:
        """Whether it has handed out all batches. False for a stream."""
        return self.plan is not None and self.n_batches() == self.accounting.batches

    def _history(self) -> History | None:
        history = self.options.history
        return None if history is None else history.at(self.options.epoch)

    def first_state(self) -> dict[str, Any] | None:
        """Return the state before the first batch. None for a stream, whose epochs all begin alike.

        Raises:
            StateError: the stream is an iterator with a state of its own.
        """
        if self.plan is not None:
            return self.state(*self.accounting.counted(), None)
        if self.node.checkpointable() is not None:
            raise StateError(
                "between epochs it is not known where the iterator of this stream begins; save the state after a batch "
                "of an epoch"
            )
        return None

    def state(self, batches: int, counts: dict[str, int], inner: Any) -> dict[str, Any]:
        """Return the state of the epoch after `batches` batches, with the `counts` of the accounting.

        `inner` is the state of the stream, the error that it raised instead, or None.

        Raises:
            StateError: the source only streams, the order is drawn from a ``RandomState``, or batches requested by
                number.
        """
        options = self.options
        if self.plan is None and inner is None:
            raise StateError(NO_STATE_OF_STREAM)
        if isinstance(inner, StateError):
            raise StateError(str(inner))
        if self.requested is not None:
            raise StateError("batches that were asked for by their numbers have no state; save their numbers")
        order = order_of(self.node, options, self.plan is None)
        if self._identity is None:
            own = identity(self.node)
            self._identity = own.source, own.told, description(own) if self.plan is not None else None
        if self.plan is not None:
            reached = self.plan.reached(batches)
        else:
            before = 0 if self.saved is None else self.saved.counts["delivered"]
            reached = Reached(options.reached.samples + counts["delivered"] - before, batches)
        return as_state(
            SavedEpoch(
                source=self._identity[0],
                told=self._identity[1],
                order=order,
                seed=options.seed,
                epoch=options.epoch,
                batch_size=options.batch_size,
                drop_last=options.drop_last,
                world=options.shard.world,
                samples=reached.samples,
                batches=reached.batches,
                counts=counts,
                inner=inner,
                parts=None if self.plan is None else plain_parts(self._identity[2], self._history()),
            )
        )
