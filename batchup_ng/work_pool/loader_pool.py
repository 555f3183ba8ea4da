"""The part of a loader that all its views share: its pool, and how far it is.

A :class:`SharedByViews` owns the pool, the series of epochs and the epoch under way. It moves from one epoch to the
next by single assignments. An exception from a signal handler between two of them leaves an epoch whole: the epoch
under way, or an epoch that has not begun.

A fork of the process has no workers of the pools of loaders. There a loader makes its pool anew, and a pool of the user
is of no use. An epoch under way stays, for its state, and raises ``PoolClosed`` for the next batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import log, validation, work_pool
from ..data_source.blocks import for_later_epochs
from ..data_source.epoch.epochs import Epochs, series_of_epochs
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.iterator_views import LoaderIterator
from ..data_source.epoch.opening import epoch_plan
from ..data_source.epoch.prepared import Epoch
from ..data_source.epoch_options import EpochOptions
from ..data_source.source import AbstractDataSource
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError, PoolClosed, StateError
from ..faults.policy import RAISE, ErrorPolicy, error_policy
from ..graph.node import Node, samples_in_words
from ..interpreter import has_lock, values_of
from ..memory.budget import BUDGET
from ..platforms import system
from ..sampling.plans.epoch import BatchPlan
from ..sampling.plans.shortened import Skipped
from . import processes
from .base import DEFAULT_BUFFER, AbstractWorkerPool, worker_count, workers_beside_a_loop
from .choice import Move, choose, copy_to_try
from .parallel import ParallelNode, PoolNode, checked_bytes, checked_timeout
from .prefetch import PrefetchNode
from .serial import SerialPool
from .shared_pool import share_of
from .steps import Steps
from .task import current
from .threads import WorkerThreadPool

POOLS: dict[str, Callable[[int | None], AbstractWorkerPool]] = {
    "serial": lambda workers: SerialPool(),
    "threads": WorkerThreadPool,
    "processes": lambda workers: processes.WorkerProcessPool(workers),  # loaded when it is first used
}
"""The pools by name: each is made with a number of workers."""

AUTO = "auto"
"""The number of workers that leaves it to a :class:`.tuning.Tuner`."""

DEFAULTS: dict[str, Any] = {"pool": "auto", "workers": None, "buffer": DEFAULT_BUFFER, "buffer_bytes": None}
"""The settings of a loader by default."""


CLOSED_POOL_KIND = "closed"
"""The kind of the pool of a closed loader."""


OrdersOfState = tuple[int | None, Any, Any]
"""The number of the epoch that resumes from a state, its orders by blocks, and those of all other epochs."""

NO_ORDERS: OrdersOfState = (None, None, None)
"""No state of an order by blocks was loaded."""


NOT_PICKLED = ("lock", "beside", "prepared", "steps")
"""Attributes of :class:`SharedByViews` that a pickle leaves out."""


OptionsOf = Callable[[int], EpochOptions]
"""Returns the options of the epoch with a number."""

WithPlan = Callable[[], Node]
"""Returns the node that plans epochs and checks states."""


class PoolOptions(NamedTuple):
    """The options of a loader for its pool, checked."""

    workers: int | str | None
    buffer: int
    buffer_bytes: int | None
    on_error: ErrorPolicy
    timeout: float | None
    measure: bool


@dataclasses.dataclass(eq=False)
class SharedByViews:
    """The part of a loader that all its views share."""

    source: Any
    options: dict[str, Any]  # of each epoch
    checked: EpochOptions | None  # the same, checked; None if a launcher or a RandomState decides in each epoch
    pool: Any  # None until it is made
    kind: str  # of the pool, if the loader makes it; "" for the user's pool
    first: int  # number of the first epoch
    next: int  # number of the epoch under way, or of the next if none is
    lender: Any = None  # the loader whose pool this one takes
    pool_node: Any = None  # the node whose batches the pool makes
    used_kind: str = ""  # of the pool that it has made
    why: str = ""  # reason for the choice of the pool
    tuner: Any = None  # chooses the number of workers
    moves: list[Move] = dataclasses.field(default_factory=list)  # from one kind of pool to another
    counts: tuple[int, int, float] = (0, 0, 0.0)  # batches, samples and seconds waited, by the pools before the present
    lent: bool = False  # whether another loader shares its workers
    last_settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a closed loader
    plan: tuple[EpochOptions, BatchPlan] | None = None  # of the epoch of the last batch requested by number
    pending: Any = None  # state to resume the epoch `next` from, if it is in its middle
    prepared: Epoch | None = None  # the epoch of `pending`, until it begins, if it was prepared
    order_blocks: OrdersOfState = NO_ORDERS
    skipped: tuple[Skipped, ...] = ()  # batches that the user leaves out
    steps: Steps | None = None  # counts the steps of the loop, if anything needs them
    closed_report: tuple[dict[str, Any], list[Any]] = ({}, [])  # stats and errors of an epoch that close() ended
    warned: set[str] = dataclasses.field(default_factory=set)  # the kinds of warnings that were given
    series: Epochs | None = None
    inner: BatchIterator | None = None  # of the epoch under way, or of the last
    iterator: Any = None  # for `inner`: the result of iter() of the loader or of a view
    beside: Any = dataclasses.field(default_factory=weakref.WeakSet)  # iterators of batches requested by number
    # Held while the pool starts or a batch is planned by number; several threads may request either at once.
    lock: Any = dataclasses.field(default_factory=threading.RLock)

    history: Any = None  # changes of weights and rows: a `History`, or None

    of_parent: Any = None  # after a fork: the pool of the parent process, and what uses it

    def __post_init__(self) -> None:
        _of_this_process.add(self)
        if self.lender is not None:
            self.lender._shared.lent = True

    def upcoming(self) -> tuple[int, Any]:
        """Return the number of the next iteration's epoch, and its state if it resumes in its middle.

        An epoch that an exception broke off before its first batch comes again.
        """
        if self.inner is not None and self.inner.asked and not self.inner.broken_off_before_first:
            return self.inner.epoch + 1, None
        return self.next, self.pending

    def plan_of(self, node: Node, options: EpochOptions) -> BatchPlan:
        """Return the plan of an epoch. The latest one is kept."""
        if self.plan is None or self.plan[0] != options:
            self.plan = options, epoch_plan(node, options)
        return self.plan[1]

    def move_to(self, number: int, pending: Any, order_blocks: Any, prepared: Epoch | None = None) -> tuple[Any, Any]:
        """Let epoch `number` come next, with `order_blocks`. Return the iterator and series to end."""
        left = self.iterator, self.series
        if self.steps is not None:
            self.steps.settle()
        self.next, self.pending, self.prepared, self.order_blocks = number, pending, prepared, order_blocks
        self.iterator = self.inner = self.series = self.plan = None
        return left

    def leave_to_parent(self) -> None:
        """In a fork: give up the pool of the parent process. The next epoch starts another."""
        if not self.lock._is_owned():  # another thread may have held it
            self.lock._at_fork_reinit()
        owner = self
        while owner.lender is not None:
            owner = owner.lender._shared
        if self.pool is None or owner.kind in ("", CLOSED_POOL_KIND):
            return
        self.of_parent = self.pool, self.pool_node, self.series, self.inner, self.iterator  # ended by no finalizer here
        self.pool = self.pool_node = self.series = self.tuner = None
        if self.inner is not None and self.inner.untouched:
            self.inner = self.iterator = None

    def in_words(self, epoch: int) -> list[str]:
        """Return facts for the ``repr`` of a loader in epoch `epoch`."""
        own = not self.source.is_random_access and not self.source.node.traits.takes_options
        size = "batches as its iterator gives them" if own else f"batches of {self.options['batch_size']}"
        words = [samples_in_words(self.source.node), size]
        given = {name: self.options[name] for name in ("shuffle", "drop_last", "shard")}
        shown = [f"{name}={value!r}" for name, value in given.items() if value not in (None, False)]
        words += [*shown, f"epoch {epoch}"]
        if self.kind == CLOSED_POOL_KIND:
            words.append(CLOSED_POOL_KIND)
        elif self.pool is not None:
            words.append(f"by {self.pool!r}" + f", chosen because {self.why}" * bool(self.why))
            words += [] if self.tuner is None else [str(self.tuner)]
        elif self.lender is not None:
            words.append("by the workers of another loader")
        else:
            words.append(f"pool={self.kind!r}" + ", to be chosen in the first epoch" * (self.kind == "auto"))
        return words

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.RLock(), beside=weakref.WeakSet(), prepared=None)
        _of_this_process.add(self)


_of_this_process: weakref.WeakSet[SharedByViews] = weakref.WeakSet()


def living() -> list[SharedByViews]:
    """Return what the loaders of this process share. Any thread may call this."""
    found: list[SharedByViews] = values_of(_of_this_process)
    return found


def _leave_to_parent() -> None:
    for shared in _of_this_process:
        shared.leave_to_parent()


system.after_fork_in_child(_leave_to_parent)


def orders_of_state(epoch: Epoch, resumed: int | None) -> OrdersOfState:
    """Return the orders by blocks after a state was loaded. `epoch` was prepared for it, and resumes as `resumed`."""
    orders = epoch.options.order_blocks
    return resumed, orders, for_later_epochs(orders, epoch.asked)


def end(left: tuple[Any, Any], by: str) -> None:
    """End an iterator and its series of epochs. A loop over them then raises ``PoolClosed``."""
    iterator, series = left
    if iterator is not None:
        iterator.break_off(f"{by} of its loader")
    if series is not None:
        series.close()


def joined_settings(settings: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a loader: those of a dict, and others as they are `given` one by one.

    Raises:
        ArgumentTypeError: `settings` is no mapping.
        ArgumentError: it has other entries, or a setting is given twice.
    """
    if not isinstance(settings, Mapping):
        raise ArgumentTypeError(f"settings must be the dict of loader.settings(), not {settings!r}")
    if unknown := set(settings) - set(DEFAULTS):
        raise ArgumentError(f"settings has {sorted(map(str, unknown))}; it may have {list(DEFAULTS)}")
    twice = [name for name in settings if given[name] is not DEFAULTS[name] and given[name] != DEFAULTS[name]]
    if twice:
        raise ArgumentError(f"{twice[0]} is an option and an entry of settings; leave one of them out")
    return {**given, **settings}


def checked_options(
    source: AbstractDataSource, workers: Any, buffer: Any, buffer_bytes: Any, on_error: Any, timeout: Any, measure: Any
) -> PoolOptions:
    """Return the options of a loader for its pool, checked."""
    if workers not in (None, 1) and not source.is_random_access:
        raise ArgumentError(f"workers is {workers!r}, and this source only streams: one reads it; leave it out")
    policy, timeout = error_policy(on_error), checked_timeout(timeout)
    if not source.is_random_access and (timeout is not None or policy is not RAISE):
        raise ArgumentError("on_error= and timeout= need a source with random access; this one only streams")
    measure = validation.true_or_false("measure", measure)
    if workers == AUTO and not measure:
        raise ArgumentError("workers='auto' follows measurements, and measure is False; leave measure=False out")
    if isinstance(workers, str) and workers != AUTO:
        raise ArgumentError(f"workers must be a number, 'auto' or None, not {workers!r}")
    if workers not in (None, AUTO):
        workers = validation.positive_int("workers", workers)
    buffer = validation.positive_int("buffer", buffer)
    return PoolOptions(workers, buffer, checked_bytes(buffer_bytes), policy, timeout, measure)


def checked_kind(pool: Any, workers: Any, lent: bool | None) -> str:
    """Return the name of the pool that a loader makes, or "" if it makes none.

    Args:
        pool: The user's pool, or the name of one. None for the workers of another loader.
        workers: Number of workers, or None.
        lent: Whether the other loader has random access. None without another loader.
    """
    kind = pool if isinstance(pool, str) else ""
    if kind:
        validation.one_of("pool", pool, ("auto", *POOLS))
    elif lent is None and not isinstance(pool, AbstractWorkerPool):
        raise ArgumentTypeError(
            f"pool must be 'auto', 'serial', 'threads', 'processes', a pool or a loader, not {pool!r}"
        )
    if lent is False:
        raise ArgumentError(
            "pool must be a loader with more than one worker, and the source of that one only streams; leave pool= out"
        )
    if workers is not None and kind in ("", "serial"):
        why = "whose batches your own thread makes" if kind else "that has its own"
        remedy = "pass pool='threads' or 'processes' for workers" if kind else "pass it when you make that pool"
        if workers == "auto" and not kind:
            remedy = "a loader resizes only a pool that it makes: pool='auto', 'threads' or 'processes'"
        which = f"pool={kind!r}," if kind else "a pool"
        raise ArgumentError(f"workers must be left out with {which} {why}, not be {workers!r}; {remedy}")
    if type(workers) is int and workers == 0:
        raise ArgumentError("workers must be at least 1, not 0; pass pool='serial' for batches that your thread makes")
    return kind


def pool_of_loader(kind: str, workers: int | None, why: str = "") -> AbstractWorkerPool:
    """Return the pool of a loader of this kind. Log the reason `why` it was chosen, if it was.

    Without a number of workers, loaders share a pool.

    A loader that starts on a thread of a pool gets a pool of its own. The task of that thread waits for the loader's
    batches, so it must not keep their workers.
    """
    if why:
        log.note("pool='auto' chose %r: %s", kind, why)
    surroundings: Any = None
    if kind != "serial" and workers is None and getattr(current, "workers", None) is None:
        surroundings = workers_beside_a_loop() if kind == "threads" else _surroundings_of_processes()
    if workers is None and kind != "serial":
        workers = workers_beside_a_loop()
    if surroundings is None:
        return POOLS[kind](workers)
    return share_of(kind, surroundings, lambda: POOLS[kind](workers))


def _surroundings_of_processes() -> Any:
    """Return what worker processes take over when they start; None if it is not known."""
    n = workers_beside_a_loop()  # first: the import of joblib changes the environment
    inherited = processes.fork_server.surroundings_of_workers(blas_threads=1)
    return None if inherited is None else (n, BUDGET.limit, inherited)


def pool_node(shared: SharedByViews, options: PoolOptions, epoch_options: Callable[[int], EpochOptions]) -> PoolNode:
    """Return the node whose batches the pool of a loader makes. The first call chooses and starts the pool.

    Raises:
        PoolClosed: the loader is closed, or the one whose workers it shares.
    """
    with shared.lock:
        kind = shared.kind
        ready_made: list[Any] = []
        if shared.pool is None and kind == "auto" and shared.moves:
            kind, shared.why, _ = shared.moves[-1]
        elif shared.pool is None and kind == "auto":
            number, state = shared.upcoming()
            begin = shared.prepared or state
            (kind, shared.why), ready_made = choose(shared.source, epoch_options(number), begin, options.timeout)
        if shared.kind == CLOSED_POOL_KIND:  # another thread may have closed it
            raise PoolClosed("this loader is closed, and its workers with it; make a new one")
        if shared.lender is not None:
            if shared.lender._shared.kind == CLOSED_POOL_KIND:
                raise PoolClosed("the loader whose workers this one shares is closed; give it pool= of a new one")
            shared.pool = shared.lender._pool_node().pool
        source: Node = shared.source.node
        is_random_access = source.is_random_access
        if shared.pool is None:
            workers: Any = options.workers if is_random_access else 1
            # Before anything is known: a worker for each CPU but one, which the loop has.
            first = min(max(1, worker_count(None) - 1), options.buffer) if workers == AUTO else workers
            shared.pool, shared.used_kind = pool_of_loader(kind, first, shared.why), kind
        if shared.pool_node is None:
            pool, buffer = shared.pool, options.buffer
            if is_random_access:
                node = shared.pool_node = ParallelNode(
                    source, pool, buffer, buffer_bytes=options.buffer_bytes, on_error=options.on_error,
                    timeout=options.timeout, measure=options.measure,
                )  # fmt: skip
                if ready_made:
                    node.hand_out_first(ready_made)
                if node.meter is not None:
                    node.meter.batches, node.meter.samples, node.meter.waited = shared.counts
                shared.tuner = None
                if options.workers == AUTO and shared.used_kind != "serial" and node.meter is not None:
                    shared.tuner = work_pool.Tuner(
                        pool, shared.used_kind, node.bound, buffer, node.meter,
                        may_move=shared.kind == "auto" and not shared.moves and system.HAS_PROCESS_POOLS and has_lock(),
                        came=shared.moves[0] if len(shared.moves) == 1 else None,
                    )  # fmt: skip
                    node.setup = node.setup._replace(tuner=shared.tuner)
            else:
                shared.pool_node = PrefetchNode(source, pool, buffer, options.buffer_bytes)
    started: PoolNode = shared.pool_node
    return started


def next_epoch(shared: SharedByViews) -> tuple[int, Any]:
    """Return the number and the state of the next epoch. If its tuner wants another kind of pool, give up the present
    one. Then :func:`pool_node` makes another. A source that cannot be pickled stays with threads. So does a pool
    whose batches others take: another loader, or an iterator of batches by their numbers.
    """
    move: Move | None = None if shared.tuner is None else shared.tuner.move
    if move is None or shared.lent or not all(each.over for each in values_of(shared.beside)):
        return shared.upcoming()
    shared.tuner.move = None
    if move.kind == "processes" and not shared.moves:
        try:
            copy_to_try(shared.source)
        except Exception as error:
            raise_if_of_signal_handler(error)
            return shared.upcoming()
    log.note("pool='auto' goes on with %s in place of %s: %s", move.kind, shared.used_kind, move.why)
    shared.next, shared.pending = shared.upcoming()
    shared.moves.append(move)
    pool, series, meter = shared.pool, shared.series, shared.pool_node.meter
    shared.counts = meter.batches, meter.samples, meter.waited
    shared.pool_node = shared.tuner = shared.series = shared.inner = shared.pool = None
    if series is not None:
        series.close()
    pool.close()
    return shared.next, shared.pending


def begin(loader: Any, end: float) -> Any:
    """Begin the next epoch of a loader, and return the iterator of its batches. If the current epoch was left early,
    end it. Make no batch ahead of epoch `end` or a later one.
    """
    for check in loader._checks:
        check(loader)
    shared, began = loader._shared, time.perf_counter()
    with shared.lock:
        if shared.iterator is not None:
            shared.iterator.break_off("another iteration over its loader, begun before this one was at its end")
        number, state = next_epoch(shared)
        try:
            if shared.inner is None or not shared.inner.untouched:
                if shared.inner is not None and number <= shared.inner.epoch:
                    shared.series = None  # the epoch ended before its first batch, and is to begin again
                if shared.series is None:
                    options, node = loader._options_of(number), loader._pool_node()
                    saved, shared.prepared = shared.prepared or state, None
                    shared.series = series_of_epochs(node, options, None, saved)
                shared.inner = None
                shared.next, shared.pending = number, state
                shared.inner = next(shared.series)
                shared.inner.start_seconds = time.perf_counter() - began
            if shared.steps is not None:
                shared.steps.begins(loader, shared.inner)
            if shared.series is not None:
                shared.series.ahead_before = end
            shared.iterator = loader._viewed(LoaderIterator(shared.inner, shared.lock))
            return shared.iterator
        except BaseException:  # the next call begins the same epoch, wherever a signal handler interrupted
            shared.series = shared.inner = shared.iterator = None
            shared.next, shared.pending = number, state
            raise


def close(loader: Any) -> None:
    """End the epoch under way of a loader, and its pool unless that is the user's. May be called again."""
    shared, under_way = loader._shared, loader._under_way()
    shared.next, shared.pending = shared.upcoming()
    if under_way is not None:
        with contextlib.suppress(StateError):  # it has no state
            shared.next, shared.pending, shared.prepared = int(under_way.epoch), under_way.state_dict(), None
    if shared.iterator is not None:
        shared.closed_report = loader.stats(), loader.errors
    for iterator in (shared.iterator, *shared.beside):
        if iterator is not None:
            iterator.break_off("close() of its loader")
    if shared.series is not None:
        shared.series.close()
    if shared.steps is not None:
        shared.steps.closes()
    # They hold memory that the workers share, and TensorFlow keeps loaders until the program ends.
    found = loader.settings()
    shared.iterator = shared.inner = shared.series = shared.pool_node = shared.tuner = None
    if shared.kind:
        shared.last_settings = found
        pool, shared.pool, shared.kind = shared.pool, None, CLOSED_POOL_KIND
        if pool is not None:
            pool.close()


def settings(shared: SharedByViews, options: PoolOptions) -> dict[str, Any]:
    """Return what a loader uses now: see ``settings`` of a loader."""
    if shared.kind == CLOSED_POOL_KIND:
        return dict(shared.last_settings)
    pool = shared.lender or (shared.pool if not shared.kind else shared.kind)
    told = dict(zip(DEFAULTS, (pool, options.workers, options.buffer, options.buffer_bytes), strict=True))
    if shared.pool_node is None or not shared.kind:
        return told
    told["pool"] = shared.used_kind
    if shared.used_kind == "serial":
        return told | {"workers": None}
    bound = shared.pool_node.bound
    told |= {"buffer": bound.size, "buffer_bytes": bound.buffer_bytes}
    return told if options.workers is None else told | {"workers": shared.pool.at_once}
