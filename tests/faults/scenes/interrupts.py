"""Ctrl-C, and other signals whose handlers raise, at any moment, caught as a notebook does: the pool is as good as
before (F13)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, SIZES, balance, make_pool, source


def interrupted(act: Callable[[], object], after: float, to_all: bool) -> bool:
    """Do something, with an interrupt so many seconds later; return whether it was raised.

    Args:
        act: What is interrupted; if it is done earlier the interrupt is waited for.
        after: Seconds.
        to_all: Whether the signal is sent to the process, of which any thread may take it, as Ctrl-C is; or to the
            main thread.
    """
    main = threading.get_ident()

    def send() -> None:
        time.sleep(after)
        if to_all:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            signal.pthread_kill(main, signal.SIGINT)

    sender = threading.Thread(target=send)
    came = False
    try:
        sender.start()
        act()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.0005)
    except KeyboardInterrupt:
        came = True
    sender.join()
    return came


def walk(pool: Any, size: str, epoch: int, kept: list[Any]) -> None:
    """Go through an epoch; what a notebook would still hold after an interrupt is kept."""
    parallel = pool.parallel_data_source(source(SIZES[size]), 8)
    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch)
    kept.append(iterator)
    for batch in iterator:
        kept.append(batch)
        del kept[1:-2]


def whole(pool: Any, size: str, epoch: int) -> None:
    """Go through an epoch and assert that each byte of it is right."""
    parallel = pool.parallel_data_source(source(SIZES[size]), 8)
    with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) as iterator:
        balance(iterator, width=SIZES[size], epoch=epoch)


def in_mid_epoch(kind: str, workers: int, size: str, times: int, seed: int) -> int:
    """F13: epochs are interrupted at random moments; after each the same pool gives a whole one.

    Returns:
        How many of the interrupts were raised.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(seed)
    caught = 0
    with make_pool(kind, workers) as pool:
        whole(pool, size, 0)
        began = time.perf_counter()
        whole(pool, size, 0)
        lasts = time.perf_counter() - began
        kept: list[Any] = []
        for epoch in range(1, times + 1):
            if epoch % 2:
                kept = []
            caught += interrupted(lambda: walk(pool, size, epoch, kept), lasts * rng.random(), epoch % 3 > 0)  # noqa: B023
            if epoch % 2:
                kept = []
            whole(pool, size, epoch)
    return caught


def at_the_start(kind: str, size: str, times: int, seed: int) -> int:
    """F13: the start of a pool is interrupted at a random moment; the same pool then gives a whole epoch.

    Returns:
        How many of the interrupts were raised.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(seed)
    began = time.perf_counter()
    with make_pool(kind) as pool:
        whole(pool, size, 0)
        lasts = time.perf_counter() - began
    caught = 0
    for epoch in range(1, times + 1):
        with make_pool(kind) as pool:
            kept: list[Any] = []
            caught += interrupted(lambda: walk(pool, size, epoch, kept), lasts * rng.random(), epoch % 3 > 0)  # noqa: B023
            whole(pool, size, epoch)
    return caught


class Rang(Exception):
    """What the handler of a program's own raises."""


def ring(number: int, frame: Any) -> None:
    raise Rang


def by_a_timer(times: int) -> int:
    """F13: a handler of the program's own raises in an epoch of quick batches, a little later each time.

    Returns:
        How many times it did.
    """
    signal.signal(signal.SIGALRM, ring)
    source, rang = bu.ArrayDataSource([np.arange(100_000)]), 0
    with bu.WorkerProcessPool(2) as pool:
        parallel = pool.parallel_data_source(source)
        next(parallel.batch_iterator(50))  # the workers are there
        for k in range(times):
            iterator = parallel.batch_iterator(50)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.035 * k / times)
                for _ in iterator:
                    pass
            except Rang:
                rang += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            iterator.close()
        batches = [x for (x,) in parallel.batch_iterator(50)]
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(100_000))
    return rang


PACKAGE = str(Path(bu.__file__).parent)


class Struck:
    """Within it the signal of Ctrl-C comes when the library's own code, in this thread, has made its `n`-th call.

    That is where Python deals with signals: behind a call of a function in C, and where one of Python begins. `done`
    says whether there were so many.
    """

    def __init__(self, n: int) -> None:
        self._left = n
        self.done = False

    def __enter__(self) -> Struck:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: Any, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.done = True
                signal.raise_signal(signal.SIGINT)


def squares() -> Iterator[Any]:
    for k in range(9):
        yield pow, (k, 2)


def at_each_call(kind: str, step: int) -> int:
    """F13: the use of a pool is interrupted at one call after the other; then it gives whole streams and epochs.

    Returns:
        How many times it was interrupted.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    struck = 0
    with make_pool(kind) as pool:
        parallel = pool.parallel_data_source(source(SIZES["64 kB"]), 8)
        while True:
            assert list(pool.work_stream(squares(), 4)) == [k * k for k in range(9)]
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=struck) as iterator:
                balance(iterator, width=SIZES["64 kB"], epoch=struck)
            strike = Struck(step * struck)
            stream, got = None, []
            try:
                with strike:
                    stream = pool.work_stream(squares(), 4)
                    for _ in range(3):
                        got.append(stream.retrieve())
                    ended, stream = stream, None
                    ended.close()
                    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=struck)
                    next(iterator)
                    next(iterator)
                    iterator.close()
            except KeyboardInterrupt:
                pass
            if stream is not None:
                with contextlib.suppress(bu.PoolClosed):  # it may be broken off, but must leave nothing out
                    got.extend(stream)
                    assert got == [k * k for k in range(9)], got
            if not strike.done:
                return struck
            struck += 1
