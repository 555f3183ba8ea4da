"""The assignment of jobs to workers, and the rules for results, deaths and timeouts, without processes or a clock.

The dispatcher reports each event and its time to a :class:`Schedule`. It carries out the actions that the schedule
returns: send a job to a worker, kill a worker, fail a job. The schedule does not wait, read a clock or look into a job,
so tests can run the rules in a simulated world.

The rules:

* A worker runs as many jobs at once as it has threads, in the order of arrival. It holds one more job, to avoid idle
  time: some more while jobs are shorter than the round trip, none while they are slow. A worker queues ahead only for
  streams that it already works on, so a stuck worker cannot block other streams.
* The death of a worker counts for the jobs that it was running. A job that may not run again fails. A job that may is
  sent to another worker. If that worker dies too, the job goes to a third worker that has no other job. If the third
  dies as well, the job fails. A job that was exclusive from the start fails at the second death. Jobs that the worker
  held but had not begun are sent to others, and the death does not count for them.
* If the time of a job is up, the job fails, and its worker is killed. The time to load a constant does not count for a
  job. If jobs have a time limit, the load has the time limit of a start. If it exceeds this, the job that waits for it
  fails.
* A worker that dies is replaced. The schedule counts, in a row, deaths of workers that had nothing to do and never
  finished a job, and failed starts while there was no other worker. At :data:`MAX_BARREN` times the number of workers,
  no more are started. The pool is broken when the last worker is gone, until it is started again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from ..fair_queue import FairQueue
from ..task import Submission

JOBS_AHEAD = 1
"""Jobs that a worker holds in addition to its running jobs."""

QUICK_JOBS_AHEAD = 4
"""The same while jobs are quick."""

QUICK_JOB_SECONDS, SLOW_JOB_SECONDS = 0.00025, 0.5
"""Mean seconds of quick and of slow jobs, with the way to the worker and back."""

START_TIMEOUT = 60.0
"""Default seconds for a worker to become ready, and for the fork server to start and to fork a worker."""

MAX_BARREN = 3
"""Deaths in a row, for each worker of the pool, of workers that never finished a job."""

MAX_DEATHS = 3
"""Workers that may die while they run one job, the last of them without other jobs. It is one less if the job was
exclusive from the start. It is more than one, because a worker may die of another cause."""

DIED, LATE, NOT_LOADED = "died", "late", "not loaded"
"""Reasons of a failed job: its workers died; its time was up; its worker took too long to load its constants."""


class ScheduledJob(Protocol):
    """A job, with the time at which its worker began it.

    The schedule calls ``begin`` before the job is sent. It returns whether the result is still wanted.
    """

    how: Submission
    began: float | None
    deaths: int
    finished: bool

    def begin(self) -> bool: ...


J = TypeVar("J", bound=ScheduledJob)


@dataclasses.dataclass(eq=False)
class ScheduledWorker(Generic[J]):
    """A worker, as the schedule sees it."""

    started: float
    ready: bool = False
    jobs: list[J] = dataclasses.field(default_factory=list)  # in the order of sending
    loading: int = 0  # constants that were sent and are not loaded; no job begins before they are
    load_began: float = math.inf  # when it began to do nothing but load them
    reserved: bool = False  # it runs a job that must be alone
    killed: bool = False  # it is being killed
    late: J | None = None  # the job whose time was up, the reason for the kill
    finished: int = 0  # number of finished jobs

    def loads(self, job: J) -> None:
        """Record that it was sent a constant ahead of a job. The job begins when the constant is loaded."""
        self.loading += 1
        if job.began is not None:
            self.load_began, job.began = job.began, None


W = TypeVar("W", bound=ScheduledWorker[Any])


@dataclasses.dataclass(slots=True)
class Send(Generic[W, J]):
    """Send a job to a worker."""

    worker: W
    job: J


@dataclasses.dataclass(slots=True)
class Kill(Generic[W]):
    """Kill a worker. The dispatcher reports its death to :meth:`Schedule.died` like any other."""

    worker: W


@dataclasses.dataclass(slots=True)
class Fail(Generic[J]):
    """Fail a job. No worker has it any more."""

    job: J
    why: str


Action = Send[W, J] | Kill[W] | Fail[J]


class Schedule(Generic[W, J]):
    """The rules, for `processes` workers with `threads` threads each. Not locked."""

    def __init__(self, processes: int, threads: int, start_timeout: float = START_TIMEOUT) -> None:
        self.start_timeout = start_timeout
        self._processes = processes
        self._threads = threads
        self._waiting: FairQueue[J] = FairQueue()
        self._barren = 0
        self._starting = 0  # workers that are not ready yet
        self._mean = 0.1  # seconds that recent jobs took
        self.workers: list[W] = []
        self.given_up = False  # no more workers are to be started

    # -- what happens --------------------------------------------------------------------------------------------

    def missing(self) -> int:
        """Return how many workers are to be started now."""
        return 0 if self.given_up else self._processes - len(self.workers)

    @property
    def broken(self) -> bool:
        """Whether there is no worker and will be none."""
        return self.given_up and not self.workers

    def add(self, worker: W) -> None:
        """Record that a worker was started."""
        self.workers.append(worker)
        self._starting += 1

    def not_started(self) -> Sequence[Action[W, J]]:
        """Record that a worker could not be started. While there are others, the start is tried again."""
        if not self.workers:
            self._count_barren()
        return self.fail_all() if self.broken else []

    def _count_barren(self) -> None:
        self._barren += 1
        self.given_up = self.given_up or self._barren >= MAX_BARREN * self._processes

    def ready(self, worker: W, now: float) -> list[Action[W, J]]:
        """Record the first answer of a worker."""
        worker.ready = True
        self._starting -= 1
        return self._hand_out(now)

    def loaded(self, worker: W, now: float) -> None:
        """Record that a worker has loaded a constant."""
        worker.loading -= 1
        self._note_begun(worker, now)

    def submit(self, job: J, now: float) -> list[Action[W, J]]:
        """Add a new job."""
        if job.how.urgent:
            self._waiting.put_urgent(job)
        else:
            self._waiting.put(job, job.how.stream_id)
        return self._hand_out(now)

    def result(self, worker: W, job: J, now: float) -> list[Action[W, J]]:
        """Record that a worker has finished a job."""
        worker.jobs.remove(job)
        self._mean += (now - (now if job.began is None else job.began) - self._mean) / 16
        worker.reserved = False
        worker.finished += 1
        if worker.finished == 1:
            self._barren = 0
        job.finished = True
        self._note_begun(worker, now)
        return self._hand_out(now)

    def died(self, worker: W, now: float) -> list[Action[W, J]]:
        """Record that a worker is gone, with its jobs."""
        self.workers.remove(worker)
        self._starting -= not worker.ready
        running = self._running(worker)
        if not worker.finished and not running:
            self._count_barren()
        actions: list[Action[W, J]] = []
        retried: list[J] = []
        for job in worker.jobs:
            why = self._failed(worker, job) if job in running else None
            if why is None:
                job.began = None
                retried.append(job)
            else:
                job.finished = True
                actions.append(Fail(job, why))
        for job in reversed(retried):
            self._waiting.put_back(job)
        return [*actions, *(self.fail_all() if self.broken else self._hand_out(now))]

    def tick(self, now: float) -> list[Action[W, J]]:
        """Record that time has passed."""
        actions: list[Action[W, J]] = []
        for worker in self.workers:
            due, job = self._due(worker)
            if now >= due:
                worker.late, worker.killed = job, True
                actions.append(Kill(worker))
        return actions + self._hand_out(now)

    def next_tick(self) -> float:
        """Return the time for the next call of :meth:`tick`; infinity if no worker or job has a deadline."""
        return min([self._due(worker)[0] for worker in self.workers], default=math.inf)

    def fail_all(self) -> list[Fail[J]]:
        """Fail all jobs that are not finished."""
        jobs = [job for worker in self.workers for job in worker.jobs] + self._waiting.clear()
        for worker in self.workers:
            worker.jobs.clear()
        failed = [job for job in jobs if not job.finished]
        for job in failed:
            job.finished = True
        return [Fail(job, DIED) for job in failed]

    def take_all(self) -> list[W]:
        """Remove and return the workers. They are being ended, with their jobs."""
        workers, self.workers, self._starting = self.workers, [], 0
        return workers

    def reset(self) -> None:
        """Forget that workers could not be kept alive."""
        self._barren, self.given_up = 0, False

    # -- how it is done ------------------------------------------------------------------------------------------

    def _hand_out(self, now: float) -> list[Action[W, J]]:
        """Give waiting jobs to workers that have room, the least busy first."""
        actions: list[Action[W, J]] = []
        while self._waiting:
            job = self._waiting.peek()
            exclusive = job.how.exclusive or job.deaths >= MAX_DEATHS - 1
            worker = self._worker_for(exclusive, job.how.stream_id)
            if worker is None:
                break
            self._waiting.take()
            if job.finished or not job.begin():
                continue
            worker.jobs.append(job)
            worker.reserved = exclusive
            self._note_begun(worker, now)
            actions.append(Send(worker, job))
        return actions

    def _worker_for(self, exclusive: bool, stream_id: int) -> W | None:
        # While workers start, or if jobs are slow, a job goes only to a worker with a free thread. It does not wait for
        # another job at a worker that is slower than others.
        ahead = QUICK_JOBS_AHEAD if self._mean < QUICK_JOB_SECONDS else JOBS_AHEAD
        if self._starting or self._mean > SLOW_JOB_SECONDS:
            ahead = 0
        fewest = 1 if exclusive else self._threads + ahead
        best: W | None = None
        for worker in self.workers:
            n = len(worker.jobs)
            able = n < fewest and worker.ready and not worker.killed and not worker.reserved
            if able and (n < self._threads or any(each.how.stream_id == stream_id for each in worker.jobs)):
                best, fewest = worker, n
        return best

    def _running(self, worker: W) -> list[J]:
        return worker.jobs[: self._threads] if worker.ready else []

    def _note_begun(self, worker: W, now: float) -> None:
        running = self._running(worker)
        if worker.loading == 0:
            worker.load_began = math.inf
            for job in running:
                if job.began is None:
                    job.began = now
        elif all(job.began is None for job in running):
            worker.load_began = min(worker.load_began, now)

    def _failed(self, worker: W, job: J) -> str | None:
        """Count a death for a job that a worker ran. Return why it is not tried again; None if it is."""
        if job is worker.late:
            return NOT_LOADED if job.began is None else LATE
        if not job.how.retryable:
            return DIED
        if worker.killed:
            return None  # it was killed because of another job
        job.deaths += 1
        return DIED if job.deaths >= MAX_DEATHS - job.how.exclusive else None

    def _due(self, worker: W) -> tuple[float, J | None]:
        """Return the time at which to kill a worker, and the job whose time is up then."""
        if worker.killed:
            return math.inf, None
        if not worker.ready:
            return worker.started + self.start_timeout, None
        due: tuple[float, J | None] = math.inf, None
        for job in self._running(worker):
            if job.how.timeout is not None:
                up = job.began + job.how.timeout if job.began is not None else worker.load_began + self.start_timeout
                if up < due[0]:
                    due = up, job
        return due
