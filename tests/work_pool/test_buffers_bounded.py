"""A stream never makes more ahead than its buffer holds, and 200 loops that are broken off change nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_no_more_batches_are_made_than_the_buffer_holds(size: int) -> None:
    made, most = 0, 0
    delivered = 0
    lock = threading.Lock()

    def count(i: Any) -> Any:
        nonlocal made, most
        with lock:
            made += 1
            most = max(most, made - delivered)
        return (i,)

    source = bu.ArrayDataSource([np.arange(300)]).map(count)
    with bu.WorkerThreadPool(3) as pool:
        for _ in pool.parallel_data_source(source, size).batch_iterator(3):
            with lock:
                delivered += 1
    assert made == 100
    # A batch counts as delivered here a moment after the iterator has handed it out and asked for the next.
    assert most <= size + 1


@pytest.mark.parametrize("make", [bu.SerialPool, lambda: bu.WorkerThreadPool(2), lambda: bu.WorkerProcessPool(2)])
def test_200_broken_loops_change_nothing(make: Any) -> None:
    def held() -> tuple[int, int, int]:
        me = psutil.Process()
        # The thread that moves copies to huge pages comes and goes, a second after the last copy.
        lasting = [thread for thread in threading.enumerate() if thread.name != "batchup_ng-huge-pages"]
        return len(lasting), me.num_fds(), len(me.children(recursive=True))

    with make() as pool:
        run_and_break(pool, 3)
        before, memory = held(), psutil.Process().memory_info().rss
        run_and_break(pool, 200)
        assert held() == before
        # Twenty buffered batches hold 16 MB; a loop that kept only one of them would keep 160 MB in all.
        assert psutil.Process().memory_info().rss - memory < 64 << 20
        assert sum(len(i) for i, _ in pool.parallel_data_source(big()).batch_iterator(4)) == 100


def big() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(100), np.zeros((100, 25_000))])


def run_and_break(pool: AbstractWorkerPool, times: int) -> None:
    parallel = pool.parallel_data_source(big(), 20)
    for n in range(times):
        for i, _ in parallel.batch_iterator(4):
            if i[0] >= 4 * (n % 3):
                break


@pytest.mark.parametrize("make", [lambda: bu.WorkerThreadPool(1), lambda: bu.WorkerProcessPool(1)])
def test_a_loop_that_is_broken_off_cancels_what_it_had_queued(make: Any, tmp_path: Path) -> None:
    with make() as pool:
        tasks = ((note, (str(tmp_path / str(i)),)) for i in range(100))
        for _ in pool.work_stream(tasks, task_buffer_size=50).retrieve_iter():
            break
        # The next task waits its turn behind what was queued and not cancelled.
        assert next(pool.work_stream(iter([(note, (str(tmp_path / "last"),))])))
    assert len(list(tmp_path.iterdir())) < 10


def note(path: str) -> bool:
    """Leave a trace, slowly enough that the consumer is faster."""
    time.sleep(0.02)
    Path(path).touch()
    return True


def test_the_generator_of_a_broken_loop_is_closed() -> None:
    closed = []

    def tasks() -> Any:
        try:
            while True:
                yield (len, ("abc",))
        finally:
            closed.append(True)

    with bu.WorkerThreadPool(1) as pool:
        pool.work_stream(tasks()).close()
    assert closed == [True]
