"""The steps that open an epoch.

:func:`prepare` takes the options, checks a state and makes the plan, from that state on. :func:`start` starts a
:class:`~.runner.Runner`, which makes the batches: of a pool, of the plan on the consumer's thread, or of a stream on
that thread. A :class:`~.iterator.BatchIterator` then hands them out.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable
from typing import Any

from ...errors import ArgumentError, ArgumentTypeError, StateError
from ...graph.node import Node, batch_plan, nodes_of
from ...graph.rows import listed_plan
from ...graph.user import UserNode
from ...randomness import OrderKey
from ...sampling.plans.drawn import listed_epoch
from ...sampling.plans.epoch import BatchesPlan, BatchPlan
from ...sampling.plans.listed import ListedPlan
from ...sampling.plans.shortened import shortened
from ...warn import warn_consumer
from ..blocks import BlocksOfNodes, nodes_in_blocks, warn_of_reads
from ..epoch_options import EpochOptions
from .checkpoint import check_reached, check_stream_options, counted_of, put_back, resumed
from .direct import DirectRunner, StreamRunner, direct_batches, streamed_batches
from .history import planner
from .prepared import Epoch
from .runner import Runner
from .state import NO_STATE_OF_STREAM, from_state


class RunsEpochs(Node):
    """A node whose epochs a pool runs, instead of the consumer's thread.

    Attributes:
        source: The node below the pool, which plans the epochs.
    """

    source: Node

    @property
    def has_plan(self) -> bool:
        """Whether its epochs have a plan. Otherwise it only streams."""
        return False

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
        if not node.has_plan:
            raise node.no_random_access("plan")
        node = node.source
        if isinstance(node, UserNode):
            plan = _plan_of_user(node, options)
            return shortened(plan, options.skipped) if options.skipped else plan
    node = planner(node, options)
    if blocks is None and options.by_blocks and node.is_random_access:
        blocks = nodes_in_blocks(node, options)
    orders = None if blocks is None else {id(each): (order, options.batch_size) for each, order in blocks}
    plan = batch_plan(node, options, orders)
    return shortened(plan, options.skipped) if options.skipped else plan


def _plan_of_user(node: UserNode, options: EpochOptions) -> BatchPlan:
    """Return the plan of an epoch of a source with only BatchUp's methods, whose batches a pool makes."""
    size, drop_last, lister = options.batch_size, options.drop_last, node.source.batch_indices_iterator

    def row_plan(size: int, key: OrderKey | None, drop_last: bool) -> ListedPlan:
        # Such a source may list another number of rows in another order.
        endless = math.inf if node.num_samples() == math.inf else None
        return listed_plan(lister, size, key and key.random_state("rng"), drop_last, endless)

    rows = listed_epoch(row_plan, size, options.order_key(), drop_last, node.num_samples())
    return BatchesPlan(rows, size, options.seed, options.epoch, drop_last, options.shard, options.reached)


def whole_epoch(node: Node, planner: Callable[[], Node], options: EpochOptions) -> int:
    """Return the number of batches of a whole epoch of `node`, or of the node of `planner` if it has a plan.

    Raises:
        ArgumentTypeError: the epoch never ends, or its length is known only at its end.
    """
    if options.generator is not None:  # nothing may be drawn from it here
        options = dataclasses.replace(options, generator=None, shuffled=True)
    n: float | None = epoch_plan(planner(), options).n_batches if node.is_random_access else node.stream_count(options)
    if n is None or n == math.inf:
        remedy = "" if n is None else "; give it one: source.take(n), or num_samples= of source.sample(...)"
        raise ArgumentTypeError(f"an epoch of this loader has no end that is known, so it has no len(){remedy}")
    return int(n)


def prepare(node: Node, asked: EpochOptions, state: Any = None) -> Epoch:
    """Return the epoch for these options, from `state` on if it is given. Start nothing.

    An :class:`Epoch` that was prepared from a state stands for that state. If it was prepared for the same options,
    its plan is used again.

    Raises:
        ArgumentError: a stream, or a source with a lazy filter, does not support an option.
        StateError: the state is damaged, or belongs to another source, order, seed or epoch.
    """
    if isinstance(state, Epoch):
        if state.asked == asked:
            return _begun_from(Epoch(node, asked, state.options, state.plan, state.saved))
        state = state.saved
    is_stream = not has_plan(node)
    if is_stream:
        check_stream_options(node, asked)
        if state is not None and (node.checkpointable() is None or asked.drop_last):
            raise StateError(NO_STATE_OF_STREAM)
    saved, plan = None if state is None else from_state(state), None
    options = asked
    if asked.generator is not None and not is_stream:
        options = asked.opened(None if saved is None else saved.seed)
    if saved is not None:
        options = resumed(node, options, saved, is_stream)
    if is_stream:
        options = dataclasses.replace(options, counted={} if saved is None else counted_of(saved))
    else:
        if options.shard.pad_mask and node.traits.filters:
            raise ArgumentError(
                "pad_mask= marks planned samples, and a lazy filter leaves some of them out; filter without lazy=True"
            )
        if options.shard.world > 1:
            for each in nodes_of(node):
                each.check_world(options.shard.world)
        blocks = None
        if options.by_blocks:
            planner = node.source if isinstance(node, RunsEpochs) else node
            blocks = nodes_in_blocks(planner, options)
            options = dataclasses.replace(options, order_blocks=tuple([order for _, order in blocks]))
            warn_of_reads(node, options, blocks)
        try:
            plan = epoch_plan(node, options, blocks)
        except ArgumentError as error:
            if saved is None or options.history is None:
                raise
            raise StateError(f"this epoch cannot go on with these weights and rows: {error}") from error
        if saved is not None:
            check_reached(plan, options, saved)
        elif plan.drop_last and plan.in_samples and 0 < (plan.rows.n_samples or 0) < plan.batch_size * plan.shard.world:
            ranks = f" for each of {plan.shard.world} ranks" * (plan.shard.world > 1)
            warn_consumer(
                f"the epoch has no batch: its {plan.rows.n_samples} samples do not fill one of {plan.batch_size}"
                f"{ranks}, and drop_last=True leaves out a batch that is not whole; pass a smaller batch_size, or "
                f"leave drop_last out",
                UserWarning,
            )
    return _begun_from(Epoch(node, asked, options, plan, saved))


def _begun_from(epoch: Epoch) -> Epoch:
    """Let the accounting of an epoch start from its state, if it has one."""
    saved, plan = epoch.saved, epoch.plan
    if saved is not None:
        epoch.accounting.carry(saved.batches if plan is None else plan.first, saved.counts)
    return epoch


def start(epoch: Epoch, earlier: weakref.ref[Any] | None = None) -> Runner:
    """Start the runner of an epoch. It shares the buffer of a pool with the iterator `earlier`."""
    node = epoch.node
    if isinstance(node, RunsEpochs):
        return node.start(epoch, earlier)
    if epoch.plan is not None:
        return DirectRunner(direct_batches(node, epoch, node.notes.buffers))
    owner = node.checkpointable()
    if epoch.saved is not None:
        put_back(owner, epoch.saved)
    buffers = None if node.traits.of_pool else node.notes.buffers
    return StreamRunner(streamed_batches(node.stream(epoch.options, ()), epoch.accounting, buffers), owner, epoch)
