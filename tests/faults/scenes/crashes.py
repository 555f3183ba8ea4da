"""Workers die: killed from outside, by their own sample, while they write, all at once, again and again (F1–F6)."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import batchup_ng as bu

from ..books import BATCH, BATCHES, SHUFFLE, SIZES, N, balance, make_pool, planned_rows, source
from ..hunting import all_workers, is_alive, is_in_write, is_stopped, kill_one, send, stop, wait_for, worker_pids
from ..mischief import AtRows, who_was_there

KILLS_A_POOL = 3
"""Workers that may be killed before a pool may say that it is enough (3 a worker within 60 s, FAULTS F4)."""


def killed_at_moments(kind: str, workers: int, size: str, seed: int, moments: int) -> dict[str, Any]:
    """F1: in each epoch one worker is killed, busy or idle, at another moment."""
    rng = random.Random(seed)
    longest, killed = 0.0, 0
    for first in range(0, moments, KILLS_A_POOL):
        with make_pool(kind, workers) as pool:
            parallel = pool.parallel_data_source(source(SIZES[size]), 8)
            for epoch in range(first, min(moments, first + KILLS_A_POOL)):
                all_workers(kind, workers)
                strike = rng.randrange(-1, BATCHES - 1)  # -1: before the epoch, when all are idle
                pause = rng.random() * 0.003

                def act(batch: int, strike: int = strike, pause: float = pause) -> None:
                    nonlocal killed
                    if batch == strike:
                        time.sleep(pause)
                        killed += kill_one(kind, rng) is not None

                act(-1)
                with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) as iterator:
                    figures = balance(iterator, width=SIZES[size], epoch=epoch, at=act)
                assert figures["batches"] == BATCHES
                longest = max(longest, figures["longest"])
            all_workers(kind, workers)  # each that was killed has been replaced
    return {"killed": killed, "longest": longest}


def time_to_replace(kind: str, times: int) -> dict[str, Any]:
    """F1: a worker is killed in the batch that the consumer waits for; how long until it has that batch."""
    taken = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder, make_pool(kind, 2) as pool:
            row = int(planned_rows()[3 * BATCH])
            parallel = pool.parallel_data_source(source(fault=AtRows([row], "sleep", folder)), 4)
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                for _ in range(3):
                    next(iterator)
                pid = wait_for(lambda: who_was_there(folder, row), "the worker to be in the batch")  # noqa: B023
                struck: list[float] = []
                killer = threading.Thread(target=lambda: (time.sleep(0.05), struck.append(now()), send(pid)))  # noqa: B023
                killer.start()
                batch = next(iterator)
                took = now() - struck[0]
                killer.join()
                assert row in batch[0]
                taken.append(took)
                assert sum(1 for _ in iterator) == BATCHES - 4
    return {"p50": statistics.median(taken), "max": max(taken)}


def now() -> float:
    return time.perf_counter()


# -- in the middle of a message ----------------------------------------------------------------------------------


def _hunt_writers(
    kind: str, rng: random.Random, until: threading.Event, kills: int, patience: int
) -> dict[str, int]:
    """Stop a worker, look whether it writes, kill it if so: until so many were killed or the epoch is over.

    After `patience` stops the next one is killed whatever it does: what it writes may be too short to be caught at it.
    """
    caught = stopped = 0
    while caught < kills and not until.is_set():
        pids = worker_pids(kind)
        if not pids or not stop(pid := rng.choice(pids)):
            continue
        stopped += 1
        if is_in_write(pid) or stopped > patience:
            until.wait(0.02)  # so that all that it has written so far is read: half a message is what remains
            caught += 1
            send(pid, signal.SIGKILL)
        else:
            send(pid, signal.SIGCONT)
            until.wait(0.0005)
    return {"caught": caught, "stopped": stopped}


def killed_in_write(
    kind: str, seed: int, epochs: int, road: str = "pipe", consumers: int = 1, main: bool = True
) -> dict[str, Any]:
    """F2, F3: workers are stopped while they write 2 MB and killed with the message half written.

    Args:
        kind: The pool.
        seed: Of the random choices.
        epochs: How many; one worker is killed in each of each consumer.
        road: ``pipe`` for results that cannot lie in a slot, ``slots`` for arrays.
        consumers: How many iterate at once, each over its own epoch.
        main: Whether the consumer is the main thread.
    """
    rng = random.Random(seed)
    objects = road == "pipe"
    caught, longest = 0, 0.0
    for epoch in range(epochs):
        with make_pool(kind, 2) as pool:
            parallel = pool.parallel_data_source(source(SIZES["2 MB"], as_objects=objects, n=350), 6)

            def consume(epoch: int, parallel: Any = parallel) -> None:
                nonlocal longest
                with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) as iterator:
                    figures = balance(iterator, width=SIZES["2 MB"], epoch=epoch, as_objects=objects, n=350)
                longest = max(longest, figures["longest"])

            over = threading.Event()
            found: dict[str, int] = {}
            hunting = (kind, rng, over, consumers, 300 if objects else 5)
            hunter = threading.Thread(target=lambda: found.update(_hunt_writers(*hunting)))  # noqa: B023
            hunter.start()
            try:
                if main:
                    consume(epoch)
                else:
                    in_threads([lambda e=e: consume(e) for e in range(epoch, epoch + consumers)])
            finally:
                over.set()
                hunter.join()
            caught += found["caught"]
    return {"caught": caught, "longest": longest}


def in_threads(tasks: list[Callable[[], object]], seconds: float = 25.0) -> None:
    """Run each in a thread of its own; raise the first exception; the main thread only waits and is not disturbed."""
    errors: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a consumer hangs"


def half_a_message(kind: str, workers: int, road: str) -> dict[str, Any]:
    """F2: a worker writes exactly half of its result and is gone."""
    objects = road == "pipe"
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, workers) as pool:
        fault = AtRows(planned_rows()[[70, 400]].tolist(), "half a write", folder)
        parallel = pool.parallel_data_source(source(SIZES["2 MB"], fault=fault, as_objects=objects), 4)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            return balance(iterator, width=SIZES["2 MB"], as_objects=objects)


def stopped_in_write(kind: str) -> dict[str, Any]:
    """F2: a worker stands still with half of its result written; whoever else uses the pool is not held up by it."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, 2) as pool:
        row = int(planned_rows()[3 * BATCH])
        fault = AtRows([row], "half a write, stopped", folder)
        stuck = pool.parallel_data_source(source(SIZES["2 MB"], fault=fault, as_objects=True, n=N), 4)
        others = pool.parallel_data_source(source(SIZES["64 kB"]), 4)
        with stuck.batch_iterator(BATCH, shuffle=SHUFFLE) as first:
            heads = [next(first) for _ in range(3)]
            pid = wait_for(lambda: who_was_there(folder, row), "the worker to be in the batch")
            wait_for(lambda: is_stopped(pid), "the worker to stop")
            figures = balance(others.batch_iterator(BATCH, shuffle=SHUFFLE), width=SIZES["64 kB"])
            send(pid, signal.SIGCONT)
            rest = [batch[0] for batch in (*heads, *first)]
        assert np.array_equal(np.concatenate(rest), planned_rows())
        return figures


def dies_when_it_has_answered(kind: str, times: int) -> int:
    """F1: each worker dies when it has sent its result; a result that was sent counts, also for tasks that run once."""
    with make_pool(kind, 1) as pool:
        assert pool.work_stream(iter([(len, ("abc",))])).retrieve() == 3  # workers may only be started for work
        for i in range(times):
            (pid,) = all_workers(kind, 1)
            stream = pool.work_stream(iter([(last_words, (i,))]))
            # Nothing runs in this process until the result lies there and the worker is dead: both are seen at once.
            ctypes.PyDLL(None).usleep(500_000)
            assert stream.retrieve() == f"result {i}"
            # The next task must not go to one that is about to die.
            wait_for(lambda: worker_pids(kind) not in ([], [pid]), "another worker")  # noqa: B023
    return times


def last_words(i: int) -> str:
    """Return a result from a process that ends a moment later, when it has long sent it."""
    threading.Timer(0.25, os._exit, (9,)).start()
    return f"result {i}"


# -- many at once ------------------------------------------------------------------------------------------------


def all_at_once(kind: str, workers: int) -> dict[str, Any]:
    """F4: all workers are killed at the same time, in mid-epoch."""
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(SIZES["64 kB"], pause=0.001), 8)

        def act(batch: int) -> None:
            if batch == 40:
                for pid in all_workers(kind, workers):
                    send(pid)

        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            return balance(iterator, width=SIZES["64 kB"], at=act)


def one_every_100_ms(kind: str, workers: int, seed: int) -> dict[str, Any]:
    """F4: a worker is killed every 100 ms, without end: the epoch completes or one typed error comes, in time."""
    rng, over = random.Random(seed), threading.Event()

    def hunt() -> None:
        while not over.wait(0.1):
            kill_one(kind, rng)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    began = time.monotonic()
    try:
        with make_pool(kind, workers) as pool:
            parallel = pool.parallel_data_source(source(SIZES["64 kB"], pause=0.05), 8)
            try:
                with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                    balance(iterator, width=SIZES["64 kB"])
                how = "completed"
            except bu.WorkerLost as error:
                how = f"WorkerLost: {error}"
        return {"how": how, "seconds": time.monotonic() - began}
    finally:
        over.set()
        hunter.join()


# -- by their own doing ------------------------------------------------------------------------------------------


def a_row_that_kills(kind: str, workers: int, act: str, on_error: str) -> dict[str, Any]:
    """F5: each worker that reads one row dies of it."""
    row = int(planned_rows()[500])
    began = time.monotonic()
    with make_pool(kind, workers) as pool:
        parallel = pool.parallel_data_source(source(fault=AtRows([row], act)), 8, on_error=on_error)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
        found: dict[str, Any] = {"row": row}
        if on_error == "skip":
            balance(iterator, bad=[row])
            found |= {"message": str(iterator.errors[0].error), "lost": len(iterator.errors)}
        else:
            found |= _error_of(iterator)
        iterator.close()
        found["seconds"] = time.monotonic() - began
        # And the pool is as good as new.
        with parallel.batch_iterator(BATCH) as again:
            next(again)
    return found


def _error_of(iterator: Any) -> dict[str, Any]:
    delivered = 0
    try:
        for _ in iterator:
            delivered += 1
    except bu.WorkerLost as error:
        named = {"named": error.row, "is_batch_error": isinstance(error, bu.BatchError)}
        return {"delivered": delivered, "message": str(error), **named}
    raise AssertionError(f"the epoch ended without an error, after {delivered} batches")


def exit_zero(kind: str, workers: int) -> dict[str, Any]:
    """F6: a worker ends with exit code 0 while it has work to do, once."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, workers) as pool:
        rows = planned_rows()[[0, 333, 999]].tolist()
        parallel = pool.parallel_data_source(source(fault=AtRows(rows, "exit 0", folder)), 8)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            return balance(iterator)


def dead_before_it_was_asked(kind: str) -> dict[str, Any]:
    """F1: all workers of a pool that has nothing to do are killed; the next epoch is as ever."""
    with make_pool(kind, 2) as pool:
        assert pool.work_stream(iter([(len, ("abc",))])).retrieve() == 3  # workers may only be started for work
        pids = all_workers(kind, 2)
        for pid in pids:
            send(pid)
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "the workers to be dead")
        parallel = pool.parallel_data_source(source(), 8)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            return balance(iterator)
