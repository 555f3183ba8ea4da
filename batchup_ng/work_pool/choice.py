"""The choice of a pool for a source, measured on a few batches.

The share of time with the interpreter's lock decides. Work that releases the lock (copies of arrays, decoding of
images, reading of files) runs in parallel in threads, and nothing has to be sent to a thread. Work in Python holds the
lock and needs processes, unless the interpreter has no lock. Work of a few microseconds costs less than handing it to
another thread or process.

Work that uses little CPU time mostly waits, without the lock. For other work, :mod:`.lock_looks` measures the share of
its CPU time with the lock held, until it is certain on which side of :data:`LOCK_SHARE` it is.

Processes take time to start, and more to import the modules of the user's code. A short epoch does not start them.

The batches that are tried are the first of the epoch that is about to begin. They are handed out, to avoid doing work
of seconds twice. The pool makes two kinds of batches again. If a batch warned, its warnings appear then. If a batch
drew from the global generators, it is made again only where the pool leaves these generators as they are.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data_source.epoch.opening import prepare
from ..data_source.epoch.reading import MakeBatch
from ..data_source.epoch_options import EpochOptions
from ..data_source.source import AbstractDataSource
from ..display import in_seconds
from ..error_context import raise_if_of_signal_handler
from ..interpreter import has_lock
from ..memory.leases import BufferPool
from ..meters.cpu import timed
from ..platforms import system
from ..randomness.numpy_rng import globals_kept, globals_state
from ..sampling.plans.epoch import PlannedBatch
from . import processes
from .lock_looks import Looks, looks_at
from .parallel import ParallelDataSource
from .prefetch_buffer import ByteBound
from .serial import SerialPool

if TYPE_CHECKING:
    from .processes.trial_copy import CopyToTry

TINY_BATCH_SECONDS = 100e-6
"""Seconds. A faster batch is made on the consumer's own thread, because handing it over costs as much."""

SHORT_BATCH_SECONDS = 300e-6
"""Seconds. If a batch is faster, processes are not worth their start, and the measurement says little."""

LOCK_SHARE = 0.5
"""Share of the time of a batch. If the interpreter's lock is held for this share or more, processes are chosen."""

SHORT_EPOCH_SECONDS = 1.0
"""Seconds for all batches of an epoch. For a shorter epoch, processes are not worth their start."""

BATCHES_TRIED, MAX_TRIES, FEWEST_LOOKED_AT, MAX_SECONDS = 6, 100, 3, 0.5
"""Number of batches to try; most tries; least number of tries with looks at the lock, so that the median leaves out a
disturbed try; seconds after which no other try begins."""

SLOW_BATCH_SECONDS = 0.1
"""Seconds. A batch that takes this long is not made again to leave out the extra cost of the first call."""

CERTAIN, MAX_ERROR = 3.0, 0.1
"""A share is certain if it differs from :data:`LOCK_SHARE` by so many standard errors; the largest standard error of a
share that is not certain and decides all the same."""


TOO_LARGE = "its tensors are too large to copy them for a trial"
"""The reason for a choice without a trial."""


class Move(NamedTuple):
    """A change to another kind of pool: the kind, the reason, and the time from one batch to the next before it."""

    kind: str
    why: str
    interval: float


class Choice(NamedTuple):
    """The kind of pool, ``"serial"``, ``"threads"`` or ``"processes"``, and the reason."""

    kind: str
    why: str


class Tried(NamedTuple):
    """The choice, and the batches that were made for the measurement."""

    choice: Choice
    ready_made: list[tuple[PlannedBatch, Any]]


def choose(source: AbstractDataSource, options: EpochOptions, state: Any = None, timeout: float | None = None) -> Tried:
    """Choose the pool for `source`. Make the next batches of an epoch, starting at `state`, with a copy of `source`.

    The copy shares the memory of large arrays, read-only. Tensors and the generator that draws an order are copied
    too, so the choice changes no byte of any epoch. If there is a `timeout`, samples may hang, and nothing is tried.
    """
    if not source.is_random_access:
        return Tried(Choice("threads", "it only streams, which is not tried out"), [])
    if not system.HAS_PROCESS_POOLS:
        return Tried(Choice("threads", "this system has no worker processes"), [])
    try:
        copy = copy_to_try((source, options))
        source, options = copy.value
        if timeout is not None:
            return Tried(Choice("processes", "a process that exceeds timeout= can be ended"), [])
    except MemoryError:
        return Tried(Choice("threads", TOO_LARGE), [])
    except Exception as error:
        raise_if_of_signal_handler(error)
        why = f"it cannot be pickled, which processes need: {type(error).__name__}"
        return Tried(Choice("threads", why), [])
    node = source.node
    make, seeded = MakeBatch(pad_mask=options.shard.pad_mask), node.traits.runs_user_code
    buffers, bound = BufferPool(), ByteBound(BATCHES_TRIED, None, BATCHES_TRIED)
    made: dict[int, tuple[PlannedBatch, Any]] = {}  # by number
    warned: set[int] = set()
    drew: set[int] = set()  # numbers of batches that drew from the global generators

    def read(planned: PlannedBatch) -> None:
        with warnings.catch_warnings(record=True) as given, globals_kept(planned.key if seeded else None):
            warnings.simplefilter("always")
            before = globals_state() if seeded and planned.number not in made else None
            batch = make.read(node, planned.rows, planned.key, buffers)
            if before is not None and globals_state() != before:
                drew.add(planned.number)
        if given:
            warned.add(planned.number)
        bound.saw(batch)
        if len(made) < bound.limit or planned.number in made:
            made[planned.number] = planned, batch

    try:
        with globals_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epoch = prepare(ParallelDataSource(source, 1, SerialPool()).node, options, state)
            plan = epoch.plan
            assert plan is not None
            first = list(itertools.islice(plan, BATCHES_TRIED))
            choice = suited(read, first, plan.n_batches - plan.first)
    except Exception as error:
        raise_if_of_signal_handler(error)
        return Tried(Choice("threads", f"the first batches could not be made: {type(error).__name__}"), [])
    ready = made.keys() - warned  # the warnings come when a batch is made again
    if choice.kind == "threads" or (choice.kind == "serial" and not epoch.options.shuffled):
        ready -= drew  # this pool does not seed the global generators for each batch, as processes do
    if copy.has_changed():  # each batch was made several times, and each time from what the time before had written
        ready = set()
    handed_out = itertools.takewhile(lambda planned: planned.number in ready, first)
    return Tried(choice, [made[planned.number] for planned in handed_out])


def copy_to_try(value: Any) -> CopyToTry:
    """Return a copy of `value` for a trial: see :func:`.trial_copy.copy_to_try`."""
    return processes.trial_copy.copy_to_try(value)


def suited(make: Callable[[Any], object], items: Sequence[Any], n_batches: float = math.inf) -> Choice:
    """Choose the pool for an epoch of `n_batches` calls of `make`. Call it with some of `items`.

    Each call makes a batch of one item.
    """
    times: list[float] = []
    ran: list[float] = []
    looks, n_looked, is_free = Looks(), 0, not has_lock()
    if not items:
        return Choice("serial", "there are no batches")
    began = time.perf_counter()
    in_turn = itertools.cycle(items)
    for _ in range(MAX_TRIES):
        run = functools.partial(make, next(in_turn))
        alone = timed(run)
        if not times and alone.seconds < SLOW_BATCH_SECONDS:
            alone = timed(run)  # the first call imports, opens files, fills caches
        times.append(max(alone.ran, alone.seconds - alone.queued))  # the system counts time in the queue a bit later
        ran.append(alone.ran)
        each, cpu = float(np.median(times)), float(np.median(ran))
        waits = len(times) > 1 and cpu < LOCK_SHARE * each  # as is decided below
        known = waits or (is_free and (len(times) == BATCHES_TRIED or times[-1] >= SLOW_BATCH_SECONDS))
        if times[-1] * n_batches < SHORT_EPOCH_SECONDS or known or time.perf_counter() - began > MAX_SECONDS:
            break  # the choice is known, or more tries would take too long
        if is_free:
            continue
        if times[-1] >= TINY_BATCH_SECONDS:
            if times[-1] >= SLOW_BATCH_SECONDS:
                run = functools.partial(make, next(in_turn))  # a slow batch is not made twice
            looks, n_looked = looks.and_more(looks_at(run, times[-1])), n_looked + 1
        distance = abs(looks.share * min(1.0, cpu / each) - LOCK_SHARE)  # as is decided below
        certain = n_looked >= FEWEST_LOOKED_AT and distance > CERTAIN * looks.error
        if certain or time.perf_counter() - began > MAX_SECONDS:
            break
    if each < TINY_BATCH_SECONDS:
        return Choice("serial", f"a batch takes {1e6 * each:.0f} µs, less than handing it over")
    why = f"a batch takes {in_seconds(each)}"
    if each * n_batches < SHORT_EPOCH_SECONDS:
        return Choice("threads", f"{why}, an epoch {in_seconds(each * n_batches)}, too short for a start of processes")
    if cpu < LOCK_SHARE * each:
        return Choice("threads", f"{why}, {cpu / each:.0%} of it on a CPU")
    if is_free:
        return Choice("threads", f"{why}, and this interpreter has no lock that threads would wait for")
    if not looks.cpu:
        return Choice("processes", f"{why}, {cpu / each:.0%} of it on a CPU, too long to try whether threads would do")
    share = looks.share * min(1.0, cpu / each)
    if each >= SHORT_BATCH_SECONDS and abs(share - LOCK_SHARE) <= looks.error and looks.error > MAX_ERROR:
        return Choice("processes", f"{why}; the machine is too busy to tell whether threads would do")
    kind = "processes" if share >= LOCK_SHARE and each >= SHORT_BATCH_SECONDS else "threads"
    return Choice(kind, f"{why}, {share:.0%} of it with the interpreter's lock")


def lock_share(run: Callable[[], object], alone: float, ran: float) -> float:
    """Return the share of the time of a batch with the interpreter's lock held; NaN if the machine is too busy to tell.

    Made alone, a batch takes `alone` seconds, and its thread has a CPU for `ran` of them.
    """
    if not has_lock():
        return 0.0
    looks = looks_at(run, alone).and_more(looks_at(run, alone))
    on_cpu = min(1.0, ran / max(alone, 1e-9))
    if not looks.cpu:
        return 0.0 if on_cpu < MAX_ERROR else math.nan
    return math.nan if looks.error * on_cpu > MAX_ERROR else looks.share * on_cpu
