"""A source over the images that a table names, with labels from its columns."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from typing import Any, TypeAlias

import numpy as np

from .. import validation
from ..accessors.image_bytes import ImageBytes
from ..accessors.image_files import ImageFiles
from ..accessors.packed_paths import PackedPaths, path_text
from ..accessors.packed_texts import PackedTexts
from ..display import counted
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError
from .csv_file import csv_rows
from .exclusion import absolute, excluded_paths, unmatched_paths
from .files import OF_IMAGES, FilesDataSource, FilesReport, Reader, checked_class_names, named, opened

Column: TypeAlias = "list[Any]"

LISTED_FROM = 100
"""Minimum number of named files in a folder to list the folder, which is one request to storage that may be remote.
Fewer files are checked one by one, because the folder may contain many others."""

SEPARATORS = ("|", ";", ",")
"""Possible separators between the classes of a label. If most labels contain one and none was given, the report says
so."""

INT = re.compile(r"-?(0|[1-9]\d{0,999})", re.A)
FLOAT = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[-+]?\d+)?|[-+]?inf|nan", re.A | re.I)
"""Cells of a CSV file that are numbers. ``007`` is text, because it may be a name. Numbers too large for a float are
text too."""


@validation.known_names(OF_IMAGES)
def from_table(
    table: Any, image: str = "path", label: str | None = None, size: int | tuple[int, int] | None = None, *,
    separator: str | None = None, columns: Sequence[str] = (), class_names: Sequence[str] | None = None,
    root: str | os.PathLike[str] | None = None, missing: str = "error",
    exclude: str | os.PathLike[str] | Iterable[str] | None = None, images: Reader = ImageFiles,
) -> FilesDataSource:  # fmt: skip
    """Return a source of the images that a table names: ``(images, labels)``, or ``(images,)`` without `label`.

    The values of the column determine the labels:

    - Whole numbers, truth values or text are classes: ``(n,) int64``, numbered from 0 in the order of the sorted
      values. ``source.class_names`` has them as text.
    - With `separator`, text names several classes: ``(n, n_classes) float32``, 1 for each named class, else 0. An empty
      text names none.
    - Floats are targets and stay as they are: ``(n,) float32``.

    ``source.report`` is a :class:`~batchup_ng.FilesReport`. A path that the table names twice gives two samples.

    Args:
        table: A data frame of pandas, polars, or another library that narwhals supports; a table of pyarrow; a dict of
            lists or arrays.
        image: The column of the paths; or of the encoded images, ``bytes`` or dicts ``{"bytes": ..., "path": ...}`` as
            Hugging Face stores them, which :class:`~batchup_ng.ImageBytes` reads.
        label: The column of the labels.
        size: Size of the images, as for :class:`~batchup_ng.ImageFiles`.
        separator: Text between the classes of a sample: ``"|"``, ``" "``. Spaces around classes do not count. If it is
            None and most labels contain one of ``|;,``, the report says so.
        columns: Further columns, which follow in each batch. A NumPy array of numbers keeps its dtype. Other numbers
            become an array. Text becomes a list of ``str`` (``bytes`` a list of ``bytes``), whose memory workers share.
        class_names: The classes in the order of their numbers, such as those that the network was trained with.
        root: The folder that paths are relative to. Default: the current one. `root`, `missing` and `exclude` apply
            only to paths.
        missing: Action on files that do not exist: ``"error"``; ``"skip"`` those rows; or ``"ignore"``, which does not
            check, so missing files fail when they are read. A broken link may count as a file.
        exclude: Paths, absolute or relative to the current folder; or a CSV file from
            :func:`~batchup_ng.write_errors`, whose relative paths are relative to its own folder. None leaves nothing
            out. A path that is not in the table gives a :class:`~batchup_ng.SampleWarning`.
        images: Makes the accessor. It is called with a sequence of paths, and with `size` if that is not None:
            ``functools.partial(ImageFiles, mode="L")``.

    Raises:
        ArgumentTypeError: `table` is no table, or a column has values that cannot be labels or paths.
        ArgumentError: there is no such column, no row is left, a label is missing or not in `class_names`, a file is
            missing, or the table has none of the paths in `exclude`. Errors number rows from 0.
        ModuleNotFoundError: narwhals is not installed. All tables but a dict need it.

    >>> source = from_table({"path": ["a.png", "b.png"], "label": ["cat", "dog"]}, label="label", missing="ignore")
    >>> source.data[1], source.class_names
    (array([0, 1]), ('cat', 'dog'))
    """
    named_columns = _columns(table)
    validation.one_of("missing", missing, ("error", "skip", "ignore"))
    if separator == "":
        raise ArgumentError("separator must be some text, not ''; pass None for one class a sample")
    values = named_columns("image", image)
    encoded = bool(values) and isinstance(values[0], (bytes, dict))
    paths = [] if encoded else _paths(values, root)
    names, labels, hint = None, [], ""
    if label is not None:
        cells = named_columns("label", label)
        names, numbers = _labels(label, cells, separator, class_names)
        labels.append(numbers)
        hint = "" if separator else _separator_hint(cells)
    excluded = excluded_paths(exclude)
    out = _excluded(paths, excluded)
    unmatched = unmatched_paths(exclude, excluded, [paths[row] for row in out])
    absent = [] if missing == "ignore" else sorted(set(_absent(paths)).difference(out))
    if absent and missing == "error":
        raise ArgumentError(
            f"missing: {image!r} names files that do not exist: {named([paths[row] for row in absent])}, in rows "
            f"{_listed(absent)}; pass root= if they lie elsewhere, or missing='skip' to leave those rows out"
        )
    kept = np.setdiff1d(np.arange(len(values)), [*absent, *out])
    if not len(kept):
        raise ArgumentError(f"table must name pictures, and of its {len(values)} rows none is left")
    labels = [each[kept] for each in labels]
    further = [_further_column(name, named_columns("columns", name), kept) for name in columns]
    taken = [paths[row] for row in kept] if len(kept) < len(paths) else paths
    report = FilesReport(
        f"table of {counted(len(values), 'row')}", len(kept), _counts(names, labels),
        {"excluded": PackedPaths(paths[row] for row in out)} if out else {},
        PackedPaths(paths[row] for row in absent), PackedPaths(_repeated(taken)), PackedPaths(unmatched), hint,
    )  # fmt: skip
    if encoded and images is ImageFiles:
        images = ImageBytes
    pictures = opened(images, values if encoded else PackedPaths(taken), size)
    return FilesDataSource([pictures, *labels, *further], report, label is not None)


@validation.known_names(OF_IMAGES)
def from_csv(
    path: str | os.PathLike[str], image: str = "path", label: str | None = None,
    size: int | tuple[int, int] | None = None, *, separator: str | None = None, columns: Sequence[str] = (),
    class_names: Sequence[str] | None = None, root: str | os.PathLike[str] | None = None, missing: str = "error",
    exclude: str | os.PathLike[str] | Iterable[str] | None = None, images: Reader = ImageFiles, delimiter: str = ",",
) -> FilesDataSource:  # fmt: skip
    """Return a source of the images that a CSV file names. This is :func:`from_table` without a further library.

    The file is UTF-8 and begins with the names of its columns. A column has whole numbers if all of its cells are whole
    numbers, else floats if all are numbers, else text. So ``NA`` and ``007`` are text, and an empty cell is empty text,
    which is no class. Arguments not listed here are as for :func:`from_table`.

    Args:
        path: The file.
        root: The folder that paths are relative to. Default: the folder of the file.
        delimiter: Character between the cells of a row.

    Raises:
        ArgumentError: the file is no CSV file in UTF-8, or a row has more or fewer cells than the first; also for the
            reasons in :func:`from_table`.
        OSError: the file cannot be read.
    """
    wanted = {image: "image", **({} if label is None else {label: "label"}), **dict.fromkeys(columns, "columns")}
    table = _read_csv(path, wanted, delimiter)
    table = {name: cells if name == image else _typed(cells) for name, cells in table.items()}
    root = os.path.dirname(path) if root is None else root
    source = from_table(
        table, image, label, size, separator=separator, columns=columns, class_names=class_names, root=root,
        missing=missing, exclude=exclude, images=images,
    )  # fmt: skip
    source.report = dataclasses.replace(source.report, where=os.fspath(path))
    return source


# -- columns -----------------------------------------------------------------------------------------------------


def _columns(table: Any) -> Callable[[str, str], Any]:
    """Return a function of an argument's name and a column's name. It returns the column's values as Python objects.

    If the argument is ``columns``, it returns an array of numbers unchanged.
    """
    if isinstance(table, (str, os.PathLike)):
        raise ArgumentTypeError(f"table must be a data frame or a dict of columns, not {table!r}; pass it to from_csv")
    frame: Any = table if isinstance(table, Mapping) else _narwhals_frame(table)
    names = list(frame) if isinstance(table, Mapping) else frame.columns
    for name in names if isinstance(table, Mapping) else ():
        if isinstance(frame[name], (str, bytes, Set, Mapping)) or not isinstance(frame[name], Sized):
            raise ArgumentTypeError(
                f"table must have columns that are lists or arrays, and {name!r} is a {type(frame[name]).__name__}; "
                f"pass list(...) of it, if it has an order"
            )
    lengths = {name: len(frame[name]) for name in names}
    if len(set(lengths.values())) > 1:
        raise ArgumentError(f"table must have columns of one length, not {lengths}")

    def column(argument: str, name: str) -> Any:
        values = frame[validation.one_of(argument, name, names)]
        if argument == "columns" and isinstance(values, np.ndarray) and values.dtype.kind in "biufcmM":
            return values
        values = values.to_list() if hasattr(values, "to_list") else getattr(values, "tolist", lambda: values)()
        return [value.item() if isinstance(value, np.generic) else value for value in values]

    return column


def _narwhals_frame(table: Any) -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise ModuleNotFoundError(
            f"a {type(table).__name__} is read through narwhals, which is not installed: pip install "
            f"'batchup_ng[tables]'; a dict of lists needs nothing"
        ) from error
    try:
        return narwhals.from_native(table, eager_only=True)
    except TypeError as error:
        raise ArgumentTypeError(
            f"table must be a data frame of pandas, polars or pyarrow, or a dict of columns, not a "
            f"{type(table).__name__}; call .collect() of a lazy one"
        ) from error


def _read_csv(path: str | os.PathLike[str], wanted: Mapping[str, str], delimiter: str) -> dict[str, Column]:
    """Return the cells of some columns. `wanted` has, by column, the argument that names it."""
    rows = csv_rows(path, delimiter)
    header = next(rows, [])
    places = [header.index(validation.one_of(argument, name, header)) for name, argument in wanted.items()]
    if twice := [name for name in wanted if header.count(name) > 1]:
        raise ArgumentError(f"{os.fspath(path)!r} must have one column {twice[0]!r}, not several; rename the others")
    cells: list[Column] = [[] for _ in wanted]
    for row in rows:
        for column, place in zip(cells, places, strict=True):
            column.append(row[place])
    return dict(zip(wanted, cells, strict=True))


def _typed(cells: Column) -> Column:
    if all(map(INT.fullmatch, cells)):
        return list(map(int, cells))
    if not all(map(FLOAT.fullmatch, cells)):
        return cells
    numbers = list(map(float, cells))
    infinite = [cell for number, cell in zip(numbers, cells, strict=True) if math.isinf(number)]
    return numbers if all("inf" in cell.lower() for cell in infinite) else cells


def _further_column(name: str, values: Column | np.ndarray, kept: np.ndarray) -> Any:
    """Return some rows of a column that is neither image nor label: texts packed, numbers as an array."""
    if isinstance(values, np.ndarray):
        return values[kept]
    for kind in (str, bytes):
        if any(isinstance(value, kind) for value in values):
            if not all(isinstance(value, kind) for value in values):
                raise _odd_column(name, values)
            return PackedTexts([values[row] for row in kept])
    whole = all(isinstance(value, int) for value in values)
    try:
        array = np.array(values)
        if whole and array.dtype.kind == "f":  # floats would round integers from 2**63 on
            array = np.array(values, np.uint64)
    except (ValueError, OverflowError):  # lists of several lengths; numbers of more than 64 bits
        raise _odd_column(name, values) from None
    if array.dtype.kind in "OSU":
        raise _odd_column(name, values)
    return array[kept]


def _odd_column(name: str, values: Column) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"columns: {name!r} must hold numbers in every row, or text in every row, {_first_odd(values)}; fill or leave "
        f"it out"
    )


# -- labels ------------------------------------------------------------------------------------------------------


def _labels(
    name: str, values: Column, separator: str | None, class_names: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Return the names of the classes (None if the labels are targets), and the label of each row."""
    if missing := [row for row, value in enumerate(values) if value is None or (value == value) is not True]:
        hint = "; give '' to those that are of no class" if separator else ""
        raise ArgumentError(
            f"label: {name!r} has no value in {counted(len(missing), 'row')}, {_listed(missing)}; leave those rows "
            f"out{hint}"
        )
    kinds = set(map(type, values))
    if separator is not None and kinds <= {str}:
        several = [[part.strip() for part in value.split(separator) if part.strip()] for value in values]
        names, ids = _numbered(name, several, class_names)
        labels = np.zeros((len(values), len(names)), np.float32)
        labels[np.repeat(np.arange(len(values)), list(map(len, several))), ids] = 1
        return names, labels
    if separator is None and any(kinds <= kind for kind in ({int}, {bool}, {str})):
        return _numbered(name, [[value] for value in values], class_names)
    if separator is None and kinds <= {int, float}:
        with np.errstate(over="ignore"):
            numbers = np.array(values, np.float64).astype(np.float32)
        if large := [row for row in np.flatnonzero(np.isinf(numbers)) if not math.isinf(values[row])]:
            raise ArgumentError(
                f"label: {name!r} has numbers that float32 cannot hold, as {values[large[0]]!r} in row {large[0]}; "
                f"scale them"
            )
        return None, numbers
    wanted = "text" if separator is not None else "text alone, or numbers alone"
    raise ArgumentTypeError(f"label: {name!r} must hold {wanted}, {_first_odd(values)}; convert it first")


def _numbered(
    name: str, several: list[Column], class_names: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the classes, and the class numbers of all rows, one row after the other."""
    found = sorted({value for values in several for value in values})
    names = tuple(map(str, found)) if class_names is None else checked_class_names(class_names)
    by_name = {each: number for number, each in enumerate(names)}
    numbers = {value: by_name.get(str(value), -1) for value in found}
    ids = np.array([numbers[value] for values in several for value in values], np.int64)
    if unknown := [value for value in found if numbers[value] < 0]:
        rows = [row for row, values in enumerate(several) if not set(unknown).isdisjoint(values)]
        raise ArgumentError(
            f"class_names must name every class in {name!r}, and lacks {unknown[:10]}, in rows {_listed(rows)}; add "
            f"them, or leave those rows out"
        )
    return names, ids


def _separator_hint(cells: Column) -> str:
    """Return advice on `separator` if most labels look like several classes, else an empty text."""
    for mark in SEPARATORS:
        n = sum(isinstance(cell, str) and mark in cell for cell in cells)
        if 2 * n > len(cells):
            return f"{n:,} of {len(cells):,} labels hold {mark!r}; separator={mark!r} makes each several classes"
    return ""


def _counts(names: tuple[str, ...] | None, labels: list[np.ndarray]) -> dict[str, int]:
    if names is None:
        return {}
    several = labels[0].ndim == 2
    counts = np.count_nonzero(labels[0], axis=0) if several else np.bincount(labels[0], minlength=len(names))
    return dict(zip(names, counts.tolist(), strict=True))


# -- paths -------------------------------------------------------------------------------------------------------


def _paths(values: Column, root: str | os.PathLike[str] | None) -> list[str]:
    texts = [path_text(row, value) for row, value in enumerate(values)]
    return texts if root is None else [os.path.join(root, text) for text in texts]


def _absent(paths: Sequence[str]) -> list[int]:
    """Return the rows of paths without a file. List folders with many of the paths; check other paths one by one."""
    by_folder: dict[str, list[int]] = {}
    for row, path in enumerate(paths):
        by_folder.setdefault(path[: path.rfind(os.sep) + 1], []).append(row)
    absent = []
    for folder, rows in by_folder.items():
        is_listed = len(rows) >= LISTED_FROM and os.path.isdir(folder or ".")
        names = set(os.listdir(folder or ".")) if is_listed else set()
        doubtful = [row for row in rows if paths[row][len(folder) :] not in names]
        absent += [row for row in doubtful if not os.path.exists(paths[row])]
    return absent


def _excluded(paths: Sequence[str], folders: dict[str, set[str]]) -> list[int]:
    """Return the rows of paths on an exclusion list."""
    names = set().union(*folders.values())
    return [
        row
        for row, path in enumerate(paths if names else ())
        if (name := os.path.basename(path)) in names and name in folders.get(os.path.dirname(absolute(path)), ())
    ]


def _repeated(paths: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [path for path in paths if path in seen or seen.add(path)]  # type: ignore[func-returns-value]  # None


# -- words -------------------------------------------------------------------------------------------------------


def _listed(rows: Sequence[int]) -> str:
    return f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}"


def _first_odd(values: Column) -> str:
    """Return in words the first value whose type differs from row 0."""
    first = type(values[0]) if values else None
    row = next((row for row, value in enumerate(values) if type(value) is not first), 0)
    return f"and row {row} holds {shortened(repr(values[row]), 80)}"
