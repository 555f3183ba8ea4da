"""Readings of one source, made in every way there is and compared with a serial run, byte for byte.

Each reading is of a copy of the source as it was at first, where it can be copied, so that what one reading leaves
behind cannot make the next one look right. The comparisons that say most about the cause come first: the same once
more, then in another order, then by threads, then by processes.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data_source.base import PlannedDataSource
from ..data_source.epoch.reading import read_batch
from ..data_source.hooks import any_node
from ..data_source.map import MapDataSource
from ..error_context import map_of, shortened
from ..errors import ArgumentError, BatchError, BatchupError, NotReproducible
from ..memory_pool import FRESH
from ..randomness import globals_seeded
from ..sampling.plans.epoch import SamplesPlan
from ..sampling.plans.rows import rows_length
from ..work_pool import SerialPool, WorkerProcessPool, WorkerThreadPool
from ..work_pool.base import AbstractWorkerPool
from . import culprits
from .culprits import Culprit
from .differences import Difference, first_difference, rows_difference
from .digests import has_samples, named_leaves
from .tracing import Event, Traced, nodes_of, reusing_node, snapshot


class Asked(NamedTuple):
    """What :func:`~batchup_ng.testing.assert_reproducible` was asked for."""

    batch_size: int
    shuffle: int | None
    epochs: list[int]
    most: int
    pools: list[str]
    workers: list[int]
    buffers: list[int]
    batch_sizes: list[int] | None
    worlds: list[int]
    resumes: int


class Reading(NamedTuple):
    """A batch as it was delivered, with what each node of the graph gave for it."""

    batch: Any
    events: list[Event]


class Road(NamedTuple):
    """One way to make batches.

    Attributes:
        words: As an error names it.
        found: What a difference on this transport tells.
        pool: The pool; None for a plain loop.
        buffer: How many batches ahead.
    """

    words: str
    found: str
    pool: AbstractWorkerPool | None = None
    buffer: int = 1

    def over(self, traced: Traced) -> Any:
        """Return a source whose batches are made in this way."""
        return traced if self.pool is None else self.pool.parallel_data_source(traced, self.buffer)


PLAIN = Road("a plain loop", culprits.AGAIN)


class Check:
    """Compares readings of one source with each other.

    Args:
        source: The source.
        asked: What to compare.
        stack: Ends the pools.
    """

    def __init__(self, source: PlannedDataSource, asked: Asked, stack: contextlib.ExitStack) -> None:
        self._source = source
        self._asked = asked
        self._stack = stack
        self._copy = snapshot(source)
        self._expected: dict[int, list[Reading]] = {}
        self._drew: dict[int, str] = {}
        self._roads = [PLAIN]

    def run(self) -> None:
        """Compare all that was asked for.

        Raises:
            NotReproducible: something differs.
        """
        self._check_order_again()
        self._check_again()
        self._check_backwards()
        self._check_cuts()
        self._check_worlds(PLAIN)
        for kind in dict.fromkeys(self._asked.pools):
            for transport in self._opened(kind):
                self._check_road(transport)
            self._check_worlds(self._roads[-1])
        self._check_resumes()

    # -- readings ----------------------------------------------------------------------------------------------

    @property
    def _epoch(self) -> int:
        return self._asked.epochs[0]

    def _traced(self, watch: bool = False) -> Traced:
        return Traced(self._source if self._copy is None else self._copy(), watch)

    def _read(self, traced: Traced, transport: Road = PLAIN, most: int | None = None, **options: Any) -> list[Reading]:
        """Return the first readings of an epoch."""
        given = {"batch_size": self._asked.batch_size, "epoch": self._epoch, **options}
        with transport.over(traced).batch_iterator(shuffle=self._asked.shuffle, **given) as iterator:
            return [reading_of(item) for item in itertools.islice(iterator, self._asked.most if most is None else most)]

    @contextlib.contextmanager
    def _reading(self, how: str) -> Iterator[None]:
        """Say how the batches were to be made, if an exception is raised that was not in a plain loop."""
        try:
            yield
        except Exception as error:
            if isinstance(error, BatchupError) and not isinstance(error, BatchError):
                raise  # something was asked for that cannot be
            raise NotReproducible(
                f"a batch of epoch {self._epoch} cannot be made when it {how}, though it can in a plain loop: "
                f"{type(error).__name__}: {shortened(str(error), 1000)}",
                setting=how,
                epoch=self._epoch,
                culprit=map_of(error) or "",
            ) from error

    def _plan(self) -> Any:
        return self._source.plan(self._asked.batch_size, self._asked.shuffle, epoch=self._epoch)

    # -- comparisons -------------------------------------------------------------------------------------------

    def _check_order_again(self) -> None:
        """Compare the rows of batches, which the consumer's process computes, in a plain loop."""
        asked = self._asked
        for epoch in asked.epochs:
            given = asked.batch_size, asked.shuffle, epoch, asked.most
            one, other = (culprits.orders(self._source, *given) for _ in range(2))
            self._blame_order(one, other, epoch, "are other rows when they are asked for again")
        n = asked.most * asked.batch_size
        one, other = (
            culprits.sequences(self._source, size, asked.shuffle, self._epoch, n) for size in (asked.batch_size, n)
        )
        self._blame_order(one, other, self._epoch, "are other rows when many are asked for at once")

    def _check_again(self) -> None:
        """Read everything once more: it is the first reading that all others are compared with."""
        first = self._traced(watch=True)
        for epoch in self._asked.epochs:
            self._expected[epoch] = self._read(first, epoch=epoch)
            for reading in self._expected[epoch]:
                self._drew.update({event.node: event.drew for event in reading.events if event.drew})
        for words, found, traced in (
            ("is read again", culprits.AGAIN, first),
            ("is read by a copy of the source", culprits.COPIED, self._traced()),
            ("is read by the source itself", culprits.COPIED, Traced(self._source)),
        ):
            for epoch in self._asked.epochs:
                with self._reading(words):
                    got = self._read(traced, epoch=epoch)
                self._compare(words, found, self._expected[epoch], got, epoch)

    def _check_backwards(self) -> None:
        """Read the batches from the last to the first, each by itself."""
        traced, plan, expected = self._traced(), self._plan(), self._expected[self._epoch]
        seeded = self._asked.shuffle is not None and any_node(self._source, "runs_user_code")
        for number in reversed(range(len(expected))):
            planned = plan[number]
            words = "is read without those before it"
            with self._reading(words), globals_seeded(planned.key) if seeded else contextlib.nullcontext():
                got = reading_of(read_batch(traced, planned.rows, planned.key, FRESH))
            self._compare(words, culprits.ORDER, expected[number : number + 1], [got], self._epoch, number)

    def _opened(self, kind: str) -> Iterator[Road]:
        """Yield the transports of one kind, whose pools stay open."""
        for workers in dict.fromkeys(self._asked.workers if kind != "serial" else [1]):
            pool = self._stack.enter_context(_pool(kind, workers))
            who = {"serial": "a SerialPool", "threads": f"a pool of {workers} threads"}
            words = who.get(kind, f"a pool of {workers} processes").replace(" 1 threads", " 1 thread")
            found = {"serial": culprits.AGAIN, "threads": culprits.THREADS}.get(kind, culprits.PROCESSES)
            for buffer in dict.fromkeys(self._asked.buffers):
                ahead = f", {buffer} ahead" if buffer > 1 else ""
                transport = Road(words.replace(" 1 processes", " 1 process") + ahead, found, pool, buffer)
                self._roads.append(transport)
                yield transport

    def _check_road(self, transport: Road) -> None:
        if isinstance(transport.pool, WorkerProcessPool):
            self._check_order_elsewhere(transport.pool)
        traced = self._traced()
        epochs = self._asked.epochs if transport.buffer == self._asked.buffers[0] else [self._epoch]
        for epoch in epochs:
            words = f"is made by {transport.words}"
            with self._reading(words):
                got = self._read(traced, transport, epoch=epoch)
            self._compare(words, transport.found, self._expected[epoch], got, epoch)

    def _check_order_elsewhere(self, pool: WorkerProcessPool) -> None:
        """Compare the rows of batches as another process computes them."""
        asked = self._asked
        given = self._source, asked.batch_size, asked.shuffle, self._epoch, asked.most
        there = pool.work_stream(iter([(culprits.orders, given)])).retrieve()
        self._blame_order(culprits.orders(*given), there, self._epoch, "are other rows in another process")

    def _check_cuts(self) -> None:
        """Compare the samples as other batch sizes cut them."""
        if not self._cuts_matter():
            return
        size, expected = self._asked.batch_size, self._expected[self._epoch]
        n = self._asked.most * size
        for other in self._other_sizes():
            words = f"is cut by batch_size={other}"
            with self._reading(words):
                got = self._read(self._traced(), most=math.ceil(n / other), batch_size=other)
            self._compare_samples(words, culprits.CUT, expected, got)

    def _other_sizes(self) -> list[int]:
        """Return the other batch sizes, but those of our own choice that a sampler refuses."""
        size, asked = self._asked.batch_size, self._asked.batch_sizes
        sizes = [max(1, size // 2), size + 5] if asked is None else asked
        others = [other for other in dict.fromkeys(sizes) if other != size]
        return others if asked is not None else [other for other in others if self._fits(other)]

    def _fits(self, size: int) -> bool:
        try:
            self._source.plan(size, self._asked.shuffle)
        except ArgumentError:
            return False
        return True

    def _cuts_matter(self) -> bool:
        """Return whether samples are the same in other batches, as far as one can know before."""
        drawn = any(isinstance(node, MapDataSource) and node.rng == "batch" for node in nodes_of(self._source))
        return isinstance(self._plan(), SamplesPlan) and not drawn and not self._drew and self._asked.batch_sizes != []

    def _check_worlds(self, transport: Road) -> None:
        """Compare what all ranks have together with what one has alone."""
        size, expected, plan = self._asked.batch_size, self._expected[self._epoch], self._plan()
        for world in dict.fromkeys(self._asked.worlds):
            most, ranks = math.ceil(len(expected) / world), []
            words = f"is made by {world} ranks" + ("" if transport is PLAIN else f", each with {transport.words}")
            for rank in range(world):
                with self._reading(words):
                    ranks.append(self._read(self._traced(), transport, most, shard=(rank, world)))
            self._compare_counts(words, ranks)
            whole = _whole_rounds(plan, size, world)
            got = [reading for together in zip(*ranks, strict=True) for reading in together]
            done = int(min(len(got), whole * world, len(expected)))
            self._compare(words, culprits.ORDER, expected[:done], got[:done], self._epoch)
            if self._cuts_matter():
                self._compare_samples(words, culprits.CUT, expected[done:], got[done:], done)

    def _check_resumes(self) -> None:
        """Compare what is left of an epoch when it goes on elsewhere."""
        asked, last = self._asked, len(self._expected[self._epoch])
        transports = itertools.cycle(self._roads)
        for at in sorted({round(last * (i + 1) / (asked.resumes + 1)) for i in range(asked.resumes)}):
            before, after = next(transports), next(transports)
            words = f"is made by {after.words}, resumed after {at} batches of {before.words}"
            with self._reading(words):
                state = self._state_after(before, at)
            self._check_resumed(words, after, state, at, asked.batch_size)
            if self._cuts_matter():
                for other in self._other_sizes()[:1]:
                    self._check_resumed(f"{words} with batch_size={other}", after, state, at, other)

    def _check_resumed(self, words: str, transport: Road, state: Any, at: int, size: int) -> None:
        expected = self._expected[self._epoch][at:]
        with self._reading(words):
            most = math.ceil(len(expected) * self._asked.batch_size / size)
            got = self._read(self._traced(), transport, most, batch_size=size, state=state)
        if size != self._asked.batch_size:
            self._compare_samples(words, culprits.CUT, expected, got, at)
        else:
            found = culprits.ORDER if transport.found == culprits.AGAIN else transport.found
            self._compare(words, found, expected, got, self._epoch, at)

    def _state_after(self, transport: Road, batches: int) -> Any:
        given = self._asked.batch_size, self._asked.shuffle
        with transport.over(self._traced()).batch_iterator(*given, epoch=self._epoch) as iterator:
            for _ in itertools.islice(iterator, batches):
                pass
            return json.loads(json.dumps(iterator.state_dict()))

    # -- differences -------------------------------------------------------------------------------------------

    def _compare(
        self, how: str, found: str, expected: Sequence[Reading], got: Sequence[Reading], epoch: int, first: int = 0
    ) -> None:
        """Compare batch by batch."""
        for number, (one, other) in enumerate(zip(expected, got, strict=False), first):
            difference = first_difference(one.batch, other.batch)
            if difference is not None:
                self._fail(how, found, number, difference, culprits.first_unlike(one.events, other.events), epoch)
        if len(expected) != len(got):
            at, culprit = first + min(len(expected), len(got)), culprits.counting_culprit(self._source)
            difference = Difference("", None, f"{len(expected)} batches from there on, and here {len(got)}")
            raise _failure(_unlike(at, epoch, how, difference), how, epoch, at, difference, culprit)

    def _compare_counts(self, how: str, ranks: Sequence[Sequence[Reading]]) -> None:
        """Compare how many batches ranks have."""
        counts = [len(readings) for readings in ranks]
        if min(counts) != max(counts):
            what = f"the ranks of epoch {self._epoch} have {counts} batches, not equally many, when it {how}"
            raise _failure(what, how, self._epoch, None, None, culprits.counting_culprit(self._source))

    def _compare_samples(
        self, how: str, found: str, expected: Sequence[Reading], got: Sequence[Reading], first: int = 0
    ) -> None:
        """Compare sample by sample, whatever batches they are in; as many as there are of both."""
        ours, theirs = ([_columns(reading.batch) for reading in readings] for readings in (expected, got))
        differences = [rows_difference(name, *_together(name, ours, theirs)) for name in (ours[0] if ours else {})]
        real = [each for each in differences if each is not None and each.row is not None]
        if not real:
            return
        least = min(real, key=lambda each: each.row or 0)
        number, row = _placed([len(columns[least.leaf]) for columns in ours], least.row or 0)
        event = _unlike_samples(expected, got)
        self._fail(how, found, first + number, least._replace(row=row), event, self._epoch)

    def _blame_order(self, one: Any, other: Any, epoch: int, words: str) -> None:
        culprit = culprits.unlike_order(self._source, one, other)
        if culprit is not None:
            raise _failure(f"the batches of epoch {epoch} {words}", words, epoch, None, None, culprit)

    def _fail(
        self, how: str, found: str, number: int, difference: Difference, event: Event | None, epoch: int
    ) -> None:
        at_root = event is not None and not event.path
        drew = "" if event is None else self._drew.get(event.node, "")
        if event is None:
            plan = itertools.islice(self._plan(), 3)
            culprit = culprits.reusing_culprit(self._source, reusing_node(self._traced(), list(plan)))
        else:
            if found == culprits.PROCESSES and self._is_made_by_more_threads(number, epoch):
                found = culprits.LINEAR_ALGEBRA
            culprit = culprits.culprit_of(self._source, event, found, drew, difference.leaf if at_root else "")
        raise _failure(_unlike(number, epoch, how, difference), how, epoch, number, difference, culprit)


    def _is_made_by_more_threads(self, number: int, epoch: int) -> bool:
        """Return whether a worker whose libraries use as many threads as this program's makes the batch as expected."""
        with WorkerProcessPool(1, blas_threads=None) as pool:
            got = self._read(self._traced(), Road("", "", pool), number + 1, epoch=epoch)
        return first_difference(self._expected[epoch][number].batch, got[number].batch) is None


def _unlike(number: int, epoch: int, how: str, difference: Difference) -> str:
    where = "" if difference.row is None else f"row {difference.row} of "
    leaf = f"array {difference.leaf}" if difference.leaf else "all of it"
    return f"batch {number} of epoch {epoch} is not the same when it {how}: {where}{leaf} is {difference.words}"


def _failure(
    what: str, how: str, epoch: int, number: int | None, difference: Difference | None, culprit: Culprit
) -> NotReproducible:
    text = f"{what}. The first to differ is {culprit.words}: {culprit.why}. Remedy: {culprit.remedy}"
    row, leaf = (None, None) if difference is None else (difference.row, difference.leaf)
    return NotReproducible(text, setting=how, epoch=epoch, batch=number, row=row, leaf=leaf, culprit=culprit.name)


def reading_of(item: Any) -> Reading:
    """Return what a traced source gave, with a batch of its own memory."""
    batch, events, *_ = item
    return Reading(copy.deepcopy(batch), [Event(*event) for event in events])


def _pool(kind: str, workers: int) -> AbstractWorkerPool:
    if kind == "serial":
        return SerialPool()
    return WorkerThreadPool(workers) if kind == "threads" else WorkerProcessPool(workers)


def _whole_rounds(plan: Any, size: int, world: int) -> float:
    """Return in how many rounds each rank takes a batch as it is in a world of one."""
    n = plan.n_batches
    if n == math.inf or not n:
        return math.inf if n else 0
    if not isinstance(plan, SamplesPlan):
        return int(n) // world
    return ((int(n) - 1) * size + rows_length(plan[int(n) - 1].rows)) // (size * world)


def _columns(batch: Any) -> dict[str, Any]:
    return {name: leaf for name, leaf in named_leaves(batch) if has_samples(leaf)}


def _together(name: str, *sides: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the samples of one leaf, of all batches of each side."""
    return [[sample for columns in side for sample in columns.get(name, ())] for side in sides]


def _placed(lengths: list[int], row: int) -> tuple[int, int]:
    """Return the batch and the row in it of a sample that is counted over all batches."""
    for number, length in enumerate(lengths):
        if row < length:
            return number, row
        row -= length
    return len(lengths), row


def _unlike_samples(expected: Sequence[Reading], got: Sequence[Reading]) -> Event | None:
    """Return an event of the deepest node that gave other samples; None if all gave the same."""
    ours, theirs = _streams(expected), _streams(got)
    unlike = []
    for place, (event, digests) in ours.items():
        others = theirs[place][1] if place in theirs else np.arange(0, dtype=np.uint64)
        n = min(len(digests), len(others))
        if not np.array_equal(digests[:n], others[:n]):
            unlike.append(event)
    return min(unlike, key=lambda event: (-len(event.path), event.node), default=None)


def _streams(readings: Sequence[Reading]) -> dict[Any, tuple[Event, np.ndarray]]:
    """Return the digests of the samples that each node gave, in order, by its place in the graph."""
    found: dict[Any, tuple[Event, list[np.ndarray]]] = {}
    for reading in readings:
        seen: dict[Any, int] = {}
        for event in reading.events:
            turn = seen[event.path] = seen.get(event.path, 0) + 1
            found.setdefault((event.path, event.node, turn), (event, []))[1].append(event.samples)
    return {place: (event, np.concatenate(parts)) for place, (event, parts) in found.items()}
