"""Shared by the readers of annotated images: boxes of all images in flat arrays, files by their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.annotated_images import AnnotatedImages
from ..accessors.annotations import RESIZE_ALL
from ..accessors.packed_paths import PackedPaths
from ..accessors.ragged import Ragged
from ..errors import ArgumentError
from .files import ADVICE_ON_IMAGE_OPTIONS, FilesDataSource, FilesReport, absent_rows, named, repeated
from .from_folder import Walk

ADVICE_ON_ANNOTATED_OPTIONS = {
    **ADVICE_ON_IMAGE_OPTIONS,
    **dict.fromkeys(["size", "resize", "crop"], f"it would not move the annotations; {RESIZE_ALL}"),
    **dict.fromkeys(["exclude"], "leave samples out by batchup_ng.subset(source, exclude=...)"),
    **dict.fromkeys(["transform", "transforms", "target_transform"], "apply it by a map: source.map(fn)"),
}
"""Advice for options of other sources of images."""

NO_AREA = "a box without area in its image"
"""Reason to leave a box out."""


class Objects:
    """The objects of all images, image by image, without those whose box has no area in its image.

    Boxes are cut to their images, as torchvision's references for detection do. Objects of one image keep their order.

    Args:
        corners: Left, top, right, bottom of each: ``(total, 4)``.
        image: The row of the image of each: ``(total,) int``.
        sizes: Height and width of each image: ``(n, 2) int``.

    Attributes:
        kept: Which objects are left, in their new order: ``(m,) int``.
        dropped: Which are not: ``(total - m,) int``.
        counts: Number of objects of each image: ``(n,) int``.
        corners: Their boxes: ``(m, 4) float32``.
    """

    def __init__(self, corners: Any, image: Sequence[int], sizes: np.ndarray) -> None:
        boxes, rows = np.asarray(corners, np.float64).reshape(-1, 4), np.asarray(image, np.int64)
        boxes = boxes.clip(0, sizes[rows][:, [1, 0, 1, 0]]).astype(np.float32)
        has_area = np.all(boxes[:, 2:] > boxes[:, :2], axis=1)
        order = np.argsort(rows, kind="stable")
        self.kept = order[has_area[order]]
        self.dropped = np.flatnonzero(~has_area)
        self.counts = np.bincount(rows[self.kept], minlength=len(sizes))
        self.corners = boxes[self.kept]

    def column(self, values: Any) -> Ragged:
        """Return the values of the objects, ``(total, ...)``, as a column with the rows of each image."""
        return Ragged(np.asarray(values)[self.kept], np.cumsum([0, *self.counts.tolist()]))

    def source(
        self, where: str, paths: Sequence[str], ids: Sequence[Any], sizes: np.ndarray, labels: Any,
        class_names: Sequence[str], further: Mapping[str, Any], words: Callable[[int], str],
        skipped: Mapping[str, Sequence[str]], missing: Sequence[str] = (),
    ) -> FilesDataSource:  # fmt: skip
        """Return the source of images with these objects.

        Args:
            where: The file or folder that was read, for the report; so are `skipped` and `missing`.
            paths: The files of the images, and `ids` their identity, `sizes` their height and width.
            labels: The class of each object: ``(total,) int``.
            class_names: The names of the classes.
            further: Columns after ``"labels"``.
            words: Names an object, by its place, in the report.
        """
        numbers = np.asarray(labels, np.int64)
        counts = np.bincount(numbers[self.kept], minlength=len(class_names)).tolist()
        if len(self.dropped):
            skipped = {**skipped, NO_AREA: [words(each) for each in self.dropped.tolist()]}
        report = FilesReport(
            where, len(paths), dict(zip(class_names, counts, strict=True)), skipped, PackedPaths(missing),
            duplicates=PackedPaths(repeated(paths)), unit="image", boxes=sum(counts),
        )  # fmt: skip
        columns = {
            "image": AnnotatedImages(paths, np.asarray(sizes, np.int32)),
            "boxes": Ragged(self.corners, np.cumsum([0, *self.counts.tolist()])),
            "labels": self.column(numbers),
            **further,
            "image_id": id_column(ids),
        }
        return FilesDataSource(list(columns.values()), report, {}, tuple(columns))


def id_column(ids: Sequence[Any]) -> Any:
    """Return the identity of each image as a column: ``(n,) int64``, or texts."""
    return list(ids) if isinstance(ids[0], str) else np.array(ids, np.int64)


def present(name: str, paths: Sequence[str], missing: str) -> tuple[list[int], list[str]]:
    """Return the rows of `paths` whose file exists, and the paths of the others; raise, if `missing` says so.

    `name` is what names the files, for errors.
    """
    validation.one_of("missing", missing, ("error", "skip", "ignore"))
    absent = [] if missing == "ignore" else sorted(absent_rows(paths))
    if absent and missing == "error":
        raise ArgumentError(
            f"missing: {name!r} names images that do not exist: {named([paths[row] for row in absent])}; pass the "
            f"folder that they lie in, or missing='skip' to leave them out"
        )
    if not paths or len(absent) == len(paths):
        raise ArgumentError(f"{name!r} must name an image that exists, and names {len(paths):,} that do not; add some")
    kept = np.setdiff1d(np.arange(len(paths)), absent)
    return kept.tolist(), [paths[row] for row in absent]


def by_stem(argument: str, root: str, endings: str | tuple[str, ...]) -> dict[str, str]:
    """Return the files below a folder by their path there, without ending; raise if two have the same.

    `argument` is what the user calls the folder.
    """
    found: dict[str, str] = {}
    for stem, path in files_below(root, endings):
        if stem in found:
            raise ArgumentError(f"{argument} must have one file of a name, not {found[stem]!r}, {path!r}; move one")
        found[stem] = path
    return found


def folder(name: str, *parts: str | os.PathLike[str]) -> str:
    """Return the path of a folder that exists, or raise an error that names the argument."""
    path = os.path.join(*[os.fspath(part) for part in parts])
    if not os.path.isdir(path):
        raise ArgumentError(f"{name} must have the folder {path!r}, seen from {os.getcwd()!r}; it does not exist")
    return path


def files_below(root: str, endings: str | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each file below a folder that has one of the endings: its path relative to it without the ending, and its
    path.
    """
    for where, names in Walk(endings, {}).below(root, (os.path.realpath(root),)):
        within = os.path.relpath(where, root)
        for name in names:
            stem = os.path.splitext(name)[0]
            yield stem if within == os.curdir else os.path.join(within, stem), os.path.join(where, name)


def lines_of(path: str | os.PathLike[str]) -> dict[int, str]:
    """Return the lines of a text file that are not empty, without spaces around them, by their number from 1."""
    with open(path, encoding="utf-8-sig") as file:
        try:
            return {number: line.strip() for number, line in enumerate(file, 1) if line.strip()}
        except UnicodeDecodeError as error:
            raise ArgumentError(f"{os.fspath(path)!r} must be text in UTF-8 ({error}); convert it") from None
