"""Workers, starts and ends that take for ever (F20)."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

import batchup_ng as bu
from batchup_ng.work_pool.processes import fork_server, workers

from ..accounting import BATCH, SHUFFLE, make_pool, planned_rows, source, whole
from ..hunting import all_workers, send, stop, wait_for
from ..mischief import AtRows, who_was_there
from ..tree import orphaned, state_of
from .stalls import POSITION

HANGS = "import os, time\nif os.environ.get('BATCHUP_NG_TEST_HANGS'):\n    time.sleep(3600)\n"


@contextlib.contextmanager
def interpreters_hang() -> Iterator[None]:
    """Let each interpreter that is started within hang before it gets to the worker's code."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(HANGS)
        path = os.environ["PYTHONPATH"]
        os.environ |= {"PYTHONPATH": f"{folder}{os.pathsep}{path}", "BATCHUP_NG_TEST_HANGS": "yes"}
        try:
            yield
        finally:
            os.environ |= {"PYTHONPATH": path, "BATCHUP_NG_TEST_HANGS": ""}


def told_of(act: Callable[[], object]) -> str:
    """Return what an error of ours says; an empty text if there is none."""
    try:
        act()
    except bu.BatchupError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        gc.collect()
    return ""


def hangs_in_start(kind: str) -> str:
    """F20: whatever is started first hangs before it gets to the worker's code; when it no longer does a pool works."""
    with interpreters_hang(), make_pool(kind, start_timeout=0.1) as pool:
        found = told_of(lambda: next(pool.work_stream(iter([(len, ("abc",))]))))
    with make_pool(kind) as pool:
        whole(pool)
    return found


def hangs_in_replacement(kind: str) -> str:
    """F20: all workers die, and what is to take their place hangs: the server of ``forkserver``, each new worker."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(make_pool(kind, start_timeout=30.0))  # which is also enough on a busy machine
        whole(pool)
        pids = all_workers(kind, 2)
        if kind == "forkserver":
            (server,) = psutil.Process().children()
            stop(server.pid)
        else:
            pool._dispatcher._schedule.start_timeout = 0.1
            stack.enter_context(interpreters_hang())
        for pid in pids:
            stop(pid)
            send(pid)
        found = told_of(lambda: whole(pool))
    with make_pool(kind) as pool:
        whole(pool)
    return found


def server_killed(kind: str) -> str:
    """F4, F20: the server that forks the workers is killed with a worker; the epoch completes or one error tells."""
    with make_pool(kind) as pool:
        whole(pool)
        (server,) = psutil.Process().children()

        def act(batch: int) -> None:
            if batch == 20:
                pids = all_workers(kind, 2)
                send(server.pid)
                send(pids[0])

        try:
            return f"completed {whole(pool, pause=0.002, buffer=4, at=act)}"
        except bu.WorkerDied as error:
            return f"{type(error).__name__}: {error}"


def hangs_in_close(kind: str, act: str, server_too: bool, patience: float) -> dict[int, str]:
    """F20: a pool is closed while both of its workers are stuck in samples, and the fork server, if asked, is stopped.

    Those that are stuck would never end by themselves: `patience` seconds after the close of the pool they are killed.

    Returns:
        What is left of the processes: their states, ``Z`` for a zombie. Of a worker whose server had to be killed
        nothing but what process 1 is to reap may be left, which does not count.
    """
    workers.CLOSE_TIMEOUT = workers.GRACE = patience
    pool = make_pool(kind)
    # In four batches, one after the other: a worker that is stuck in one may hold the next.
    rows = planned_rows()[POSITION : POSITION + 4 * BATCH : BATCH].tolist()
    with tempfile.TemporaryDirectory() as folder:
        parallel = pool.parallel_data_source(source(fault=AtRows(rows, act, folder)), 4)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
        for _ in range(POSITION // BATCH):
            next(iterator)

        def stuck() -> list[int]:
            return sorted(pid for row in rows if (pid := who_was_there(folder, row)) is not None)

        wait_for(lambda: len(stuck()) == 2, "both workers to be stuck")
        pids = all_workers(kind, 2)
        assert stuck() == pids
        if server_too:
            (server,) = psutil.Process().children()
            stop(server.pid)
            pids.append(server.pid)
            fork_server.give_back(fork_server._servers[0])  # by the program: the pool is its last user
        pool.close()

        def left() -> dict[int, str]:
            return {pid: state for pid in pids if (state := state_of(pid)) and not (server_too and orphaned(pid))}

        # What has to be killed is gone with close itself, not some time later; but when the server is killed as well
        # the ends of its workers are not reported.
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not left(), "their end", 120.0 if server_too else 0.0)
        return left()
