"""A simulated machine on which workers make batches for a loop, with what the library would measure of it.

Threads that want to run share the CPUs evenly, and one of those that want the interpreter's lock has it, in turn. It is
not the model that predicts: that one knows no CPUs and no lock, only times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from batchup_ng.explanation.evidence import Alone, Evidence, Setting, gathered
from batchup_ng.meters.batch_times import COUNTED_OF, Meter, Step
from batchup_ng.work_pool.epoch_runner import FEWEST_RESTED, rest

TURN = 5e-3
"""Seconds after which a thread that wants the interpreter's lock gets it."""


@dataclasses.dataclass(frozen=True)
class World:
    """A loader, its work and its machine. Times are in seconds.

    Attributes:
        kind, workers, buffer, asked: The pool, and the batches ahead; `asked` is the number that the user allowed.
        read_wait, read_cpu: A read waits for a disk, and computes without the lock.
        map_cpu: Then a map computes, with the lock if `locks`.
        slow_of, slow: One of so many batches waits so much longer.
        pack: A worker process copies the batch for so long.
        transfer: A batch is on its way for so long.
        take: The loop's thread needs so long to receive it, and `convert` to convert it.
        step_wait, step_cpu: The loop waits, for a GPU, and computes, with the lock if `loop_locks`.
        loop_threads: How many threads compute in a step, each for `step_cpu`.
        cpus, neighbours: CPUs, and other programs that compute, from the first to the second time in `neighbours_at`.
        first_epoch_wait: As `read_wait`, of the first epoch.
    """

    kind: str = "threads"
    workers: int = 2
    buffer: int = 20
    asked: int = 20
    read_wait: float = 0.0
    read_cpu: float = 0.0004
    map_cpu: float = 0.0
    locks: bool = False
    slow_of: int = 0
    slow: float = 0.0
    pack: float = 0.0
    transfer: float = 0.0
    take: float = 0.0
    convert: float = 0.0
    consumer_maps: tuple[str, ...] = ()
    step_wait: float = 0.002
    step_cpu: float = 0.0
    loop_locks: bool = True
    loop_threads: int = 1
    cpus: int = 4
    neighbours: int = 0
    neighbours_at: tuple[float, float] = (0.0, math.inf)
    first_epoch_wait: float = 0.0
    batch_bytes: int = 100_000
    data_bytes: float = 1e12
    batches: int = 150

    def evidence(self, trial: bool = True) -> Evidence:
        """Return what the library measures of two epochs."""
        meter = Meter(self.kind)
        _Series(self, meter).run()
        if self.convert:
            for _ in range(self.batches):
                meter.add_converted("view", self.convert)
        setting = Setting(
            self.kind, self.workers if self.kind != "serial" else 1, self.cpus, self.asked, self.buffer,
            self.batch_bytes, self.data_bytes, 8e9, self.consumer_maps,
        )  # fmt: skip
        cpu = self.read_cpu + self.map_cpu
        share = self.map_cpu * self.locks / max(cpu + self.read_wait, 1e-9)
        found = gathered(meter, setting, Alone(cpu + self.read_wait, cpu, share) if trial else None)
        assert found is not None
        return found

    def seconds_per_batch(self) -> float:
        """Return the time from one batch to the next in the second epoch."""
        return self.evidence().interval


class _Thread:
    """A thread that works off phases: the kind of each, ``"cpu"``, ``"lock"`` or ``"wait"``, and its seconds."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, float, str]] = []  # kind, seconds left, name
        self.cpu = self.queued = 0.0
        self.spent: dict[str, float] = {}

    def begin(self, phases: list[tuple[str, float, str]]) -> None:
        self.phases = [each for each in phases if each[1] > 0]
        self.cpu = self.queued = 0.0
        self.spent = {}

    @property
    def wants(self) -> str:
        return self.phases[0][0] if self.phases else ""

    def advance(self, seconds: float, rate: float, ready: bool) -> None:
        """Let time pass, of which the share `rate` is on a CPU; `ready` if it is ready to run in the rest."""
        kind, left, name = self.phases[0]
        self.spent[name] = self.spent.get(name, 0.0) + seconds
        if kind != "wait":
            self.cpu += rate * seconds
            self.queued += (1 - rate) * seconds if ready else 0.0
        left -= seconds if kind == "wait" else rate * seconds
        self.phases[0] = kind, left, name
        if left <= 1e-9:
            self.phases.pop(0)


class _Series:
    """Two epochs, of which the second begins with a full buffer."""

    def __init__(self, world: World, meter: Meter, tune: Callable[[], int] | None = None) -> None:
        self.world, self.now, self.meter = world, 0.0, meter
        self.tune = tune  # called at each request that is counted; returns the number of workers
        self.cpu = 0.0  # of the process
        self.holder: _Thread | None = None  # of the interpreter's lock
        self.turn_left = 0.0

    def run(self) -> None:
        """Run the epochs and note the times of their batches."""
        world = self.world
        n, serial = 2 * world.batches, world.kind == "serial"
        loop, workers = _Thread(), [] if serial else [_Thread() for _ in range(world.workers)]
        helpers = [_Thread() for _ in range(world.loop_threads - 1)]
        others = [_Thread() for _ in range(world.neighbours)]
        submitted: dict[int, float] = dict.fromkeys(range(n if serial else min(world.buffer, n)), self.now)
        waiting, made, making = list(submitted), {}, {}
        arrived: dict[int, float] = {}
        taken_before, cpu_before, asked, k, state, resting = 0.0, 0.0, 0.0, 0, "ask", 0
        at_once = len(workers)
        while k < n:
            for other in others:
                there = world.neighbours_at[0] <= self.now < world.neighbours_at[1]
                other.phases = [("cpu", 1e9, "")] if there else []
            for place, worker in enumerate(workers):  # finish and begin batches
                if place in making and not worker.phases:
                    batch, began = making.pop(place)
                    spent = dict(worker.spent)
                    spent.pop("read", None)
                    made[batch] = (began, self.now - began, worker.cpu, worker.queued, place, spent)
                    arrived[batch] = self.now + world.transfer
                if place not in making and waiting and place < at_once:
                    batch = waiting.pop(0)
                    making[place] = batch, self.now
                    worker.begin(self._phases(batch))
            if not loop.phases and not any(each.phases for each in helpers):
                if state == "ask":
                    if self.tune is not None and k % COUNTED_OF == 0:
                        at_once = self.tune()
                        workers += [_Thread() for _ in range(at_once - len(workers))]
                        if any(place not in making for place in range(at_once)) and waiting:
                            asked, state = self.now, "wait"
                            continue
                    asked = self.now
                    state = "wait"
                    if serial:
                        loop.begin(self._phases(k))
                        state = "make"
                if state == "make" and not loop.phases:
                    spent = dict(loop.spent)
                    spent.pop("read", None)
                    made[k] = (asked, self.now - asked, loop.cpu, loop.queued, -1, spent)
                    arrived[k] = self.now
                    state = "wait"
                if state == "wait" and arrived.get(k, np.inf) <= self.now + 1e-12:
                    loop.begin([("lock", world.take, "take")])
                    state = "take"
                if state == "take" and not loop.phases:
                    ready = sum(at <= asked for batch, at in arrived.items() if batch >= k)
                    resting = (ready // 2 >= FEWEST_RESTED and rest(k, ready, world.buffer, at_once)) or resting
                    if resting:
                        resting -= 1
                    elif not serial:
                        new = list(range(len(submitted), min(n, k + 1 + world.buffer)))
                        waiting += new
                        submitted |= dict.fromkeys(new, self.now)
                    self._note(k, submitted[k], arrived[k], asked, ready, made[k])
                    taken_before, cpu_before = self.now, self.cpu
                    kind = "lock" if world.loop_locks else "cpu"
                    loop.begin([("lock", world.convert, ""), (kind, world.step_cpu, ""), ("wait", world.step_wait, "")])
                    for helper in helpers:
                        helper.begin([("cpu", world.step_cpu, "")])
                    state, k = "step", k + 1
                elif state == "step":
                    seconds = self.now - taken_before
                    if seconds > 0:
                        self.meter.steps.append(Step(taken_before, seconds, self.cpu - cpu_before, loop.queued))
                    state = "ask"
                    continue
            own = [loop, *helpers, *workers * (world.kind == "threads")]
            before = sum(each.cpu for each in own)
            self._pass([*workers, loop, *helpers, *others], [] if state != "wait" else [arrived.get(k, 0.0)])
            self.cpu += sum(each.cpu for each in own) - before

    def _phases(self, batch: int) -> list[tuple[str, float, str]]:
        world = self.world
        wait = world.first_epoch_wait if world.first_epoch_wait and batch < world.batches else world.read_wait
        wait += (world.slow if world.slow_of and batch % world.slow_of == world.slow_of - 1 else 0.0)
        mapping = "lock" if world.locks and world.kind in ("threads", "serial") else "cpu"
        return [("wait", wait, "read"), ("cpu", world.read_cpu, "read"), (mapping, world.map_cpu, "work"),
                ("cpu", world.pack, "(packing)")]  # fmt: skip

    def _note(self, k: int, submitted: float, arrived: float, asked: float, ready: int, made: Any) -> None:
        times = (*divmod(k, self.world.batches), 40, submitted, arrived, asked, self.now, ready, made)
        self.meter.add(40, times)

    def _pass(self, threads: list[_Thread], wakes: list[float]) -> None:
        """Let time pass until something happens: a phase ends, a batch arrives at a time in `wakes`, the lock turns."""
        want_lock = [each for each in threads if each.wants == "lock"]
        if want_lock and (self.holder not in want_lock or self.turn_left <= 1e-12):
            place = want_lock.index(self.holder) + 1 if self.holder in want_lock else 0
            self.holder, self.turn_left = want_lock[place % len(want_lock)], TURN
        running = [each for each in threads if each.wants == "cpu" or (each.wants == "lock" and each is self.holder)]
        share = min(1.0, self.world.cpus / len(running)) if running else 0.0
        until = [each.phases[0][1] / share for each in running]
        until += [each.phases[0][1] for each in threads if each.wants == "wait"]
        until += [at - self.now for at in wakes if at > self.now + 1e-12]
        until += [self.turn_left] if len(want_lock) > 1 else []
        seconds = max(min(until), 1e-9)
        for each in [each for each in threads if each.phases]:
            runs = each in running
            each.advance(seconds, share if runs else 0.0, runs)
        self.turn_left -= seconds
        self.now += seconds
