"""Workers die: killed from outside, by their own sample, all at once, again and again (F1, F4–F6)."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import tempfile
import threading
import time
from typing import Any

import batchup_ng as bu
from batchup_ng.work_pool.processes import fork_server

from ..accounting import BATCH, BATCHES, SHUFFLE, SIZES, balance, make_pool, planned_rows, source, whole
from ..hunting import all_workers, is_alive, kill_one, send, wait_for, worker_pids
from ..mischief import AtRows, acts, who_was_there
from ..tree import state_of
from ..writing import cut_next_result

KILLS_A_POOL = 3
"""Workers that are killed until a new pool is made.

A pool never has enough of them: it gives up when, for each of its workers, three have died in a row that had nothing to
do and never finished anything (``MAX_BARREN`` in ``work_pool/processes/schedule.py``). Here each epoch is whole before
the next worker is killed, so there never is a second in a row.
"""


def killed_at_moments(kind: str, workers: int, size: str, seed: int, moments: int) -> int:
    """F1: in each epoch one worker is killed, busy or idle, at another moment; return how many were."""
    rng = random.Random(seed)
    killed = 0
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
                    assert balance(iterator, width=SIZES[size], epoch=epoch, at=act) == BATCHES
            all_workers(kind, workers)  # each that was killed has been replaced
    return killed


def time_to_replace(kind: str, workers: int, size: str, seed: int, moments: int) -> list[float]:
    """F1: a worker is killed in the batch that the consumer waits for; how long until it has that batch, each time?"""
    rng = random.Random(seed)
    return [_one_replaced(kind, workers, size, rng.randrange(1, 40), rng.random()) for _ in range(moments)]


def _one_replaced(kind: str, workers: int, size: str, strike: int, moment: float) -> float:
    """Return the seconds from the kill until the consumer has the batch `strike`."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, workers) as pool:
        row = int(planned_rows()[strike * BATCH])
        slow = source(SIZES[size], fault=AtRows([row], "sleep", folder))
        with pool.parallel_data_source(slow, 4).batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            for _ in range(strike):
                next(iterator)
            pid = wait_for(lambda: who_was_there(folder, row), "the worker to be in the batch")
            struck: list[float] = []
            kill = [lambda: time.sleep(0.1 * moment), lambda: struck.append(now()), lambda: send(pid)]
            killer = threading.Thread(target=lambda: [step() for step in kill])
            killer.start()
            batch = next(iterator)
            took = now() - struck[0]
            killer.join()
            assert row in batch[0]
            assert sum(1 for _ in iterator) == BATCHES - strike - 1
    return took


def now() -> float:
    return time.perf_counter()


def dies_when_it_has_answered(kind: str, times: int) -> int:
    """F1: each worker dies when it has sent its result; a result that was sent counts, also for tasks that run once."""
    with make_pool(kind, 1) as pool:
        assert pool.work_stream(iter([(len, ("abc",))])).retrieve() == 3  # workers may only be started for work
        for i in range(times):
            (pid,) = all_workers(kind, 1)
            stream = pool.work_stream(iter([(last_words, (i,))]))
            # Nothing runs in this process until the result lies there and the worker is dead: both are seen at once.
            libc = ctypes.PyDLL(None)
            while state_of(pid) not in ("", "Z"):
                libc.usleep(20_000)
            assert stream.retrieve() == f"result {i}"
            # The next task must not go to one that is about to die.
            wait_for(lambda: worker_pids(kind) not in ([], [pid]), "another worker")  # noqa: B023
    return times


def last_words(i: int) -> str:
    """Return a result from a process that ends as soon as it has sent it."""

    def send_and_end(sock: socket.socket, data: memoryview) -> int:
        sock.sendall(data)
        os._exit(9)

    cut_next_result(send_and_end)
    return f"result {i}"


# -- many at once ------------------------------------------------------------------------------------------------


def all_at_once(kind: str, workers: int, size: str) -> int:
    """F4: all workers are killed at the same time, in mid-epoch."""
    with make_pool(kind, workers) as pool:

        def act(batch: int) -> None:
            if batch == 20:
                for pid in all_workers(kind, workers):
                    send(pid)

        return whole(pool, SIZES[size], pause=0.001, at=act)


def one_every_100_ms(kind: str, workers: int, size: str, seed: int) -> dict[str, Any]:
    """F4: a worker is killed every 100 ms, without end: the epoch completes or one typed error comes.

    An epoch has 50 batches of 30 ms: 1.5 s of one worker that is left in peace. In its middle it waits for the third
    kill, which a busy machine may delay.
    """
    rng, over = random.Random(seed), threading.Event()
    killed = 0

    def hunt() -> None:
        nonlocal killed
        while not over.wait(0.1):
            killed += kill_one(kind, rng) is not None

    def third_kill(batch: int) -> None:
        if batch == BATCHES // 2:
            wait_for(lambda: killed >= 3, "the third kill")

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        with make_pool(kind, workers) as pool:
            try:
                whole(pool, SIZES[size], pause=0.03, at=third_kill)
                how = "completed"
            except bu.WorkerDied as error:
                how = f"WorkerDied: {error}"
    finally:
        over.set()
        hunter.join()
    return {"how": how, "killed": killed}  # the last kill is counted after it


# -- by their own doing ------------------------------------------------------------------------------------------


def a_row_that_kills(kind: str, workers: int, size: str, ways: list[str], on_error: str) -> list[dict[str, Any]]:
    """F5: each worker that reads one row dies of it; told of each of the ways to die, by one pool.

    Returns:
        What was said, and ``deaths``, how many workers died of it.
    """
    row = int(planned_rows()[200])
    told = []
    fork_server.ANSWER_TIMEOUT = 120.0  # a busy machine lets a server take long to report how a worker ended
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, workers) as pool:
        for epoch, act in enumerate(ways):
            log = f"{folder}/{epoch}"
            deadly = source(SIZES[size], fault=AtRows([row], act, log=log))
            parallel = pool.parallel_data_source(deadly, 8, on_error=on_error)
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                found: dict[str, Any] = {"row": row}
                if on_error == "skip":
                    balance(iterator, width=SIZES[size], bad=[row])
                    found |= {"message": str(iterator.errors[0]), "lost": len(iterator.errors)}
                else:
                    found |= _error_of(iterator)
            told.append(found | {"deaths": acts(log)})
            # And the pool is as good as new.
            with parallel.batch_iterator(BATCH) as again:
                next(again)
    return told


def _error_of(iterator: Any) -> dict[str, Any]:
    """Return what the error of an epoch tells."""
    try:
        delivered = sum(1 for _ in iterator)
    except bu.WorkerDied as error:
        return {"named": error.row, "is_batch_error": isinstance(error, bu.BatchError), "message": str(error)}
    raise AssertionError(f"the epoch ended without an error, after {delivered} batches")


def exit_zero(kind: str, workers: int, size: str) -> int:
    """F6: a worker ends with exit code 0 while it has work to do, once."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, workers) as pool:
        rows = planned_rows()[[0, 111, -1]].tolist()
        parallel = pool.parallel_data_source(source(SIZES[size], fault=AtRows(rows, "exit 0", folder)), 8)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            batches = balance(iterator, width=SIZES[size])
        assert all(who_was_there(folder, row) for row in rows)
        return batches


def dead_before_it_was_asked(kind: str) -> int:
    """F1: all workers of a pool that has nothing to do are killed; the next epoch is as ever."""
    with make_pool(kind, 2) as pool:
        assert pool.work_stream(iter([(len, ("abc",))])).retrieve() == 3  # workers may only be started for work
        pids = all_workers(kind, 2)
        for pid in pids:
            send(pid)
        wait_for(lambda: not any(is_alive(pid) for pid in pids), "the workers to be dead")
        return whole(pool)
