"""Which part of the batches of an epoch is one process's, from where it goes on: arithmetic of batch numbers.

The stream of an epoch is that of a world of one. In a world of W processes, each of which takes batches of B samples,
global batch k is the positions k·B·W to (k+1)·B·W of that stream, of which rank r takes the r-th B: batch k·W + r of
the world of one. If an epoch can only be cut into the batches that it has, global batch k is its batches k·W to
(k+1)·W. What is left at the end is shared out evenly: see :class:`Shard`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...errors import ArgumentError

UNEVEN = ("pad", "drop", "error")
"""What to do about samples at the end that cannot be shared out evenly."""


class Shard(NamedTuple):
    """The part of one process of several that share the batches of an epoch.

    Where the samples left at the end are no multiple of `world`, `uneven` says what to do. ``"pad"``: each rank has as
    many as the first, the missing ones being the first of the epoch once more. ``"drop"``: the last ``n % world`` are
    left out. ``"error"``: refuse to begin. With `pad_mask` each batch ends with an array that tells the samples from
    those that pad.
    """

    rank: int = 0
    world: int = 1
    uneven: str = "pad"
    pad_mask: bool = False


ALONE = Shard()


class Reached(NamedTuple):
    """How far an epoch was handed out by all ranks together: positions of the stream, batches in a world of one."""

    samples: int = 0
    batches: int = 0


START = Reached()


def shares(total: float, reached: int, size: int, shard: Shard, whole_only: bool, unit: str) -> tuple[float, int]:
    """Return how many rounds there are in which each rank takes `size`, and how much it takes in one more, 0 without
    one.

    `total` is how much there is, in `unit`, of which `reached` was handed out; with `whole_only` there is no last
    round. An end that cannot be shared out evenly is an :class:`ArgumentError`, if the shard says so.
    """
    if total == math.inf:
        return math.inf, 0
    whole, left = divmod(max(0, int(total) - reached), size * shard.world)
    share, over = divmod(0 if whole_only else left, shard.world)
    if over and shard.uneven == "error":
        raise ArgumentError(
            f"uneven is 'error', and the {left} {unit} at the end of this epoch cannot be shared out evenly among "
            f"{shard.world} ranks; pass uneven='pad' or 'drop'"
        )
    return whole, share + (over > 0 and shard.uneven == "pad")
