"""The part of a loader that all its views share: the pool, and how far it is.

A :class:`SharedByViews` owns the pool, the series of epochs and the epoch under way. It moves from one epoch to the
next by single assignments. An exception from a signal handler between two of them leaves an epoch whole: the epoch
under way, or an epoch that has not begun.

A fork of the process has no workers of the pools of loaders. There a loader makes its pool anew, and a pool of the user
is of no use. An epoch under way stays, for its state, and raises ``PoolClosed`` for the next batch.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import weakref
from typing import Any

from ...graph.node import samples_in_words
from ...meters.batch_times import values_of
from ...sampling.plans.epoch import BatchPlan
from ..epoch_options import EpochOptions
from .epochs import Epochs
from .iterator import BatchIterator

CLOSED_POOL_KIND = "closed"
"""The kind of the pool of a closed loader."""


@dataclasses.dataclass(eq=False)
class SharedByViews:
    """The part of a loader that all its views share."""

    source: Any
    options: dict[str, Any]  # of each epoch
    checked: EpochOptions | None  # the same, checked; None if a launcher or a RandomState decides in each epoch
    pool: Any  # None until it is made
    kind: str  # of the pool, if the loader makes it; "" for the user's pool
    first: int  # number of the first epoch
    next: int  # number of the epoch under way, or of the next if none is
    lender: Any = None  # the loader whose pool this one takes
    pool_node: Any = None  # the node whose batches the pool makes
    used_kind: str = ""  # of the pool that it has made
    why: str = ""  # reason for the choice of the pool
    tuner: Any = None  # chooses the number of workers
    last_settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a closed loader
    plan: BatchPlan | None = None  # of the epoch of the last batch requested by number
    pending: Any = None  # state to resume the epoch `next` from, if it is in its middle
    order_blocks: Any = None  # the blocks of the loaded state
    closed_report: tuple[dict[str, Any], list[Any]] = ({}, [])  # stats and errors of an epoch that close() ended
    warned: set[str] = dataclasses.field(default_factory=set)  # the kinds of warnings that were given
    series: Epochs | None = None
    inner: BatchIterator | None = None  # of the epoch under way, or of the last
    iterator: Any = None  # for `inner`: the result of iter() of the loader or of a view
    beside: Any = dataclasses.field(default_factory=weakref.WeakSet)  # iterators of batches requested by number
    # Held while the pool starts or a batch is planned by number; several threads may request either at once.
    lock: Any = dataclasses.field(default_factory=threading.RLock)

    of_parent: Any = None  # after a fork: the pool of the parent process, and what uses it

    def __post_init__(self) -> None:
        _of_this_process.add(self)

    def upcoming(self) -> tuple[int, Any]:
        """Return the number of the next iteration's epoch, and its state if it resumes in its middle.

        An epoch that an exception broke off before its first batch comes again.
        """
        if self.inner is not None and self.inner.asked and not self.inner.broken_off_before_first:
            return self.inner.epoch + 1, None
        return self.next, self.pending

    def move_to(self, number: int, pending: Any, order_blocks: Any) -> tuple[Any, Any]:
        """Let epoch `number` come next, with `order_blocks`. Return the iterator and series to end."""
        left = self.iterator, self.series
        self.next, self.pending, self.order_blocks = number, pending, order_blocks
        self.iterator = self.inner = self.series = self.plan = None
        return left

    def leave_to_parent(self) -> None:
        """In a fork: give up the pool of the parent process. The next epoch starts another."""
        if not self.lock._is_owned():  # another thread may have held it
            self.lock._at_fork_reinit()
        owner = self
        while owner.lender is not None:
            owner = owner.lender._shared
        if self.pool is None or owner.kind in ("", CLOSED_POOL_KIND):
            return
        self.of_parent = self.pool, self.pool_node, self.series, self.inner, self.iterator  # ended by no finalizer here
        self.pool = self.pool_node = self.series = None
        if self.inner is not None and self.inner.untouched:
            self.inner = self.iterator = None

    def in_words(self, epoch: int) -> list[str]:
        """Return facts for the ``repr`` of a loader in epoch `epoch`."""
        own = not self.source.is_random_access and not self.source.node.traits.takes_options
        size = "batches as its iterator gives them" if own else f"batches of {self.options['batch_size']}"
        words = [samples_in_words(self.source.node), size]
        given = {name: self.options[name] for name in ("shuffle", "drop_last", "shard")}
        shown = [f"{name}={value!r}" for name, value in given.items() if value not in (None, False)]
        words += [*shown, f"epoch {epoch}"]
        if self.kind == CLOSED_POOL_KIND:
            words.append(CLOSED_POOL_KIND)
        elif self.pool is not None:
            words.append(f"by {self.pool!r}" + f", chosen because {self.why}" * bool(self.why))
            words += [] if self.tuner is None else [str(self.tuner)]
        elif self.lender is not None:
            words.append("by the workers of another loader")
        else:
            words.append(f"pool={self.kind!r}" + ", to be chosen in the first epoch" * (self.kind == "auto"))
        return words

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("lock", "beside")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock(), beside=weakref.WeakSet())
        _of_this_process.add(self)


_of_this_process: weakref.WeakSet[SharedByViews] = weakref.WeakSet()


def living() -> list[SharedByViews]:
    """Return what the loaders of this process share. Any thread may call this."""
    found: list[SharedByViews] = values_of(_of_this_process)
    return found


def _leave_to_parent() -> None:
    for shared in _of_this_process:
        shared.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def end(left: tuple[Any, Any], by: str) -> None:
    """End an iterator and its series of epochs. A loop over them then raises ``PoolClosed``."""
    iterator, series = left
    if iterator is not None:
        iterator.break_off(f"{by} of its loader")
    if series is not None:
        series.close()
