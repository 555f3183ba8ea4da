"""Batches of a loader that are requested by their numbers. The epoch under way goes on independently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .. import validation
from ..data_source.epoch.accounting import OutOfOrder
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.opening import start
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch_options import EpochOptions
from ..errors import ArgumentTypeError
from ..sampling.plans.epoch import PlannedBatch
from .parallel import ParallelNode


def by_number(loader: Any, options: EpochOptions, numbers: Iterable[int]) -> BatchIterator:
    """Return an iterator of the batches with these numbers in the epoch of `options`, in this order.

    Raises:
        ArgumentTypeError: the source only streams, or its order is drawn from a ``RandomState``.
    """
    shared, node = loader._shared, loader._pool_node()
    if not isinstance(node, ParallelNode) or options.generator is not None:
        raise ArgumentTypeError(
            "batches of this loader can only be had in their order, for its source only streams or its order is "
            "drawn from a RandomState; pass shuffle=<int>, or iterate"
        )
    with shared.lock:
        plan = shared.plan_of(loader._with_plan(), options)
    asked = [validation.integer("number", number) for number in numbers]

    def planned() -> Iterator[PlannedBatch]:
        for number in asked:
            with shared.lock:
                batch = plan[number]
            yield batch

    some = Epoch(node, options, options, plan, requested=planned(), n_requested=len(asked), accounting=OutOfOrder())
    iterator = BatchIterator(some, start(some))
    shared.beside.add(iterator)
    return iterator
