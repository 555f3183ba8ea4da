"""A source over files, with a report on the files that were found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .. import validation
from ..accessors.annotated_images import AnnotatedImages
from ..accessors.annotations import RESIZED_ONCE
from ..data_source.array import ArrayDataSource
from ..data_source.reader_facts import class_names
from ..display import counted, printable
from ..error_context import shortened
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.arrays import ArraysNode
from ..graph.node import Classes
from ..sampling.standard import StandardSampler

Reader: TypeAlias = Callable[..., Any]
"""Makes the accessor of files. It is called with a sequence of paths, and with a size if the user gave one."""

ADVICE_ON_IMAGE_OPTIONS = dict.fromkeys(
    ["mode", "dtype", "resize", "crop", "decoder", "max_pixels", "truncated"],
    "call with_images(...) of the source, also after a split: train.with_images(crop='random')",
) | {"on_error": "pass on_error='skip' to the loader, or leave bad files out here by exclude="}
"""Advice for options of ``ImageFiles``."""

NAMED_COLUMNS = ("image", "label")
"""The names of the columns of files and labels, by which methods of a source find them."""

LABEL_COLUMNS = (NAMED_COLUMNS[1], "labels")
"""The names of the columns that have the numbers of classes: one for each image, or for each of its boxes."""

SHOWN_CLASSES = 20
"""Maximum number of classes with their own line in a report."""

MAX_CLASS_NAME_CHARS = 100
"""Maximum number of characters of a class name in a report."""

LISTED_FROM_FILES = 100
"""Minimum number of named files in a folder to list the folder, which is one request to storage that may be remote.
Fewer files are checked one by one, because the folder may contain many others."""

SHOWN_PATHS = 3
"""Maximum number of paths of each kind in the text of a report. The attributes have all of them."""


@dataclass(frozen=True)
class FilesReport:
    """A report on the files that were found. Its ``str`` is a readable summary.

    Attributes:
        where: The folder, table or file that was searched.
        samples: Number of samples in the source.
        class_counts: Number of samples in each class, in the order of the class numbers. If a sample has several
            labels, it counts for each. If images have boxes, number of boxes. Empty if there are no classes.
        skipped: The files, folders and boxes that were left out, by the reason.
        missing: The files that a table or an annotation names but that do not exist.
        duplicates: The paths that a table or annotations name more than once, each as often as it is repeated.
        unmatched: The absolute paths on the exclusion list that match none of the files.
        hint: A suggestion, in words.
        unit: What the text calls a sample: ``"file"`` or ``"image"``.
        boxes: Number of boxes. None if images have none.
    """

    where: str
    samples: int
    class_counts: Mapping[str, int]
    skipped: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    duplicates: Sequence[str] = ()
    unmatched: Sequence[str] = ()
    hint: str = ""
    unit: str = "file"
    boxes: int | None = None

    def __str__(self) -> str:
        first = list(self.class_counts.items())[:SHOWN_CLASSES]
        shown = [(shortened(printable(name), MAX_CLASS_NAME_CHARS), count) for name, count in first]
        width = max((len(name) for name, _ in shown), default=0)
        classes = f" in {counted(len(self.class_counts), 'class', 'classes')}" if shown else ""
        boxes = "" if self.boxes is None else f", {counted(self.boxes, 'box', 'boxes')}"
        lines = [f"{printable(self.where)}: {counted(self.samples, self.unit)}{boxes}{classes}"]
        lines += [f"  {name:{width}}  {count:,}" for name, count in shown]
        if rest := list(self.class_counts.values())[SHOWN_CLASSES:]:
            lines.append(f"  and {len(rest):,} more, each with {min(rest):,} to {max(rest):,}")
        told = [*((f"left out, {why}", paths) for why, paths in self.skipped.items()), ("missing", self.missing)]
        told += [("named again", self.duplicates), ("on the exclusion list, but not there", self.unmatched)]
        lines += [f"{what}: {named(paths)}" for what, paths in told if len(paths)]
        return "\n".join([*lines, self.hint] if self.hint else lines)


def named(paths: Sequence[str]) -> str:
    """Return in words the number of paths and the first of them, each once."""
    more = ", …" if len(paths) > SHOWN_PATHS else ""
    return f"{len(paths):,} ({', '.join(map(repr, dict.fromkeys(paths[:SHOWN_PATHS])))}{more})"


class FilesNode(ArraysNode):
    """A node over files and their labels. If its columns have `names`, batches are dicts."""

    name = "FilesDataSource"
    report: FilesReport

    def __init__(
        self, data: Sequence[Any], report: FilesReport, places: Mapping[str, int], names: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(data, names, StandardSampler(len(data[0])), places=places)
        self.report = report
        if report.class_counts:
            columns = places if names is None else names
            label = next((name for name in LABEL_COLUMNS if name in columns), None)
            self.labelled = Classes(tuple(report.class_counts), places[label] if names is None and label else label)
        self._report_in_words = counted(len(report.class_counts), "class", "classes")


class FilesDataSource(ArrayDataSource, node=FilesNode):
    """An :class:`ArrayDataSource` over files and their labels, the result of :func:`~batchup_ng.from_folder`,
    :func:`~batchup_ng.from_table` and :func:`~batchup_ng.from_csv`; or over images and their annotations, the result of
    :func:`~batchup_ng.from_coco`, :func:`~batchup_ng.from_yolo`, :func:`~batchup_ng.from_voc` and
    :func:`~batchup_ng.from_pairs`.
    """

    _arrays: FilesNode

    def __init__(
        self, data: list[Any], report: FilesReport, places: Mapping[str, int], names: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(data)
        self._show(FilesNode(self.data, report, places, names))

    class_names = class_names

    @property
    def report(self) -> FilesReport:
        """A report on the files that were found."""
        return self._arrays.report

    @report.setter
    def report(self, report: FilesReport) -> None:
        self._arrays.report = report

    @validation.known_names({})
    def cache(self, where: str | os.PathLike[str] | None = None, limit: int | str = "8GB") -> ArrayDataSource:
        if any(isinstance(column, AnnotatedImages) for column in self.data):
            raise ArgumentError(
                f"cache() keeps rows of one shape, and images with boxes, masks or keypoints have several; "
                f"{RESIZED_ONCE}"
            )
        return super().cache(where, limit)


def opened(images: Reader, paths: Sequence[Any], size: Any) -> Any:
    """Return the accessor of the files, or of encoded images."""
    return images(paths) if size is None else images(paths, size)


def absent_rows(paths: Sequence[str]) -> list[int]:
    """Return the rows of paths without a file. List folders with many of the paths; check other paths one by one."""
    by_folder: dict[str, list[int]] = {}
    for row, path in enumerate(paths):
        by_folder.setdefault(path[: path.rfind(os.sep) + 1], []).append(row)
    absent = []
    for folder, rows in by_folder.items():
        is_listed = len(rows) >= LISTED_FROM_FILES and os.path.isdir(folder or ".")
        names = set(os.listdir(folder or ".")) if is_listed else set()
        doubtful = [row for row in rows if paths[row][len(folder) :] not in names]
        absent += [row for row in doubtful if not os.path.exists(paths[row])]
    return absent


def repeated(paths: Sequence[str]) -> list[str]:
    """Return the paths that are there again, each as often as it is repeated."""
    seen: set[str] = set()
    return [path for path in paths if path in seen or seen.add(path)]  # type: ignore[func-returns-value]  # None


def checked_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the user's class names as a tuple of strings. Raise if one occurs twice."""
    if isinstance(class_names, (str, bytes, Set, Mapping)):
        raise ArgumentTypeError(
            f"class_names must be a list of names, in the order of their numbers, not a {type(class_names).__name__}; "
            f"pass sorted(...) of a set, sorted(d, key=d.get) of a dict of numbers"
        )
    names = tuple(map(str, class_names))
    if len(set(names)) < len(names):
        again = sorted({name for name in names if names.count(name) > 1})
        raise ArgumentError(f"class_names must name each class once, and has {again} again; leave the others out")
    return names
