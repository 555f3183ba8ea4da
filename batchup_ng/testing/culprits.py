"""Which node of a graph is to blame for a difference of two readings, in words with what to do."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..data_source.array import ArrayDataSource
from ..data_source.base import AbstractDataSource, PlannedDataSource
from ..data_source.map import MapDataSource
from ..data_source.views import ConcatDataSource, SubsetDataSource, ZipDataSource
from ..error_context import function_name
from ..errors import BatchupError
from ..randomness import OrderKey
from ..sampling.plans.rows import ChoiceBatch, join_rows
from .digests import digest_of
from .tracing import Event, nodes_of

AGAIN = "again"
"""How a difference was found: the same was read once more, in the same way."""
COPIED = "copied"
"""Another copy of the source was read."""
ORDER = "order"
"""Batches were read in another order, or not from the first on."""
THREADS = "threads"
"""Threads of one process read them."""
PROCESSES = "processes"
"""Other processes read them."""
LINEAR_ALGEBRA = "linear algebra"
"""Other processes read them, in which libraries for linear algebra use one thread, and in this one several."""
CUT = "cut"
"""The samples were cut into other batches."""

_WHY = {
    AGAIN: "it gives something else each time: it uses a generator of its own, a clock, a counter, or what it kept "
    "from an earlier call",
    COPIED: "a copy of it, such as each process gets, is not the same: what it is pickled as leaves something out, or "
    "is filled in anew wherever it is loaded",
    ORDER: "what it gives depends on the calls before: it keeps a counter, a cache or another state between calls",
    THREADS: "threads share what it uses: a global generator, a counter, an array or another state that it keeps",
    PROCESSES: "it depends on the process: on a generator, counter or cache that each process has for itself, on "
    "os.getpid(), on hash() of a text or the order of a set",
    LINEAR_ALGEBRA: "its products or sums of floats are shared out to threads of a library for linear algebra "
    "(OpenBLAS, MKL, OpenMP), of which this program uses several and a worker process one",
    CUT: "what a sample becomes depends on which others share its batch: it works over the whole batch (products of "
    "matrices do, in their last bits), or draws for all of it at once",
}
_REMEDY = {
    COPIED: "let __getstate__ and __setstate__ keep all that its results depend on",
    LINEAR_ALGEBRA: "let this program use one as well, by OMP_NUM_THREADS=1 in its environment or by "
    "threadpoolctl.threadpool_limits(1), or have all batches made by processes",
    CUT: "let it treat each sample by itself, and draw by map(fn, rng='sample'); or never change the batch size, and "
    "pass batch_sizes=()",
}
_ANY_REMEDY = (
    "keep nothing between calls, and draw by map(fn, rng='sample') or map(fn, rng='batch'), which hand it a generator "
    "for these very samples"
)


class Culprit(NamedTuple):
    """What is to blame.

    Attributes:
        name: Name of the function, class or sampler.
        words: The same with its kind, as a sentence names it.
        why: What it does wrong.
        remedy: What to do.
    """

    name: str
    words: str
    why: str
    remedy: str


def first_unlike(expected: Sequence[Event], got: Sequence[Event]) -> Event | None:
    """Return the first event of a batch that is not as expected; None if all are."""
    for one, other in zip(expected, got, strict=False):
        if one[:3] != other[:3] or not np.array_equal(one.samples, other.samples):
            return one
    return None


def culprit_of(source: AbstractDataSource, event: Event, found: str, drew: str, leaf: str) -> Culprit:
    """Return what is to blame for a difference.

    Args:
        source: The root of the graph.
        event: The first that differs.
        found: How it was found: one of the words above.
        drew: Name of the global generator that the node draws from, or ``""``.
        leaf: The way to the leaf that differs, where the node is the root.
    """
    node = nodes_of(source)[event.node]
    name, words = _named(node, leaf)
    why, remedy = _WHY[found], _REMEDY.get(found, _ANY_REMEDY)
    if drew and found in _GLOBAL:
        why = f"it draws from the global generator of {drew}, {_GLOBAL[found]}"
    return Culprit(name, words, why, remedy)


def reusing_culprit(source: AbstractDataSource, number: int | None) -> Culprit:
    """Return what is to blame where every node gave the right batch, which had changed when it was handed out.

    Args:
        source: The root of the graph.
        number: Number of the node that hands out the same memory again; None if none does.
    """
    name, words = ("", "none of the nodes") if number is None else _named(nodes_of(source)[number], "")
    why = "it was written to after it had been returned, as by what hands out the same array again"
    return Culprit(name, words, why, "return a new array from each call")


def counting_culprit(source: AbstractDataSource) -> Culprit:
    """Return what is to blame where an epoch has another number of batches than before."""
    name = type(source).__name__
    why = "how many batches it has is not a function of its samples, the batch size and the number of ranks"
    return Culprit(name, f"the plan of {name}", why, "let plan_of, or the sampler, heed nothing else")


_GLOBAL = {
    AGAIN: "which nothing seeds on this transport: only an int as shuffle= makes the library do so, for each batch",
    THREADS: "which all threads share, so that it cannot be seeded for a batch, as a serial run and processes of one "
    "thread do (pools=('serial', 'processes') checks these alone)",
}


def _named(node: AbstractDataSource, leaf: str) -> tuple[str, str]:
    if isinstance(node, MapDataSource):
        name = function_name(node.fn)
        return name, f"map {name!r}"
    if type(node) is ArrayDataSource:
        name = _accessor(node, leaf)
        return name, f"the data of an ArrayDataSource ({name})"
    return type(node).__name__, f"the source {type(node).__name__}"


def _accessor(node: ArrayDataSource, leaf: str) -> str:
    """Return the types of the data of a source, of one alone where the leaf tells which."""
    names = [type(array).__name__ for array in node.data]
    own = {f"[{i + node.include_indices}]": name for i, name in enumerate(names)}
    return own.get(leaf) or ", ".join(dict.fromkeys(names))


def orders(source: AbstractDataSource, batch_size: int, shuffle: int | None, epoch: int, most: int) -> list[list[int]]:
    """Return, for each node, digests of the rows of its first batches; empty where it has no order of its own.

    Rows are asked for from the last batch to the first, and again from the first on, so that a sampler that keeps
    something between calls is told by itself.
    """
    return [_order(node, batch_size, shuffle, epoch, most) for node in nodes_of(source)]


def _order(node: AbstractDataSource, batch_size: int, shuffle: int | None, epoch: int, most: int) -> list[int]:
    key = None if shuffle is None else OrderKey(shuffle, epoch)
    with contextlib.suppress(BatchupError):  # of this size, or in order, it gives no batches by itself
        plan = node.row_plan(batch_size, key, False)
        numbers = range(int(min(plan.n_batches, most)))
        backwards = [digest_of(_plain(plan.rows(k))) for k in reversed(numbers)]
        plan = node.row_plan(batch_size, key, False)
        return backwards[::-1] + [digest_of(_plain(plan.rows(k))) for k in numbers]
    return []


def sequences(source: AbstractDataSource, size: int, shuffle: int | None, epoch: int, n: int) -> list[list[int]]:
    """Return, for each node whose samples are one sequence, a digest of the rows of its first `n` positions.

    They are asked for `size` at a time.
    """
    return [_sequence(node, size, shuffle, epoch, n) for node in nodes_of(source)]


def _sequence(node: AbstractDataSource, size: int, shuffle: int | None, epoch: int, n: int) -> list[int]:
    key = None if shuffle is None else OrderKey(shuffle, epoch)
    with contextlib.suppress(BatchupError):
        plan = node.row_plan(size, key, False)
        if plan.n_samples is not None:
            stops = [*range(size, int(min(plan.n_samples, n)), size), int(min(plan.n_samples, n))]
            parts = [plan.rows_between(start, stop) for start, stop in itertools.pairwise([0, *stops])]
            return [digest_of(_plain(join_rows(parts)))]
    return []


def _plain(rows: Any) -> Any:
    if isinstance(rows, ChoiceBatch):
        return [int(rows.ds_index), _plain(rows.sample_indices)]
    if isinstance(rows, tuple):
        return [_plain(part) for part in rows]
    return np.asarray(rows).astype(np.int64)


def unlike_order(source: PlannedDataSource, expected: list[list[int]], got: list[list[int]]) -> Culprit | None:
    """Return what orders rows otherwise than before; None if nothing does."""
    for node, one, other in zip(nodes_of(source), expected, got, strict=True):
        half = len(one) // 2
        if one and other and (one != other or (half and one[:half] != one[half:])):
            name = type(_orderer(node)).__name__
            return Culprit(
                name,
                f"the order that {name} gives",
                "it is not a function of seed, epoch and position: it draws from a generator that it did not make from "
                "the key, or keeps something between calls",
                "draw only from what rows_at(positions, key) is given: key.word(...) seeds whatever you need",
            )
    return None


def _orderer(node: AbstractDataSource) -> Any:
    """Return what gives the order of a node: its sampler, where it has one of the user's and uses it."""
    sampler = getattr(node, "sampler", None)
    lists_rows = type(node).batch_indices_iterator is not PlannedDataSource.batch_indices_iterator
    return node if sampler is None or lists_rows or isinstance(node, _ARRANGING) else sampler


_ARRANGING = (ConcatDataSource, SubsetDataSource, ZipDataSource)
