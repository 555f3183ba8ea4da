"""The dispatcher of the Ray pool: it starts, replaces and ends actors, as the schedule decides.

Ownership. One thread owns everything: the actors, the calls under way, the :class:`~..processes.schedule.Schedule`.
Users of the pool, Ray's threads with the answer of a call, and the collector put functions into its inbox, a queue, and
the thread calls them. So there is no lock, and only this thread waits for Ray.

A batch arrives in the object store of this machine. The dispatcher copies it into reused memory during the consumer's
step. The actor that made it has its next task by then.

On a crash: if an actor dies, Ray starts it again, on its node or another one (``max_restarts=-1``). Ray does not repeat
calls (``max_task_retries=0``), because the schedule does so by its own rules. The dispatcher greets an actor until it
answers. The actor is then a new worker with nothing loaded.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from ..._version import __version__
from ...errors import ClusterError, PoolClosed, SampleTimeout, WorkerDied
from ...interpreter import numbers
from ...memory.leases import ALIGNMENT, BufferPool
from ...signals import leave_interrupts_to_others
from ..prefetch_buffer import check_process
from ..processes.future import NO_CALL, ProcessFuture
from ..processes.protocol import Frame, Kind
from ..processes.schedule import LATE, NOT_LOADED, Action, Fail, Kill, Schedule, Send
from .actor import Actor, Greeting
from .cluster import Cluster, actor_options, cause_of_death, last_line
from .seat import RayWorker, Seat

ROOM_TIMEOUT = 8.0
"""Seconds to wait for room in a cluster that had none for an actor."""

START_TIMEOUT = 60.0
"""Seconds within which one actor has to answer; ten times as many if Ray has to make its environment first."""

GREET_AGAIN = 0.2
"""Seconds until an actor that does not answer yet is greeted again."""

LOOK_EVERY = 1.0
"""Seconds between two checks of the connection and the nodes."""

NODE_GRACE = 0.1
"""Seconds within which all actors of a lost node are missed."""

LET_GO = 30.0
"""Seconds until an actor without room is given up, if the number of actors follows the nodes."""

RAY_DISCONNECTED = "the program's connection to Ray was ended (ray.shutdown); make a new pool"

CLOSE_TIMEOUT = 10.0
"""Seconds that ``close`` waits for the dispatcher's thread."""


class RayDispatcher:
    """Owns the actors and hands out tasks. It has no reference to the pool, which the program may drop."""

    def __init__(self, cluster: Cluster, actors: int | None, need: dict[str, float], has_env: bool, copy: bool) -> None:
        self._cluster = cluster
        self._ray = cluster.ray
        self._wanted = actors
        self._need = need
        self._patience = START_TIMEOUT * (10 if has_env else 1)
        self._copy = copy
        self.lacking = ""  # text of a warning if not all actors come up
        self._new_actor = cluster.ray.remote(Actor).options(**actor_options(need, cluster.runtime_env)).remote
        self.size = max(1, cluster.room_for(need)) if actors is None else actors
        self._schedule: Schedule[RayWorker, ProcessFuture] = Schedule(self.size, 1, self._patience)
        self._seats: list[Seat] = []
        self._memory = BufferPool()
        self._inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], Any]]] = []
        self._next_number = numbers(1)
        self._owner_pid = os.getpid()
        self._closed = self._left = False
        self._ended = ""  # the reason, if the dispatcher ended without a close of the pool
        self._empty_since = 0.0  # since when no actor is up, if none is
        self._had_room = False
        self._last_death = ""
        self._lost_of: dict[str, list[RayWorker]] = {}  # actors that were just lost, by their node
        self._limited = False  # whether a task has a time limit; if so, each turn checks all actors
        self._thread = threading.Thread(target=self._run, name="batchup_ng-ray", daemon=True)
        self._thread.start()

    # -- any thread --------------------------------------------------------------------------------------------

    def submit(self, future: ProcessFuture) -> None:
        """Run a task on an actor."""
        check_process(self._owner_pid)
        self.check_open()
        future.number = self._next_number()
        if not future.finished:
            self._inbox.put(partial(self._submitted, future))
            if self._left:
                self._drain()

    def check_open(self) -> None:
        """Raise :class:`PoolClosed` if the pool was closed, :class:`ClusterError` if its connection is gone."""
        if self._ended:
            raise ClusterError(self._ended)
        if self._closed:
            raise PoolClosed("this pool was closed; make a new one")

    def forget(self, number: int) -> None:
        """Let the actors drop a constant. May be called inside any code."""
        self._inbox.put(partial(self._forgotten, number))

    def stats(self) -> list[dict[str, Any]]:
        """Return statistics of each actor."""
        running = {worker.seat: len(worker.tasks) for worker in tuple(self._schedule.workers)}
        return [
            {
                "node": seat.greeting.address, "pid": seat.greeting.pid, "tasks": seat.tasks, "running": running[seat],
                "restarts": seat.restarts,
            }
            for seat in tuple(self._seats)
            if seat.greeting is not None and seat in running
        ]  # fmt: skip

    def close(self) -> None:
        """End the actors and wait until Ray has the request. May be called again."""
        if os.getpid() != self._owner_pid:
            return  # in a fork by the user: the actors belong to its parent
        self.abandon()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_TIMEOUT)

    def abandon(self) -> None:
        """Have the dispatcher end the actors soon. May be called inside any code."""
        self._closed = True
        self._inbox.put(_nothing)

    # -- the dispatcher's thread, all that follows -------------------------------------------------------------

    def _run(self) -> None:
        leave_interrupts_to_others()
        try:
            self._look()
            while not (self._closed or self._ended):
                self._serve_once()
        except BaseException as error:
            time.sleep(LOOK_EVERY)  # if the connection is just ending, this shows by then
            if self._cluster.connected():
                self._ended = f"the dispatcher of this pool failed, make a new one: {error!r}"
                raise
            self._ended = RAY_DISCONNECTED
        finally:
            self._leave()

    def _serve_once(self) -> None:
        """Wait for the next call or timer, and run it."""
        now = time.monotonic()
        due = min(self._timers[0][0], self._schedule.next_tick() if self._limited else math.inf)
        with contextlib.suppress(queue.Empty):
            self._inbox.get(timeout=max(0.0, due - now))()
        now = time.monotonic()
        while self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        if self._limited and self._inbox.empty() and self._schedule.next_tick() <= now:
            self._do(self._schedule.tick(now))

    def _later(self, seconds: float, call: Callable[[], Any]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._next_number(), call))

    def _look(self) -> None:
        """Check the connection, the wanted number of actors, and whether any actor comes up."""
        self._later(LOOK_EVERY, self._look)
        if not self._cluster.connected():
            self._ended = RAY_DISCONNECTED
            return
        if self._seats:
            self._keep_size(time.monotonic())
            self._look_for_all(time.monotonic())
        if self._seats and not self._schedule.workers:
            self._look_for_room(time.monotonic())

    def _keep_size(self, now: float) -> None:
        """Make as many actors as are wanted, or as there is room for."""
        absent = [seat for seat in self._seats if seat.absent_since]
        if not self._seats:
            self._empty_since = now
            self._had_room = self._cluster.room_for(self._need) > 0
        if self._wanted is None:
            for seat in absent:
                if now > seat.absent_since + LET_GO and self._schedule.workers:
                    self._give_up(seat)
            self.size = max(1, len(self._seats) + (0 if absent else self._cluster.room_for(self._need)))
        while len(self._seats) < self.size:
            self._cluster.check()
            taken = {seat.number for seat in self._seats}
            number = next(number for number in itertools.count() if number not in taken)
            seat = Seat(number, self._new_actor(number), now)
            self._seats.append(seat)
            self._greet(seat)

    def _look_for_all(self, now: float) -> None:
        """Set the warning if some of the requested actors have been missing for long while others work."""
        missing = sum(bool(seat.absent_since) and now > seat.absent_since + LET_GO for seat in self._seats)
        if missing and self._wanted is not None and self._schedule.workers:
            self.lacking = (
                f"{len(self._schedule.workers)} of {self._wanted} actors are up; the cluster has had no room for the "
                f"others for {LET_GO:.0f} s, and they are used as room comes; pass fewer as actors=, or add nodes"
            )

    def _look_for_room(self, now: float) -> None:
        """Fail the waiting tasks if no actor comes up."""
        no_room = not self._had_room and not any(seat.restarts >= 0 for seat in self._seats)
        if now < self._empty_since + (ROOM_TIMEOUT if no_room else self._patience):
            return
        asked = ", ".join(f"{name}: {amount:g}" for name, amount in self._need.items())
        free = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(self._cluster.free().items())) or "nothing"
        self._fail_all(
            ClusterError(
                f"none of {len(self._seats)} actors came up in {now - self._empty_since:.0f} s: each needs "
                f"{{{asked}}}, free on all nodes together is {{{free}}}; ask for less (actors=, num_cpus=, "
                f"resources=), end what has the rest, or add nodes before the pool is used"
                f"{self._last_death and '. Last: '}{self._last_death}"
            )
        )
        for seat in list(self._seats):
            self._give_up(seat)

    # -- actors ------------------------------------------------------------------------------------------------

    def _greet(self, seat: Seat) -> None:
        """Ask an actor to answer that it is up."""
        if seat in self._seats:
            self._call(seat.actor.greet, partial(self._greeted, seat))

    def _call(self, method: Any, then: Callable[[Any, Any], Any], *args: Any) -> Any:
        """Call a method of an actor. Its answer arrives in the inbox. Return Ray's reference to it."""
        self._cluster.check()
        ref = method.remote(*args)
        ref.future().add_done_callback(lambda answer: self._inbox.put(partial(then, ref, answer)))
        return ref

    def _greeted(self, seat: Seat, ref: Any, answer: Any) -> None:
        if seat not in self._seats:
            return
        failed, error = None, answer.exception()
        if error is None:
            greeting = Greeting(*answer.result())
            if seat.greeting is not None and seat.greeting[1:] == greeting[1:]:
                failed = "it is still being ended"
                self._start_again(seat)  # because a call may fail although its actor lives
            elif greeting.version != __version__:
                self._refuse(f"node {greeting.address} has batchup_ng {greeting.version}, and here is {__version__}")
                return
        elif isinstance(error, self._ray.exceptions.RayActorError):
            failed = last_line(error)
            if isinstance(error, self._ray.exceptions.ActorDiedError):  # for good
                if seat.greeting is None:
                    self._refuse(f"an actor cannot be started: {last_line(error)}")
                    return
                self._last_death = failed
                self._cluster.check()
                seat.actor = self._new_actor(seat.number)
        else:
            self._refuse(f"an actor cannot be started: {last_line(error)}")
            return
        if failed is not None:
            self._later(GREET_AGAIN, partial(self._greet, seat))
            return
        seat.greeting, seat.absent_since, seat.restarts = greeting, 0.0, seat.restarts + 1
        now = time.monotonic()
        worker = RayWorker(now, seat=seat)
        self._schedule.reset()  # it must not give up: Ray starts actors again; `_look_for_room` checks if none comes up
        self._schedule.add(worker)
        self._do(self._schedule.ready(worker, now))

    def _refuse(self, why: str) -> None:
        """Give up, because no actor can do its work."""
        self._fail_all(
            ClusterError(
                f"{why}; each node needs batchup_ng and what it needs, in the same versions, unless Ray sends it: "
                f"runtime_env={{'py_modules': [batchup_ng]}}, of ray.init if the program calls that. Or see what Ray "
                f"says of runtime_env="
            )
        )
        for seat in list(self._seats):
            self._give_up(seat)

    def _start_again(self, seat: Seat) -> None:
        """End an actor. Ray starts it again."""
        self._cluster.check()
        self._ray.kill(seat.actor, no_restart=False)

    def _give_up(self, seat: Seat) -> None:
        """End an actor for good."""
        self._seats.remove(seat)
        for worker in [each for each in self._schedule.workers if each.seat is seat]:
            worker.calls.clear()
            self._do(self._schedule.died(worker, time.monotonic()))
        if self._cluster.connected():
            self._ray.kill(seat.actor, no_restart=True)

    def _lost(self, worker: RayWorker, why: str) -> None:
        """Record that an actor is gone. Check soon whether all actors of its node are."""
        greeting = worker.seat.greeting
        assert greeting is not None
        self._last_death = f"worker {greeting.pid} on node {greeting.address} died: {why}"
        worker.calls.clear()
        worker.killed = True  # it gets no more tasks
        lost = self._lost_of.setdefault(greeting.node, [])
        lost.append(worker)
        if len(lost) == 1:
            self._later(NODE_GRACE, partial(self._bury, greeting.node))

    def _bury(self, node: str) -> None:
        """Hand out again the tasks of actors lost on a node. If several actors were lost, their tasks are not to blame.

        Exception: the task of an actor that never finished one is to blame. Otherwise tasks that all kill their actors
        would be repeated forever.
        """
        lost = self._lost_of.pop(node)
        for worker in lost:
            worker.killed = len(lost) > 1 and worker.finished > 0
        for worker in lost:
            self._died(worker)

    def _died(self, worker: RayWorker) -> None:
        """Hand out again the tasks of an actor. Ray starts it again."""
        if worker not in self._schedule.workers:
            return
        worker.seat.absent_since = now = time.monotonic()
        self._do(self._schedule.died(worker, now))
        if not self._schedule.workers:
            self._empty_since = now
        self._greet(worker.seat)

    # -- tasks -------------------------------------------------------------------------------------------------

    def _submitted(self, future: ProcessFuture) -> None:
        self._limited = self._limited or future.how.timeout is not None
        self._do(self._schedule.submit(future, time.monotonic()))
        if not self._seats:
            self._keep_size(time.monotonic())

    def _do(self, actions: Iterable[Action[RayWorker, ProcessFuture]]) -> None:
        """Carry out the actions of the schedule."""
        for action in actions:
            if isinstance(action, Send):
                self._send(action.worker, action.task)
            elif isinstance(action, Kill):
                self._start_again(action.worker.seat)
                action.worker.calls.clear()
                self._died(action.worker)
            elif isinstance(action, Fail):
                action.task.fail(self._error_of(action.task, action.why))

    def _send(self, worker: RayWorker, future: ProcessFuture) -> None:
        kind, pickled, buffers, constants = future.encoded
        actor = worker.seat.actor
        for constant in constants:
            if constant.number not in worker.constants:
                worker.constants.add(constant.number)
                worker.loads(future)
                ref = constant.ref  # type: ignore[attr-defined]  # it is a RayConstant
                self._call(actor.keep, partial(self._loaded, worker), constant.number, ref)
        arrays = [np.frombuffer(each, np.uint8) for each in buffers]
        arguments = [tuple(worker.seat.greeting or ()), int(kind), future.number, pickled, arrays]
        worker.calls.add(self._call(actor.run, partial(self._answered, worker, future), arguments))

    def _loaded(self, worker: RayWorker, ref: Any, answer: Any) -> None:
        if worker in self._schedule.workers:
            self._do(self._schedule.loaded(worker, time.monotonic()))

    def _renewed(self, worker: RayWorker, greeting: Greeting) -> None:
        """Record that an idle actor died unnoticed. The actor that replaced it has no constants."""
        if worker.seat.greeting != greeting:
            worker.seat.greeting = greeting
            worker.seat.restarts += 1
            worker.constants.clear()

    def _answered(self, worker: RayWorker, future: ProcessFuture, ref: Any, answer: Any) -> None:
        """Receive the answer of a call: first give its actor new work, then hand over the result."""
        if ref not in worker.calls:
            return  # the answer of an actor that was lost
        worker.calls.remove(ref)
        error = answer.exception()
        if error is not None and not isinstance(error, self._ray.exceptions.RayTaskError):
            self._lost(worker, cause_of_death(error))
            return
        if error is None and answer.result()[0] == Kind.READY:
            self._renewed(worker, Greeting(*answer.result()[2]))
            self._send(worker, future)
            return
        worker.seat.tasks += 1
        try:
            self._do(self._schedule.result(worker, future, time.monotonic()))
            self._hand_over(worker, future, answer)
        except BaseException:
            if not future.done():  # it must fail together with all others
                future.finished = False
                worker.tasks.append(future)
            raise

    def _hand_over(self, worker: RayWorker, future: ProcessFuture, answer: Any) -> None:
        """Settle a task by the answer of its call."""
        future.encoded = NO_CALL
        error = answer.exception()
        if error is not None:
            node = "" if worker.seat.greeting is None else worker.seat.greeting.address
            future.set_exception(
                ClusterError(
                    f"node {node} cannot store a result: {last_line(error)} Have fewer batches ahead "
                    f"(buffer, buffer_bytes), hold fewer where copy=False, or start the node with more "
                    f"object_store_memory"
                )
            )
            return
        kind, pickled, buffers, future.made = answer.result()
        future.transport = "store" if buffers else "message"
        future.set_result(Frame(Kind(kind), future.number, pickled, self._copied(buffers) if self._copy else buffers))

    def _copied(self, buffers: list[np.ndarray]) -> list[Any]:
        """Return copies in one piece of reused memory."""
        starts = [0, *itertools.accumulate(-(-each.nbytes // ALIGNMENT) * ALIGNMENT for each in buffers)]
        memory = self._memory.empty((starts[-1],), np.dtype(np.uint8))
        copies = [memory[start : start + each.nbytes] for start, each in zip(starts, buffers, strict=False)]
        for copy, each in zip(copies, buffers, strict=True):
            copy[...] = each
        return copies

    def _forgotten(self, number: int) -> None:
        for worker in self._schedule.workers:
            if number in worker.constants:
                worker.constants.discard(number)
                self._call(worker.seat.actor.forget, _nothing, number)

    def _error_of(self, future: ProcessFuture, why: str) -> BaseException:
        if why is LATE:
            return SampleTimeout(f"a task ran for more than timeout={future.how.timeout:g} s; its worker was ended")
        if why is NOT_LOADED:
            return ClusterError(
                f"an actor did not load the source (its modules, its data) within {self._patience:g} s, for which it "
                f"was ended; see what it imports and reads on its node"
            )
        return WorkerDied(f"{self._last_death}, while it ran this task")

    def _fail_all(self, error: Exception) -> None:
        for action in self._schedule.fail_all():
            action.task.fail(error)

    # -- the end -----------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Remove all actors, as the dispatcher's last step."""
        self._fail_all(self._end())
        self._schedule.take_all()
        try:
            for seat in list(self._seats):
                self._give_up(seat)
        finally:
            self._left = True
            self._drain()
            self._memory.clear()
            self._cluster.leave()

    def _drain(self) -> None:
        """Fail tasks that were submitted after the dispatcher ended. For any thread."""
        with contextlib.suppress(queue.Empty):
            while True:
                call = self._inbox.get_nowait()
                if isinstance(call, partial) and call.func == self._submitted:
                    call.args[0].fail(self._end())

    def _end(self) -> Exception:
        """Return the error for tasks that are not done at the end."""
        if self._ended:
            return ClusterError(self._ended)
        return PoolClosed("the pool was closed before this result was made")


def _nothing(*_: Any) -> None:
    """Do nothing: the call wakes the dispatcher."""
