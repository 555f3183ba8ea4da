"""The contents of an epoch's state, and the checks before an epoch resumes from one.

The content of batch k of an epoch is a function of the source, the seed, the epoch, the batch size and the world. So a
state holds only these and the progress of the epoch. To resume, the library makes the plan again and starts in its
middle. The state of a stream includes the state of the user's own iterator and the number of samples each map received.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

from ...error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ...errors import ArgumentError, StateError
from ...faults.policy import RAISE
from ...graph.node import Node
from ...sampling.plans.epoch import BatchPlan, Reached
from ..blocks import nodes_in_blocks, order_by, saved_blocks
from ..epoch_options import EpochOptions
from .history import history_of, refusal
from .state import LAST_POSITION, SavedEpoch, identity


def order_of(node: Node, options: EpochOptions, is_stream: bool) -> str:
    """Return the kind of order of an epoch, in words. Refuse an order that is drawn from a ``RandomState``."""
    if options.generator is not None:
        raise StateError(
            "the order of this epoch is drawn from a RandomState, which others may draw from too, so that it cannot be "
            "saved or resumed; pass an int seed as shuffle=, or True"
        )
    if options.by_blocks:
        return order_by([order for _, order in nodes_in_blocks(node, options)])
    return "stream" if is_stream else "seed" if options.shuffled else "in order"


def resumed(node: Node, options: EpochOptions, saved: SavedEpoch, is_stream: bool = False) -> EpochOptions:
    """Return the options to resume an epoch. Its number is the state's.

    Raises:
        StateError: the state belongs to another source, order, seed or epoch.
    """
    own = identity(node)
    if saved.source != own.source:
        raise refusal(saved, own)
    order = order_of(node, options, is_stream)
    if options.by_blocks and "blocks" in saved.order:
        options = dataclasses.replace(options, order_blocks=saved_blocks(node, saved))
    elif saved.order != order:
        wanted = ("blocks", saved.seed) if "blocks" in saved.order else saved.seed
        hint = f"; pass shuffle={wanted}" if saved.order not in ("in order", "stream") else ""
        raise StateError(
            f"this state is of an epoch whose order is by {saved.order!r}, and this one's is by {order!r}{hint}"
        )
    if order != "in order" and saved.seed != options.seed:
        raise StateError(f"this state is of shuffle={saved.seed}, and this epoch of shuffle={options.seed}")
    if options.numbered and saved.epoch != options.epoch:
        raise StateError(
            f"this state is of epoch {saved.epoch}, and epoch={options.epoch} was asked for; leave epoch= out, or pass "
            f"the state to that epoch alone"
        )
    changes = saved.parts is not None and (saved.parts.get("eras") or saved.parts.get("later"))
    history = history_of(saved, own) if changes else None
    reached = Reached(saved.samples, saved.batches)
    return dataclasses.replace(options, epoch=saved.epoch, reached=reached, history=history)


def check_reached(plan: BatchPlan, options: EpochOptions, saved: SavedEpoch) -> None:
    """Refuse a state past the end of the epoch. If the order consists of batches, refuse another batch size."""
    cut = plan.in_samples
    if not cut:
        _check_cut(options, saved)
    total = plan.rows.n_samples if cut else plan.rows.n_batches
    unit, reached = ("samples", saved.samples) if cut else ("batches", saved.batches)
    if reached > (total if total is not None and total != math.inf else LAST_POSITION // 2):
        raise StateError(f"this state is damaged: {reached} {unit} were handed out of an epoch of {total}")


def _check_cut(options: EpochOptions, saved: SavedEpoch) -> None:
    """Refuse a change of ``batch_size`` or ``drop_last``."""
    for name in ("batch_size", "drop_last"):
        then, now = getattr(saved, name), getattr(options, name)
        if then != now:
            raise StateError(
                f"this state is of an epoch with {name}={then}, and {name} is {now}; the order of this source (a "
                f"choice of sources, rounds of one, or buckets) is one of batches, which only goes on with the same"
            )


def check_stream_options(node: Node, options: EpochOptions) -> None:
    """Refuse options that a source without random access cannot support: shards, shuffling, leaving out bad samples."""
    if options.shard.world > 1 or options.shard.pad_mask:
        raise ArgumentError(
            "shard= shares out batches by their number, and this source only streams; let its function or iterator "
            "give each rank its own"
        )
    if options.by_blocks:
        raise ArgumentError("shuffle='blocks' chooses which rows are read together, and this source only streams")
    if (options.shuffled or options.generator is not None) and not node.traits.uses_shuffle:
        raise ArgumentError(
            "shuffle= cannot change the order of batches that come from an iterator (IteratorDataSource); leave it out "
            "and shuffle where they are made, or use CallableDataSource, whose function is given shuffle="
        )
    if options.policy is not None and options.policy is not RAISE:
        raise ArgumentError(
            "on_error= reads the samples of a failed batch again, and this source only streams; catch the error in the "
            "function or iterator that makes its batches"
        )


def inner_state(owner: Any, options: EpochOptions) -> dict[str, Any] | StateError | None:
    """Return the present state of a stream: of the user's own iterator, and the samples that each map received.

    It is a copy, because the iterator may later change the object that it returned. It is None if there is no owner,
    or with ``drop_last=``, which reads ahead. If the iterator raises an error, return a
    :class:`~batchup_ng.StateError`. The epoch raises it only when the user requests a state; the batches do not need
    it.
    """
    if owner is None or options.drop_last:
        return None
    counted = [[list(path), n] for path, n in sorted(options.counted.items())]
    try:
        state = owner.state_dict()
    except StateError as error:
        return StateError(str(error))
    except Exception as error:
        raise_if_of_signal_handler(error)
        return StateError(f"the iterator of this stream gave no state: {error!r:.200}")
    with unless_of_signal_handler():  # the user's objects may fail to copy; JSON refuses them later
        state = copy.deepcopy(state)
    return {"iterator": state, "counted": counted}


def put_back(owner: Any, saved: SavedEpoch) -> None:
    """Load the saved state into the user's own iterator of a stream."""
    try:
        owner.load_state_dict(saved.inner["iterator"])
    except StateError:
        raise
    except Exception as error:
        raise_if_of_signal_handler(error)
        raise StateError(f"the iterator of this stream refuses its part of this state: {error!r:.200}") from error


def counted_of(saved: SavedEpoch) -> dict[tuple[int, ...], int]:
    """Return from a state the number of samples that each map received."""
    return {tuple(path): n for path, n in saved.inner["counted"]}
