"""Batches made by the actors of a simulated cluster, in discrete events, under the rules of the real `Schedule`.

What is real: who gets which batch, how many an actor holds, what follows from a loss
(:class:`~batchup_ng.work_pool.processes.schedule.Schedule`). What is simulated: the clock, the actors, the network
link of the consumer's machine, the dispatcher's thread there, and a prefetch buffer whose consumer takes each batch as
soon as it is its turn. The link and the dispatcher do one thing after another, first come, first served.

A batch visits them in this order; whatever happens is an event with a time::

    buffer -> dispatcher: call -> (latency) -> actor: make -> link -> (latency) -> dispatcher: take, copy -> buffer

A node that is lost stops at once, with what its actors were making and the results that had not crossed the link.
The schedule hears of it later, when Ray does; until then it counts on that node for what it gave it. Actors that are
missing then start on nodes that have room; the schedule knows an actor from when it answers until it is missed.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from batchup_ng.work_pool.processes.schedule import Action, Schedule, ScheduledWorker, Send
from batchup_ng.work_pool.task import Submission

RETRYABLE = Submission(retryable=True)
"""How batches are submitted: one whose actor died is made again."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """What one batch costs, and what a lost node does; times in seconds, bandwidths in bytes a second.

    The bytes are 64 pictures of 224×224×3. Their time is that of 2,281 small JPEG files a second by two CPUs
    (``docs/benchmarks.md``, "Pictures", "fast"), or 56 ms a batch of one CPU. The times of a call and a result and the
    copy are those of the Ray pool's thread, measured on the same machine with batches of 9.6 MB from two actors
    (``docs/benchmarks.md``, "Ray"). The network, its latency, the variation and the restart are assumptions.

    Ray counts a node as dead after ``health_check_failure_threshold`` = 5 failed checks, ``health_check_period_ms`` =
    3,000 apart (``src/ray/common/ray_config_def.h`` of Ray 2.60): 15 s at most where checks are refused at once, as by
    a machine whose Ray was killed. Where nothing answers, each takes ``health_check_timeout_ms`` = 10,000 as well.
    """

    batch_seconds: float = 64 * 2 / 2281  # mean, of an actor on a node at full speed
    variation: float = 0.2  # standard deviation of that by its mean; the distribution is log-normal
    batch_bytes: int = 64 * 224 * 224 * 3
    submit_seconds: float = 0.3e-3  # of the dispatcher, a call
    take_seconds: float = 0.2e-3  # of the dispatcher, a result, without the copy
    copy_bandwidth: float = 6e9
    network_bandwidth: float = 25e9 / 8  # of the consumer's machine, shared by all actors
    latency: float = 0.2e-3  # of a message, one way
    noticed_seconds: float = 15.0  # from a node's loss until the schedule hears of it
    restart_seconds: float = 5.0  # of an actor, until it answers

    @property
    def consumer_seconds(self) -> float:
        """What the dispatcher takes for one batch."""
        return self.submit_seconds + self.take_seconds + self.batch_bytes / self.copy_bandwidth

    def draw(self, batches: int, seed: int) -> Sequence[float]:
        """Return the seconds that each batch takes at full speed, the same in every simulation with this seed."""
        width = math.log1p(self.variation**2)
        rng = np.random.default_rng(seed)
        drawn = rng.lognormal(math.log(self.batch_seconds) - width / 2, math.sqrt(width), batches)
        return [float(seconds) for seconds in drawn]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Nodes, and which are lost when."""

    speeds: tuple[float, ...]  # of each node with actors; 1 is full speed
    actors_per_node: int = 16
    spare: int = 0  # nodes at full speed on which there are no actors at first
    losses: tuple[tuple[float, int], ...] = ()  # (seconds, node)

    def __post_init__(self) -> None:
        if len({node for _, node in self.losses}) >= len(self.speeds) + self.spare:
            raise ValueError(f"losses must leave a node, or the batches are never made; got {self.losses}")

    @property
    def actors(self) -> int:
        """How many there are at first."""
        return len(self.speeds) * self.actors_per_node


def rates(costs: Costs, cluster: Cluster) -> dict[str, float]:
    """Return how many batches a second the actors can make before any loss, the link carry, the dispatcher take."""
    return {
        "actors": sum(cluster.speeds) * cluster.actors_per_node / costs.batch_seconds,
        "network": costs.network_bandwidth / costs.batch_bytes,
        "consumer": 1 / costs.consumer_seconds,
    }


@dataclasses.dataclass(eq=False)
class Node:
    """A machine with room for so many actors."""

    speed: float
    room: int
    alive: bool = True
    noticed: bool = False  # its loss


@dataclasses.dataclass(eq=False)
class Batch:
    """A batch, as the schedule sees it."""

    number: int
    how: Submission = RETRYABLE
    began: float | None = None
    deaths: int = 0
    finished: bool = False

    def begin(self) -> bool:
        """Return whether it is still wanted: always."""
        return True


@dataclasses.dataclass(eq=False, kw_only=True)
class Actor(ScheduledWorker[Batch]):
    """A worker on a node, with the batches that have reached it; it makes the first."""

    node: Node
    queue: collections.deque[Batch] = dataclasses.field(default_factory=collections.deque)


class Line:
    """A link or a thread, which does one thing after another; a link drops what lost nodes have not begun to send."""

    def __init__(self, after: Callable[..., None], *, is_link: bool) -> None:
        self._after = after
        self._is_link = is_link
        self._queue: collections.deque[tuple[float, Callable[..., None], Actor, Batch]] = collections.deque()
        self._busy = False
        self.busy_seconds = 0.0

    def put(self, seconds: float, then: Callable[..., None], actor: Actor, batch: Batch, first: bool = False) -> None:
        """Queue what takes so many seconds and is followed by a call of `then`, perhaps before all else."""
        (self._queue.appendleft if first else self._queue.append)((seconds, then, actor, batch))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        while self._is_link and self._queue and not self._queue[0][2].node.alive:
            self._queue.popleft()
        self._busy = bool(self._queue)
        if self._busy:
            seconds, then, actor, batch = self._queue.popleft()
            self.busy_seconds += seconds
            self._after(seconds, self._done, then, actor, batch)

    def _done(self, then: Callable[..., None], actor: Actor, batch: Batch) -> None:
        then(actor, batch)
        self._next()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a simulation came to."""

    delivered: tuple[int, ...]  # numbers of batches, in the order in which the consumer had them
    seconds: float  # until the last
    held: int  # the most batches that were on the consumer's machine at once, before their turn
    busy: dict[str, float]  # the share of the time that the actors, the network and the consumer's dispatcher were busy
    made: int  # batches that actors made, those that were lost on the way included


class Simulation:
    """One epoch of so many batches, of which at most `buffer` are under way or done at once; runs once."""

    def __init__(self, costs: Costs, cluster: Cluster, batches: int, buffer: int, seed: int = 0) -> None:
        self._costs, self._cluster, self._buffer = costs, cluster, buffer
        self._seconds = costs.draw(batches, seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._event_number = itertools.count()  # of two events at one time, which was first
        self._link = Line(self._after, is_link=True)
        self._dispatcher = Line(self._after, is_link=False)
        self._schedule: Schedule[Actor, Batch] = Schedule(cluster.actors, threads=1)
        self._nodes = [Node(speed, cluster.actors_per_node) for speed in (*cluster.speeds, *[1.0] * cluster.spare)]
        self._actors: list[Actor] = []  # also those that do not answer yet
        self._submitted = self._held = self._max_held = self._made = 0
        self._made_seconds = 0.0
        self._done: set[int] = set()
        self._delivered: list[int] = []

    def run(self) -> Outcome:
        """Simulate until the last batch is delivered."""
        for actor in self._place_actors():
            self._come_up(actor)
        for seconds, node in self._cluster.losses:
            self._after(seconds, self._lose, self._nodes[node])
        self._top_up()
        while len(self._delivered) < len(self._seconds):
            self._now, _, happens, arguments = heapq.heappop(self._events)
            happens(*arguments)
        busy = {
            "actors": self._made_seconds / self._cluster.actors,
            "network": self._link.busy_seconds,
            "consumer": self._dispatcher.busy_seconds,
        }
        shares = {name: seconds / self._now for name, seconds in busy.items()}
        return Outcome(tuple(self._delivered), self._now, self._max_held, shares, self._made)

    def _after(self, seconds: float, happens: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._event_number), happens, arguments))

    # -- the prefetch buffer -------------------------------------------------------------------------------------

    def _top_up(self) -> None:
        """Submit batches until the buffer is full or there are no more."""
        while self._submitted < min(len(self._seconds), len(self._delivered) + self._buffer):
            batch = Batch(self._submitted)
            self._submitted += 1
            self._do(self._schedule.submit(batch, self._now))

    def _deliver(self) -> None:
        """Hand out the batches whose turn it is."""
        while len(self._delivered) in self._done:
            self._delivered.append(len(self._delivered))
            self._held -= 1

    # -- a batch, step by step -----------------------------------------------------------------------------------

    def _do(self, actions: Sequence[Action[Actor, Batch]], first: bool = False) -> None:
        for action in actions:
            assert isinstance(action, Send), "a lost node is no batch's fault"
            self._dispatcher.put(self._costs.submit_seconds, self._call, action.worker, action.job, first)

    def _call(self, actor: Actor, batch: Batch) -> None:
        self._after(self._costs.latency, self._reach, actor, batch)

    def _reach(self, actor: Actor, batch: Batch) -> None:
        actor.queue.append(batch)
        if len(actor.queue) == 1:
            self._make(actor)

    def _make(self, actor: Actor) -> None:
        seconds = self._seconds[actor.queue[0].number] / actor.node.speed
        self._after(seconds, self._end, actor, seconds)

    def _end(self, actor: Actor, seconds: float) -> None:
        if actor.node.alive:
            self._made += 1
            self._made_seconds += seconds
            transfer = self._costs.batch_bytes / self._costs.network_bandwidth
            self._link.put(transfer, self._cross, actor, actor.queue.popleft())
            if actor.queue:
                self._make(actor)

    def _cross(self, actor: Actor, batch: Batch) -> None:
        if actor.node.alive:
            self._after(self._costs.latency, self._land, actor, batch)

    def _land(self, actor: Actor, batch: Batch) -> None:
        self._held += 1
        self._max_held = max(self._max_held, self._held)
        self._dispatcher.put(self._costs.take_seconds, self._take, actor, batch)

    def _take(self, actor: Actor, batch: Batch) -> None:
        if actor.node.noticed:  # the batch has been given to another
            self._held -= 1
            return
        copy = self._costs.batch_bytes / self._costs.copy_bandwidth
        self._dispatcher.put(copy, self._copied, actor, batch, first=True)
        self._do(self._schedule.result(actor, batch, self._now), first=True)  # an actor has its call before the copy

    def _copied(self, actor: Actor, batch: Batch) -> None:
        self._done.add(batch.number)
        self._deliver()
        self._top_up()

    # -- a loss --------------------------------------------------------------------------------------------------

    def _lose(self, node: Node) -> None:
        node.alive = False
        self._after(self._costs.noticed_seconds, self._notice, node)

    def _notice(self, node: Node) -> None:
        """Report all actors of a lost node; none counts against its batch, nor gets those of another before."""
        node.noticed = True
        lost = [actor for actor in self._schedule.workers if actor.node is node]
        for actor in lost:
            actor.killed = True
        for actor in lost:
            self._do(self._schedule.died(actor, self._now))
        self._actors = [actor for actor in self._actors if actor.node is not node]
        for actor in self._place_actors():
            self._after(self._costs.restart_seconds, self._come_up, actor)

    def _place_actors(self) -> list[Actor]:
        """Start the actors that are missing, as far as there is room on nodes that are not known to be lost."""
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
