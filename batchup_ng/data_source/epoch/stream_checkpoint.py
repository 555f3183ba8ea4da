"""The state of a stream: that of the user's own iterator, with the samples that each map had."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from ...errors import ArgumentError, StateError
from ...faults.policy import RAISE
from ..epoch_options import EpochOptions
from ..hooks import SourceNode, any_node
from .state import SavedEpoch


def check_stream(source: SourceNode, options: EpochOptions) -> None:
    """Refuse what a source that only streams cannot do: to share out an epoch, shuffle it, leave out bad samples."""
    if options.shard.world > 1 or options.shard.pad_mask:
        raise ArgumentError(
            "shard= shares out batches by their number, and this source only streams; let its function or iterator "
            "give each rank its own"
        )
    if (options.shuffled or options.rng is not None) and not any_node(source, "heeds_shuffle"):
        raise ArgumentError(
            "shuffle= cannot change the order of batches that come from an iterator (IteratorDataSource); leave it out "
            "and shuffle where they are made, or use CallableDataSource, whose function is given shuffle="
        )
    if options.policy is not None and options.policy is not RAISE:
        raise ArgumentError(
            "on_error= reads the samples of a failed batch again, and this source only streams; catch the error in the "
            "function or iterator that makes its batches"
        )


def put_back(owner: Any, saved: SavedEpoch | None) -> None:
    """Put the user's own iterator back to where a state says, if there is one."""
    if saved is not None:
        owner.load_state_dict(saved.inner["iterator"])


def inner_state(owner: Any, options: EpochOptions) -> dict[str, Any] | None:
    """Return the state of a stream as it is now: that of the user's own iterator, the samples that each map had.

    It is a copy, for the iterator may hand out what it goes on to change. None where there is none: no owner, or
    ``drop_last=``, which reads ahead.
    """
    if owner is None or options.drop_last:
        return None
    counted = [[list(path), n] for path, n in sorted(options.counted.items())]
    state = owner.state_dict()
    with contextlib.suppress(Exception):  # of the user's objects; what cannot be copied is refused by JSON
        state = copy.deepcopy(state)
    return {"iterator": state, "counted": counted}


def counted_of(saved: SavedEpoch) -> dict[tuple[int, ...], int]:
    """Return the samples that each map had, as a state tells them."""
    try:
        saved.inner["iterator"]
        return {tuple(map(int, path)): int(n) for path, n in saved.inner["counted"]}
    except (TypeError, ValueError, KeyError) as error:
        raise StateError(f"this state is damaged: it does not tell how far its stream is: {error!r:.100}") from error
