"""What a batch of a file costs in order, in blocks and at random: some are read, on one thread, and timed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..data_source.array import ArrayDataSource
from ..sampling.block_shuffle import BlockShuffleSampler

SECONDS = 1.0
"""Seconds after which no more of an order is read, once a whole number of its blocks or windows was."""

PATIENCE = 4
"""How many times as long it may take to read them whole."""

SIMILAR = 1.5
"""Times that an order may take of another and still count as equally cheap."""

NEGLIGIBLE = 1e-3
"""Seconds a batch that hardly any training notices."""

SEED = 0


class Costs(NamedTuple):
    """Seconds of a batch in each order."""

    in_order: float
    in_blocks: float
    at_random: float


def measure_costs(source: ArrayDataSource, batch_size: int, block: int, window: int) -> Costs:
    """Read batches of a source in each order, and return what one takes in the mean.

    Chunks that accessors keep are let go of before each order. The window that is read in blocks is no longer than what
    is read in order meanwhile; how many blocks it has does not matter to the cost.

    Raises:
        BatchError: a row cannot be read.
    """

    def cost(own: ArrayDataSource, shuffle: Any, rows: int) -> float:
        for column in source.data:
            column.close()
            column[0]  # which opens the file
        with contextlib.closing(own.batch_iterator(batch_size, shuffle=shuffle)) as batches:
            return seconds_a_batch(batches, -(-rows // batch_size))

    next(source.batch_iterator(batch_size))  # or the first order would pay for what is done once in a program
    in_order = cost(source, False, block)
    window = min(window, max(2, int(SECONDS * batch_size / max(in_order, 1e-9) / block)))
    sampler = BlockShuffleSampler(len(source.data[0]), block, window)
    in_blocks = cost(ArrayDataSource(source.columns, sampler=sampler), SEED, block * window)
    return Costs(in_order, in_blocks, cost(source, SEED, 1))


def seconds_a_batch(batches: Iterable[Any], every: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the mean time of a batch, of at least one, all if :data:`SECONDS` suffice.

    The first of every `every` batches may be much dearer than the others, as where a chunk is decoded for all of them,
    so a whole number of these is read if that is done within `PATIENCE` times as long.
    """
    start, n = clock(), 0
    for n, _ in enumerate(batches, 1):
        taken = clock() - start
        if taken >= SECONDS * PATIENCE or (taken >= SECONDS and n % every == 0):
            break
    return (clock() - start) / n


def advice(costs: Costs, better: str) -> str:
    """Return which order to take, in a sentence; `better` is the ending of a format that is cheap at random.

    >>> advice(Costs(in_order=0.002, in_blocks=0.0024, at_random=0.08), ".npy")
    'shuffle="blocks" costs 1.2 x reading in order, shuffle=True 40 x: pass shuffle="blocks"'
    """
    blocks, random = times(costs.in_blocks / costs.in_order), times(costs.at_random / costs.in_order)
    if costs.at_random <= SIMILAR * costs.in_order:
        return "rows are as cheap at random as in order: pass shuffle=True"
    if costs.at_random <= NEGLIGIBLE:
        return f"shuffle=True costs {random} reading in order, and yet hardly anything: pass shuffle=True"
    if costs.at_random > SIMILAR * costs.in_blocks:
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
