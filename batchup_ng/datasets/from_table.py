"""A source over the images that a table names, with labels from its columns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.annotations import refuse_annotations
from ..accessors.image_bytes import ImageBytes
from ..accessors.image_files import ImageFiles
from ..accessors.packed_paths import PackedPaths, path_text
from ..data_source.error_list import absolute
from ..display import counted
from ..errors import ArgumentError
from .exclusion import excluded_paths, unmatched_paths
from .files import (
    ADVICE_ON_IMAGE_OPTIONS,
    NAMED_COLUMNS,
    FilesDataSource,
    FilesReport,
    Reader,
    absent_rows,
    named,
    opened,
    repeated,
)
from .table_columns import Column, columns_of, dict_names, further_column, names_of, row_words
from .table_labels import class_counts, labels_of, separator_hint


@validation.known_names(ADVICE_ON_IMAGE_OPTIONS)
def from_table(
    table: Any, image: str = "path", label: str | None = None, size: int | tuple[int, int] | None = None, *,
    separator: str | None = None, columns: Sequence[str] = (), class_names: Sequence[str] | None = None,
    root: str | os.PathLike[str] | None = None, missing: str = "error",
    exclude: str | os.PathLike[str] | Iterable[str] | None = None, images: Reader = ImageFiles, as_dict: bool = False,
) -> FilesDataSource:  # fmt: skip
    """Return a source of the images that a table names: ``(images, labels)``, or ``(images,)`` without `label`.

    With `as_dict`, batches are dicts: ``{"image": images, "label": labels}`` and the further columns by their names.

    The values of the column determine the labels:

    - Whole numbers, truth values or text are classes: ``(n,) int64``, numbered from 0 in the order of the sorted
      values. ``source.class_names`` has them as text.
    - Lists of text name several classes: ``(n, n_classes) float32``, 1 for each named class, else 0. An empty list
      names none. With `separator`, text does the same, such as ``"dog|cat"``. An empty text names none.
      Without `separator`, an empty text is a missing label.
    - Floats are targets and stay as they are: ``(n,) float32``.

    ``source.report`` is a :class:`~batchup_ng.FilesReport`. A path that the table names twice gives two samples.

    Args:
        table: A data frame of pandas, polars, or another library that narwhals supports; a table of pyarrow; a dict of
            lists or arrays.
        image: The column of the paths; or of the encoded images, ``bytes`` or dicts ``{"bytes": ..., "path": ...}`` as
            Hugging Face stores them, which :class:`~batchup_ng.ImageBytes` reads.
        label: The column of the labels.
        size: Size of the images, as for :class:`~batchup_ng.ImageFiles`. Leave it out if `columns` has boxes, masks or
            keypoints, and map ``augment.letterbox`` or ``augment.resize``, which move them.
        separator: Text between the classes of a sample: ``"|"``, ``" "``. Spaces around classes do not count. If it is
            None and most labels contain one of ``|;,``, the report says so.
        columns: Further columns, which follow in each batch: one name or several. A NumPy array of numbers keeps its
            dtype. Other numbers become an array; a missing value among floats is NaN. Text becomes a list of ``str``
            (``bytes`` a list of ``bytes``), whose memory workers share. Lists of numbers, such as tokens, become a
            :class:`~batchup_ng.Ragged`: a batch has a list of arrays ``(length,)``. Lists of lists of one length, such
            as boxes, become arrays ``(length, 4)``. If all samples have equally many, the column is one array.
        class_names: The classes in the order of their numbers, such as those that the network was trained with.
        root: The folder that paths are relative to. Default: the current one. `root`, `missing` and `exclude` apply
            only to paths.
        missing: Action on files that do not exist: ``"error"``; ``"skip"`` those rows; or ``"ignore"``, which does not
            check, so missing files fail when they are read. A broken link may count as a file.
        exclude: Paths of images or of such lists, absolute or relative to the current folder; or a CSV file from
            :func:`~batchup_ng.write_errors`, whose relative paths are relative to its own folder. None leaves nothing
            out. A path that is not in the table gives a :class:`~batchup_ng.SampleWarning`.
        images: Makes the accessor. It is called with a sequence of paths, and with `size` if that is not None:
            ``functools.partial(ImageFiles, mode="L")``.
        as_dict: Whether batches are dicts. Images and labels are then ``"image"`` and ``"label"``, regardless of their
            names in the table: ``batchup_ng.augment`` and ``source.labels`` look for these. Other columns keep theirs.

    Raises:
        ArgumentTypeError: `table` is no table, or a column has values that cannot be labels or paths.
        ArgumentError: there is no such column, no row is left, a label is missing or not in `class_names`, a file is
            missing, the table has none of the paths in `exclude`, two columns of the dicts would have one name, or
            images are resized and `columns` has ``"boxes"``, ``"bbox"``, ``"bboxes"``, ``"mask"``, ``"masks"`` or
            ``"keypoints"`` with lists of numbers. Errors number rows from 0.
        ModuleNotFoundError: narwhals is not installed. All tables but a dict need it.

    >>> source = from_table({"path": ["a.png", "b.png"], "label": ["cat", "dog"]}, label="label", missing="ignore")
    >>> source.data[1], source.class_names
    (array([0, 1]), ('cat', 'dog'))
    """
    named_columns = columns_of(table)
    validation.true_or_false("as_dict", as_dict)
    validation.one_of("missing", missing, ("error", "skip", "ignore"))
    if separator == "":
        raise ArgumentError("separator must be some text, not ''; pass None for one class a sample")
    columns = names_of(columns)
    values = named_columns("image", image)
    encoded = bool(values) and isinstance(values[0], (bytes, dict))
    paths = [] if encoded else _paths(values, root)
    names, labels, hint = None, [], ""
    if label is not None:
        cells = named_columns("label", label)
        names, numbers = labels_of(label, cells, separator, class_names)
        labels.append(numbers)
        hint = "" if separator else separator_hint(cells)
    excluded = excluded_paths(exclude)
    out = _excluded(paths, excluded)
    unmatched = unmatched_paths(exclude, excluded, [paths[row] for row in out])
    absent = [] if missing == "ignore" else sorted(set(absent_rows(paths)).difference(out))
    if absent and missing == "error":
        raise ArgumentError(
            f"missing: {image!r} names files that do not exist: {named([paths[row] for row in absent])}, in rows "
            f"{row_words(absent)}; pass root= if they lie elsewhere, or missing='skip' to leave those rows out"
        )
    kept = np.setdiff1d(np.arange(len(values)), [*absent, *out])
    if not len(kept):
        raise ArgumentError(f"table must name pictures, and of its {len(values)} rows none is left")
    labels = [each[kept] for each in labels]
    further = [further_column(name, named_columns("columns", name), kept) for name in columns]
    taken = [paths[row] for row in kept] if len(kept) < len(paths) else paths
    report = FilesReport(
        f"table of {counted(len(values), 'row')}", len(kept), class_counts(names, labels),
        {"excluded": PackedPaths(paths[row] for row in out)} if out else {},
        PackedPaths(paths[row] for row in absent), PackedPaths(repeated(taken)), PackedPaths(unmatched), hint,
        unit="image" if encoded else "file",
    )  # fmt: skip
    if encoded and images is ImageFiles:
        images = ImageBytes
    pictures = opened(images, values if encoded else PackedPaths(taken), size)
    if size is not None or getattr(pictures, "have_size", False):
        refuse_annotations("size", dict(zip(columns, further, strict=True)))
    given = [image, *([] if label is None else [label]), *columns]
    known = NAMED_COLUMNS[: 1 + len(labels)]
    if as_dict:
        return FilesDataSource([pictures, *labels, *further], report, {}, dict_names(known, columns))
    places = {name: place for place, name in enumerate(given)} | {name: place for place, name in enumerate(known)}
    return FilesDataSource([pictures, *labels, *further], report, places)


def _paths(values: Column, root: str | os.PathLike[str] | None) -> list[str]:
    texts = [path_text(row, value) for row, value in enumerate(values)]
    return texts if root is None else [os.path.join(root, text) for text in texts]


def _excluded(paths: Sequence[str], folders: dict[str, set[str]]) -> list[int]:
    """Return the rows of paths on an exclusion list."""
    names = set().union(*folders.values())
    return [
        row
        for row, path in enumerate(paths if names else ())
        if (name := os.path.basename(path)) in names and name in folders.get(os.path.dirname(absolute(path)), ())
    ]
