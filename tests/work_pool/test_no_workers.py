"""Where no worker can be kept alive no sample is to blame, and the pool works again when one can."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolBroken
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import ended, wait_until

from ..extent import quick

pytestmark = pytest.mark.filterwarnings("ignore:this pool goes on with:batchup_ng.WorkerWarning")
"""Which comes first, that there are fewer workers or that there is none, is for the system to say."""


class Plague:
    """Kills the worker processes of a pool, and each that is started in its place at once, while it rages.

    The pool hears nothing of one that was just started, which may have said already that it is ready for a task.
    """

    def __init__(self, pool: bu.WorkerProcessPool) -> None:
        self.rages = True
        self._pool = pool
        starter: Any = pool._dispatcher.workers.launcher
        self._start = starter.start
        starter.start = self

    def __call__(self) -> Any:
        process = self._start()
        if self.rages:
            os.kill(process.pid, signal.SIGKILL)
            wait_until(lambda: ended(process.pid))
            with contextlib.suppress(OSError):
                while process.sock.recv(4096):
                    pass
        return process

    def breaks_out(self) -> None:
        self.rages = True
        for pid in self._pool._dispatcher.pids():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)


def source() -> bu.AbstractDataSource:
    return bu.ArrayDataSource([np.arange(100)]).map(lambda x: (x, -x))


REPLACE = bu.ErrorPolicy("replace", retries=2)


@pytest.mark.parametrize(
    ("method", "on_error"),
    quick([("forkserver", "skip")], [("forkserver", "raise"), ("spawn", "raise"), ("forkserver", REPLACE)]),
)
def test_the_pool_works_again_when_its_workers_can_live(method: str, on_error: Any) -> None:
    with bu.WorkerProcessPool(2, start_method=method) as pool:
        plague = Plague(pool)
        parallel = pool.parallel_data_source(source(), 4, on_error=on_error)
        for _ in range(2):
            plague.breaks_out()
            with raises(PoolBroken):
                list(parallel.batch_iterator(8, shuffle=1))
            plague.rages = False
            with parallel.batch_iterator(8, shuffle=1) as iterator:
                assert np.sort(np.concatenate([x for x, _ in iterator])).tolist() == list(range(100))
                assert not iterator.errors


def test_a_state_after_it_goes_on_with_what_was_not_handed_out() -> None:
    with bu.WorkerProcessPool(1) as pool:
        plague = Plague(pool)
        parallel = pool.parallel_data_source(source())
        iterator = parallel.batch_iterator(8, shuffle=1)
        with pytest.raises(PoolBroken):
            next(iterator)
        state = iterator.state_dict()
        plague.rages = False
        assert sum(len(x) for x, _ in parallel.batch_iterator(8, shuffle=1, state=state)) == 100


def test_a_pool_without_workers_can_be_closed() -> None:
    pool = bu.WorkerProcessPool(1)
    Plague(pool)
    with pytest.raises((PoolBroken, bu.WorkerDied)):  # the latter where workers live until they are given the batch
        next(pool.parallel_data_source(source()).batch_iterator(8))
    pool.close()
    with pytest.raises(bu.PoolClosed):
        pool.work_stream(iter([(len, ("abc",))]))


@pytest.mark.parametrize("closes", quick([False], [True]))
def test_whoever_uses_the_pool_just_then_is_told_or_served(closes: bool) -> None:
    """Threads submit tasks all the time, while no worker lives and while they do: each gets its answer."""
    pool = bu.WorkerProcessPool(1)
    plague = Plague(pool)
    told: list[BaseException] = []
    served = [0]
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                served[0] += next(pool.work_stream(iter([(len, ("abc",))]))) == 3
            except (bu.WorkerDied, bu.PoolClosed) as error:
                told.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(2):
            before = len(told)
            plague.breaks_out()
            wait_until(lambda before=before: len(told) > before + 5)
            before, plague.rages = served[0], False
            wait_until(lambda before=before: served[0] > before + 20)
    finally:
        if closes:
            pool.close()
        over.set()
        for thread in threads:
            thread.join(120)
        pool.close()
    assert not any(thread.is_alive() for thread in threads)
    assert any(isinstance(error, PoolBroken) for error in told)
    assert closes or not any(isinstance(error, bu.PoolClosed) for error in told)


def test_nobody_waits_for_a_dispatcher_that_another_thread_has_just_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was refused, for all was to begin anew, comes back when somebody else has done that."""
    with bu.WorkerProcessPool(1) as pool:
        assert next(pool.work_stream(iter([(len, ("abc",))]))) == 3
        submitted = pool._dispatcher._try_submit
        refused = iter([True])
        monkeypatch.setattr(
            pool._dispatcher, "_try_submit", lambda future: not next(refused, False) and submitted(future)
        )
        given: list[int] = []
        thread = threading.Thread(target=lambda: given.append(next(pool.work_stream(iter([(len, ("abcd",))])))))
        thread.start()
        thread.join(120)
        assert given == [4]
