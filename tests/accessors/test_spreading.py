"""Work is shared with idle threads of a pool, and done when it returns."""

import threading
import time

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.spreading import lender, spread
from batchup_ng.work_pool.fair_queue import FairQueue
from batchup_ng.work_pool.task import Submission, current
from tests.messages import raises

PATIENCE = 600
"""Seconds that one thread waits for another at most; it comes at once, unless the machine is busy."""


class Slow:
    """An accessor whose rows two threads must read together."""

    dtype = np.dtype(np.int64)

    def __init__(self, n, parties=2):
        self.shape = (n,)
        self.together = threading.Barrier(parties, timeout=PATIENCE)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        out = np.empty(len(rows), self.dtype)
        self.read_into(rows, out)
        return out

    def read_into(self, rows, out):
        def read(place):
            self.together.wait()
            out[place] = rows[place]

        spread(read, len(rows))


def test_idle_threads_take_part():
    source = bu.ArrayDataSource([Slow(8)])
    with bu.WorkerThreadPool(2) as pool:
        batches = pool.parallel_data_source(source).batch_iterator(8)
        assert next(batches)[0].tolist() == list(range(8))


def test_without_a_pool_the_calling_thread_does_it_all():
    threads = []
    spread(lambda place: threads.append((place, threading.current_thread())), 3)
    assert threads == [(place, threading.current_thread()) for place in range(3)]
    spread(threads.append, 0)


@pytest.fixture
def lent():
    """Let this thread borrow three threads."""
    started = []

    class Borrowed(threading.Thread):
        def cancel(self):
            return False

        result = threading.Thread.join

    def lend(work, most):
        made = [Borrowed(target=work) for _ in range(min(3, most))]
        started.extend(made)
        for thread in made:
            thread.start()
        return made

    lender.lend = lend
    yield started
    del lender.lend


def test_the_first_error_in_order_is_raised_and_nothing_works_on(lent):
    done = set()

    def work(place):
        if place == 7:
            raise KeyError(7)
        if place == 6:
            time.sleep(0.05)  # so that 7 fails first
            raise ValueError(6)
        done.add(place)

    with raises(ValueError):
        spread(work, 100)
    assert set(range(6)) <= done
    assert not any(thread.is_alive() for thread in lent)


def test_each_place_is_done_once(lent):
    counts = np.zeros(1000, int)

    def work(place):
        counts[place] += 1

    spread(work, 1000)
    assert (counts == 1).all()


def test_those_that_have_not_begun_are_let_be():
    """One thread is kept busy, the other has the batch: nobody is waited for."""
    busy, go_on = threading.Event(), threading.Event()

    def keep():
        busy.set()
        assert go_on.wait(PATIENCE)

    class Alone(Slow):
        def read_into(self, rows, out):
            spread(lambda place: out.__setitem__(place, rows[place]), len(rows))

    with bu.WorkerThreadPool(2) as pool:
        stream = pool.work_stream(iter([(keep,)]))
        assert busy.wait(PATIENCE)
        batches = pool.parallel_data_source(bu.ArrayDataSource([Alone(8)])).batch_iterator(8)
        assert next(batches)[0].tolist() == list(range(8))
        go_on.set()
        stream.retrieve()


def test_a_thread_that_helps_for_too_long_is_given_up_and_replaced():
    release = threading.Event()

    class Stuck(Slow):
        def read_into(self, rows, out):
            spread(lambda place: release.wait(PATIENCE), len(rows))

    with bu.WorkerThreadPool(2) as pool:
        source = bu.ArrayDataSource([Stuck(2)])
        batches = pool.parallel_data_source(source, timeout=0.2).batch_iterator(2)
        with pytest.raises(bu.SampleTimeout):
            next(batches)
        assert list(pool.work_stream(iter([(len, ("abc",))] * 4))) == [3] * 4
        release.set()


def test_tasks_may_be_queued_while_those_that_wait_are_counted(monkeypatch):
    class Interrupted(FairQueue):
        def __iter__(self):
            for item in super().__iter__():
                if not others:  # else closing the pool, which looks through what still waits, would queue one more
                    other = threading.Thread(target=pool.submit, args=((len, ("abc",), {}), Submission(flow_id=1)))
                    others.append(other)
                    other.start()
                    other.join(0.1)
                yield item

    others = []
    busy, go_on = threading.Event(), threading.Event()

    def keep():
        busy.set()
        assert go_on.wait(PATIENCE)

    with bu.WorkerThreadPool(1) as pool:
        first = pool.submit((keep, (), {}))
        assert busy.wait(PATIENCE)
        pool._workers._waiting = Interrupted()
        second = pool.submit((len, ("abc",), {}))
        monkeypatch.setattr(current, "future", first, raising=False)  # as in a task
        try:
            assert pool._workers.lend(lambda: None, 1) == []
        finally:
            go_on.set()
        first.result()
        assert second.result() == 3
        for other in others:
            other.join()


class TogetherInAProcess(Slow):
    """As `Slow`, for worker processes, each of which has a barrier of its own, made before a thread asks for it."""

    def __reduce__(self):
        return TogetherInAProcess, (len(self),)


def test_threads_of_a_worker_process_take_part():
    with bu.WorkerProcessPool(1, threads=2) as pool:
        batches = pool.parallel_data_source(bu.ArrayDataSource([TogetherInAProcess(8)])).batch_iterator(8)
        assert next(batches)[0].tolist() == list(range(8))
