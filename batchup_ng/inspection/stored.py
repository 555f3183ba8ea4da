"""The page about a file that :func:`~batchup_ng.from_file` reads: its columns, and the cost of shuffling it."""

from __future__ import annotations

import math
import os
from typing import Any

from ..accessors.storage.remote import is_remote
from ..data_source.array import ArrayDataSource
from ..datasets.from_file import from_file
from ..display import array_words, counted, in_bytes
from ..error_context import shortened
from ..errors import BatchError
from ..validation import positive_int
from .reading_cost import advice, measure_costs, times


def stored_page(paths: str | list[str], batch_size: int = 64, columns: str | None = None) -> tuple[str, bool]:
    """Return the page about a file, and whether all rows that it read were good. It reads for some seconds.

    Args:
        paths: As for ``from_file``.
        batch_size: Rows per batch to time.
        columns: Names of columns, with commas between them; None for all.

    Raises:
        ArgumentError: `batch_size` is below 1, or ``from_file`` does not read the file.
        SampleReadError: the file cannot be read.
        ImportError: the format needs a library that is not installed.
    """
    positive_int("--batch-size", batch_size)
    source = from_file(paths, columns and columns.split(","))
    rows = len(source.data[0])
    path = paths if isinstance(paths, str) else f"{paths[0]}, ..."
    sizes = _sizes(path, source)
    size = f", {in_bytes(sum(sizes))}" if sizes else ""
    n_files = f" in {counted(len(sizes), 'file')}" if len(sizes) > 1 else ""
    shown = path if path.isprintable() else repr(path)
    lines = [f"{shown}: {counted(rows, 'row')}, {counted(len(source.data), 'column')}{size}{n_files}"]
    names = [shortened(name if name.isprintable() else repr(name), 60) for name in source.node.form()]
    lines += _table([[name, *_column(column)] for name, column in zip(names, source.data, strict=True)])
    try:
        return "\n".join(lines + (_shuffling(source, rows, min(batch_size, rows)) if rows else [])), True
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
    block, window = source.node.natural_blocks() or (1, 1)
    block = min(block, rows)
    window = min(window, -(-rows // block))
    mixed = "all rows" if block * window >= rows else f"{block * window:,} rows"
    sizes = [_row_bytes(column) for column in source.data]
    memory = "" if None in sizes else f", {in_bytes(min(rows, block * window) * sum(filter(None, sizes)))}"
    costs = measure_costs(source, batch_size, block, window)
    table = [
        [name, f"{1000 * cost:,.{0 if cost > 0.1 else 2}f} ms", times(cost / costs.in_order)]
        for name, cost in zip(["in order", 'shuffle="blocks"', "shuffle=True"], costs, strict=True)
    ]
    return [
        f'shuffle="blocks" mixes {counted(window, "block")} of {counted(block, "row")} at a time: {mixed}{memory}',
        f"a batch of {counted(batch_size, 'row')}, on one thread ({_whence(source)}):",
        *_table(table),
        advice(costs, ".lmdb" if None in sizes else ".npy" if len(sizes) == 1 else ".h5"),
    ]


def _whence(source: ArrayDataSource) -> str:
    """Return where the timed batches came from."""
    if any(is_remote(column.paths[0]) for column in source.data):
        return "over the network, one batch after the other"
    return "what the page cache lacked came from the disk: run this twice to see the file warm"


def _table(rows: list[list[str]]) -> list[str]:
    """Return rows of words as lines, with aligned columns."""
    widths = [max(map(len, words)) for words in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
