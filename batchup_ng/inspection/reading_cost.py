"""The time of a batch of a file in order, in blocks and at random: one thread reads some batches and times them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..data_source.array import ArrayDataSource
from ..sampling.block_shuffle import BlockShuffleSampler

TIMED_SECONDS = 1.0
"""Seconds after which reading in one order stops, at the end of a block or window."""

MAX_TIME_FACTOR = 4
"""The longest time to that end, as a multiple of :data:`TIMED_SECONDS`."""

SIMILAR_RATIO = 1.5
"""The greatest ratio of the times of two orders that count as equally cheap."""

NEGLIGIBLE_SECONDS = 1e-3
"""Seconds per batch that hardly any training notices."""

SEED = 0


class Costs(NamedTuple):
    """Seconds of a batch in each order."""

    in_order: float
    in_blocks: float
    at_random: float


def measure_costs(source: ArrayDataSource, batch_size: int, block: int, window: int) -> Costs:
    """Read batches of a source of named columns in each order. Return the mean time of a batch in each.

    Accessors drop their chunks before each order. The window for blocks is no longer than the rows that are read in
    order in the same time; its number of blocks does not change the cost.

    Raises:
        BatchError: a row cannot be read.
    """

    def cost(own: ArrayDataSource, shuffle: Any, rows: int) -> float:
        for column in source.data:
            column.close()
            column[0]  # opens the file
        with contextlib.closing(own.batch_iterator(batch_size, shuffle=shuffle)) as batches:
            return seconds_a_batch(batches, -(-rows // batch_size))

    next(source.batch_iterator(batch_size))  # otherwise the first order would pay the program's one-time costs
    in_order = cost(source, False, block)
    window = min(window, max(2, int(TIMED_SECONDS * batch_size / max(in_order, 1e-9) / block)))
    sampler = BlockShuffleSampler(len(source.data[0]), block, window)
    columns = dict(zip(source.node.form(), source.data, strict=True))
    in_blocks = cost(ArrayDataSource(columns, sampler=sampler), SEED, block * window)
    return Costs(in_order, in_blocks, cost(source, SEED, 1))


def seconds_a_batch(batches: Iterable[Any], every: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the mean time of a batch, over at least one batch, over all if :data:`TIMED_SECONDS` suffice.

    The first of every `every` batches may cost much more than the others, for example if it decodes a chunk for all of
    them. So a multiple of `every` batches is read, if that takes at most `MAX_TIME_FACTOR` times as long.
    """
    start, n = clock(), 0
    for n, _ in enumerate(batches, 1):
        taken = clock() - start
        if taken >= TIMED_SECONDS * MAX_TIME_FACTOR or (taken >= TIMED_SECONDS and n % every == 0):
            break
    return (clock() - start) / n


def advice(costs: Costs, better: str) -> str:
    """Return a sentence with the order to take. `better` is the suffix of a format that is cheap at random.

    >>> advice(Costs(in_order=0.002, in_blocks=0.0024, at_random=0.08), ".npy")
    'shuffle="blocks" costs 1.2 x reading in order, shuffle=True 40 x: pass shuffle="blocks"'
    """
    blocks, random = times(costs.in_blocks / costs.in_order), times(costs.at_random / costs.in_order)
    if costs.at_random <= SIMILAR_RATIO * costs.in_order:
        return "rows are as cheap at random as in order: pass shuffle=True"
    if costs.at_random <= NEGLIGIBLE_SECONDS:
        return f"shuffle=True costs {random} reading in order, and yet hardly anything: pass shuffle=True"
    if costs.at_random > SIMILAR_RATIO * costs.in_blocks:
        return f'shuffle="blocks" costs {blocks} reading in order, shuffle=True {random}: pass shuffle="blocks"'
    return (
        f'shuffle=True costs {random} reading in order, shuffle="blocks" {blocks}: pass shuffle=True, or convert the '
        f"file to one that is cheap at random, such as {better}"
    )


def times(ratio: float) -> str:
    """Return a ratio in words.

    >>> times(1.23), times(40.4)
    ('1.2 x', '40 x')
    """
    return f"{ratio:.1f} x" if ratio < 9.95 else f"{ratio:,.0f} x"
