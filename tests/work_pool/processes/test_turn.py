"""Who reads the messages of workers: the turn in a simulated world (M6), and in a real pool."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import batchup_ng as bu
from batchup_ng.work_pool import task
from batchup_ng.work_pool.processes import future as futures
from batchup_ng.work_pool.processes import turn as turns
from batchup_ng.work_pool.processes.dispatcher import Dispatcher
from batchup_ng.work_pool.processes.future import NO_CALL, REST_SECONDS, ProcessFuture
from batchup_ng.work_pool.processes.turn import Turn
from tests.extent import quick
from tests.work_pool.processes.serialization_helpers import one, wait_until

from .simulated_threads import SimulatedThread, World

SOON = 2 * REST_SECONDS + 1e-9
"""Seconds after which somebody reads again: a nap of the dispatcher's thread, and another if a consumer came in it."""

SHORT = 0.01
"""Seconds of a short wait. At its end its consumer reads no more."""


class Struck(Exception):
    """What the handler of a signal raises."""


class Fault(Exception):
    """What reading raises if the dispatcher has a bug."""


class Held:
    """Holds back the signals of a simulated thread, as :class:`batchup_ng.signals.InterruptsHeld` does."""

    def __init__(self, pool: Pool, noted: Any) -> None:
        self._pool = pool
        self._noted = noted
        self.came: dict[int, None] = {}

    def __enter__(self) -> Held:
        self._thread = self._pool.world.current
        self._outer = self._pool.held.get(self._thread)
        self._pool.held[self._thread] = self
        return self

    def note(self) -> None:
        self.came[1] = None
        self._noted()

    def __exit__(self, *exc: object) -> None:
        self._pool.held[self._thread] = self._outer
        if self.came and not self._pool.world.over:
            raise Struck


class Pool:
    """A turn with what is around it: messages that arrive, a dispatcher's thread, consumers."""

    def __init__(self) -> None:
        self.world = World(turns, futures, task)
        self.held: dict[SimulatedThread | None, Held | None] = {}
        self.world.replace(turns, "InterruptsHeld", lambda noted: Held(self, noted))
        self.turn = Turn(self.read, self.wake)
        self.reader: SimulatedThread | None = None
        self.readers: list[SimulatedThread] = []  # of the results, in their order
        self.arrived: list[ProcessFuture] = []  # their results have arrived, and nobody has read them
        self.under_way: list[ProcessFuture] = []
        self.waiting: dict[SimulatedThread, ProcessFuture] = {}
        self.numbers = itertools.count()
        self.woken = self.has_fault = False
        self.open()

    # -- what the dispatcher and the wire do -------------------------------------------------------------------

    def open(self) -> None:
        self.turn.open = True
        self.thread = self.world.start(lambda: self.turn.stand_in(self.leave))

    def read(self, seconds: float) -> None:
        me = self.world.current
        assert me is not None
        assert self.reader is None, "two threads read at once"
        assert self.turn.is_mine()
        self.reader = me
        try:
            self.world.wait(lambda: self.woken or bool(self.arrived), seconds)
            self.woken = False
            try:
                if self.has_fault:
                    raise Fault
                while self.arrived:
                    me.pause()
                    self.readers.append(me)
                    self.arrived[0].set_result(None)
                    self.arrived.pop(0)
            except BaseException:
                self.turn.open = False
                raise
        finally:
            self.reader = None

    def leave(self) -> None:
        assert self.reader is None
        assert self.turn.is_mine()
        for each in [*self.under_way, *self.arrived]:
            if not each.done():
                each.set_exception(bu.PoolClosed("it was closed"))
        self.under_way.clear()
        self.arrived.clear()
        self.turn.open = self.has_fault = False

    def wake(self) -> None:
        self.woken = True

    # -- what happens ------------------------------------------------------------------------------------------

    def submit(self) -> ProcessFuture:
        made = ProcessFuture(task.ONCE, NO_CALL)
        made.number, made.serve, made.wake = next(self.numbers), self.turn.serve, self.turn._wake
        self.under_way.append(made)
        return made

    def consume(self, made: ProcessFuture, seconds: float = task.FOREVER) -> SimulatedThread:
        """Return a thread that waits for a result."""
        thread = self.world.start(lambda: made.wait(seconds))
        self.waiting[thread] = made
        return thread

    def arrive(self, made: ProcessFuture) -> None:
        self.under_way.remove(made)
        self.arrived.append(made)

    def signal(self, thread: SimulatedThread) -> None:
        """Send a signal whose handler raises."""
        held = self.held.get(thread)
        if held is not None:
            held.note()
        else:
            thread.strike = Struck()

    def close(self) -> None:
        self.turn.open = False
        self.wake()

    def settle(self, seconds: float = SOON) -> None:
        self.world.settle(seconds)
        if self.turn.open and seconds >= SOON:
            assert self.reader is not None, "nobody reads"
            assert not self.arrived, "a result is read by nobody"
        if not self.turn.open and seconds >= SOON:
            assert self.thread.done, "a pool that was closed is not left"
        for thread, made in self.waiting.items():
            assert thread.done or not made.done(), "a consumer sleeps though its result is there"

    def check_owner(self) -> None:
        owner = self.turn._lock.owner
        assert owner is None or not owner.done, "a thread that has ended has the turn"
        assert self.reader is None or self.reader is owner


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool()
    yield made
    made.world.close()


# -- in a simulated world ----------------------------------------------------------------------------------------


def test_a_consumer_takes_the_turn_as_soon_as_the_dispatchers_thread_has_read_a_message(pool: Pool) -> None:
    pool.settle()
    assert pool.reader is pool.thread
    first, second, third = pool.submit(), pool.submit(), pool.submit()
    consumer = pool.world.start(lambda: [each.wait(task.FOREVER) for each in (first, second, third)])
    pool.settle()
    assert pool.reader is pool.thread, "which is not woken for a consumer"
    for each in (first, second, third):
        pool.arrive(each)
        pool.thread.run()
        pool.settle(0.0)
        assert consumer.done or pool.reader is consumer
    assert consumer.error is None
    assert pool.readers == [pool.thread, consumer, consumer]
    pool.settle()
    assert pool.reader is pool.thread


def test_a_consumer_reads_for_those_that_sleep_and_one_of_them_goes_on(pool: Pool) -> None:
    made = [pool.submit() for _ in range(3)]
    consumers = [pool.consume(each) for each in made]
    for consumer in consumers:  # before the thread of the dispatcher has run
        consumer.run()
    assert pool.reader is consumers[0]
    pool.arrive(made[1])
    pool.settle()
    assert consumers[1].done
    assert pool.reader is consumers[0]
    pool.arrive(made[0])
    pool.settle(100.0)
    assert consumers[0].done
    assert pool.reader is not None
    pool.arrive(made[2])
    pool.settle(0.0)
    assert [consumer.error for consumer in consumers] == [None] * 3


def test_a_reader_whose_time_is_up_gives_up_the_turn(pool: Pool) -> None:
    made = pool.submit()
    consumer = pool.consume(made, SHORT)
    consumer.run()
    assert pool.reader is consumer
    pool.settle(SHORT + SOON)
    assert consumer.done
    assert not made.done()


def test_the_dispatchers_thread_sleeps_while_a_consumer_reads_messages_for_others(pool: Pool) -> None:
    first, second, *others = [pool.submit() for _ in range(10)]
    consumer = pool.world.start(lambda: [each.wait(task.FOREVER) for each in (first, second)])
    consumer.run()
    for each in [*others, first]:
        pool.arrive(each)
        consumer.run()
        pool.settle(REST_SECONDS / 2)
        assert pool.thread.until < math.inf, "it would take the turn from the consumer"
    assert pool.reader is consumer, "which waits for the second"
    assert set(pool.readers) == {consumer}


def test_an_exception_at_any_line_of_serve_leaves_the_turn_free() -> None:
    for lines in itertools.count():
        pool = Pool()
        try:
            made = pool.submit()
            consumer = pool.consume(made)
            for _ in range(lines):
                if not consumer.able and not consumer.done:
                    pool.arrive(made)
                consumer.go_on()
            if consumer.done:
                break
            consumer.strike = Struck()
            pool.settle()
            assert isinstance(consumer.error, Struck) or made.done()
            pool.check_owner()
            assert pool.reader is (pool.thread if pool.turn.open else None)  # in mid-read it breaks the pool
        finally:
            pool.world.close()
    assert lines > 25


def test_a_reader_that_asks_for_a_result_while_it_reads_does_not_read_twice(pool: Pool) -> None:
    made = pool.submit()
    read = pool.read

    def collecting(seconds: float) -> None:
        if pool.world.current is consumer:
            assert pool.turn.is_mine()
            pool.turn.serve(made, math.inf)  # as the garbage collector may call it
        read(seconds)

    pool.turn._read = collecting
    consumer = pool.consume(made)
    consumer.run()
    assert pool.reader is consumer
    pool.arrive(made)
    pool.settle()
    assert consumer.error is None


class SimulatedTurn(RuleBasedStateMachine):
    """All threads, message by message and line by line, in any order."""

    @initialize()
    def make(self) -> None:
        self.pool = Pool()

    def consumers(self) -> list[SimulatedThread]:
        return [thread for thread in self.pool.waiting if not thread.done]

    @rule(seconds=st.sampled_from([task.FOREVER, task.FOREVER, 0.001, SHORT]))
    def wait(self, seconds: float) -> None:
        if self.pool.turn.open and len(self.consumers()) < 4:
            self.pool.consume(self.pool.submit(), seconds)

    @precondition(lambda self: self.pool.under_way)
    @rule(data=st.data())
    def wait_again(self, data: st.DataObject) -> None:
        """Two threads may wait for one result, or one again after an interrupt."""
        if len(self.consumers()) < 4:
            self.pool.consume(data.draw(st.sampled_from(self.pool.under_way)))

    @precondition(lambda self: self.pool.under_way)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.pool.arrive(data.draw(st.sampled_from(self.pool.under_way)))

    @precondition(lambda self: any(thread.able for thread in self.pool.world.threads))
    @rule(data=st.data(), lines=st.integers(1, 30))
    def run(self, data: st.DataObject, lines: int) -> None:
        thread = data.draw(st.sampled_from([each for each in self.pool.world.threads if each.able]))
        for _ in range(lines):
            if thread.able:
                thread.go_on()
                self.pool.check_owner()

    @rule(seconds=st.sampled_from([0.0005, 0.0021, 0.1]))
    def pass_time(self, seconds: float) -> None:
        self.pool.world.now += seconds

    @precondition(lambda self: self.consumers())
    @rule(data=st.data(), held=st.booleans())
    def strike(self, data: st.DataObject, held: bool) -> None:
        """A signal comes, or one that is not held back."""
        thread = data.draw(st.sampled_from(self.consumers()))
        if held:
            self.pool.signal(thread)
        else:
            thread.strike = Struck()

    @rule(rarely=st.integers(0, 9))
    def fail(self, rarely: int) -> None:
        if rarely == 0 and self.pool.turn.open:
            self.pool.has_fault = True
            self.pool.wake()

    @rule(rarely=st.integers(0, 4))
    def close(self, rarely: int) -> None:
        if rarely == 0:
            self.pool.close()

    @precondition(lambda self: self.pool.thread.done)
    @rule()
    def open_again(self) -> None:
        self.pool.open()

    @rule()
    def settle(self) -> None:
        self.pool.settle(SHORT + SOON)

    @invariant()
    def the_turn_is_nobodys_or_of_one_that_runs(self) -> None:
        self.pool.check_owner()

    @invariant()
    def threads_end_only_as_they_should(self) -> None:
        for thread in self.pool.world.threads:
            assert thread.error is None or type(thread.error) in (Struck, Fault), thread.error

    def teardown(self) -> None:
        """Whatever happened, results are handed over, and a close ends all."""
        if not hasattr(self, "pool"):
            return
        try:
            for made in list(self.pool.under_way):
                self.pool.arrive(made)
            self.pool.settle(SHORT + SOON)
            assert not self.consumers()
            self.pool.close()
            self.pool.settle(SOON)
            assert self.pool.thread.done
            assert self.pool.turn._lock.owner is None
        finally:
            self.pool.world.close()


@pytest.mark.parametrize("examples", quick([30], [2000]))
def test_m6_whatever_happens_in_the_simulated_world_somebody_reads(examples: int) -> None:
    run_state_machine_as_test(
        SimulatedTurn, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None)
    )


# -- in a real pool ------------------------------------------------------------------------------------------------


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

    source = bu.ArrayDataSource([np.arange(100)], repeats=-1).map(slow)
    with bu.WorkerProcessPool(1) as pool:
        iterator = pool.parallel_data_source(source, batch_buffer_size=5).batch_iterator(1)
        for _ in range(5000):  # sooner or later this thread waits for a batch
            next(iterator)
            if threading.get_ident() in readers:
                break
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
        naps = pool.work_stream((time.sleep, (0.001,)) for _ in itertools.count())
        with pytest.raises(bu.PoolClosed):
            for _ in naps.retrieve_iter():  # until this thread is the one that reads
                pass


def test_a_fork_does_not_read_what_workers_send_to_its_parent(tmp_path: Path) -> None:
    def held_up(file: Path) -> None:
        while not file.exists():
            time.sleep(0.005)

    with bu.WorkerProcessPool(1) as pool:
        future = pool.submit((held_up, (tmp_path / "go",), {}))
        child = os.fork()
        if child == 0:
            try:
                future.wait(10.0)
            except bu.PoolClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        (tmp_path / "go").touch()
        assert future.result() is None
