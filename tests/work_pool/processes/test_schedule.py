"""The rules of the process pool in a simulated world (M1): no processes, a clock that is a number."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from batchup_ng.work_pool.fair_queue import FairQueue
from batchup_ng.work_pool.processes import schedule as rules
from batchup_ng.work_pool.processes.schedule import DIED, LATE, Dismiss, Fail, Kill, Schedule, ScheduledWorker, Send
from batchup_ng.work_pool.task import Submission
from tests.extent import quick


@dataclasses.dataclass(eq=False)
class FakeTask:
    """A task with what the simulated world knows of it."""

    number: int
    how: Submission
    began: float | None = None
    deaths: int = 0
    finished: bool = False
    wanted: bool = True
    outcome: str | None = None
    sent: int = 0

    @property
    def flow_id(self) -> int:
        return -1 if self.how.urgent else self.how.flow_id  # urgent ones are in the order in which they came, too

    def begin(self) -> bool:
        return self.wanted


class World:
    """Workers that do what the test says, and a schedule."""

    def __init__(self, processes: int = 2, threads: int = 1) -> None:
        self.schedule: Schedule[ScheduledWorker[FakeTask], FakeTask] = Schedule(processes, threads)
        self.threads = threads
        self.now = 0.0
        self.tasks: list[FakeTask] = []
        self.inboxes: dict[ScheduledWorker[FakeTask], list[FakeTask]] = {}
        self.dying: list[ScheduledWorker[FakeTask]] = []
        self.dismissed: list[ScheduledWorker[FakeTask]] = []
        self.starts = self.deaths = 0
        self.processes = processes
        self.barren = 0  # in a row
        self.gives_up = False
        self.due = processes  # starts: the first workers, one for each that died, more as the pool grows
        self.start_workers()

    def start_workers(self) -> None:
        for _ in range(self.schedule.missing()):
            worker = ScheduledWorker[FakeTask](self.now)
            self.schedule.add(worker)
            self.inboxes[worker] = []
            self.starts += 1

    def submit(self, **how: Any) -> FakeTask:
        task = FakeTask(len(self.tasks), Submission(**how))
        self.tasks.append(task)
        self.do(self.schedule.submit(task, self.now))
        return task

    def do(self, actions: list[Any]) -> None:
        assert self.schedule._starting == sum(not worker.ready for worker in self.schedule.workers)
        for action in actions:
            if isinstance(action, Send):
                self.look_at_sent(action.worker, action.task)
                self.inboxes[action.worker].append(action.task)
            elif isinstance(action, Kill):
                self.dying.append(action.worker)
            elif isinstance(action, Dismiss):
                assert not self.inboxes[action.worker], "it has nothing to do"
                assert action.worker not in self.dismissed
                self.dismissed.append(action.worker)
            else:
                assert isinstance(action, Fail)
                assert action.task.outcome is None, "a task has one outcome"
                action.task.outcome = action.why

    def look_at_sent(self, worker: ScheduledWorker[FakeTask], task: FakeTask) -> None:
        """Assert what the rules promise of a task that is sent to a worker just now."""
        assert worker in self.schedule.workers
        assert worker.ready
        assert not worker.killed
        assert not worker.leaving
        assert not task.finished
        inbox = self.inboxes[worker]
        assert task not in inbox
        exclusive = task.how.exclusive or task.deaths >= rules.MAX_DEATHS - 1
        starting = not all(each.ready for each in self.schedule.workers)
        ahead = rules.QUICK_TASKS_AHEAD if self.schedule._mean < rules.QUICK_TASK_SECONDS else rules.TASKS_AHEAD
        assert len(inbox) < (1 if exclusive else self.threads + (0 if starting else ahead))
        assert len(inbox) < self.threads or task.how.flow_id in [each.how.flow_id for each in inbox], "behind others"
        assert not any(each.how.exclusive or each.deaths >= rules.MAX_DEATHS - 1 for each in inbox), "not exclusive"
        if not task.sent:
            earlier = [each for each in self.tasks[: task.number] if each.flow_id == task.flow_id and not each.sent]
            assert not any(each.wanted and not each.finished for each in earlier), f"{task} overtook others of its own"
        task.sent += 1

    def ready(self, worker: ScheduledWorker[FakeTask]) -> None:
        self.do(self.schedule.ready(worker, self.now))

    def all_ready(self) -> None:
        for worker in list(self.schedule.workers):
            if not worker.ready:
                self.ready(worker)

    def load(self, worker: ScheduledWorker[FakeTask]) -> None:
        self.do(self.schedule.loaded(worker, self.now))

    def can_finish(self) -> list[ScheduledWorker[FakeTask]]:
        return [worker for worker, inbox in self.inboxes.items() if inbox and not worker.loading]

    def finish(self, worker: ScheduledWorker[FakeTask], which: int = 0, outcome: str = "done") -> FakeTask:
        task = self.inboxes[worker].pop(which)
        if not worker.finished:
            self.barren = 0
        assert task.outcome is None, "a task has one outcome"
        task.outcome = outcome
        self.do(self.schedule.result(worker, task, self.now))
        return task

    def kill(self, worker: ScheduledWorker[FakeTask]) -> None:
        for those in (self.dying, self.dismissed):
            if worker in those:
                those.remove(worker)
        inbox = self.inboxes.pop(worker)
        self.deaths += 1
        if not worker.leaving:
            self.due += 1
            if not worker.finished and not (worker.ready and inbox):
                self.barren += 1
                self.gives_up = self.gives_up or self.barren >= rules.MAX_BARREN * self.processes
        self.do(self.schedule.died(worker, self.now))
        self.start_workers()

    def resize(self, processes: int) -> None:
        self.due += max(0, processes - self.processes)
        self.processes = processes
        self.do(self.schedule.resize(processes, self.now))
        self.start_workers()

    def close(self) -> None:
        """End the pool: whatever it has fails, then the workers are taken away."""
        self.do(list(self.schedule.fail_all()))
        assert not self.schedule._waiting
        assert not any(worker.tasks for worker in self.schedule.workers)
        assert all(task.finished and task.outcome is not None for task in self.tasks if task.wanted)
        assert set(self.schedule.take_all()) == set(self.inboxes)
        self.inboxes.clear()
        self.dying.clear()
        self.dismissed.clear()
        assert self.schedule.workers == []
        assert self.schedule.next_tick() == math.inf
        assert self.schedule.tick(self.now + 1e6) == []

    def holder(self, task: FakeTask) -> ScheduledWorker[FakeTask]:
        return next(worker for worker, inbox in self.inboxes.items() if task in inbox)

    def pass_time(self, seconds: float, bury: bool = True) -> None:
        self.now += seconds
        self.do(self.schedule.tick(self.now))
        if bury:
            self.bury()

    def bury(self) -> None:
        """Let those that are being killed be dead."""
        for worker in list(self.dying):
            self.kill(worker)


def test_a_task_that_may_run_again_is_tried_on_three_workers_the_last_with_nothing_else() -> None:
    world = World(processes=2)
    world.all_ready()
    task = world.submit(retryable=True)
    others = [world.submit(retryable=True) for _ in range(3)]
    for _ in range(2):
        world.kill(world.holder(task))
        assert task.outcome is None
        world.all_ready()
        for worker in list(world.inboxes):
            while world.inboxes[worker] and world.inboxes[worker][0] is not task:
                world.finish(worker)
    assert world.inboxes[world.holder(task)] == [task]
    more = [world.submit(retryable=True) for _ in range(4)]
    assert world.inboxes[world.holder(task)] == [task], "it stays alone"
    world.kill(world.holder(task))
    assert task.outcome == DIED
    world.all_ready()
    while any(world.inboxes.values()):
        world.finish(next(worker for worker, inbox in world.inboxes.items() if inbox))
    assert {j.outcome for j in others + more} == {"done"}


def test_a_task_that_must_not_run_twice_fails_with_its_worker_and_the_one_behind_it_does_not() -> None:
    world = World(processes=1)
    world.all_ready()
    running, behind = world.submit(), world.submit()
    world.kill(world.holder(running))
    assert running.outcome == DIED
    assert behind.outcome is None
    world.all_ready()
    world.finish(world.holder(behind))
    assert behind.outcome == "done"


def test_a_task_whose_time_is_up_fails_and_takes_nobody_with_it() -> None:
    world = World(processes=1, threads=2)
    world.all_ready()
    slow, beside, behind = world.submit(timeout=5.0), world.submit(retryable=True), world.submit(retryable=True)
    assert world.schedule.next_tick() == 5.0
    world.pass_time(4.9)
    assert slow.outcome is None
    world.pass_time(0.2)
    assert slow.outcome == LATE
    world.all_ready()
    for task in (beside, behind):
        world.finish(world.holder(task))
        assert (task.outcome, task.deaths) == ("done", 0)


def test_the_clock_of_a_task_begins_when_it_does() -> None:
    world = World(processes=1)
    world.all_ready()
    world.submit(retryable=True)
    second = world.submit(timeout=5.0)
    world.pass_time(100.0)
    (worker,) = world.inboxes
    world.finish(worker)
    world.pass_time(4.9)
    assert second.outcome is None
    world.pass_time(0.2)
    assert second.outcome == LATE


def test_the_clock_stands_while_a_constant_is_loaded() -> None:
    world = World(processes=1)
    world.all_ready()
    (worker,) = world.inboxes
    worker.loading = 1
    task = world.submit(timeout=1.0)
    world.pass_time(50.0)
    assert task.outcome is None
    world.schedule.loaded(worker, world.now)
    assert world.schedule.next_tick() == world.now + 1.0


def test_a_constant_that_is_sent_with_its_task_is_loaded_before_the_clock_runs() -> None:
    world = World(processes=1)
    world.all_ready()
    (worker,) = world.inboxes
    task = world.submit(timeout=1.0)
    worker.loads(task)  # as the one who sends it finds
    world.pass_time(rules.START_TIMEOUT - 1)
    assert task.outcome is None
    world.schedule.loaded(worker, world.now)
    assert world.schedule.next_tick() == world.now + 1.0
    world.finish(worker)
    second, third = world.submit(timeout=1.0), world.submit(timeout=1.0)
    worker.loads(third)  # which the worker gets when it has done the second
    world.pass_time(0.5)
    world.finish(worker)
    assert second.outcome == "done"
    assert world.schedule.next_tick() == world.now + rules.START_TIMEOUT


def test_a_worker_that_joins_gets_tasks_when_it_has_loaded_what_others_have() -> None:
    world = World(processes=1)
    world.all_ready()
    world.resize(2)
    (first, second) = world.inboxes
    second.loading = 2
    world.ready(second)
    tasks = [world.submit(retryable=True) for _ in range(4)]
    assert not world.inboxes[second]
    world.load(second)
    assert not world.inboxes[second]
    world.load(second)
    assert tasks[2] in world.inboxes[second]
    assert tasks[0] in world.inboxes[first]


def test_a_worker_that_loads_gets_tasks_if_there_is_no_other() -> None:
    world = World(processes=1)
    world.all_ready()
    world.resize(2)
    (first, second) = world.inboxes
    second.loading = 1
    world.ready(second)
    task = world.submit(retryable=True)
    world.kill(first)
    assert task in world.inboxes[second]


def test_workers_that_are_too_many_end_after_their_tasks() -> None:
    world = World(processes=3)
    world.all_ready()
    tasks = [world.submit(retryable=True) for _ in range(2)]
    idle = next(worker for worker, inbox in world.inboxes.items() if not inbox)
    world.resize(1)
    assert world.dismissed == [idle]
    leaving = next(worker for worker in world.inboxes if worker.leaving and worker is not idle)
    more = [world.submit(retryable=True) for _ in range(3)]
    assert len(world.inboxes[leaving]) == 1, "it gets no more"
    world.finish(leaving)
    assert world.dismissed == [idle, leaving]
    world.kill(leaving)
    world.pass_time(rules.LEAVE_TIMEOUT)  # the other does not end
    assert world.deaths == 2
    assert world.starts == 3
    while any(world.inboxes.values()):
        world.finish(*world.can_finish())
    assert {task.outcome for task in tasks + more} == {"done"}


def test_a_worker_that_never_loads_a_constant_is_killed_and_no_sample_is_blamed() -> None:
    world = World(processes=1)
    world.all_ready()
    (worker,) = world.inboxes
    task = world.submit(timeout=1.0)
    worker.loads(task)
    world.pass_time(rules.START_TIMEOUT)
    assert worker not in world.schedule.workers
    assert task.outcome == rules.NOT_LOADED


def test_a_worker_that_never_is_ready_is_killed() -> None:
    world = World(processes=1)
    (worker,) = world.inboxes
    assert world.schedule.next_tick() == rules.START_TIMEOUT
    world.pass_time(rules.START_TIMEOUT)
    assert worker not in world.schedule.workers
    assert world.starts == 2


def test_workers_hold_more_tasks_while_these_are_quick() -> None:
    world = World(processes=1)
    world.all_ready()
    (inbox,) = world.inboxes.values()
    (worker,) = world.inboxes

    def run(tasks: int, seconds: float) -> None:
        for _ in range(tasks):
            world.submit()
            world.now += seconds
            world.finish(worker)

    def held() -> int:
        while len(inbox) == len(worker.tasks) and not world.schedule._waiting:
            world.submit()
        n = len(inbox)
        while inbox:
            world.finish(worker)
        return n

    run(3, 0.01)
    assert held() == 1 + rules.TASKS_AHEAD
    run(200, rules.QUICK_TASK_SECONDS / 2)
    assert held() == 1 + rules.QUICK_TASKS_AHEAD
    run(3, 0.01)
    assert held() == 1 + rules.TASKS_AHEAD


def test_streams_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for i in range(3):
        queue.put(f"long {i}", flow_id=1)
    queue.put("short", flow_id=2)
    queue.put_urgent("urgent")
    queue.put_back("again")
    assert len(list(queue)) == 6
    assert [queue.take() for _ in range(6)] == ["again", "urgent", "long 0", "short", "long 1", "long 2"]
    assert not queue


@given(st.lists(st.tuples(st.sampled_from(["put", "urgent", "back", "take", "clear"]), st.integers(0, 2)), max_size=40))
def test_a_queue_is_a_list_of_urgent_items_and_one_of_each_flow(calls: list[tuple[str, int]]) -> None:
    queue: FairQueue[int] = FairQueue()
    urgent: list[int] = []
    flows: list[tuple[int, list[int]]] = []  # in the order of their turns
    for item, (call, flow) in enumerate(calls):
        if call == "put":
            queue.put(item, flow)
            mine = next((items for number, items in flows if number == flow), None)
            if mine is None:
                flows.append((flow, [item]))
            else:
                mine.append(item)
        elif call == "urgent":
            queue.put_urgent(item)
            urgent.append(item)
        elif call == "back":
            queue.put_back(item)
            urgent.insert(0, item)
        elif call == "clear":
            assert queue.clear() == [*urgent, *itertools.chain(*(items for _, items in flows))]
            urgent, flows = [], []
        elif urgent:
            assert queue.peek() == urgent[0] == queue.take()
            urgent.pop(0)
        elif flows:
            number, items = flows.pop(0)
            assert queue.peek() == items[0] == queue.take()
            flows += [(number, items[1:])] if items[1:] else []
        assert list(queue) == [*urgent, *itertools.chain(*(items for _, items in flows))]
        assert bool(queue) is bool(queue.flows) is bool(urgent or flows)


class SimulatedWorld(RuleBasedStateMachine):
    """Everything that can happen, in any order.

    A hang is time that passes while a worker finishes nothing; half a message is a death, for it counts for nothing.
    """

    @initialize(processes=st.integers(1, 3), threads=st.integers(1, 2), quick=st.booleans())
    def make(self, processes: int, threads: int, quick: bool) -> None:
        self.world = World(processes, threads)
        if quick:
            self.world.schedule._mean = 0.0
        self.flow_ids = [1]

    @rule(retryable=st.booleans(), urgent=st.booleans(), timeout=st.sampled_from([None, None, 0.5, 3.0]),
          flow_id=st.integers(0, 2), exclusive=st.booleans())  # fmt: skip
    def submit(self, retryable: bool, urgent: bool, timeout: float | None, flow_id: int, exclusive: bool) -> None:
        if self.world.schedule.broken:
            return
        flow_id = self.flow_ids[-1 - flow_id % len(self.flow_ids)]
        exclusive = exclusive and urgent
        self.world.submit(
            retryable=retryable, urgent=urgent, timeout=timeout, flow_id=flow_id, exclusive=exclusive
        )

    @rule(tasks=st.integers(0, 6))
    def new_flow(self, tasks: int) -> None:
        self.flow_ids.append(self.flow_ids[-1] + 1)
        for _ in range(0 if self.world.schedule.broken else tasks):
            self.world.submit(retryable=True, flow_id=self.flow_ids[-1])

    @rule(data=st.data())
    def break_stream(self, data: st.DataObject) -> None:
        flow_id = data.draw(st.sampled_from(self.flow_ids))
        for task in self.world.tasks:
            task.wanted = task.wanted and (task.how.flow_id != flow_id or task.outcome is not None)

    @rule(processes=st.integers(1, 3), threads=st.integers(1, 2), rarely=st.integers(0, 9))
    def close(self, processes: int, threads: int, rarely: int) -> None:
        if rarely == 0:
            self.world.close()
            self.make(processes, threads, quick=False)

    @precondition(lambda self: any(not w.ready for w in self.world.schedule.workers))
    @rule(data=st.data(), constants=st.integers(0, 2))
    def become_ready(self, data: st.DataObject, constants: int) -> None:
        worker = data.draw(st.sampled_from([w for w in self.world.schedule.workers if not w.ready]))
        if any(other.ready for other in self.world.schedule.workers):
            worker.loading = constants  # as others have
        self.world.ready(worker)

    @precondition(lambda self: any(w.loading for w in self.world.schedule.workers))
    @rule(data=st.data())
    def load_a_constant(self, data: st.DataObject) -> None:
        self.world.load(data.draw(st.sampled_from([w for w in self.world.schedule.workers if w.loading])))

    @precondition(lambda self: self.world.can_finish())
    @rule(data=st.data(), outcome=st.sampled_from(["done", "done", "error"]), probe=st.booleans())
    def finish(self, data: st.DataObject, outcome: str, probe: bool) -> None:
        worker = data.draw(st.sampled_from(self.world.can_finish()))
        # With several threads any of those that run may be done first.
        last = min(self.world.threads, len(self.world.inboxes[worker])) - 1
        task = self.world.finish(worker, data.draw(st.integers(0, last)), outcome)
        if task.outcome == "error" and probe:  # the samples of a batch that raised are read one by one
            for _ in range(3):
                self.world.submit(retryable=True, urgent=True, flow_id=task.how.flow_id)

    @precondition(lambda self: self.world.schedule.workers)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.world.kill(data.draw(st.sampled_from(self.world.schedule.workers)))

    @rule(processes=st.integers(1, 4))
    def resize(self, processes: int) -> None:
        self.world.resize(processes)

    @precondition(lambda self: self.world.dismissed)
    @rule()
    def a_dismissed_worker_ends(self) -> None:
        worker = self.world.dismissed[0]
        self.world.kill(worker)

    @rule(seconds=st.sampled_from([0.1, 0.7, 2.0, 61.0]), bury=st.booleans())
    def pass_time(self, seconds: float, bury: bool) -> None:
        self.world.pass_time(seconds, bury)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiting = [task for task in self.world.tasks if task.outcome is None]
        if waiting:
            data.draw(st.sampled_from(waiting)).wanted = False

    @invariant()
    def nothing_is_lost_or_made_twice(self) -> None:
        world = self.world
        held = [task for inbox in world.inboxes.values() for task in inbox]
        waiting = list(world.schedule._waiting)
        for task in world.tasks:
            if task.outcome is None and task.wanted:
                assert held.count(task) + waiting.count(task) == 1, f"{task} is lost, or made twice"
            if task.outcome is not None:
                assert task.finished

    @invariant()
    def no_worker_has_more_than_its_share(self) -> None:
        assert set(self.world.inboxes) == set(self.world.schedule.workers)
        for worker, inbox in self.world.inboxes.items():
            assert len(inbox) <= self.world.threads + rules.QUICK_TASKS_AHEAD
            assert worker.tasks == inbox
            assert not (worker.reserved and len(inbox) > 1)

    @invariant()
    def nobody_is_idle_while_there_is_work(self) -> None:
        schedule = self.world.schedule
        if schedule._waiting and schedule.workers:
            able = [w for w in schedule.workers if w.ready and not w.killed and not w.leaving and not w.tasks]
            loaded = [w for w in schedule.workers if w.ready and not w.leaving and not w.loading]
            assert not [w for w in able if not w.loading or not loaded], "a worker is idle"

    @invariant()
    def every_wait_has_a_deadline_or_a_worker(self) -> None:
        schedule = self.world.schedule
        if any(task.outcome is None and task.wanted for task in self.world.tasks):
            assert schedule.workers
        if any(not w.ready and not w.killed for w in schedule.workers):
            assert schedule.next_tick() < math.inf

    @invariant()
    def restarts_are_limited_by_deaths(self) -> None:
        world, schedule = self.world, self.world.schedule
        staying = [worker for worker in schedule.workers if not worker.leaving]
        assert len(staying) <= world.processes
        assert world.starts <= world.due
        # Each that died is replaced, until so many in a row had nothing to do and never finished anything.
        assert schedule.given_up == world.gives_up
        assert schedule.given_up or (world.starts == world.due and len(staying) == world.processes)

    @invariant()
    def one_that_leaves_is_dismissed_as_soon_as_it_has_no_task(self) -> None:
        for worker in self.world.schedule.workers:
            if worker.leaving and not worker.killed:
                assert (worker in self.world.dismissed) == (not self.world.inboxes[worker])

    def teardown(self) -> None:
        """Whatever happened, the pool ends with an outcome for each task that is wanted."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.bury()
        for _ in range(20 * (len(world.tasks) + 5)):
            world.pass_time(0.2)
            world.all_ready()
            for worker in list(world.dismissed):
                world.kill(worker)
            for worker in world.schedule.workers:
                while worker.loading:
                    world.load(worker)
            busy = world.can_finish()
            if not busy:
                break
            world.finish(busy[0])
        for task in world.tasks:
            assert task.outcome is not None or not task.wanted
        world.close()


@pytest.mark.parametrize("examples", quick([30], [2000]))
def test_m1_whatever_happens_in_the_simulated_world_the_rules_hold(examples: int) -> None:
    run_state_machine_as_test(
        SimulatedWorld, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None)
    )
