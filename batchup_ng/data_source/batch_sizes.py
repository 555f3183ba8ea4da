"""The batch size of a loader. A sampler that makes whole batches may have one of its own."""

from __future__ import annotations

from typing import Any

from .. import validation
from ..errors import ArgumentTypeError
from ..graph.node import Node, nodes_of


def checked_batch_size(node: Node, batch_size: Any) -> int:
    """Return the batch size for `node`: `batch_size`, or the size that its sampler has if `batch_size` is None.

    Raises:
        ArgumentError: the sampler makes no batches of that size.
        ArgumentTypeError: `batch_size` is no whole number; or it is None, and no sampler has a size, or two samplers
            have two sizes.
    """
    nodes = nodes_of(node, below_orders=False)
    if batch_size is None:
        sizes = sorted({each.own_batch_size for each in nodes if each.own_batch_size is not None})
        if len(sizes) != 1:
            found = f", and here they have {sizes}" if sizes else ""
            raise ArgumentTypeError(
                f"batch_size must be the number of samples in a batch, not None; only samplers of whole batches have "
                f"one of their own, as in source.sample(balanced=True, per_class=8){found}"
            )
        (batch_size,) = sizes
    size = validation.positive_int("batch_size", batch_size)
    for each in nodes:
        each.check_batch_size(size)
    return size
