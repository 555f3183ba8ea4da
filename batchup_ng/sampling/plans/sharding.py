"""One rank's part of the batches of an epoch, and the place to continue from: arithmetic of batch numbers.

An epoch has one sequence of samples, the same in every world. In a world of W processes with batches of B samples,
global batch k is the positions k·B·W to (k+1)·B·W in it. Rank r takes the r-th B of them: batch k·W + r in a world of
one. If an epoch can only be cut into its own batches, global batch k is the batches k·W to (k+1)·W. The rest at the end
is shared out evenly: see :class:`Shard`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...errors import ArgumentError

UNEVEN_OPTIONS = ("pad", "drop", "error")
"""Options for samples at the end that cannot be shared out evenly."""


class Shard(NamedTuple):
    """The part of one of several processes that share the batches of an epoch.

    `uneven` applies if the number of samples left at the end is no multiple of `world`. ``"pad"``: each rank gets as
    many as the first rank; the first samples of the epoch fill the gaps. ``"drop"``: leave out the last ``n % world``.
    ``"error"``: refuse to begin. With `pad_mask` each batch ends with an array that separates samples from padding.
    """

    rank: int = 0
    world: int = 1
    uneven: str = "pad"
    pad_mask: bool = False


ALONE = Shard()


class Reached(NamedTuple):
    """The progress of an epoch, of all ranks together: positions in it, batches in a world of one."""

    samples: int = 0
    batches: int = 0


START = Reached()


def shares(total: float, reached: int, size: int, shard: Shard, whole_only: bool, unit: str) -> tuple[float, int]:
    """Return the number of rounds in which each rank takes `size`, and the share of a rank in one more round, or 0.

    `total` is the amount in `unit`; `reached` of it was handed out. With `whole_only` there is no last round. If the
    end cannot be shared out evenly and the shard says ``"error"``, raise :class:`ArgumentError`.
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
