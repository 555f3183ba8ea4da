"""The bad samples of an epoch as a CSV file, which later sources take as ``exclude=``.

``subset`` goes by the rows in it, here; sources of files go by the paths (``datasets/exclusion.py``).
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from typing import Any

import numpy as np

from ..accessors.storage.remote import is_remote
from ..csv_file import csv_rows
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError, BatchError
from ..graph.node import Node
from ..replaced_file import replace_text
from ..sampling.standard import check_row_numbers, row_numbers

ERROR_LIST_COLUMNS = ("row", "source", "error", "message", "op", "epoch", "batch", "position")
"""Columns of the file. Except ``error`` and ``message``, each is an attribute of :class:`~batchup_ng.BatchError`."""

MAX_MESSAGE_CHARS = 10_000
"""Maximum number of characters of a message in the file. The csv module reads no field of more than 131,072."""


def write_errors(errors: Any, path: str | os.PathLike[str]) -> int:
    """Write the samples that failed to a CSV file and return their number. Errors of whole batches are left out.

    The file has the columns ``row, source, error, message, op, epoch, batch, position``. `source` is the path or key of
    the sample, `error` the class of the exception. The others are as in :class:`~batchup_ng.BatchError`, and empty if
    they are None. Relative paths of files become absolute, so the list is valid from any folder. The file is written
    whole or not at all. ``from_folder``, ``from_table`` and ``subset`` take it as ``exclude=``.

    Args:
        errors: An iterator, a loader or a :class:`~batchup_ng.TooManyErrors`, whose ``errors`` are written; or a list
            of errors.
        path: The file. An existing file is replaced.

    Raises:
        ArgumentTypeError: an element is no ``BatchError``.
        OSError: the file cannot be written.
    """
    listed = [errors] if isinstance(errors, BatchError) else list(getattr(errors, "errors", errors))
    written = 0
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(ERROR_LIST_COLUMNS)
    for error in listed:
        if not isinstance(error, BatchError):
            raise ArgumentTypeError(
                f"errors must be an iterator, a loader, or a list of BatchError, and holds {error!r:.80}; pass the "
                f"iterator whose epoch skipped samples"
            )
        if error.row is None and error.rows is not None:
            continue  # of a whole batch, for example if a later attempt succeeded
        written += 1
        told = {
            "source": _lasting(error.source), "error": type(error.error or error).__name__,
            "message": shortened(str(error), MAX_MESSAGE_CHARS),
        }  # fmt: skip
        writer.writerow([told[name] if name in told else getattr(error, name) for name in ERROR_LIST_COLUMNS])
    replace_text(path, text.getvalue())
    return written


def _lasting(source: str | None) -> str | None:
    """Return the name of a sample. Make the relative path of a file absolute, even if the file is missing."""
    if source is None or is_remote(source) or os.path.isdir(source):
        return source
    is_path = os.path.lexists(source) or os.path.isdir(os.path.dirname(source))
    return os.path.abspath(source) if is_path else source


def absolute(path: str | os.PathLike[str], folder: str | os.PathLike[str] = "") -> str:
    """Return the absolute form of a path relative to `folder`, by default the current one. Return a URL unchanged."""
    text = os.fspath(path)
    return text if is_remote(text) else os.path.abspath(os.path.join(folder, text))


def excluded_positions(exclude: Any, node: Node, n: int) -> np.ndarray:
    """Return the positions on an exclusion list, within the `n` of the unshuffled epoch of `node`.

    `exclude` is a CSV file of errors in samples of `node`, or positions: ``(k,) int``.
    """
    if not isinstance(exclude, (str, os.PathLike)):
        positions = row_numbers("exclude", exclude)
        check_row_numbers("exclude", positions, n)
        return np.where(positions < 0, positions + n, positions)
    rows, entries = node.rows_at(np.arange(n)), read_errors(exclude)
    bad = np.array([_row(entry, exclude) for entry in entries], np.int64)
    if not isinstance(rows, np.ndarray):
        raise ArgumentTypeError("exclude: a source of several sources has no single rows; give it to subset of each")
    for row, there, entry in zip(bad, np.isin(bad, rows), entries, strict=True):
        name = node.sample_name(np.array([row])) if there else "not there"
        if not there or (entry["source"] and not _is_named(entry["source"], name, os.path.dirname(exclude))):
            raise ArgumentError(
                f"exclude: row {row} of {os.fspath(exclude)!r} is {entry['source']!r}, and here it is {name!r}: pass "
                f"the source whose iterator had the errors, or the list to from_folder or from_table, which go by path"
            )
    return np.flatnonzero(np.isin(rows, bad))


def _is_named(listed: str, name: str | None, folder: str) -> bool:
    """Return whether the entry `listed` of a list in `folder` names a sample: by the same text, or by the same path."""
    return name is not None and (listed == name or absolute(listed, folder) == absolute(name))


def _row(entry: dict[str, str], path: str | os.PathLike[str]) -> int:
    row = filled(entry, "row", path)
    if not row.isdecimal():
        raise ArgumentError(
            f"exclude: {os.fspath(path)!r} names row {row!r:.80}, which is one of several sources; give those to subset"
        )
    return int(row)


def read_errors(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the entries of a list, each a dict of its cells by column.

    Raises:
        ArgumentError: the file is no CSV file, or lacks the columns of rows and paths.
        SampleReadError: the file cannot be opened. It is an ``OSError``.
    """
    with contextlib.closing(csv_rows(path)) as rows:  # an error would keep the file open
        header = next(rows, [])
        if not {"row", "source"} <= set(header):
            raise ArgumentError(
                f"exclude: {os.fspath(path)!r} must have the columns row and source, as write_errors writes them, and "
                f"has {header}; pass a list of paths, or of rows, for another file"
            )
        return [dict(zip(header, row, strict=True)) for row in rows]


def filled(entry: dict[str, str], column: str, path: str | os.PathLike[str]) -> str:
    """Return the cell of an entry in the list at `path`. Raise if it is empty."""
    if not entry[column]:
        raise ArgumentError(
            f"exclude: {os.fspath(path)!r} has an entry without {column}: {entry.get('message', '')!r:.200}; delete it"
        )
    return entry[column]
