"""An epoch: its options, its plan, how far it is, its state; and the steps that open it.

:func:`prepare` takes the options and checks a state. The node makes the plan, from that state on. Then :mod:`.starting`
starts a :class:`Runner`, which makes the batches, and a :class:`~.iterator.BatchIterator` hands them out.
"""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from ...errors import ArgumentTypeError, StateError
from ...graph.node import Node, batch_plan
from ...sampling.plans.epoch import BatchPlan, PlannedBatch
from ...sampling.plans.sharding import START, Reached
from ..blocks import BlocksOfNodes, nodes_in_blocks, warn_of_reads
from ..epoch_options import EpochOptions
from .accounting import Accounting
from .checkpoint import check_reached, check_stream_options, counted_of, identity, order_of, resumed
from .state import NO_STATE_OF_STREAM, SavedEpoch, as_state, from_state

CLOSED_WHILE_WAITING = "this iterator was closed while a batch was waited for"
"""Text of the error of a runner that is closed before the end of its epoch."""


class Runner:
    """Makes the batches of one epoch in order. The defaults suit a runner without read-ahead.

    ``StopIteration`` from ``next`` means that the epoch is at its end. After ``close``, ``next`` raises ``PoolClosed``.
    """

    closed = False
    at_end = False
    flow_id = 0
    """Number of the flow that its tasks belong to, if it has tasks."""
    latest: Any = None
    """State of a stream after the last batch handed out; None if it has no state."""

    @property
    def torn(self) -> bool:
        """Whether an exception from a signal handler may have lost a batch before its submission."""
        return False

    @property
    def used_up(self) -> bool:
        """Whether all batches were submitted. The next epoch may then begin."""
        return False

    def __next__(self) -> Any:
        """Record the next batch in the accounting and return it, or raise the error of making it."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def check_caller(self) -> None:
        """Raise :class:`~batchup_ng.errors.ReentrantIteration` if code that is making one of the batches calls this."""

    def ready(self) -> int:
        """Return the number of finished batches that wait."""
        return 0

    def ahead(self) -> int:
        """Return the number of batches that are under way, or done and not yet handed out."""
        return 0

    def fill(self) -> None:
        """Submit batches while there is room for them."""

    def close(self) -> None:
        """End the work. May be called again, from any thread."""

    def abandon(self) -> None:
        """End the work without waiting. The garbage collector calls this when nothing refers to the iterator."""
        self.close()


class RunsEpochs(Node):
    """A node whose epochs a pool runs, instead of the consumer's thread."""

    @property
    def has_plan(self) -> bool:
        """Whether its epochs have a plan. Otherwise it only streams."""
        return False

    def source_plan(self, options: EpochOptions, blocks: BlocksOfNodes | None = None) -> BatchPlan:
        """Return the plan of the epoch that `options` describe, as the function :func:`epoch_plan` does."""
        raise self.no_random_access("plan")

    def start(self, epoch: Epoch, earlier: weakref.ref[Any] | None = None, path: tuple[int, ...] = ()) -> Runner:
        """Start the runner of an epoch. It shares the buffer of a pool with the iterator `earlier`.

        `path` is the place of this node in the graph.
        """
        raise NotImplementedError(f"Abstract for type {type(self)}")


def has_plan(node: Node) -> bool:
    """Return whether the epochs of a node have a plan. Otherwise it only streams."""
    return node.has_plan if isinstance(node, RunsEpochs) else node.is_random_access


def epoch_plan(node: Node, options: EpochOptions, blocks: BlocksOfNodes | None = None) -> BatchPlan:
    """Return the plan of the epoch of a node that `options` describe, after they were opened.

    For an order by blocks, it uses `blocks` if they are given.
    """
    if isinstance(node, RunsEpochs):
        return node.source_plan(options, blocks)
    if not options.by_blocks or not node.is_random_access:
        return batch_plan(node, options)
    pairs = nodes_in_blocks(node, options.order_blocks) if blocks is None else blocks
    return batch_plan(node, options, {id(each): pair for each, pair in pairs})


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
    _identity: tuple[str, str] | None = None

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
        return self.plan is not None and self.accounting.batches == self.n_batches()

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
            self._identity = identity(self.node)
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
            )
        )


def prepare(node: Node, asked: EpochOptions, state: Any = None) -> Epoch:
    """Return the epoch for these options, from `state` on if it is given. Start nothing.

    Raises:
        ArgumentError: a stream does not support an option.
        StateError: the state is damaged, or belongs to another source, order, seed or epoch.
    """
    is_stream = not has_plan(node)
    if is_stream:
        check_stream_options(node, asked)
        if state is not None and (node.checkpointable() is None or asked.drop_last):
            raise StateError(NO_STATE_OF_STREAM)
    saved, plan = None if state is None else from_state(state), None
    options = asked if is_stream else asked.opened(None if saved is None else saved.seed)
    if saved is not None:
        options = resumed(node, options, saved, is_stream)
    if is_stream:
        options = dataclasses.replace(options, counted={} if saved is None else counted_of(saved))
    else:
        blocks = None
        if options.by_blocks:
            blocks = nodes_in_blocks(node, options.order_blocks)
            options = dataclasses.replace(options, order_blocks=tuple([pair for _, pair in blocks]))
            warn_of_reads(node, options, blocks)
        plan = epoch_plan(node, options, blocks)
        if saved is not None:
            check_reached(plan, options, saved)
    epoch = Epoch(node, asked, options, plan, saved)
    if saved is not None:
        epoch.accounting.carry(saved.batches if plan is None else plan.first, saved.counts)
    return epoch
