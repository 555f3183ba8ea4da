"""A source over images with boxes in a folder of the layout of Pascal VOC."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np

from .. import validation
from ..errors import ArgumentError
from .annotated import ADVICE_ON_ANNOTATED_OPTIONS, Objects, by_stem, files_below, folder, lines_of, present
from .files import FilesDataSource, checked_class_names, repeated
from .from_folder import IMAGE_EXTENSIONS

EDGES = ("xmin", "ymin", "xmax", "ymax")


@validation.known_names(ADVICE_ON_ANNOTATED_OPTIONS)
def from_voc(
    root: str | os.PathLike[str], split: str | None = None, *, class_names: Sequence[str] | None = None,
    one_based: bool = True, missing: str = "error",
) -> FilesDataSource:  # fmt: skip
    """Return a source of images with the boxes of a folder like ``VOC2012``: ``Annotations/*.xml``, ``JPEGImages``.

    Batches are dicts. Images keep their own size, so they and the annotations are lists with an item for each image:

    - ``"image"``: ``(height, width, 3) uint8``.
    - ``"boxes"``: ``(k, 4) float32``, left, top, right, bottom, in pixels.
    - ``"labels"``: ``(k,) int64``, from 0, in the order of `class_names`.
    - ``"difficult"``: ``(k,) bool``, by the element of that name. Evaluations on VOC leave such objects out. Other
      elements, such as ``truncated``, are not read.
    - ``"image_id"``: the name of the annotation without its ending.

    An image is the file in ``JPEGImages`` with the name of the annotation and the ending of an image. Boxes are cut to
    their image; an object whose box has no area there is left out. ``source.report`` lists such objects and has the
    number of boxes of each class. The function reads the annotations, and no image. :func:`from_pairs` reads the masks
    of such a folder. :func:`from_coco` shows how to resize images with their boxes.

    Args:
        root: The folder.
        split: The images to read and their order: the name of a file in ``ImageSets/Main``, without its ending, such as
            ``"train"``. The first word of each line counts. None reads all annotations, sorted by name.
        class_names: The classes in the order of their numbers. ``["background", ...]`` numbers the others from 1, as
            torchvision's networks take them. Default: the names in all annotations of the folder, sorted, so they are
            the same for each split.
        one_based: Whether the top left pixel is (1, 1), as the development kit of Pascal VOC says, and the last pixel
            belongs to the box: the box of a whole image is 1, 1, width, height. So 1 is subtracted from left and top,
            as in Detectron2. Edges may be fractions. False takes the edges as they are: pass it for files of tools that
            count pixels from 0.
        missing: Action on images that do not exist: ``"error"``; ``"skip"`` leaves them out; ``"ignore"`` does not
            check, so they fail when they are read.

    Raises:
        ArgumentError: there is no such folder, split or annotation; an annotation is no XML, an object lacks its name
            or its box, its image lacks its size, or a class is not in `class_names`; images are missing. The error
            names the file. If an image is not as high and wide as its annotation says, it fails when it is read, with a
            :class:`~batchup_ng.SampleReadError`.
        OSError: a file cannot be read.
    """
    annotations, pictures = folder("root", root, "Annotations"), folder("root", root, "JPEGImages")
    xml_of = by_stem("root", annotations, ".xml")
    ids = _ids(root, annotations, split, sorted(xml_of))
    paths_of = by_stem("root", pictures, IMAGE_EXTENSIONS)
    paths = [paths_of.get(name, os.path.join(pictures, f"{name}.jpg")) for name in ids]
    rows, absent = present(annotations, paths, missing)
    ids, paths = [ids[row] for row in rows], [paths[row] for row in rows]
    sizes, image, corners, classes, difficult = [], [], [], [], []
    for row, name in enumerate(ids):
        read = _Annotation(xml_of[name])
        sizes.append(read.size())
        for one in read.objects():
            image.append(row)
            classes.append(read.text(one, "name"))
            corners.append(read.box(one, one_based))
            difficult.append(read.flag(one, "difficult"))
    if class_names is None:  # of all splits, which then number their classes alike
        others = (_Annotation(xml_of[name]) for name in set(xml_of).difference(ids))
        class_names = sorted({*classes, *(read.text(one, "name") for read in others for one in read.objects())})
    names = checked_class_names(class_names)
    if unknown := sorted(set(classes).difference(names)):
        raise ArgumentError(f"class_names must name every class of {annotations!r}, and lacks {unknown[:10]}; add them")
    numbers = {name: number for number, name in enumerate(names)}
    objects = Objects(corners, image, np.array(sizes, np.int64))
    return objects.source(
        os.fspath(root), paths, ids, np.array(sizes), [numbers[name] for name in classes], names,
        {"difficult": objects.column(np.array(difficult, bool))},
        lambda place: f"{classes[place]} in {ids[image[place]]}.xml", {}, absent,
    )  # fmt: skip


def _ids(root: str | os.PathLike[str], annotations: str, split: str | None, found: list[str]) -> list[str]:
    """Return the names of the annotations to read, out of those that were found."""
    if split is None:
        if not found:
            raise ArgumentError(f"root must have annotations, and {annotations!r} has no .xml; pass another folder")
        return found
    lists = folder("root", root, "ImageSets", "Main")
    known = sorted(stem for stem, _ in files_below(lists, ".txt"))
    path = os.path.join(lists, f"{validation.one_of('split', split, known)}.txt")
    ids = [line.split()[0] for line in lines_of(path).values()]
    if again := repeated(ids):
        raise ArgumentError(f"split: {split!r} names {again[:10]} more than once; remove the other lines")
    if absent := sorted(set(ids).difference(found)):
        raise ArgumentError(f"split: {split!r} names {absent[:10]}, without an .xml file in {annotations!r}; add them")
    return ids


class _Annotation:
    """An annotation of one image. Its methods return parts of it, or raise errors that name the file."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.root = ElementTree.parse(path).getroot()
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # or of its encoding
            raise ArgumentError(f"root: the annotation {path!r} is no XML file: {error}; replace it") from None

    def objects(self) -> list[Any]:
        return self.root.findall("object")

    def flag(self, one: Any, name: str) -> bool:
        """Return whether an element is 1, if it is there."""
        text = (one.findtext(name) or "0").strip()
        if text not in ("0", "1"):
            raise ArgumentError(f"root: <{name}> in {self.path!r} must be 0 or 1, not {text!r:.80}; correct it")
        return text == "1"

    def text(self, element: Any, name: str) -> str:
        value = (element.findtext(name) or "").strip()
        if not value:
            raise ArgumentError(f"root: <{element.tag}> in {self.path!r} has no <{name}>; add it")
        return str(value)

    def size(self) -> tuple[int, int]:
        """Return the height and width of the image."""
        size = self.root.find("size")
        if size is None:
            raise ArgumentError(f"root: {self.path!r} has no <size> of its image; add it")
        sides = [self.number(size, name) for name in ("height", "width")]
        if not all(1 <= side < 2**31 and side.is_integer() for side in sides):
            raise ArgumentError(
                f"root: the <size> in {self.path!r} must be the height and width of the image, not {sides}; correct it"
            )
        return int(sides[0]), int(sides[1])

    def box(self, one: Any, one_based: bool) -> list[float]:
        """Return left, top, right, bottom of an object."""
        found = one.find("bndbox")
        if found is None:
            raise ArgumentError(f"root: an <object> in {self.path!r} has no <bndbox>; add it, or remove the object")
        left, top, right, bottom = (self.number(found, name) for name in EDGES)
        return [left - one_based, top - one_based, right, bottom]

    def number(self, element: Any, name: str) -> float:
        text = self.text(element, name)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ArgumentError(
                f"root: <{name}> in {self.path!r} must be a finite number, not {text!r:.80}; correct it"
            )
        return value
