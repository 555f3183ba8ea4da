"""The present figures of each loader of this program, as plain values."""

from __future__ import annotations

import math
import os
import time
from typing import Any

from .._version import __version__
from ..error_context import unless_of_signal_handler
from ..graph.node import samples_in_words
from ..interpreter import values_of
from ..memory.budget import BUDGET
from ..meters import batch_times
from ..meters.batch_times import BatchTimes, Meter, metrics
from ..work_pool.loader_pool import SharedByViews, living

RECENT = 5.0
"""Seconds before the latest batch of a loader from which its recent figures come. A longer step counts whole."""


def figures() -> dict[str, Any]:
    """Return the figures of this program, which JSON can hold.

    ``loaders`` has an entry for each loader that got a batch, and for each other source over a pool, in the order of
    their first epochs. Times are seconds of the monotonic clock. Any thread may call this.
    """
    loaders, of_loaders = [], set()
    for shared in living():
        with unless_of_signal_handler():  # another thread may close it
            node = shared.pool_node
            meter = getattr(node, "meter", None)
            if meter is not None and meter.batches:
                of_loaders.add(meter)
                loaders.append(_of_meter(meter, node.pool.at_once) | _of_loader(shared, node))
    for meter in values_of(batch_times.living):
        if meter not in of_loaders and meter.batches:
            loaders.append(_of_meter(meter, 0))
    loaders.sort(key=lambda loader: loader["number"])
    held = sum(BUDGET.table().values())
    return {"version": __version__, "pid": os.getpid(), "now": time.monotonic(), "bytes": held, "loaders": loaders}


def _of_meter(meter: Meter, workers: int) -> dict[str, Any]:
    """Return what is known of any source over a pool. `workers` is 0 if their number is not known."""
    latest = meter.latest()
    return {
        "number": meter.number,
        "name": "a source over a pool",
        "pool": meter.name,
        "epoch": latest[-1].epoch,
        "batch": latest[-1].number + 1,
        "last": latest[-1].taken,
        "recent": recent(latest),
        "metrics": metrics(meter, workers) if workers else {},
    }


def _of_loader(shared: SharedByViews, node: Any) -> dict[str, Any]:
    """Return what is known of a loader besides."""
    size = shared.options["batch_size"]
    told = {
        "name": f"{samples_in_words(node.source)}, batches of {size}",
        "pool": repr(node.pool),
        "workers": node.pool.at_once,
        "buffer": node.bound.limit,
    }
    if (iterator := shared.inner) is not None:
        n, ahead = iterator.n_batches(), iterator.ahead()
        told |= {"epoch": iterator.epoch, "batch": iterator.epoch_progress()[0], "ready": iterator.buffered()}
        told |= {"batches": None if n is None or math.isinf(n) else int(n), "bytes": ahead * node.bound.largest}
    return told


def recent(latest: list[BatchTimes]) -> dict[str, float]:
    """Return the rates and the share of the wait over the latest whole steps; {} if there is only one batch.

    A step is the time from one batch to the next, with the wait for it.
    """
    since = latest[-1].taken - RECENT
    first = next(place for place, times in enumerate(latest) if times.taken >= since)
    before, steps = latest[max(0, min(first, len(latest) - 1) - 1)], latest[max(1, first) :]
    if not steps:
        return {}
    seconds = max(steps[-1].taken - before.taken, 1e-9)
    return {
        "batches_per_second": len(steps) / seconds,
        "samples_per_second": sum(times.samples for times in steps) / seconds,
        "wait_share": min(1.0, sum(times.taken - times.asked for times in steps) / seconds),
    }
