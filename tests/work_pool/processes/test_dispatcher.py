"""The dispatcher of the process pool: in which order it sees to what happens at once."""

from __future__ import annotations

import gc
import itertools
import os
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
from batchup_ng.work_pool.processes.shared_constants import SharedConstant
from batchup_ng.work_pool.processes.turn import Turn
from tests.messages import raises
from tests.work_pool.pool_tasks import time_is_up
from tests.work_pool.processes.serialization_helpers import ended, one, wait_until
from tests.work_pool.time_limits import only_what_hangs_is_late


def noted(file: Path) -> int:
    """Leave a line in `file`; return the number of this process."""
    with file.open("a") as lines:
        lines.write("done\n")
    return os.getpid()


def leave(code: int) -> None:
    os._exit(code)  # not sent as it is, for the measuring of coverage puts something of its own in its place


@contextmanager
def sees_deaths_first(pool: Any, pid: int) -> Iterator[None]:
    """The dispatcher looks up when the worker `pid` has ended, and not before; it hears of that first."""
    wire = pool._dispatcher._wire
    wait = wire.wait

    def late(seconds: float) -> Any:
        wait(seconds)
        wait_until(lambda: ended(pid))
        return wait(0)

    wire.wait = late
    try:
        yield
    finally:
        wire.wait = wait


def test_what_a_worker_sent_before_it_died_counts(tmp_path: Path) -> None:
    with bu.WorkerProcessPool(1) as pool:
        pid = one(pool, os.getpid)
        pool._dispatcher._schedule._mean = 0.01  # the worker gets both tasks at once, however long the first one took
        with sees_deaths_first(pool, pid):
            stream = pool.work_stream(iter([(noted, (tmp_path / "lines",)), (leave, (3,))]))
            assert stream.retrieve() == pid
            with raises(WorkerDied):
                stream.retrieve()
        stream.close()
    assert (tmp_path / "lines").read_text() == "done\n"


def test_time_limits_are_kept_while_messages_keep_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "SEARCH_SECONDS", 0.1)
    mark = tmp_path / "stuck"
    only_what_hangs_is_late(monkeypatch, mark)

    def stuck(x: np.ndarray) -> Any:
        if 7 in x:
            time_is_up(mark)
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
        # After t + 1 s, of which a loaded machine may make a minute; without a look it would be when the stream ends.
        most = threading.Timer(240, over.set)
        busy.start()
        most.start()
        try:
            with raises(bu.SampleTimeout):
                list(pool.parallel_data_source(source, timeout=0.3).batch_iterator(5))
            assert not over.is_set()
        finally:
            over.set()
            most.cancel()
            most.join()
            busy.join()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_results_that_were_read_as_the_dispatcher_failed_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*about: Any) -> Any:
        raise ValueError("a bug")

    with bu.WorkerProcessPool(1) as pool:
        one(pool, os.getpid)
        monkeypatch.setattr(dispatcher, "transport_and_room", failing)
        future = pool.submit((abs, (-3,), {}))  # nobody waits, so that the thread of the dispatcher reads
        wait_until(future.done)
        with raises(WorkerDied):
            future.result()
        with raises(WorkerDied):
            pool.submit((abs, (-3,), {}))


def held_up(file: Path) -> None:
    while not file.exists():
        time.sleep(0.005)


def test_a_consumer_that_reads_is_woken_if_another_thread_cancels_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The thread of the dispatcher leaves the turn to consumers.
    monkeypatch.setattr(Turn, "_relieved", property(lambda turn: True, lambda turn, value: None), raising=False)
    with bu.WorkerProcessPool(1) as pool:
        one(pool, os.getpid)
        futures = [pool.submit((held_up, (tmp_path / "go",), {})) for _ in range(6)]
        turn, closed = pool._dispatcher._turn, threading.Event()
        read, reads = turn._read, []

        def noted_read(seconds: float) -> None:
            reads.append(seconds)
            read(seconds)

        def consume() -> None:
            with pytest.raises(bu.PoolClosed):
                futures[-1].result()
            closed.set()

        turn._read = noted_read
        consumer = threading.Thread(target=consume)
        consumer.start()
        try:
            wait_until(lambda: reads)
            before = 0
            while before < len(reads):  # until no more messages come
                before = len(reads)
                time.sleep(0.2)
            assert futures[-1].cancel()
            assert closed.wait(240)  # no message comes before there is a file
        finally:
            (tmp_path / "go").touch()
            consumer.join()


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
        assert collected.wait(240)
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
