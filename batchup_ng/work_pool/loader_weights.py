"""The weights of a loader's mixture, as its user sets them in the course of an epoch.

The change is made whole or not at all: the plan is made first, then taken over by single assignments.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..data_source.epoch.history import History, changed, mixture_of, planner
from ..data_source.epoch.opening import epoch_plan, prepare
from ..data_source.epoch_options import EpochOptions
from ..errors import ArgumentError
from ..graph.node import Node
from ..sampling.mixture import MixtureSampler
from ..sampling.plans.epoch import SamplesPlan
from ..sampling.schedules import WeightSchedule
from .loader_pool import OptionsOf, SharedByViews, WithPlan
from .steps import leaves_out_after


def set_weights(
    shared: SharedByViews, weights: Any, after: Any, options_of: OptionsOf, with_plan: WithPlan
) -> None:
    """Set the weights of a loader's mixture: see ``set_weights`` of a loader."""
    mixture = _mixture(shared.source.node)
    schedule = mixture.checked_schedule(weights)
    if shared.steps is not None and shared.steps.ledger is not None:
        raise ArgumentError(
            "set_weights cannot be used with a ledger, which keeps no weights that are set; pass weights=bu.steps(...) "
            "to mix, or leave the ledger out"
        )
    with shared.lock:
        iterator = None if shared.inner is None or shared.inner.at_end else shared.inner
        if iterator is None:
            _set_between(shared, schedule, after, options_of, with_plan)
            return
        with iterator.changing() as epoch:
            plan = epoch.plan
            if not isinstance(plan, SamplesPlan):
                raise ArgumentError(
                    "the weights of this epoch cannot change in its course, because some of its batches are left out "
                    "or its order is drawn from a RandomState; set them between two epochs"
                )
            earliest = plan.reached(max(plan.first, plan.planned)).samples
            at = _after(after, earliest, mixture, epoch.options)
            _check_skipped(shared, epoch.options.epoch, at)
            history = changed(shared.history, epoch.options.epoch, at, schedule)
            options = dataclasses.replace(epoch.options, history=history)
            rows = epoch_plan(epoch.node, options).rows
            epoch.options, plan.rows, shared.history = options, rows, history
        shared.plan = shared.prepared = None
        if shared.series is not None:
            shared.series.go_on_with(history)


def _set_between(
    shared: SharedByViews, schedule: WeightSchedule, after: Any, options_of: OptionsOf, with_plan: WithPlan
) -> None:
    """Set the weights before an epoch begins, or goes on from a state."""
    number, state = shared.upcoming()
    options = options_of(number)
    epoch = prepare(with_plan(), options, shared.prepared or state)
    mixture = _mixture(shared.source.node)
    at = _after(after, epoch.options.reached.samples, mixture, options)
    _check_skipped(shared, number, at)
    history: History = changed(epoch.options.history, number, at, schedule)
    planner(shared.source.node, dataclasses.replace(options, history=history))  # raises if they do not fit
    if state is not None:
        epoch.options = dataclasses.replace(epoch.options, history=history)
        state = epoch.state(*epoch.accounting.counted(), None)
        shared.next, shared.pending = number, state
    shared.prepared, shared.plan, shared.history = None, None, history
    if shared.series is not None:
        shared.series.go_on_with(history)


def _mixture(node: Node) -> MixtureSampler:
    mixture = mixture_of(node)
    if mixture is None:
        raise ArgumentError(
            "set_weights is for a loader whose source is bu.mix(...), perhaps under maps; this source is none"
        )
    if mixture.given_length is None:
        raise ArgumentError(
            "set_weights needs a mixture whose epochs have a given length, because weights change the others; pass "
            "length= to mix, -1 for no end"
        )
    return mixture


def _check_skipped(shared: SharedByViews, epoch: int, after: int) -> None:
    if leaves_out_after(shared.skipped, epoch, after):
        raise ArgumentError(
            f"set_weights changes all batches after sample {after} of epoch {epoch}, and skip() leaves out some of "
            f"them, which would have other samples; load a state from before skip(), set the weights, and skip then"
        )


def _after(after: Any, earliest: int, mixture: MixtureSampler, options: EpochOptions) -> int:
    """Return the first sample with the new weights, checked."""
    if options.generator is not None:
        raise ArgumentError("set_weights needs an order by a seed; pass an int as shuffle=, or leave it out")
    if after is None:
        if options.shard.world > 1:
            raise ArgumentError(
                f"after must be given with several ranks, because each has other batches in the making; pass the same "
                f"number of samples to all, at least {earliest} here"
            )
        return earliest
    return mixture.checked_position("after", after, earliest)
