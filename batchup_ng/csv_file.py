"""The rows of a CSV file."""

from __future__ import annotations

import contextlib
import csv
import os
import stat
from collections.abc import Generator

from .error_context import shortened
from .errors import ArgumentError, SampleReadError


def csv_rows(path: str | os.PathLike[str], delimiter: str = ",") -> Generator[list[str], None, None]:
    """Yield the cells of each row. The first row names the columns. Empty lines are skipped.

    Raises:
        ArgumentError: a row has more or fewer cells than the first, or a quote that opens a cell is not closed before a
            delimiter or the end of a line, or the file is no CSV file in UTF-8, or is a pipe.
        SampleReadError: the file cannot be opened; ``.source`` is its path. Its cause is the ``OSError``.
        OSError: the file cannot be read to its end.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"':
        raise ArgumentError(f"delimiter must be one character, such as ',' or '\\t', not {delimiter!r}")
    try:
        is_regular = stat.S_ISREG(os.stat(path).st_mode)  # opening a pipe would wait for a writer
        file = open(path, newline="", encoding="utf-8-sig", errors="surrogatepass") if is_regular else None  # noqa: SIM115
    except OSError as error:
        raise not_opened(path, error) from error
    if file is None:
        raise ArgumentError(
            f"{os.fspath(path)!r} must be a regular file, not a pipe, a folder or a device; write its rows to a file"
        )
    with file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)  # else a stray quote makes one cell of many rows
        columns = 0
        try:
            for row in filter(None, reader):
                columns = columns or len(row)
                if len(row) != columns:
                    raise ArgumentError(
                        f"line {reader.line_num} of {os.fspath(path)!r} has {len(row)} cells, and the first has "
                        f"{columns}; put quotes around cells that hold a {delimiter!r}, or pass delimiter="
                    )
                yield row
        except csv.Error as error:
            raise ArgumentError(
                f"{os.fspath(path)!r} must be a CSV file, and behind line {_last_line_of_rows(path, delimiter)}, up to "
                f"line {reader.line_num}, there is no row: {error}; if a cell begins with a quote, write it as "
                f"csv.writer does ('\"\"\"so\"\" she said\"'); if the file breaks off, write it anew"
            ) from error
        except UnicodeDecodeError as error:
            raise ArgumentError(
                f"{os.fspath(path)!r} must be a CSV file in UTF-8, and behind line {reader.line_num} it is not: {error}"
            ) from error


def _last_line_of_rows(path: str | os.PathLike[str], delimiter: str) -> int:
    """Return the last line before the first error of a file. A count in :func:`csv_rows` would slow down every row."""
    last = 0
    with open(path, newline="", encoding="utf-8-sig", errors="surrogatepass") as file, contextlib.suppress(csv.Error):
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        for _ in reader:
            last = reader.line_num
    return last


def not_opened(path: str | os.PathLike[str], error: OSError) -> SampleReadError:
    """Return the error for a file of names, labels or annotations that cannot be opened."""
    return SampleReadError(
        f"{shortened(repr(os.path.abspath(path)), 400)} cannot be opened ({type(error).__name__}: {error.strerror}); "
        f"check its path and permissions",
        os.fspath(path),
    )
