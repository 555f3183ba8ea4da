"""The assignment of tasks to workers, and the rules for results, deaths and timeouts, without processes or a clock.

The dispatcher reports each event and its time to a :class:`Schedule`. It carries out the actions that the schedule
returns: send a task to a worker, kill a worker, fail a task. The schedule does not wait, read a clock or look into a
task, so tests can run the rules in a simulated world.

The rules:

* A worker runs as many tasks at once as it has threads, in the order of arrival. It holds one more task, to avoid idle
  time: some more while tasks are shorter than the round trip, none while they are slow. A worker queues ahead only for
  flows that it already works on, so a stuck worker cannot block other flows.
* The death of a worker counts for the tasks that it was running. A task that may not run again fails. A task that may
  is sent to another worker. If that worker dies too, the task goes to a third worker that has no other task. If the
  third dies as well, the task fails. A task that was exclusive from the start fails at the second death. Tasks that the
  worker held but had not begun are sent to others, and the death does not count for them.
* If the time of a task is up, the task fails, and its worker is killed. The time to load a constant does not count for
  a task. If tasks have a time limit, the load has the time limit of a start. If it exceeds this, the task that waits
  for it fails.
* A worker that joins others first loads the constants that these have. While another worker has loaded its own, an idle
  worker that still loads gets no tasks: the loop would wait for them.
* A worker that is one too many after :meth:`Schedule.resize` gets no more tasks. It is dismissed when it has none left,
  and killed if it does not end then.
* A worker that dies is replaced. The schedule counts, in a row, deaths of workers that had nothing to do and never
  finished a task, and failed starts while there was no other worker. At :data:`MAX_BARREN` times the number of workers,
  no more are started. The pool is broken when the last worker is gone, until it is started again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..fair_queue import FairQueue
from ..task import Submission

TASKS_AHEAD = 1
"""Tasks that a worker holds in addition to its running tasks."""

QUICK_TASKS_AHEAD = 4
"""The same while tasks are quick."""

QUICK_TASK_SECONDS, SLOW_TASK_SECONDS = 0.00025, 0.5
"""Mean seconds of quick and of slow tasks, with the way to the worker and back."""

START_TIMEOUT = 60.0
"""Default seconds for a worker to become ready, and for the fork server to start and to fork a worker."""

LEAVE_TIMEOUT = 5.0
"""Seconds for a worker that was dismissed to end. After them it is killed."""

MAX_BARREN = 3
"""Deaths in a row, for each worker of the pool, of workers that never finished a task."""

MAX_DEATHS = 3
"""Workers that may die while they run one task, the last of them without other tasks. It is one less if the task was
exclusive from the start. It is more than one, because a worker may die of another cause."""

DIED, LATE, NOT_LOADED = "died", "late", "not loaded"
"""Reasons of a failed task: its workers died; its time was up; its worker took too long to load its constants."""


class ScheduledTask(Protocol):
    """A task, with the time at which its worker began it.

    The schedule calls ``begin`` before the task is sent. It returns whether the result is still wanted.
    """

    how: Submission
    began: float | None
    deaths: int
    finished: bool

    def begin(self) -> bool: ...


T = TypeVar("T", bound=ScheduledTask)


@dataclasses.dataclass(eq=False)
class ScheduledWorker(Generic[T]):
    """A worker, as the schedule sees it."""

    started: float
    ready: bool = False
    tasks: list[T] = dataclasses.field(default_factory=list)  # in the order of sending
    loading: int = 0  # constants that were sent and are not loaded; no task begins before they are
    load_began: float = math.inf  # when it began to do nothing but load them
    reserved: bool = False  # it runs a task that must be alone
    killed: bool = False  # it is being killed
    leaving: bool = False  # it is one too many, and gets no more tasks
    dismissed: float = math.inf  # when it was, after its last task
    late: T | None = None  # the task whose time was up, the reason for the kill
    finished: int = 0  # number of finished tasks

    def loads(self, task: T) -> None:
        """Record that it was sent a constant ahead of a task. The task begins when the constant is loaded."""
        self.loading += 1
        if task.began is not None:
            self.load_began, task.began = task.began, None


W = TypeVar("W", bound=ScheduledWorker[Any])


@dataclasses.dataclass(slots=True)
class Send(Generic[W, T]):
    """Send a task to a worker."""

    worker: W
    task: T


@dataclasses.dataclass(slots=True)
class Kill(Generic[W]):
    """Kill a worker. The dispatcher reports its death to :meth:`Schedule.died` like any other."""

    worker: W


@dataclasses.dataclass(slots=True)
class Dismiss(Generic[W]):
    """Let a worker without tasks end. The dispatcher reports its end to :meth:`Schedule.died`."""

    worker: W


@dataclasses.dataclass(slots=True)
class Fail(Generic[T]):
    """Fail a task. No worker has it any more."""

    task: T
    why: str


Action = Send[W, T] | Kill[W] | Dismiss[W] | Fail[T]


class Schedule(Generic[W, T]):
    """The rules, for `processes` workers with `threads` threads each. Not locked."""

    def __init__(self, processes: int, threads: int, start_timeout: float = START_TIMEOUT) -> None:
        self.start_timeout = start_timeout
        self._processes = processes
        self._threads = threads
        self._waiting: FairQueue[T] = FairQueue()
        self._barren = 0
        self._starting = 0  # workers that are not ready yet
        self._mean = 0.1  # seconds that recent tasks took
        self.workers: list[W] = []
        self.given_up = False  # no more workers are to be started

    # -- what happens --------------------------------------------------------------------------------------------

    def missing(self) -> int:
        """Return how many workers are to be started now."""
        return 0 if self.given_up else max(0, self._processes - len(self._staying()))

    def _staying(self) -> list[W]:
        return [worker for worker in self.workers if not worker.leaving]

    def resize(self, processes: int, now: float) -> list[Action[W, T]]:
        """Change the number of workers. Those that are too many end after their tasks, the least useful ones."""
        self._processes = processes
        staying = sorted(self._staying(), key=lambda worker: (not worker.killed, worker.ready, len(worker.tasks)))
        actions: list[Action[W, T]] = []
        for worker in staying[: max(0, len(staying) - processes)]:
            worker.leaving = True
            actions += self._dismissed(worker, now)
        return actions + self._hand_out(now)

    def _dismissed(self, worker: W, now: float) -> list[Action[W, T]]:
        if not worker.leaving or worker.tasks or worker.killed:
            return []
        worker.dismissed = now
        return [Dismiss(worker)]

    @property
    def broken(self) -> bool:
        """Whether there is no worker and will be none."""
        return self.given_up and not self.workers

    def add(self, worker: W) -> None:
        """Record that a worker was started."""
        self.workers.append(worker)
        self._starting += 1

    def not_started(self) -> Sequence[Action[W, T]]:
        """Record that a worker could not be started. While there are others, the start is tried again."""
        if not self.workers:
            self._count_barren()
        return self.fail_all() if self.broken else []

    def _count_barren(self) -> None:
        self._barren += 1
        self.given_up = self.given_up or self._barren >= MAX_BARREN * self._processes

    def ready(self, worker: W, now: float) -> list[Action[W, T]]:
        """Record the first answer of a worker."""
        worker.ready = True
        self._starting -= 1
        return self._hand_out(now)

    def loaded(self, worker: W, now: float) -> list[Action[W, T]]:
        """Record that a worker has loaded a constant."""
        worker.loading -= 1
        self._note_begun(worker, now)
        return [] if worker.loading or worker.tasks else self._hand_out(now)

    def submit(self, task: T, now: float) -> list[Action[W, T]]:
        """Add a new task. If no other one waits, a worker that has room gets it at once."""
        others = bool(self._waiting.flows)
        given = None if others else self._given(task, now)
        if given is not None:
            return given
        if task.how.urgent:
            self._waiting.put_urgent(task)
        else:
            self._waiting.put(task, task.how.flow_id)
        return self._hand_out(now) if others else []

    def result(self, worker: W, task: T, now: float) -> list[Action[W, T]]:
        """Record that a worker has finished a task."""
        worker.tasks.remove(task)
        self._mean += (now - (now if task.began is None else task.began) - self._mean) / 16
        worker.reserved = False
        worker.finished += 1
        if worker.finished == 1:
            self._barren = 0
        task.finished = True
        self._note_begun(worker, now)
        return [*self._dismissed(worker, now), *self._hand_out(now)]

    def died(self, worker: W, now: float) -> list[Action[W, T]]:
        """Record that a worker is gone, with its tasks."""
        self.workers.remove(worker)
        self._starting -= not worker.ready
        running = self._running(worker)
        if not worker.finished and not running and not worker.leaving:
            self._count_barren()
        actions: list[Action[W, T]] = []
        retried: list[T] = []
        for task in worker.tasks:
            why = self._failed(worker, task) if task in running else None
            if why is None:
                task.began = None
                retried.append(task)
            else:
                task.finished = True
                actions.append(Fail(task, why))
        for task in reversed(retried):
            self._waiting.put_back(task)
        return [*actions, *(self.fail_all() if self.broken else self._hand_out(now))]

    def tick(self, now: float) -> list[Action[W, T]]:
        """Record that time has passed."""
        actions: list[Action[W, T]] = []
        for worker in self.workers:
            due, task = self._due(worker)
            if now >= due:
                worker.late, worker.killed = task, True
                actions.append(Kill(worker))
        return actions + self._hand_out(now)

    def next_tick(self) -> float:
        """Return the time for the next call of :meth:`tick`; infinity if no worker or task has a deadline."""
        return min([self._due(worker)[0] for worker in self.workers], default=math.inf)

    def fail_all(self) -> list[Fail[T]]:
        """Fail all tasks that are not finished."""
        tasks = [task for worker in self.workers for task in worker.tasks] + self._waiting.clear()
        for worker in self.workers:
            worker.tasks.clear()
        failed = [task for task in tasks if not task.finished]
        for task in failed:
            task.finished = True
        return [Fail(task, DIED) for task in failed]

    def take_all(self) -> list[W]:
        """Remove and return the workers. They are being ended, with their tasks."""
        workers, self.workers, self._starting = self.workers, [], 0
        return workers

    def reset(self) -> None:
        """Forget that workers could not be kept alive."""
        self._barren, self.given_up = 0, False

    # -- how it is done ------------------------------------------------------------------------------------------

    def _hand_out(self, now: float) -> list[Action[W, T]]:
        """Give waiting tasks to workers that have room."""
        actions: list[Action[W, T]] = []
        while self._waiting.flows:
            given = self._given(self._waiting.peek(), now)
            if given is None:
                break
            self._waiting.take()
            actions += given
        return actions

    def _given(self, task: T, now: float) -> list[Action[W, T]] | None:
        """Give a task to the least busy worker that has room. Return None if none has.

        The list is empty if the result is not wanted any more.
        """
        exclusive = task.how.exclusive or task.deaths >= MAX_DEATHS - 1
        worker = self._worker_for(exclusive, task.how.flow_id)
        if worker is None:
            return None
        if task.finished or not task.begin():
            return []
        worker.tasks.append(task)
        worker.reserved = exclusive
        self._note_begun(worker, now)
        return [Send(worker, task)]

    def _worker_for(self, exclusive: bool, flow_id: int) -> W | None:
        # While workers start, or if tasks are slow, a task goes only to a worker with a free thread. It does not wait
        # for another task at a worker that is slower than others.
        ahead = QUICK_TASKS_AHEAD if self._mean < QUICK_TASK_SECONDS else TASKS_AHEAD
        if self._starting or self._mean > SLOW_TASK_SECONDS:
            ahead = 0
        fewest = 1 if exclusive else self._threads + ahead
        best: W | None = None
        loaded = any(worker.ready and not (worker.loading or worker.leaving) for worker in self.workers)
        for worker in self.workers:
            n = len(worker.tasks)
            if loaded and worker.loading and not n:
                continue
            able = n < fewest and worker.ready and not (worker.killed or worker.leaving or worker.reserved)
            if able and (n < self._threads or any(each.how.flow_id == flow_id for each in worker.tasks)):
                best, fewest = worker, n
        return best

    def _running(self, worker: W) -> list[T]:
        return worker.tasks[: self._threads] if worker.ready else []

    def _note_begun(self, worker: W, now: float) -> None:
        running = self._running(worker)
        if worker.loading == 0:
            worker.load_began = math.inf
            for task in running:
                if task.began is None:
                    task.began = now
        elif all(task.began is None for task in running):
            worker.load_began = min(worker.load_began, now)

    def _failed(self, worker: W, task: T) -> str | None:
        """Count a death for a task that a worker ran. Return why it is not tried again; None if it is."""
        if task is worker.late:
            return NOT_LOADED if task.began is None else LATE
        if not task.how.retryable:
            return DIED
        if worker.killed:
            return None  # it was killed because of another task
        task.deaths += 1
        return DIED if task.deaths >= MAX_DEATHS - task.how.exclusive else None

    def _due(self, worker: W) -> tuple[float, T | None]:
        """Return the time at which to kill a worker, and the task whose time is up then."""
        if worker.killed:
            return math.inf, None
        if worker.dismissed < math.inf:
            return worker.dismissed + LEAVE_TIMEOUT, None
        if not worker.ready:
            return worker.started + self.start_timeout, None
        due: tuple[float, T | None] = math.inf, None
        for task in self._running(worker):
            if task.how.timeout is not None:
                up = task.began + task.how.timeout if task.began is not None else worker.load_began + self.start_timeout
                if up < due[0]:
                    due = up, task
        return due
