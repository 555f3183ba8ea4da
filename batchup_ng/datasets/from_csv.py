"""A source over the images that a CSV file names, with labels from its columns."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from .. import validation
from ..accessors.image_files import ImageFiles
from ..csv_file import csv_rows
from ..display import counted
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError
from ..row_arrays import MOST_EXACT
from .files import ADVICE_ON_IMAGE_OPTIONS, FilesDataSource, Reader
from .from_table import from_table
from .table_columns import Column, names_of

INT_CELL = re.compile(r"-?(0|[1-9]\d{0,999})", re.A)
FLOAT_CELL = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[-+]?\d+)?|[-+]?inf|nan", re.A | re.I)
"""Cells of a CSV file that are numbers. ``007`` is text, because it may be a name. Numbers too large for a float are
text too."""

DELIMITERS = (",", ";", "\t", "|")
"""Characters that the cells of a CSV file are usually divided by."""

MAX_MISSING_CELLS = 3
"""How many different cells of a column of numbers may be taken for missing numbers, to suggest `na_values`."""


@validation.known_names(ADVICE_ON_IMAGE_OPTIONS)
def from_csv(
    path: str | os.PathLike[str], image: str = "path", label: str | None = None,
    size: int | tuple[int, int] | None = None, *, separator: str | None = None, columns: Sequence[str] = (),
    class_names: Sequence[str] | None = None, root: str | os.PathLike[str] | None = None, missing: str = "error",
    exclude: str | os.PathLike[str] | Iterable[str] | None = None, images: Reader = ImageFiles, delimiter: str = ",",
    as_dict: bool = False, na_values: Sequence[str] = (),
) -> FilesDataSource:  # fmt: skip
    """Return a source of the images that a CSV file names. This is :func:`from_table` without a further library.

    The file is UTF-8 and begins with the names of its columns. A column has whole numbers if all of its cells are whole
    numbers, else floats if all are numbers, else text. So ``NA`` and ``007`` are text, and an empty cell is empty text,
    which is no label. Cells in `na_values` make no text of a column of numbers. If a column of `columns` is text only
    because of cells such as ``NA`` or an empty one, ``source.report`` names the column and the first row. Arguments not
    listed here are as for :func:`from_table`.

    Args:
        path: The file.
        root: The folder that paths are relative to. Default: the folder of the file.
        delimiter: Character between the cells of a row.
        na_values: Cells that stand for a missing number: ``[""]``, ``["", "NA"]``. A column whose other cells are all
            numbers has floats, with NaN in their place. Other columns stay text. A label must not be missing.

    Raises:
        ArgumentTypeError: `na_values` is not a list of strings; also for the reasons in :func:`from_table`.
        ArgumentError: the file is empty, or no CSV file in UTF-8, or has another `delimiter`, or a row has more or
            fewer cells than the first, or a quote at the beginning of a cell is not closed at its end, or a column of
            whole numbers with missing ones has one that float64 cannot hold; also as for :func:`from_table`.
        SampleReadError: the file cannot be opened. It is an ``OSError``.
    """
    columns = names_of(columns)
    wanted = {image: "image", **({} if label is None else {label: "label"}), **dict.fromkeys(columns, "columns")}
    table = _read_csv(path, wanted, delimiter)
    missing_cells = _checked_na_values(na_values)
    table = {name: cells if name == image else _typed(name, cells, missing_cells) for name, cells in table.items()}
    root = os.path.dirname(path) if root is None else root
    source = from_table(
        table, image, label, size, separator=separator, columns=columns, class_names=class_names, root=root,
        missing=missing, exclude=exclude, images=images, as_dict=as_dict,
    )  # fmt: skip
    hints = [source.report.hint, *(_text_hint(name, table[name], missing_cells) for name in columns)]
    source.report = dataclasses.replace(source.report, where=os.fspath(path), hint="\n".join(filter(None, hints)))
    return source


def _read_csv(path: str | os.PathLike[str], wanted: Mapping[str, str], delimiter: str) -> dict[str, Column]:
    """Return the cells of some columns. `wanted` has, by column, the argument that names it."""
    with contextlib.closing(csv_rows(path, delimiter)) as rows:  # an error would keep the file open
        return _columns_of(rows, path, wanted, delimiter)


def _columns_of(
    rows: Iterator[list[str]], path: str | os.PathLike[str], wanted: Mapping[str, str], delimiter: str
) -> dict[str, Column]:
    header = next(rows, [])
    if not header:
        raise ArgumentError(
            f"{os.fspath(path)!r} must begin with the names of its columns, and it is empty; check what wrote it"
        )
    other = next((mark for mark in DELIMITERS if mark != delimiter and mark in header[0]), None)
    if len(header) == 1 and other is not None and not wanted.keys() <= set(header):
        raise ArgumentError(
            f"delimiter must be the character between the cells, and the first line of {os.fspath(path)!r} has "
            f"{shortened(repr(header[0]), 200)}, no {delimiter!r}; pass delimiter={other!r}"
        )
    places = [header.index(validation.one_of(argument, name, header)) for name, argument in wanted.items()]
    if twice := [name for name in wanted if header.count(name) > 1]:
        raise ArgumentError(f"{os.fspath(path)!r} must have one column {twice[0]!r}, not several; rename the others")
    cells: list[Column] = [[] for _ in wanted]
    for row in rows:
        for column, place in zip(cells, places, strict=True):
            column.append(row[place])
    return dict(zip(wanted, cells, strict=True))


def _typed(name: str, cells: Column, missing: Set[str]) -> Column:
    if all(map(INT_CELL.fullmatch, cells)):
        return list(map(int, cells))
    if not all(cell in missing or FLOAT_CELL.fullmatch(cell) for cell in cells):
        return cells
    numbers = [math.nan if cell in missing else float(cell) for cell in cells]
    if not all("inf" in cell.lower() for number, cell in zip(numbers, cells, strict=True) if math.isinf(number)):
        return cells
    if all(cell in missing or INT_CELL.fullmatch(cell) for cell in cells):  # with a point they are measurements
        for row, (number, cell) in enumerate(zip(numbers, cells, strict=True)):
            if abs(number) >= MOST_EXACT and int(cell) != number:
                raise ArgumentError(
                    f"column {shortened(name, 60)!r} must be floats, for a value is missing, and row {row} holds "
                    f"{shortened(cell, 40)}, which float64 cannot hold; write whole numbers into all cells, such as -1 "
                    f"for a missing one, or leave na_values= out for text"
                )
    return numbers


def _checked_na_values(na_values: Any) -> frozenset[str]:
    is_listed = isinstance(na_values, Iterable) and not isinstance(na_values, (str, bytes))
    found: list[Any] = list(na_values) if is_listed else [None]
    if not all(isinstance(each, str) for each in found):
        raise ArgumentTypeError(f"na_values must be a list of strings, not {na_values!r:.80}; pass ['', 'NA']")
    return frozenset(found)


def _text_hint(name: str, cells: Column, missing: Set[str]) -> str:
    """Return advice on `na_values` if a column is text only because of a few cells without digits, else empty text."""
    if not isinstance(cells[0], str):
        return ""
    odd = list(dict.fromkeys(cell for cell in cells if cell not in missing and not FLOAT_CELL.fullmatch(cell)))
    n_numbers = sum(FLOAT_CELL.fullmatch(cell) is not None for cell in cells)
    if not n_numbers or not 0 < len(odd) <= MAX_MISSING_CELLS or any(map(str.isdigit, "".join(odd))):
        return ""
    asked, first = [*sorted(missing), *odd], shortened(repr(odd[0]), 40)
    return (
        f"column {shortened(name, 60)!r} is text, for row {cells.index(odd[0])} holds {first} among "
        f"{counted(n_numbers, 'number')}; na_values={shortened(repr(asked), 100)} makes it numbers, with NaN there"
    )
