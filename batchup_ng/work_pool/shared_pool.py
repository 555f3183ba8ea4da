"""The pools that loaders share unless the program gives them a pool or a number of workers.

Ownership. A loader owns a :class:`PoolShare`. To the loader, it is a pool of its own: if the loader closes it, the
results that it has not taken are dropped, and its producers end. The shares own the pool. The last of them that is
closed closes the pool. If the program drops the last one, the garbage collector ends the pool. This module has only
weak references.

A pool is shared by loaders with the same `surroundings`. Worker processes inherit the environment and the current
folder when they start, so a loader that starts after a change gets another pool. A new loader also gets another pool
if this one is closed or broken, belongs to the parent of a forked process, or has old code of a reloaded module. The
same holds if all workers are stuck: a sample that never ends must not stop the next loader of a notebook.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..error_context import raise_if_of_signal_handler
from ..graph.node import Node
from ..platforms import system
from .base import AbstractWorkerPool
from .task import ONCE, Call, Pool, Submission, TaskFuture


class SharedPool:
    """A pool, and the shares of it. The methods are called with the lock held."""

    def __init__(self, kind: str, surroundings: Any, pool: AbstractWorkerPool) -> None:
        self.pool = pool
        self._shares: list[weakref.ref[PoolShare]] = []
        self._made_for = os.getpid(), kind, surroundings
        self._ended = False

    def serves(self, kind: str, surroundings: Any) -> bool:
        """Return whether a new loader may use the pool."""
        if self._ended or self._made_for != (os.getpid(), kind, surroundings):
            return False
        try:
            self.pool.check_open()
        except Exception as error:
            raise_if_of_signal_handler(error)
            return False
        return self.pool.takes_loaders()

    def _open_shares(self) -> list[PoolShare]:
        shares = [share() for share in self._shares]
        return [share for share in shares if share is not None and not share.closed]

    def add(self, share: PoolShare) -> None:
        """Let the pool stay open until `share` is closed."""
        self._shares = [weakref.ref(each) for each in (*self._open_shares(), share)]

    def ends(self) -> bool:
        """Return whether the pool has no open share. It gets no other one then."""
        self._ended = self._ended or not self._open_shares()
        return self._ended


_guard = threading.RLock()  # reentrant: the garbage collector may close a loader in any line
"""Held while a share is made or counted, never while a pool is closed: its workers may make loaders."""

_pools: list[weakref.ref[SharedPool]] = []
"""The pools that loaders of this program share."""


def _leave_to_parent() -> None:
    global _guard
    _guard = threading.RLock()  # another thread may have held it


system.after_fork_in_child(_leave_to_parent)


def share_of(kind: str, surroundings: Any, make: Callable[[], AbstractWorkerPool]) -> PoolShare:
    """Return a share of the pool of this kind that was made in these surroundings; `make` makes it if there is none."""
    with _guard:
        pools = [pool for ref in _pools if (pool := ref()) is not None]
        for shared in pools:
            share = PoolShare(shared)  # first: from now on the pool stays open
            shared.add(share)
            if shared.serves(kind, surroundings):
                return share
            share.abandon()
        shared = SharedPool(kind, surroundings, make())
        share = PoolShare(shared)
        shared.add(share)
        _pools[:] = map(weakref.ref, (*pools, shared))
    return share


class PoolShare(AbstractWorkerPool):
    """The share of one loader in a pool. To close it ends the workers only if no other loader uses them."""

    def __init__(self, shared: SharedPool) -> None:
        super().__init__()
        self._shared = shared
        self._pool = pool = shared.pool
        self.buffers, self.lends_threads = pool.buffers, pool.lends_threads
        self.processes = pool.at_once

    @property
    def closed(self) -> bool:
        """Whether its loader is closed."""
        return self._closed

    def submit(self, call: Call, how: Submission = ONCE) -> TaskFuture:
        if self._closed:
            self.check_open()  # raises
        return self._pool.submit(call, how)

    def works_here(self) -> bool:
        return self._pool.works_here()

    def shared_constant(self, x: Any) -> Any:
        if self._closed:
            self.check_open()  # raises
        return self._pool.shared_constant(x)

    def _own_pool(self, source: Node, stays: bool) -> Pool:
        return self._pool._own_pool(source, stays)

    def check_open(self) -> None:
        super().check_open()
        self._pool.check_open()

    def abandon(self) -> None:
        self._closed = True

    def close(self) -> None:
        super().close()
        with _guard:
            is_last = self._shared.ends()
        if is_last:
            self._pool.close()

    def __repr__(self) -> str:
        return repr(self._pool)
