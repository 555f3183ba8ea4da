"""The state machine on real processes: anything may be done to a pool in any order (M2)."""

from __future__ import annotations

import gc
import random
import signal
import threading
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import batchup_ng as bu

from ...left import Left, left_since
from ..accounting import BATCH, PROCESSES, SHUFFLE, SIZES, assert_reported, differences, make_pool, reference, source
from ..hunting import all_workers, send, worker_pids
from ..mischief import AtRows

KILLS = 2
"""Workers that are killed, idle or not; a third in a row that was idle might make the pool of one give up."""

ROWS = 140
"""Rows of an epoch: twenty batches, so that some epochs end within the steps of an example."""


class Epoch:
    """An epoch under way beside what it must give."""

    def __init__(self, pool: Any, number: int, size: str, bad: list[int]) -> None:
        fault = AtRows(bad, "raise") if bad else None
        options = {"on_error": "skip"} if bad else {}
        parallel = pool.parallel_data_source(source(SIZES[size], fault=fault, n=ROWS), 5, **options)
        self.number = number
        self.bad = bad
        self.iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=number)
        self._expected = reference(SIZES[size], epoch=number, n=ROWS)
        self.ended = False

    def take(self, n: int) -> None:
        """Take `n` batches, or as many as there are, and look at each."""
        for _ in range(n):
            batch, should = next(self.iterator, None), self._next_expected()
            if should is None:
                assert batch is None, f"epoch {self.number} did not end"
                assert_reported(self.iterator, self.bad, self.number, ROWS)
                self.ended = True
                return
            assert batch is not None, f"epoch {self.number} ended early"
            assert not (wrong := differences(batch, should)), f"epoch {self.number}: {wrong}"

    def _next_expected(self) -> Any:
        for batch in self._expected:
            keep = [row not in self.bad for row in batch[0].tolist()]
            if any(keep):
                return tuple([part[keep] for part in batch])
        return None


class PoolMachine(RuleBasedStateMachine):
    """A pool to which things are done: its epochs stay right, its workers stay as many, its end leaves nothing."""

    kinds = PROCESSES

    @initialize(kind=st.sampled_from(PROCESSES), workers=st.integers(1, 3))
    def open(self, kind: str, workers: int) -> None:
        self.before = Left()
        self.kind, self.workers = kind, workers
        self.pool = make_pool(kind, workers)
        self.epochs: list[Epoch] = []
        self.timers: list[threading.Timer] = []
        self.kills = self.made = 0

    @precondition(lambda self: len(self.epochs) < 3)
    @rule(size=st.sampled_from(sorted(SIZES)), bad=st.sets(st.integers(0, ROWS - 1), max_size=2))
    def new_epoch(self, size: str, bad: set[int]) -> None:
        self.epochs.append(Epoch(self.pool, self.made, size, sorted(bad)))
        self.made += 1

    @precondition(lambda self: self.epochs)
    @rule(which=st.integers(0, 2), n=st.integers(1, 9))
    def take(self, which: int, n: int) -> None:
        epoch = self.epochs[which % len(self.epochs)]
        epoch.take(n)
        if epoch.ended:
            self.epochs.remove(epoch)

    @precondition(lambda self: self.kills < KILLS)
    @rule(which=st.integers(0, 2))
    def kill(self, which: int) -> None:
        # Counted by the tries, so that which rules may follow depends on nothing but the rules before.
        self.kills += 1
        pids = worker_pids(self.kind)
        if pids:
            send(pids[which % len(pids)])

    @rule(which=st.integers(0, 2), seconds=st.floats(0.0, 0.03))
    def stop_for_a_while(self, which: int, seconds: float) -> None:
        pids = worker_pids(self.kind)
        if pids and send(pid := pids[which % len(pids)], signal.SIGSTOP):
            timer = threading.Timer(seconds, send, (pid, signal.SIGCONT))
            timer.start()
            self.timers.append(timer)

    @precondition(lambda self: self.epochs)
    @rule(which=st.integers(0, 2), close=st.booleans())
    def break_off(self, which: int, close: bool) -> None:
        epoch = self.epochs.pop(which % len(self.epochs))
        if close:
            epoch.iterator.close()

    @rule(n=st.integers(1, 8), fails=st.booleans())
    def tasks(self, n: int, fails: bool) -> None:
        stream = self.pool.work_stream(((task, (i, fails and i == n - 1)) for i in range(n)), 3)
        for i in range(n):
            allowed = [i * i] if not (fails and i == n - 1) else ["LookupError"]
            # A task is not run twice; it may be lost where a worker was killed, before or meanwhile.
            allowed += ["WorkerDied"] * bool(self.kills)
            assert (got := outcome(stream)) in allowed, f"task {i} gave {got}, not one of {allowed}"
        assert stream.retrieve() is None

    @precondition(lambda self: self.epochs)
    @rule()
    def close_pool_and_go_on_with_another(self) -> None:
        self.pool.close()
        for epoch in self.epochs:
            try:
                for _ in epoch.iterator:  # what was made already may still come
                    pass
            except bu.PoolClosed:
                pass
        self.epochs.clear()
        self.pool = make_pool(self.kind, self.workers)
        self.kills = 0

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for timer in self.timers:
            timer.join()
        for epoch in self.epochs[:1]:
            epoch.take(99)
        Epoch(self.pool, self.made, "0 B", []).take(99)  # workers may only be started for work
        all_workers(self.kind, self.workers)
        self.pool.close()
        self.epochs.clear()
        del self.pool, self.epochs
        gc.collect()
        left = left_since(self.before, 120.0)
        assert not left, left


def outcome(stream: Any) -> Any:
    """Return the next result of a stream, or the name of what it raises."""
    try:
        return stream.retrieve()
    except (LookupError, bu.WorkerDied) as error:
        return "LookupError" if isinstance(error, LookupError) else "WorkerDied"


def task(i: int, fails: bool) -> int:
    if fails:
        raise LookupError(f"task {i}")
    return i * i


def pool_machine(examples: int, steps: int, seed: int) -> str:
    """M2: run the machine."""
    random.seed(seed)
    return run(PoolMachine, examples, steps, seed)


def run(machine: type[RuleBasedStateMachine], examples: int, steps: int, seed: int) -> str:
    """Run a state machine."""
    settings = hypothesis.settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
        # No shrinking: with real processes it would take longer than it tells, and the steps are few.
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    return "done"
