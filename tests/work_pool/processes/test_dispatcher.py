"""The dispatcher of the process pool: in which order it sees to what happens at once."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import WorkerDied
from batchup_ng.work_pool import rereading
from batchup_ng.work_pool.processes import dispatcher
from batchup_ng.work_pool.processes.dispatcher import Dispatcher
from batchup_ng.work_pool.processes.fork_server import ServerLauncher
from batchup_ng.work_pool.processes.shared_constants import SharedConstant
from tests.work_pool.processes.serialization_helpers import one, wait_until


def noted(file: Path) -> int:
    """Leave a line in `file`; return the number of this process."""
    with file.open("a") as lines:
        lines.write("done\n")
    return os.getpid()


def leave(code: int) -> None:
    os._exit(code)  # not sent as it is, for the measuring of coverage puts something of its own in its place


def ended(pid: int) -> bool:
    """Return whether a process runs no more, though its parent may not have waited for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second if it goes while it is read
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


@contextmanager
def sees_deaths_first(pool: Any, pid: int) -> Iterator[None]:
    """The dispatcher looks up when the worker `pid` has ended, and not before; it hears of that first."""
    poll = pool._dispatcher._poll
    wait = poll.wait

    def late(seconds: float | None) -> list[Any]:
        wait(seconds)
        wait_until(lambda: ended(pid))
        found: list[Any] = wait(0)
        return sorted(found, key=lambda what: what is None or not what[1])

    poll.wait = late
    try:
        yield
    finally:
        poll.wait = wait


def test_what_a_worker_sent_before_it_died_counts(tmp_path: Path) -> None:
    with bu.WorkerProcessPool(1) as pool:
        pid = one(pool, os.getpid)
        with sees_deaths_first(pool, pid):
            stream = pool.work_stream(iter([(noted, (tmp_path / "lines",)), (leave, (3,))]))
            assert stream.retrieve() == pid
            with pytest.raises(WorkerDied, match="exited with code 3 while running this task"):
                stream.retrieve()
        stream.close()
    assert (tmp_path / "lines").read_text() == "done\n"


def test_a_consumer_that_waits_reads_results_itself_and_the_dispatcher_does_while_it_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = set()
    receive = Dispatcher._receive

    def noting(self: Dispatcher, worker: Any, frames: Any) -> None:
        readers.add(threading.get_ident())
        receive(self, worker, frames)

    monkeypatch.setattr(Dispatcher, "_receive", noting)

    def slow(x: np.ndarray) -> Any:
        time.sleep(0.01)
        return (x,)

    source = bu.ArrayDataSource([np.arange(100)]).map(slow)
    with bu.WorkerProcessPool(1) as pool:
        iterator = pool.parallel_data_source(source, batch_buffer_size=5).batch_iterator(1)
        for _ in range(10):
            next(iterator)
        assert threading.get_ident() in readers
        wait_until(lambda: iterator.stats()["buffered"] >= 4)
        readers.clear()
        next(iterator)  # others are there, so that this one waits for nothing
        wait_until(lambda: iterator.stats()["buffered"] >= 4)
        assert threading.get_ident() not in readers


def test_a_pool_that_is_closed_by_the_collector_in_mid_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Dispatcher._receive
    me = threading.get_ident()
    with bu.WorkerProcessPool(1) as pool:
        one(pool, os.getpid)

        def closing(self: Dispatcher, worker: Any, frames: Any) -> None:
            if threading.get_ident() == me:
                pool.close()
            receive(self, worker, frames)

        monkeypatch.setattr(Dispatcher, "_receive", closing)
        naps = pool.work_stream((time.sleep, (0.001,)) for _ in range(1000))
        with pytest.raises(bu.PoolClosed):
            list(naps.retrieve_iter())  # until this thread is the one that reads


def test_a_fork_does_not_read_what_workers_send_to_its_parent() -> None:
    with bu.WorkerProcessPool(1) as pool:
        job = pool.submit((time.sleep, (0.3,), {}))
        child = os.fork()
        if child == 0:
            try:
                job.wait(10.0)
            except bu.PoolClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert job.result() is None


def test_time_limits_are_kept_while_messages_keep_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "SHORT", 0.1)

    def stuck(x: np.ndarray) -> Any:
        if 7 in x:
            time.sleep(600)
        return (x,)

    source = bu.ArrayDataSource([np.arange(40)]).map(stuck)
    over = threading.Event()
    with bu.WorkerProcessPool(2) as pool:
        one(pool, os.getpid)

        def keep_it_busy() -> None:
            stream = pool.work_stream((abs, (i,)) for i in itertools.count())
            while not over.is_set():
                stream.retrieve()
            stream.close()

        busy = threading.Thread(target=keep_it_busy)
        # After t + 1 s, of which a loaded machine may make more; without a look it would be when the stream ends.
        most = threading.Timer(15, over.set)
        busy.start()
        most.start()
        try:
            with pytest.raises(bu.SampleTimeout, match="row 7"):
                list(pool.parallel_data_source(source, timeout=0.3).batch_iterator(5))
            assert not over.is_set()
        finally:
            over.set()
            most.cancel()
            most.join()
            busy.join()


def test_results_arrive_while_a_worker_cannot_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHUP_NG_TESTS_OF_STARTS", "yes")  # a server of its own
    with bu.WorkerProcessPool(2, start_method="forkserver") as pool:
        one(pool, os.getpid)
        first, second = pool._dispatcher.pids()
        starter = pool._dispatcher._launcher
        assert isinstance(starter, ServerLauncher)
        os.kill(starter._server._process.pid, signal.SIGSTOP)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: ended(first))
        # The server answers nothing: a minute passes until it is given up. The other worker goes on.
        iterator = pool.parallel_data_source(bu.ArrayDataSource([np.arange(100)])).batch_iterator(1)
        assert [int(x[0]) for (x,) in iterator] == list(range(100))
        began = time.monotonic()
    # The worker ends at once, the server is killed after a second; it could have been waited for during a minute.
    assert time.monotonic() - began < 40
    assert ended(second)


def test_a_replacement_is_served_while_others_are_started() -> None:
    go_on, held = threading.Event(), threading.Event()
    with bu.WorkerProcessPool(3) as pool:
        one(pool, os.getpid)
        launcher = pool._dispatcher._launcher
        start, starts = launcher.start, itertools.count()

        def slow() -> Any:
            if next(starts) == 1:
                held.set()
                go_on.wait(60)
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


def test_a_forgotten_prefetch_is_collected_wherever_the_collector_runs() -> None:
    def batches(batch_size: int) -> Iterator[Any]:
        for i in itertools.count():
            yield (np.full(batch_size, i),)

    with bu.WorkerProcessPool(1) as pool:
        iterator = pool.prefetch(bu.CallableDataSource(batches)).batch_iterator(5)
        assert next(iterator)[0].tolist() == [0] * 5
        (producing,) = [producer._dispatcher for producer in pool._producers]
        iterator.itself = iterator  # type: ignore[attr-defined]  # a cycle, which only the collector ends
        collected = threading.Event()

        def collect_in_mid_work() -> None:
            with producing._lock:
                gc.collect()
            collected.set()

        del iterator
        thread = threading.Thread(target=collect_in_mid_work, daemon=True)
        thread.start()
        assert collected.wait(20)
        thread.join()
        wait_until(lambda: producing._closed)


def test_slots_become_smaller_when_results_do() -> None:
    constant, large, small = SharedConstant(None), 1 << 20, 1 << 19
    for times, least, most in ((1, large, large), (100, 0.9 * large, large - 1), (1000, small, small)):
        for _ in range(times):  # at first sizes that vary have room
            constant.saw(large if times == 1 else small)
        assert least <= constant.slot_bytes <= most
    constant.saw(small + 1)
    assert constant.slot_bytes == small + 1


def test_a_pool_that_goes_on_with_fewer_workers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "START_PAUSE", 0.02)
    again = threading.Event()
    with bu.WorkerProcessPool(2, start_method="forkserver") as pool:
        one(pool, os.getpid)
        starter = pool._dispatcher._launcher
        start = starter.start

        def sometimes() -> Any:
            if not again.is_set():
                raise OSError(24, "no descriptors are left")
            return start()

        starter.start = sometimes  # type: ignore[method-assign]
        os.kill(pool._dispatcher.pids()[0], signal.SIGKILL)
        wait_until(lambda: pool._dispatcher.degraded_reason)
        with pytest.warns(bu.WorkerWarning, match=r"1 of 2 .*no descriptors are left; that is tried again"):
            assert one(pool, abs, -3) == 3
        again.set()
        wait_until(lambda: len(pool._dispatcher.pids()) == 2)
