"""Explains the waits of a loop over a pool's source, from measured times, the setting and a trial."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import socket
import statistics
import time
import warnings
from typing import Any

import numpy as np

from ..accessors.cached import can_cache
from ..data_source.epoch.iterator import BatchIterator
from ..data_source.epoch.opening import epoch_plan, prepare, start
from ..data_source.epoch.reading import MakeBatch
from ..data_source.epoch_options import EpochOptions
from ..display import in_seconds
from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..errors import ArgumentError
from ..explanation import Explanation
from ..explanation.evidence import FEWEST, Alone, Setting, gathered
from ..explanation.ranks import RankFigures
from ..faults.policy import RAISE
from ..graph.arrays import ArraysNode
from ..graph.map import MapNode
from ..graph.node import Node, rows_named
from ..memory.budget import BUDGET
from ..memory.leases import BufferPool
from ..meters.cpu import timed
from ..meters.stopwatch import Made
from ..randomness.numpy_rng import globals_kept
from ..sampling.plans.epoch import PlannedBatch
from .base import worker_count
from .choice import copy_to_try, lock_share
from .loader_pool import POOLS
from .parallel import ParallelNode, checked_bytes
from .rank_exchange import Exchange

KINDS = {
    "SerialPool": "serial",
    "WorkerThreadPool": "threads",
    "WorkerProcessPool": "processes",
    "WorkerRayPool": "ray",
}
"""The kinds of pools by the names of their classes."""

MOST_TRIED, MOST_SEEN, TRIAL_SECONDS = 8, 64, 0.5
"""Number of batches that a trial makes; of the latest of which it takes them; seconds after which it makes no other."""

TRIED_SECONDS = 5.0
"""Seconds for which an advice is tried, without the start of workers."""


def explained(
    node: Any, options: EpochOptions, trial: bool, try_it: bool = False, ranks: Any = False, timeout: float = 60.0
) -> Explanation:
    """Return the explanation of the batches that the pool of a node made. `options` are those of the epoch under way.

    `ranks` and `timeout` are as for :class:`~.rank_exchange.Exchange`; False leaves the other ranks out.

    Raises:
        ArgumentError: too few batches were measured.
        RankTimeout: a rank did not take part.
    """
    if ranks is False:
        return _explained(node, options, trial, try_it)
    exchange = Exchange(ranks, timeout)
    try:
        told = _explained(node, options, trial, try_it)
    except ArgumentError as error:  # the others need not wait for this rank
        exchange.figures(RankFigures(exchange.rank, socket.gethostname(), error=str(error)))
        raise
    told.compare(exchange.figures(told.own_figures(exchange.rank)))
    return told


def _explained(node: Any, options: EpochOptions, trial: bool, try_it: bool) -> Explanation:
    meter = node.meter if isinstance(node, ParallelNode) else None
    if meter is None:
        raise ArgumentError(
            "nothing was measured; call it after or in a loop over the loader, before close(), and leave measure=False "
            "out; a source that only streams is not measured"
        )
    source, pool = node.source, node.pool
    kind = next((KINDS[each.__name__] for each in type(pool).__mro__ if each.__name__ in KINDS), "processes")
    n_bytes = node.bound.largest
    setting = Setting(
        kind=kind,
        workers=pool.at_once,
        cpus=worker_count(None),
        buffer_asked=node.buffer_asked,
        buffer=node.bound.limit,
        batch_bytes=n_bytes,
        data_bytes=_bytes_of_epoch(source, options, n_bytes),
        free_bytes=BUDGET.free(),
        consumer_maps=tuple(each.name_in_meters for each in node.maps if isinstance(each, MapNode)),
        can_cache=_can_cache(source),
    )
    began = time.monotonic()
    tuner = node.setup.tuner
    of = None if tuner is None else tuner.latest()  # batches made by the present workers
    if gathered(meter, setting, of=of) is None:
        raise ArgumentError(f"too few batches were measured; loop over at least {FEWEST} and call it again")

    def name_of(epoch: int, number: int) -> str:
        with unless_of_signal_handler():
            plan = _plan_of(source, options, epoch)
            rows = None if plan is None else plan[number].rows
            if isinstance(rows, np.ndarray):
                return rows_named(source, rows)
        return ""

    try:
        found = gathered(meter, setting, made_alone(node, options) if trial else None, of)
        assert found is not None
        told = Explanation(found, name_of)
        if try_it and told.advice:
            told.tried = tried(node, options, kind, told)
        return told
    finally:
        meter.pauses.append((began, time.monotonic()))


def made_alone(node: ParallelNode, options: EpochOptions) -> Alone | None:
    """Make some batches of a copy of the source on this thread. Return how long one takes; None if there is no copy."""
    try:
        source, options = copy_to_try((node.source, options)).value
        make, buffers = MakeBatch(own_thread=True), BufferPool()
        with globals_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first = _to_try(node, source, options)
            make.read(source, first[0].rows, first[0].key, buffers)  # opens files, imports
            times = []
            for planned in first[1:] or first:
                times.append(timed(functools.partial(make.read, source, planned.rows, planned.key, buffers)))
                if sum(each.seconds for each in times) > TRIAL_SECONDS:
                    break
            seconds = statistics.median(max(each.ran, each.seconds - each.queued) for each in times)
            cpu = statistics.median(each.ran for each in times)
            last = first[-1]
            share = lock_share(functools.partial(make.read, source, last.rows, last.key, buffers), seconds, cpu)
    except Exception as error:
        raise_if_of_signal_handler(error)
        return None
    return Alone(seconds, cpu, share)


def _plan_of(source: Node, options: EpochOptions, epoch: int) -> Any:
    """Return the plan of an epoch; None if a generator of the user drew it, which must not draw again."""
    if options.generator is not None:
        return None
    return epoch_plan(source, dataclasses.replace(options, epoch=epoch, numbered=True))


def _to_try(node: ParallelNode, source: Node, options: EpochOptions) -> list[PlannedBatch]:
    """Return some batches to make on this thread.

    If it is known which, they are batches that workers made in about the usual time: another one may hang, or end the
    program. If not, and bad samples are expected, there are none.
    """
    assert node.meter is not None
    latest = [(times, made) for times in node.meter.latest() if (made := Made.of(times.made)) is not None]
    epoch = latest[-1][0].epoch
    plan = _plan_of(source, options, epoch)
    if plan is None:
        expects_bad = node.setup.policy is not RAISE or node.setup.timeout is not None
        drawn = None if expects_bad else prepare(source, options).plan
        return [] if drawn is None else list(itertools.islice(drawn, MOST_TRIED))
    usual = statistics.median(made.seconds for _, made in latest)
    return [
        plan[times.number] for times, made in latest[-MOST_SEEN:] if times.epoch == epoch and made.seconds <= 2 * usual
    ][-MOST_TRIED:]


def tried(node: ParallelNode, options: EpochOptions, kind: str, told: Explanation) -> str:
    """Run the first advice with a copy of the source and a loop that sleeps; return in words what came out."""
    advice = told.advice[0]
    if not advice.options:
        return "The first change is one of your code, so it was not tried."
    pool_kind, workers = advice.options.get("pool", kind), advice.options.get("workers", node.pool.at_once)
    if pool_kind not in POOLS:
        return f"The first change was not tried: it needs a pool of {pool_kind}."
    try:
        source, options = copy_to_try((node.source, options)).value
    except Exception as error:
        raise_if_of_signal_handler(error)
        return f"The first change was not tried: the source cannot be copied ({type(error).__name__})."
    n_ahead = advice.options.get("buffer", max(node.buffer_asked, (workers or 1) + 1))
    n_bytes = checked_bytes(advice.options.get("buffer_bytes"))
    counted, seconds = 0, 0.0
    with globals_kept(), POOLS[pool_kind](workers) as pool:
        setup = node.setup
        tried_node = ParallelNode(
            source, pool, n_ahead, buffer_bytes=n_bytes, on_error=setup.policy, timeout=setup.timeout
        )
        epoch = prepare(tried_node, options)
        with BatchIterator(epoch, start(epoch)) as iterator:
            began = last = time.monotonic()
            for number, _ in enumerate(iterator):
                time.sleep(told.step_seconds)
                now = time.monotonic()
                if number > (workers or 1) + n_ahead:  # a full buffer is used up
                    counted, seconds = counted + 1, seconds + now - last
                last = now
                if now - began > TRIED_SECONDS:
                    break
    if counted < FEWEST:
        return f"Tried: the first change gave too few batches in {TRIED_SECONDS:.0f} s to tell."
    each = seconds / counted
    return f"Tried: the first change gave a batch each {in_seconds(each)}; {in_seconds(advice.seconds)} were predicted."


def _bytes_of_epoch(source: Any, options: EpochOptions, of_batch: int) -> float:
    with unless_of_signal_handler():
        return float(of_batch * source.num_samples() / options.batch_size)
    return math.nan


def _can_cache(source: Node) -> bool:
    """Tell whether ``cache()`` would keep the rows that this source reads."""
    if isinstance(source, ArraysNode):
        return can_cache(source.data)
    return bool(source.children()) and all(map(_can_cache, source.children()))
