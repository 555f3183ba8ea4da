"""The beginning of a loader's next epoch, and the end of the loader."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from ..data_source.epoch.epochs import series_of_epochs
from ..data_source.epoch.iterator_views import LoaderIterator
from ..errors import StateError
from .loader_pool import CLOSED_POOL_KIND, next_epoch


def begin(loader: Any, end: float) -> Any:
    """Begin the next epoch of a loader, and return the iterator of its batches. If the current epoch was left early,
    end it. Make no batch ahead of epoch `end` or a later one.
    """
    for check in loader._checks:
        check(loader)
    shared, began = loader._shared, time.perf_counter()
    with shared.lock:
        if shared.iterator is not None:
            shared.iterator.break_off("another iteration over its loader, begun before this one was at its end")
        number, state = next_epoch(shared)
        try:
            if shared.inner is None or not shared.inner.untouched:
                if shared.inner is not None and number <= shared.inner.epoch:
                    shared.series = None  # the epoch ended before its first batch, and is to begin again
                if shared.series is None:
                    options, node = loader._options_of(number), loader._pool_node()
                    saved, shared.prepared = shared.prepared or state, None
                    shared.series = series_of_epochs(node, options, None, saved)
                shared.inner = None
                shared.next, shared.pending = number, state
                shared.inner = next(shared.series)
                shared.inner.start_seconds = time.perf_counter() - began
            if shared.steps is not None:
                shared.steps.begins(loader, shared.inner)
            if shared.series is not None:
                shared.series.ahead_before = end
            shared.iterator = loader._viewed(LoaderIterator(shared.inner, shared.lock))
            return shared.iterator
        except BaseException:  # the next call begins the same epoch, wherever a signal handler interrupted
            shared.series = shared.inner = shared.iterator = None
            shared.next, shared.pending = number, state
            raise


def close(loader: Any) -> None:
    """End the epoch under way of a loader, and its pool unless that is the user's. May be called again."""
    shared, under_way = loader._shared, loader._under_way()
    shared.next, shared.pending = shared.upcoming()
    if under_way is not None:
        with contextlib.suppress(StateError):  # it has no state
            shared.next, shared.pending, shared.prepared = int(under_way.epoch), under_way.state_dict(), None
    if shared.iterator is not None:
        shared.closed_report = loader.stats(), loader.errors
    for iterator in (shared.iterator, *shared.beside):
        if iterator is not None:
            iterator.break_off("close() of its loader")
    if shared.series is not None:
        shared.series.close()
    if shared.steps is not None:
        shared.steps.closes()
    # They hold memory that the workers share, and TensorFlow keeps loaders until the program ends.
    found = loader.settings()
    shared.iterator = shared.inner = shared.series = shared.pool_node = shared.tuner = None
    if shared.kind:
        shared.last_settings = found
        pool, shared.pool, shared.kind = shared.pool, None, CLOSED_POOL_KIND
        if pool is not None:
            pool.close()
