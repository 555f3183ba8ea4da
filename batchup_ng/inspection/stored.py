"""The page about a file that :func:`~batchup_ng.from_file` reads: its columns, and the cost of shuffling it."""

from __future__ import annotations

import math
import os
from statistics import harmonic_mean
from typing import Any

import numpy as np

from ..accessors.storage.remote import is_remote
from ..data_source.array import ArrayDataSource
from ..data_source.blocks import times_read
from ..datasets.from_file import from_file
from ..display import array_words, counted, in_bytes
from ..error_context import shortened
from ..errors import BatchError
from ..randomness import OrderKey
from ..sampling.block_shuffle import BlockShuffleSampler, OrderBlocks, measure_mixing
from ..validation import positive_int
from .reading_cost import advice, measure_costs, times

MOST_ROWS_FOR_MIXING = 1 << 22
"""Rows that mixing is measured on, at most, in up to 32 epochs: 0.5 s."""


def stored_page(
    paths: str | list[str], batch_size: int = 64, columns: str | None = None, world: int = 1
) -> tuple[str, bool]:
    """Return the page about a file, and whether all rows that it read were good. It reads for some seconds.

    Args:
        paths: As for ``from_file``.
        batch_size: Rows per batch to time.
        columns: Names of columns, with commas between them; None for all.
        world: How many ranks share the rows.

    Raises:
        ArgumentError: `batch_size` or `world` is below 1, or ``from_file`` does not read the file.
        SampleReadError: the file cannot be read.
        ImportError: the format needs a library that is not installed.
    """
    positive_int("--batch-size", batch_size)
    positive_int("--world", world)
    source = from_file(paths, columns and columns.split(","))
    rows = len(source.data[0])
    path = paths if isinstance(paths, str) else f"{paths[0]}, ..."
    sizes = _sizes(path, source)
    in_all = f", {in_bytes(sum(sizes))}" if sizes else ""
    n_files = f" in {counted(len(sizes), 'file')}" if len(sizes) > 1 else ""
    shown = path if path.isprintable() else repr(path)
    lines = [f"{shown}: {counted(rows, 'row')}, {counted(len(source.data), 'column')}{in_all}{n_files}"]
    names = [shortened(name if name.isprintable() else repr(name), 60) for name in source.node.form()]
    lines += _table([[name, *_column(column)] for name, column in zip(names, source.data, strict=True)])
    try:
        size = min(batch_size, rows)
        more = _shuffling(source, rows, size) + (_ranks(source, rows, size, world) if world > 1 else []) if rows else []
        return "\n".join(lines + more), True
    except BatchError as error:
        return "\n".join([*lines, f"what shuffling costs is not known: {error}"]), False


def _sizes(path: str, source: ArrayDataSource) -> list[int]:
    """Return the size of each file, in bytes. A folder counts with all its files; a folder at a URL with none."""
    if os.path.isdir(path):
        return [os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(path) for name in names]
    found = {file: size for column in source.data for file, size in column.file_sizes().items()}
    return list(found.values())


def _column(column: Any) -> list[str]:
    """Return the contents of a column, its accessor, and its layout in the file."""
    nbytes = _row_bytes(column)
    if nbytes is not None:
        holds = f"{shortened(str(column.dtype), 100)} {tuple(column.shape[1:])}"
    else:
        first = column[0] if len(column) else None
        holds = f"values: {array_words(first) if hasattr(first, 'shape') else type(first).__name__}"
    rows = min(column.natural_block, len(column))
    block = "" if nbytes is None else f", {in_bytes(rows * nbytes)}"
    return [holds, type(column).__name__, f"blocks of {counted(rows, 'row')}{block}"]


def _row_bytes(column: Any) -> int | None:
    """Return the bytes of a row; None if rows differ in shape."""
    return math.prod(column.shape[1:]) * column.dtype.itemsize if hasattr(column, "shape") else None


def _shuffling(source: ArrayDataSource, rows: int, batch_size: int) -> list[str]:
    """Return the effect of ``shuffle="blocks"``, the time of a batch in each order, and the order to take."""
    block, window = _blocks(source, rows)
    sizes = [_row_bytes(column) for column in source.data]
    costs = measure_costs(source, batch_size, block, window)
    table = [
        [name, f"{1000 * cost:,.{0 if cost > 0.1 else 2}f} ms", times(cost / costs.in_order)]
        for name, cost in zip(["in order", 'shuffle="blocks"', "shuffle=True"], costs, strict=True)
    ]
    return [
        f'shuffle="blocks" mixes {_mixed(source, rows, block, window)}',
        f"a batch of {counted(batch_size, 'row')}, on one thread ({_whence(source)}):",
        *_table(table),
        advice(costs, ".lmdb" if None in sizes else ".npy" if len(sizes) == 1 else ".h5"),
    ]


def _blocks(source: ArrayDataSource, rows: int) -> tuple[int, int]:
    """Return the block and the window of ``shuffle="blocks"``, no greater than the data."""
    block, window = source.node.natural_blocks() or (1, 1)
    block = min(block, rows)
    return block, min(window, -(-rows // block))


def _mixed(source: ArrayDataSource, rows: int, block: int, window: int, of_all: str = "all rows") -> str:
    """Return in words what is mixed at a time, of so many rows, and its memory."""
    mixed = of_all if block * window >= rows else f"{block * window:,} rows"
    sizes = [_row_bytes(column) for column in source.data]
    memory = "" if None in sizes else f", {in_bytes(min(rows, block * window) * sum(filter(None, sizes)))}"
    return f"{counted(window, 'block')} of {counted(block, 'row')} at a time: {mixed}{memory}"


def _ranks(source: ArrayDataSource, rows: int, batch_size: int, world: int) -> list[str]:
    """Return what a rank reads of ``shuffle="blocks"`` with ``shard=``, and how well the ranks' batches are mixed."""
    block, window = _blocks(source, rows)
    times_its_part = times_read(OrderBlocks(block, window, world, batch_size), batch_size, world, rows)
    part = -(-rows // world)
    window = min(window, -(-part // block))
    n_read = counted(min(math.ceil(part / block * times_its_part), -(-rows // block)), "block")
    lines = [
        f'with shard= and shuffle=("blocks", 7) each of {world} ranks reads {n_read}, '
        f"about {times_its_part:.2f} x its part,",
        f"  and mixes {_mixed(source, part, block, window, 'all its rows')}",
    ]
    n = min(rows, MOST_ROWS_FOR_MIXING)
    if n >= 2 * batch_size * world:
        sampler = BlockShuffleSampler(n, block, window, groups=world, run=batch_size)
        epochs = range(min(32, MOST_ROWS_FOR_MIXING // n))  # the few steps of one epoch differ by chance
        orders = [sampler.rows_at(np.arange(n), OrderKey(0, epoch)) for epoch in epochs]
        mixing = harmonic_mean([measure_mixing(rows, batch_size * world) for rows in orders])
        step = f"{world} x {counted(batch_size, 'row')}"
        lines.append(f"  a step of {step} is mixed {mixing:.2f} x as well as fully shuffled")
    return lines


def _whence(source: ArrayDataSource) -> str:
    """Return where the timed batches came from."""
    if any(is_remote(column.paths[0]) for column in source.data):
        return "over the network, one batch after the other"
    return "what the page cache lacked came from the disk: run this twice to see the file warm"


def _table(rows: list[list[str]]) -> list[str]:
    """Return rows of words as lines, with aligned columns."""
    widths = [max(map(len, words)) for words in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
