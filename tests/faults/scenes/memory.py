"""Batches are kept, written to, dropped elsewhere (F27); memory over many epochs."""

from __future__ import annotations

import gc
import os
import queue
import random
import threading
import zlib
from typing import Any

import numpy as np

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, make_pool, payload_of, source, stored
from ..hunting import wait_for
from ..tree import held


class Keeper:
    """Holds on to batches for a while, writes to some, and lets go of them on another thread.

    Args:
        rng: Decides which.
        most: How many to hold.
    """

    def __init__(self, rng: random.Random, most: int) -> None:
        self._rng = rng
        self._most = most
        self._held: list[tuple[Any, int]] = []
        self._dropped: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._drop)
        self._thread.start()
        self.overwritten: list[str] = []

    def keep(self, batch: Any) -> None:
        """Hold on to a batch, which was just delivered."""
        payload = batch[1]
        kept: Any = payload[2:5, 7:] if self._rng.random() < 0.3 else payload  # a view keeps all of it
        if self._rng.random() < 0.3:
            kept = memoryview(np.ascontiguousarray(kept)) if kept is not payload else memoryview(payload)
        if self._rng.random() < 0.3:
            payload[:] = self._rng.randrange(256)
        del batch, payload
        self._held.append((kept, checksum(kept)))
        del kept
        while len(self._held) > self._most:
            self._dropped.put(self._held.pop(self._rng.randrange(len(self._held))))

    def _drop(self) -> None:
        while (item := self._dropped.get()) is not None:
            kept, before = item
            if checksum(kept) != before:
                self.overwritten.append(f"a batch of {len(kept)} rows was overwritten while it was held")
            del item, kept

    def close(self) -> None:
        for item in self._held:
            self._dropped.put(item)
        self._held.clear()
        self._dropped.put(None)
        self._thread.join()


def checksum(kept: Any) -> int:
    return zlib.adler32(np.ascontiguousarray(kept))


def kept_and_written(kind: str, batches: int, width: int, seed: int, mapped: bool) -> dict[str, Any]:
    """F27: a consumer keeps batches, writes to them, drops them elsewhere; none is overwritten, each arrives right."""
    with make_pool(kind) as pool:
        rows = source(width, n=1400) if mapped else stored(width, n=1400)
        parallel = pool.parallel_data_source(bu.repeat(rows, batches // 200), 8)
        keeper = Keeper(random.Random(seed), 20)
        try:
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                count = 0
                for rows, payload, draws in iterator:
                    assert payload.flags.writeable
                    if not np.array_equal(payload, payload_of(rows, width)):
                        raise AssertionError(f"batch {count} arrived wrong")
                    keeper.keep((rows, payload, draws))
                    count += 1
        finally:
            keeper.close()
        assert not keeper.overwritten, keeper.overwritten[:3]
        return {"batches": count}


def all_kept(kind: str) -> dict[str, Any]:
    """F27: a consumer keeps every batch of an epoch, far more than there are slots; nothing blocks, nothing changes."""
    kept: list[tuple[Any, int]] = []
    width = (256 << 10) // BATCH
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(source(width), 4)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            for _, payload, _ in iterator:
                kept.append((payload, checksum(payload)))
    changed = sum(checksum(payload) != before for payload, before in kept)
    return {"kept": len(kept), "changed": changed}


def after_the_pool(kind: str) -> bool:
    """F27: batches outlive the iterator, the pool and its workers."""
    pool = make_pool(kind)
    with pool.parallel_data_source(source(9000), 4).batch_iterator(BATCH) as iterator:
        rows, payload, _ = next(iterator)
    pool.close()
    del pool, iterator
    gc.collect()
    payload[0] ^= 0
    return bool(np.array_equal(payload, payload_of(rows, 9000)))


# -- memory over many epochs ---------------------------------------------------------------------------------------

ROWS, ROW = 400, 50_000
"""Size of the array: 20 MB."""


AHEAD = 8
"""Batches that may be ahead of the consumer."""


def over_epochs(kind: str, times: int) -> list[tuple[float, float, int]]:
    """Return, after each of so many epochs, the bytes of memory, those of it that are shared, and the descriptors.

    In each epoch all that may be ahead is ahead at some time, while the consumer has more than it does in its loop, so
    that none needs more than another.
    """
    found = []
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(stored(ROW, n=ROWS), AHEAD)
        if kind != "threads":
            both_ready(pool)
        for epoch in range(times):
            with parallel.batch_iterator(16, shuffle=SHUFFLE, epoch=epoch) as iterator:
                batches = [next(iterator) for _ in range(3)]
                # The one that the consumer has counts as one of them, but while the first tells how large they are.
                wait_for(lambda: iterator.stats()["buffered"] >= AHEAD - 1, "batches to be ahead")  # at once
                rows = [batch[0] for batch in batches]
                batches.clear()
                rows += [rows for rows, _, _ in iterator]
            assert sorted(np.concatenate(rows)) == list(range(ROWS))
            gc.collect()
            now = held()
            found.append((now.memory, now.shared, now.descriptors))
    return found


def both_ready(pool: Any) -> None:
    """Wait until both workers of a pool have done something."""
    seen: set[int] = set()

    def more() -> bool:
        seen.update(pool.work_stream((os.getpid, ()) for _ in range(4)).retrieve_iter())
        return len(seen) == 2

    wait_for(more, "both workers")
