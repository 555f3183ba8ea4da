"""Ctrl-C at any moment, caught as a notebook does: the pool is as good as before (F13)."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ..accounting import BATCH, SHUFFLE, SIZES, make_pool, source, whole


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
    came = dropped = False

    def note(told: Any) -> None:
        nonlocal dropped
        if told.exc_type is KeyboardInterrupt:
            dropped = True  # in a finalizer, out of which Python lets no exception: it says so, and the loop goes on
        else:
            sys.__unraisablehook__(told)

    sys.unraisablehook = note
    try:
        sender.start()
        act()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not dropped:
            time.sleep(0.0005)
    except KeyboardInterrupt:
        came = True
    sender.join()
    sys.unraisablehook = sys.__unraisablehook__
    return came or dropped


def walk(pool: Any, size: str, epoch: int, kept: list[Any]) -> None:
    """Go through an epoch; what a notebook would still hold after an interrupt is kept."""
    parallel = pool.parallel_data_source(source(SIZES[size]), 8)
    iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch)
    kept.append(iterator)
    for batch in iterator:
        kept.append(batch)
        del kept[1:-2]


def in_mid_epoch(kind: str, workers: int, size: str, times: int, seed: int) -> int:
    """F13: epochs are interrupted at random moments; after each the same pool gives a whole one.

    Returns:
        How many of the interrupts were raised.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(seed)
    caught = 0
    with make_pool(kind, workers) as pool:
        whole(pool, SIZES[size])
        began = time.perf_counter()
        whole(pool, SIZES[size])
        lasts = time.perf_counter() - began
        kept: list[Any] = []
        for epoch in range(1, times + 1):
            if epoch % 2:
                kept = []
            caught += interrupted(lambda: walk(pool, size, epoch, kept), lasts * rng.random(), epoch % 3 > 0)  # noqa: B023
            if epoch % 2:
                kept = []
            whole(pool, SIZES[size], epoch=epoch)
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
        whole(pool, SIZES[size])
        lasts = time.perf_counter() - began
    caught = 0
    for epoch in range(1, times + 1):
        with make_pool(kind) as pool:
            kept: list[Any] = []
            caught += interrupted(lambda: walk(pool, size, epoch, kept), lasts * rng.random(), epoch % 3 > 0)  # noqa: B023
            whole(pool, SIZES[size], epoch=epoch)
    return caught
