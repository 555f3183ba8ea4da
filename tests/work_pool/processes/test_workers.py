"""The worker processes of a pool: how they are started and replaced."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.processes import fork_server, workers
from batchup_ng.work_pool.processes.fork_server import ServerLauncher
from tests.messages import warns
from tests.work_pool.processes.serialization_helpers import ended, one, wait_until


@pytest.mark.in_turn
def test_results_arrive_while_a_worker_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHUP_NG_TESTS_OF_STARTS", "yes")  # a server of its own
    monkeypatch.setattr(fork_server, "ANSWER_TIMEOUT", 0.1)
    with bu.WorkerProcessPool(2, start_method="forkserver", start_timeout=1800.0) as pool:
        one(pool, os.getpid)
        first, second = pool._dispatcher.pids()
        starter = pool._dispatcher.workers.launcher
        assert isinstance(starter, ServerLauncher)
        os.kill(starter._server._process.pid, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: ended(first))
        # The server answers nothing: half an hour passes until it is given up. The other worker goes on.
        iterator = pool.parallel_data_source(bu.ArrayDataSource([np.arange(100)])).batch_iterator(1)
        assert [int(x[0]) for (x,) in iterator] == list(range(100))
        began = time.monotonic()
    # The worker ends at once, the server is killed after a second; it could have been waited for during half an hour.
    assert time.monotonic() - began < 600
    wait_until(lambda: ended(second))


def test_a_replacement_is_served_while_others_are_started() -> None:
    go_on, held = threading.Event(), threading.Event()
    with bu.WorkerProcessPool(3) as pool:
        one(pool, os.getpid)
        launcher = pool._dispatcher.workers.launcher
        start, starts = launcher.start, itertools.count()

        def slow() -> Any:
            if next(starts) == 1:
                held.set()
                go_on.wait(600)
            return start()

        launcher.start = slow  # type: ignore[method-assign]
        before = pool._dispatcher.pids()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: held.is_set() and not {*before} & {*pool._dispatcher.pids()})
        try:
            assert one(pool, os.getpid) not in before
            assert not go_on.is_set()
        finally:
            go_on.set()
        wait_until(lambda: len(pool._dispatcher.pids()) == 3)


def test_a_pool_that_goes_on_with_fewer_workers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "START_PAUSE", 0.02)
    again = threading.Event()
    with bu.WorkerProcessPool(2, start_method="forkserver") as pool:
        one(pool, os.getpid)
        starter = pool._dispatcher.workers.launcher
        start = starter.start

        def sometimes() -> Any:
            if not again.is_set():
                raise OSError(24, "no descriptors are left")
            return start()

        starter.start = sometimes  # type: ignore[method-assign]
        os.kill(pool._dispatcher.pids()[0], signal.SIGKILL)
        wait_until(lambda: pool._dispatcher.workers.degraded_reason)
        with warns(bu.WorkerWarning):
            assert one(pool, abs, -3) == 3
        again.set()
        wait_until(lambda: len(pool._dispatcher.pids()) == 2)


def test_a_collection_in_a_worker_leaves_what_it_shares_with_the_server_alone() -> None:
    with bu.WorkerProcessPool(1, start_method="forkserver") as pool:
        assert one(pool, gc.get_freeze_count) > 10_000  # the objects of all imported modules
