"""Memory, descriptors and processes run out; batches are kept and written to (F16, F17, F27)."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import random
import resource
import threading
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu

from ..books import BATCH, SHUFFLE, balance, make_pool, payload_of, source, stored
from ..hunting import all_workers, send

BIG = (6 << 20) // BATCH
"""Bytes a row, so that a batch has 6 MB."""

SHM = Path("/dev/shm")

# -- F16 ---------------------------------------------------------------------------------------------------------


def shared_memory_short(kind: str, how: str) -> dict[str, Any]:
    """F16: forty batches of 6 MB where there is little shared memory; /dev/shm is a small one of this program's own.

    Args:
        kind: The pool.
        how: ``small`` (nothing more), ``full`` from the start, ``filled`` in mid-epoch by another, ``file size`` for
            a limit on the size of files.
    """
    filler = SHM / "somebody elses"
    if how == "full":
        fill(filler)
    if how == "file size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))

    def act(batch: int) -> None:
        if batch == 3 and how == "filled":
            fill(filler)

    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with make_pool(kind) as pool:
                parallel = pool.parallel_data_source(source(BIG, n=280), 6)
                with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                    figures = balance(iterator, width=BIG, n=280, at=act)
        return figures | {"warnings": [str(warning.message) for warning in told]}
    finally:
        if filler.exists():
            filler.unlink()


def fill(path: Path) -> None:
    """Write to a file until the file system is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


# -- F17 ---------------------------------------------------------------------------------------------------------


def few_descriptors(kind: str) -> dict[str, Any]:
    """F17: 64 descriptors in all, fewer and fewer of them free: the pool works or says what is short."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    worked, refused = [], {}
    for free in (40, 24, 16, 12, 10, 8, 6, 5, 4, 3, 2, 1, 0):
        with only_free(free):
            try:
                use_a_pool(kind)
                worked.append(free)
            except Exception as error:
                refused[free] = tells(error)
                del error
                gc.collect()
    use_a_pool(kind)
    return {"worked": worked, "refused": refused}


@contextlib.contextmanager
def only_free(n: int) -> Iterator[None]:
    """Leave `n` descriptors free within."""
    fillers = []
    try:
        while True:
            fillers.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for fd in fillers[:n]:
        os.close(fd)
    try:
        yield
    finally:
        for fd in fillers[n:]:
            os.close(fd)


def use_a_pool(kind: str) -> None:
    """Make a pool, take an epoch of it, close it."""
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(source(9000, n=70), 4)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            balance(iterator, width=9000, n=70)


def tells(error: BaseException) -> dict[str, Any]:
    """Return what an error and its causes say."""
    words, one = [], error
    while one is not None and len(words) < 10:
        words.append(f"{type(one).__name__}: {one}")
        one = one.__cause__ or one.__context__  # type: ignore[assignment]
    return {"typed": isinstance(error, (bu.BatchupError, OSError)), "says": "; ".join(words)}


def no_descriptor_for_a_new_worker(kind: str) -> dict[str, Any]:
    """F17: a worker dies when no descriptor is free for another; when there are some again, the pool works again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    told: dict[str, Any] = {"typed": True, "says": "completed"}
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(source(9000, pause=0.002), 4)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator, contextlib.ExitStack() as stack:

            def act(batch: int) -> None:
                if batch == 10:
                    pid = all_workers(kind, 2)[0]
                    stack.enter_context(only_free(0))
                    send(pid)

            try:
                balance(iterator, width=9000, at=act)
            except Exception as error:
                told = tells(error)
    use_a_pool(kind)
    return told


PIDS = Path("/sys/fs/cgroup/pids")


def no_more_processes(kind: str, group: str) -> dict[str, Any]:
    """F17: the system starts only so many processes for us: the pool works or says what is short."""
    limit = Path(group, "pids.max")
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    worked, refused = [], {}
    for more in range(8):
        limit.write_text(str(int(Path(group, "pids.current").read_text()) + more))
        try:
            use_a_pool(kind)
            worked.append(more)
        except Exception as error:
            refused[more] = tells(error) | {"typed": isinstance(error, (bu.BatchupError, OSError, RuntimeError))}
            del error
            gc.collect()
    limit.write_text("max")
    use_a_pool(kind)
    Path(PIDS, "cgroup.procs").write_text(str(os.getpid()))
    return {"worked": worked, "refused": refused}


class TooBig:
    """A map that asks for more memory than there is, or makes a result for which there is too little left."""

    def __init__(self, how: str, pid: int) -> None:
        self.how = how
        self.pid = pid

    def __call__(self, rows: np.ndarray) -> Any:
        if 500 not in rows:
            return (rows,)
        if self.how == "absurd" or os.getpid() == self.pid:
            return rows, np.empty(1 << 50, np.uint8)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
        return rows, [bytes([i]) * (20 << 20) for i in range(4)]


def no_memory_in_a_worker(kind: str, how: str) -> dict[str, Any]:
    """F17: a worker has no memory for its batch, or none to pack it."""
    with make_pool(kind) as pool:
        rows = bu.ArrayDataSource([np.arange(1000)]).map(TooBig(how, os.getpid()))
        iterator = pool.parallel_data_source(rows, 4).batch_iterator(BATCH)
        try:
            for _ in iterator:
                pass
        except Exception as error:
            found = {"row": getattr(error, "row", None), "memory": isinstance(error, MemoryError), **tells(error)}
            found["message"] = str(error)
        else:
            found = {"says": "delivered"}
        iterator.close()
        with pool.parallel_data_source(source(), 4).batch_iterator(BATCH, shuffle=SHUFFLE) as again:
            balance(again)
        return found


# -- F27 ---------------------------------------------------------------------------------------------------------


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
            began = time.monotonic()
            for _, payload, _ in iterator:
                kept.append((payload, checksum(payload)))
            took = time.monotonic() - began
    changed = sum(checksum(payload) != before for payload, before in kept)
    return {"kept": len(kept), "changed": changed, "seconds": took}


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


