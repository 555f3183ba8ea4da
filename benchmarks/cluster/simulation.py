"""Batches made by the actors of a simulated cluster, in discrete events, under the rules of the real `Schedule`.

Real: the assignment of batches to actors, the batches that an actor holds, the consequences of a loss
(:class:`~batchup_ng.work_pool.processes.schedule.Schedule`). Simulated: the clock, the actors, the network link of the
consumer's machine, the dispatcher's thread there, and a prefetch buffer whose consumer takes each batch at its turn
without delay. The link and the dispatcher do one thing at a time, first come, first served.

A batch visits them in this order. Each step is an event with a time::

    buffer -> dispatcher: call -> (latency) -> actor: make -> link -> (latency) -> dispatcher: take, copy -> buffer

A lost node stops at once. The batches of its actors are lost, and the results that had not crossed the link. The
schedule learns of the loss later, when Ray does; until then it waits for that node's batches. Then replacement actors
start on nodes with room. The schedule knows an actor from its first answer until its loss is noticed.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from batchup_ng.work_pool.processes.schedule import Action, Schedule, ScheduledWorker, Send
from batchup_ng.work_pool.task import Submission

RETRYABLE = Submission(retryable=True)
"""Policy of submitted batches: if its actor dies, a batch is made again."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of a batch and of a lost node. Times are in seconds, bandwidths in bytes a second.

    A batch has the bytes of 64 images of 224×224×3. Two CPUs make 2,281 images a second from small JPEG files
    (``docs/benchmarks.md``, "Images", "fast"), so one CPU needs 56 ms a batch. The times of a call, a result and the
    copy were measured in the Ray pool's thread, on the same machine, with batches of 9.6 MB from two actors
    (``docs/benchmarks.md``, "Ray"). The network, its latency, the variation and the restart are assumptions.

    Ray counts a node as dead after ``health_check_failure_threshold`` = 5 failed checks, ``health_check_period_ms`` =
    3,000 apart (``src/ray/common/ray_config_def.h`` of Ray 2.60). If checks are refused at once, as by a machine whose
    Ray was killed, that is 15 s at most. If nothing answers, each check takes another ``health_check_timeout_ms`` =
    10,000.
    """

    batch_seconds: float = 64 * 2 / 2281  # mean of an actor on a node at full speed
    variation: float = 0.2  # standard deviation of batch_seconds over its mean; the distribution is log-normal
    batch_bytes: int = 64 * 224 * 224 * 3
    submit_seconds: float = 0.3e-3  # of the dispatcher for a call
    take_seconds: float = 0.2e-3  # of the dispatcher for a result, without the copy
    copy_bandwidth: float = 6e9
    network_bandwidth: float = 25e9 / 8  # of the consumer's machine, shared by all actors
    latency: float = 0.2e-3  # of a message, one way
    noticed_seconds: float = 15.0  # from a node's loss until the schedule hears of it
    restart_seconds: float = 5.0  # of an actor, until it answers

    @property
    def consumer_seconds(self) -> float:
        """Seconds of the dispatcher for one batch."""
        return self.submit_seconds + self.take_seconds + self.batch_bytes / self.copy_bandwidth

    def draw(self, batches: int, seed: int) -> Sequence[float]:
        """Return the seconds of each batch at full speed, the same in every simulation with this seed."""
        width = math.log1p(self.variation**2)
        rng = np.random.default_rng(seed)
        drawn = rng.lognormal(math.log(self.batch_seconds) - width / 2, math.sqrt(width), batches)
        return [float(seconds) for seconds in drawn]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes, and the time at which some are lost."""

    speeds: tuple[float, ...]  # of each node with actors; 1 is full speed
    actors_per_node: int = 16
    spare: int = 0  # nodes at full speed without actors at first
    losses: tuple[tuple[float, int], ...] = ()  # (seconds, node)

    def __post_init__(self) -> None:
        if len({node for _, node in self.losses}) >= len(self.speeds) + self.spare:
            raise ValueError(f"losses must leave a node, or the batches are never made; got {self.losses}")

    @property
    def actors(self) -> int:
        """Number of actors at first."""
        return len(self.speeds) * self.actors_per_node


def rates(costs: Costs, cluster: Cluster) -> dict[str, float]:
    """Return the most batches a second that the actors make before any loss, the link carries, the dispatcher takes."""
    return {
        "actors": sum(cluster.speeds) * cluster.actors_per_node / costs.batch_seconds,
        "network": costs.network_bandwidth / costs.batch_bytes,
        "consumer": 1 / costs.consumer_seconds,
    }


@dataclasses.dataclass(eq=False)
class Node:
    """A machine with room for some actors."""

    speed: float
    room: int
    alive: bool = True
    noticed: bool = False  # whether its loss is known


@dataclasses.dataclass(eq=False)
class Batch:
    """A batch, as the schedule sees it."""

    number: int
    how: Submission = RETRYABLE
    began: float | None = None
    deaths: int = 0
    finished: bool = False

    def begin(self) -> bool:
        """Return True: every batch is still wanted."""
        return True


@dataclasses.dataclass(eq=False)
class Line:
    """A link, a thread or an actor, which does one thing at a time: first come, first served, by rank."""

    waiting: list[tuple[int, int, Use, Way]] = dataclasses.field(default_factory=list)
    busy: bool = False
    busy_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Use:
    """Some seconds of a line. If its node is lost before they begin, the rest of the way is dropped."""

    line: Line
    seconds: float
    node: Node | None = None
    rank: int = 2


Way: TypeAlias = "Iterator[float | Use]"
"""What happens to a batch or a node. It yields seconds to wait for, or the use of a line."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Actor(ScheduledWorker[Batch]):
    """A worker on a node."""

    node: Node
    line: Line = dataclasses.field(default_factory=Line)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a simulation."""

    delivered: tuple[int, ...]  # numbers of batches, in the consumer's order
    seconds: float  # until the last batch
    held: int  # most batches that waited on the consumer's machine for their turn at once
    busy: dict[str, float]  # busy share of the time of the actors, the network and the consumer's dispatcher
    made: int  # batches that actors made, including those lost on the way


class Simulation:
    """One epoch of `batches` batches, at most `buffer` of them in flight or done at once. Runs once."""

    def __init__(self, costs: Costs, cluster: Cluster, batches: int, buffer: int, seed: int = 0) -> None:
        self._costs, self._cluster, self._buffer = costs, cluster, buffer
        self._seconds = costs.draw(batches, seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()  # breaks ties of events at one time
        self._link, self._dispatcher = Line(), Line()
        self._schedule: Schedule[Actor, Batch] = Schedule(cluster.actors, threads=1)
        self._nodes = [Node(speed, cluster.actors_per_node) for speed in (*cluster.speeds, *[1.0] * cluster.spare)]
        self._actors: list[Actor] = []  # including those that do not answer yet
        self._submitted = self._held = self._max_held = self._made = 0
        self._made_seconds = 0.0
        self._done: set[int] = set()
        self._delivered: list[int] = []

    def run(self) -> Outcome:
        """Simulate until the last batch is delivered."""
        for actor in self._place_actors():
            self._come_up(actor)
        for seconds, node in self._cluster.losses:
            self._go(self._loss(seconds, self._nodes[node]))
        self._top_up()
        while len(self._delivered) < len(self._seconds):
            self._now, _, happens = heapq.heappop(self._events)
            happens()
        busy = {
            "actors": self._made_seconds / self._cluster.actors,
            "network": self._link.busy_seconds,
            "consumer": self._dispatcher.busy_seconds,
        }
        shares = {name: seconds / self._now for name, seconds in busy.items()}
        return Outcome(tuple(self._delivered), self._now, self._max_held, shares, self._made)

    def _after(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._number), happens))

    def _go(self, way: Way) -> None:
        """Take a way on to the next time that it waits for."""
        wait = next(way, None)
        if isinstance(wait, Use):
            heapq.heappush(wait.line.waiting, (wait.rank, next(self._number), wait, way))
            if not wait.line.busy:
                self._serve(wait.line)
        elif wait is not None:
            self._after(wait, partial(self._go, way))

    def _serve(self, line: Line, done: Way | None = None) -> None:
        """Go on with the way whose use of a line has ended, then begin the next use."""
        if done is not None:
            self._go(done)
        line.busy = False
        while line.waiting and not line.busy:
            _, _, use, way = heapq.heappop(line.waiting)
            if use.node is None or use.node.alive:
                line.busy = True
                line.busy_seconds += use.seconds
                self._after(use.seconds, partial(self._serve, line, way))

    def _top_up(self) -> None:
        """Submit batches until the buffer is full or no batches are left."""
        while self._submitted < min(len(self._seconds), len(self._delivered) + self._buffer):
            batch = Batch(self._submitted)
            self._submitted += 1
            self._do(self._schedule.submit(batch, self._now))

    def _do(self, actions: Sequence[Action[Actor, Batch]], rank: int = 2) -> None:
        for action in actions:
            assert isinstance(action, Send), "a lost node is no batch's fault"
            self._go(self._trip(action.worker, action.task, rank))

    def _trip(self, actor: Actor, batch: Batch, rank: int) -> Way:
        """Yield the times of a batch from its call to the buffer, which then hands out the batches whose turn it is."""
        costs, node = self._costs, actor.node
        seconds = self._seconds[batch.number] / node.speed
        yield Use(self._dispatcher, costs.submit_seconds, rank=rank)
        yield costs.latency
        yield Use(actor.line, seconds, node)
        if not node.alive:
            return
        self._made += 1
        self._made_seconds += seconds
        yield Use(self._link, costs.batch_bytes / costs.network_bandwidth, node)
        if not node.alive:
            return
        yield costs.latency
        self._held += 1
        self._max_held = max(self._max_held, self._held)
        yield Use(self._dispatcher, costs.take_seconds)
        if node.noticed:  # another actor has got the batch
            self._held -= 1
            return
        self._do(self._schedule.result(actor, batch, self._now), rank=0)  # an actor gets its call before the copy
        yield Use(self._dispatcher, costs.batch_bytes / costs.copy_bandwidth, rank=1)
        self._done.add(batch.number)
        while len(self._delivered) in self._done:
            self._delivered.append(len(self._delivered))
            self._held -= 1
        self._top_up()

    def _loss(self, seconds: float, node: Node) -> Way:
        """Yield the times of a loss. No actor of it counts against its batch, and none gets a batch of another one."""
        yield seconds
        node.alive = False
        yield self._costs.noticed_seconds
        node.noticed = True
        lost = [actor for actor in self._schedule.workers if actor.node is node]
        for actor in lost:
            actor.killed = True
        for actor in lost:
            self._do(self._schedule.died(actor, self._now))
        self._actors = [actor for actor in self._actors if actor.node is not node]
        for actor in self._place_actors():
            self._after(self._costs.restart_seconds, partial(self._come_up, actor))

    def _place_actors(self) -> list[Actor]:
        """Start missing actors, as far as nodes that are not known to be lost have room."""
        placed: list[Actor] = []
        for node in self._nodes:
            while not node.noticed and node.room and len(self._actors) < self._cluster.actors:
                node.room -= 1
                placed.append(Actor(self._now, node=node))
                self._actors.append(placed[-1])
        return placed

    def _come_up(self, actor: Actor) -> None:
        if actor.node.alive:
            self._schedule.add(actor)
            self._do(self._schedule.ready(actor, self._now))
