"""The settings of ``assert_reproducible``. Each makes batches, to compare with the batches of a plain loop."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..data_source import AbstractDataSource, PlannedDataSource
from ..data_source.epoch.reading import MakeBatch
from ..graph.indexed import row_arrays
from ..graph.node import Node
from ..graph.wrapped import SameOrderNode
from ..memory.leases import FRESH, BufferPool, Buffers
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from ..sampling.plans.epoch import SamplesPlan
from ..sampling.plans.shortened import positions_of, shortened
from ..work_pool.base import AbstractWorkerPool
from ..work_pool.processes.pool import WorkerProcessPool
from ..work_pool.processes.serialization import dumps, load_result
from ..work_pool.serial import SerialPool
from ..work_pool.threads import WorkerThreadPool
from .comparison import Difference, first_difference

KEEP_NOTHING = "keep nothing between calls, and draw by map(fn, rng='sample') or map(fn, rng='batch')"
CALLS = (
    "what it gives depends on the calls before: it uses a generator of its own, a global one that is not seeded "
    "(shuffle= is no int), a clock, a counter, a cache or what else it keeps"
), KEEP_NOTHING
COPIES = (
    "a copy of it, such as each process gets, is not the same: pickling loses something, or unpickling makes it new"
), "let __getstate__ and __setstate__ keep all that its results depend on"
CUT = (
    "what a sample becomes depends on the others in its batch: it works over the whole batch (products of matrices do, "
    "in their last bits), or draws for all of it at once, as from a global generator"
), "treat each sample by itself, and draw by map(fn, rng='sample'); or keep one batch size, and pass batch_sizes=()"
MEMORY = (
    "what it gives depends on the memory that its batch lies in: it writes to some batches and not to others"
), "write to a copy: x = x.copy()"
THREADS = (
    "threads share what it uses: a global generator, a counter, an array or what else it keeps"
), f"{KEEP_NOTHING}; or use no threads, and pass pools=('serial', 'processes')"
PROCESSES = (
    "it depends on the process: on a generator, counter or cache of its own, os.getpid(), hash() of a text, the order "
    "of a set, or the number of threads of a library for linear algebra, which is one in a worker process"
), f"{KEEP_NOTHING}; for linear algebra set OMP_NUM_THREADS=1 in the environment of this program"
ORDER = (
    "the rows and number of its batches are not a function of seed, epoch, batch size and number of ranks alone: it "
    "draws from a generator that it did not make from the key, or keeps something between calls"
), "draw only from what rows_at(positions, key) is given: key.word(...) seeds whatever you need"
"""Why a node gives other batches, and the remedy."""

POOL_KINDS: dict[str, tuple[Callable[[int], AbstractWorkerPool], tuple[str, str]]] = {
    "serial": (lambda _: SerialPool(), CALLS),
    "threads": (WorkerThreadPool, THREADS),
    "processes": (WorkerProcessPool, PROCESSES),
}
"""The pools: the function that makes each, and the cause of a difference."""


TESTED_EPOCHS = (0, 1)
"""The epochs whose first batches are read."""


class Setting(NamedTuple):
    """One way to make batches: its words, the cause if a node differs, the epoch, the function that reads a subject."""

    words: str
    cause: tuple[str, str]
    epoch: int
    read: Callable[[Subject], Any]
    cut: bool = False  # into other batches than in the plain loop


class RowsAndBatch(SameOrderNode):
    """Batches ``(row numbers, batch)`` of another node, with the same randomness as its own batches."""

    name = "RowsAndBatch"

    def read(self, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        return tuple(row_arrays(rows)), self.source.read(rows, key, buffers)


class WithRows(PlannedDataSource, node=RowsAndBatch):
    """The source of these batches."""

    def __init__(self, node: Node) -> None:
        self._show(RowsAndBatch(node))


@dataclasses.dataclass
class Subject:
    """A source to read in several settings: the source under test, or a node of its graph.

    If the source can be copied, each reading uses a copy of its initial state. Traces of one reading then cannot make
    the next one look right.
    """

    node: Node
    batch_size: int
    shuffle: int | None
    max_batches: int

    def __post_init__(self) -> None:
        self.itself = WithRows(self.node)
        self.copy = copies_of(self.itself)
        self.first = self.copy()
        self.expected = {epoch: self.read("first", epoch=epoch) for epoch in TESTED_EPOCHS}
        self.plan = self.copy().plan(self.batch_size, self.shuffle, epoch=0)

    def difference(self, setting: Setting) -> tuple[Difference, bool] | None:
        """Return the first difference in a setting, and whether row numbers differ; None if there is no difference."""
        if setting.cut and not isinstance(self.plan, SamplesPlan):
            return None  # the plan orders batches, not samples
        rows_only = setting.cut and self.node.traits.draws_by_batch
        got = setting.read(self)
        for part in (0,) if rows_only else (0, 1):
            expected = [pair[part] for pair in self.expected[setting.epoch]]
            if found := first_difference(expected, [pair[part] for pair in got], setting.cut):
                return found, part == 0
        return None

    def read(self, of: str = "copy", pool: AbstractWorkerPool | None = None, buffer: int = 1, **options: Any) -> Any:
        """Return the first batches of an epoch of a new copy, of the first copy, or of the source itself.

        A pool makes them in the background, or, if `buffer` is 0, in a plain loop in a worker.
        """
        source = self.copy() if of == "copy" else getattr(self, of)
        options = {"batch_size": self.batch_size, "shuffle": self.shuffle, "epoch": 0, **options}
        most = math.ceil(self.max_batches * self.batch_size / options["batch_size"])
        if pool is None:
            return first_batches(source, most, options)
        if buffer:
            return first_batches(pool.parallel_data_source(source, buffer), most, options)
        return pool.work_stream(iter([(first_batches, (pool.shared_constant(source), most, options))])).retrieve()

    def read_backwards(self, buffers: Buffers = FRESH) -> Any:
        """Read the batches from the last to the first, each alone, into memory from `buffers`."""
        source, got = self.copy(), []
        for number in reversed(range(len(self.expected[0]))):
            _, rows, key = self.plan[number]
            with contextlib.nullcontext() if self.shuffle is None else globals_kept(key):
                got.append(MakeBatch().read(source.node, rows, key, buffers))
        return got[::-1]

    def read_shortened(self) -> Any:
        """Return every other batch from a plan that leaves out the batches between them, which are the expected ones.

        A loader reads so by ``skip``, and a batch alone by ``replay``.
        """
        source, got = self.copy(), list(self.expected[0])
        plan = shortened(self.plan, [positions_of(self.plan, number) for number in range(0, len(got), 2)])
        for number in range(1, len(got), 2):
            _, rows, key = plan[number // 2]
            with contextlib.nullcontext() if self.shuffle is None else globals_kept(key):
                got[number] = MakeBatch().read(source.node, rows, key, FRESH)
        return got

    def read_shared_out(self, world: int) -> Any:
        """Return the batches of all ranks. From the first round that may not be whole, return the expected batches."""
        expected = self.expected[0]
        ranks = [self.read(shard=(rank, world)) for rank in range(world)]
        if len(set(map(len, ranks))) > 1:
            raise ValueError(f"its ranks have {[*map(len, ranks)]} batches, not equally many")
        whole = max(0, len(expected) - 1) // world * world
        return [ranks[i % world][i // world] for i in range(whole)] + expected[whole:]

    def read_resumed(self, at: int) -> Any:
        """Return the batches before batch `at`, and the batches of another iterator that continues from there."""
        with self.copy().batch_iterator(self.batch_size, shuffle=self.shuffle) as iterator:
            before = list(itertools.islice(iterator, at))
            state = json.loads(json.dumps(iterator.state_dict()))
        return (before + self.read(state=state))[: self.max_batches]


def first_batches(source: Any, most: int, options: dict[str, Any]) -> list[Any]:
    """Return the first batches of an epoch."""
    with source.batch_iterator(**options) as iterator:
        return list(itertools.islice(iterator, most))


def settings(
    root: Subject, stack: contextlib.ExitStack, pools: Sequence[str], batch_sizes: Sequence[int]
) -> Iterator[Setting]:
    """Yield the settings for the arguments of :func:`~batchup_ng.testing.assert_reproducible`.

    The settings that say most about the cause come first. Each pool opens when it is needed, and `stack` closes it.
    """
    read = Subject.read
    yield from (Setting("is read again", CALLS, each, partial(read, of="first", epoch=each)) for each in TESTED_EPOCHS)
    yield Setting("is read without those before it", CALLS, 0, Subject.read_backwards)
    yield Setting("leaves out every other batch", CALLS, 0, Subject.read_shortened)
    lent = BufferPool(smallest=1)
    yield Setting("is read into memory on lease", MEMORY, 0, partial(Subject.read_backwards, buffers=lent))
    for each in TESTED_EPOCHS:
        yield Setting("is read by a copy of the source", COPIES, each, partial(read, epoch=each))
    for other in batch_sizes:
        yield Setting(f"is cut by batch_size={other}", CUT, 0, partial(read, batch_size=other), cut=True)
    for world in (2, 3):
        yield Setting(f"is made by {world} ranks", CALLS, 0, partial(Subject.read_shared_out, world=world))
    for at in sorted({round(len(root.expected[0]) * share) for share in (0.25, 0.5, 0.75)}):
        yield Setting(f"is resumed after {at} batches", CALLS, 0, partial(Subject.read_resumed, at=at))
    for kind, (number, buffer) in itertools.product(pools, ((1, 1), (2, 7))):
        make, cause = POOL_KINDS[kind]
        pool = stack.enter_context(make(number))
        if kind == "processes":
            yield Setting("is read in another process", cause, 0, partial(read, pool=pool, buffer=0))
        for each in TESTED_EPOCHS:
            words = f"is made with pools=({kind!r},), {number} worker{'s' * (number > 1)}, {buffer} batches ahead"
            yield Setting(words, cause, each, partial(read, pool=pool, buffer=buffer, epoch=each))
    for each in TESTED_EPOCHS:  # last, because this may change the source
        yield Setting("is read by the source itself", COPIES, each, partial(read, of="itself", epoch=each))


def copies_of(source: AbstractDataSource) -> Callable[[], Any]:
    """Return a function that returns a copy of a source in its present state, or the source if it cannot be copied.

    A copy includes the user's functions and their closures. Classes and memory of arrays are shared.
    """
    memory: list[Any] = []
    try:
        pickled = dumps(source, memory.append)
        load_result(pickled, memory)
    except Exception:
        return lambda: source
    return lambda: load_result(pickled, memory)
