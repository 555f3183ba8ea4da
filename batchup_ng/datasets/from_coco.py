"""A source over images with the annotations of a COCO file: boxes, masks, keypoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.instance_masks import InstanceMasks, of_polygons, of_runs
from ..csv_file import not_opened
from ..errors import ArgumentError
from .annotated import ADVICE_ON_ANNOTATED_OPTIONS, Objects, present
from .files import FilesDataSource, checked_class_names

CROWD = "a crowd"
"""Reason to leave an object out."""

FARTHEST = 1e18
"""Numbers of pixels below this can be places in an image or outside of it."""

NO_MASK = "without a mask"
"""Reason to leave an object out."""


@validation.known_names(ADVICE_ON_ANNOTATED_OPTIONS)
def from_coco(
    images: str | os.PathLike[str], annotations: str | os.PathLike[str], *, class_names: Sequence[str] | None = None,
    masks: bool = False, keypoints: bool = False, crowd: bool = False, missing: str = "error",
) -> FilesDataSource:  # fmt: skip
    """Return a source of images with the objects that a COCO file lists, ``instances_*.json`` or
    ``person_keypoints_*.json``.

    Batches are dicts. Images keep their own size, so they and the annotations are lists with an item for each image:

    - ``"image"``: ``(height, width, 3) uint8``.
    - ``"boxes"``: ``(k, 4) float32``, left, top, right, bottom, in pixels.
    - ``"labels"``: ``(k,) int64``, from 0, in the order of the category ids. ``source.class_names`` has the names. The
      ids in the file may have gaps. Categories of one name are one class.
    - ``"masks"``, with `masks`: ``(k, height, width) uint8`` of 0 and 1, as ``pycocotools.mask`` makes them. An object
      without a polygon of three points, and without run lengths, is left out, as in Detectron2.
    - ``"keypoints"``, with `keypoints`: ``(k, m, 3) float32``, x, y and visibility of each, as in the file: x and y are
      numbers of pixels from 0. Objects without keypoints have zeros.
    - ``"iscrowd"``, with `crowd`: ``(k,) bool``.
    - ``"image_id"``: the id of each image, an array ``(n,) int64``, or a list if the ids are texts.

    Images are in the order of their ids, as in torchvision's ``CocoDetection``. Images without objects are there, with
    ``k = 0``. Boxes are cut to their image; an object whose box has no area there is left out, as in torchvision's
    references for detection. ``source.report`` lists such objects, and images whose file is named twice. It has the
    number of boxes of each class.

    Images are turned upright by their EXIF orientation, as in Detectron2. Annotations count pixels of upright images.

    The function reads the file, and no image. While it does, it takes about 7 times the bytes of the file. To resize
    images and annotations together, map :class:`augment.letterbox <batchup_ng.augment.letterbox>` or another operation,
    and name all columns that belong to the boxes::

        chain = augment.compose(augment.letterbox(640), augment.flip(), boxes="boxes")
        train = bu.from_coco("train2017", "instances_train2017.json").map(chain, rng="sample")

    Args:
        images: The folder that the names of the images are relative to.
        annotations: The JSON file.
        class_names: The classes in the order of their numbers, such as those that the network was trained with.
            ``["background", ...]`` numbers the others from 1, as torchvision's networks take them.
        masks: Whether to read masks: polygons, or run lengths, compressed or not.
        keypoints: Whether to read keypoints.
        crowd: Whether to keep groups of objects that are one annotation (``"iscrowd": 1``).
        missing: Action on images that do not exist: ``"error"``; ``"skip"`` leaves them out; ``"ignore"`` does not
            check, so they fail when they are read.

    Raises:
        ArgumentError: the file is no such JSON; an id occurs twice, or belongs to nothing; a box is not four finite
            numbers; a mask or keypoints are of another form, or no object has those that were requested; a category is
            not in `class_names`; images are missing. The error names the id. If an image is not as high and wide as
            the file says, it fails when it is read, with a :class:`~batchup_ng.SampleReadError`.
        OSError: the file cannot be read.
    """
    content = _Content(os.fspath(annotations))
    pictures = sorted(content.entries("images"), key=lambda one: one["id"])
    paths = [os.path.join(images, content.text("image", one, "file_name")) for one in pictures]
    rows, absent = present(content.path, paths, missing)
    skipped_images = {one["id"] for one in pictures} - {pictures[row]["id"] for row in rows}
    pictures, paths = [pictures[row] for row in rows], [paths[row] for row in rows]
    sizes = np.array([[content.side(one, "height"), content.side(one, "width")] for one in pictures], np.int64)
    names, numbers = content.classes(class_names)
    row_of = {one["id"]: row for row, one in enumerate(pictures)}
    found: list[dict[str, Any]] = []
    image, labels = [], []
    skipped: dict[str, list[str]] = {}
    for one in content.entries("annotations"):
        if one.get("image_id") in skipped_images:
            continue
        row = content.looked_up(one, "image_id", row_of)
        label = content.looked_up(one, "category_id", numbers)
        why = CROWD if content.is_crowd(one) and not crowd else NO_MASK if masks and not content.has_mask(one) else None
        if why is not None:
            skipped.setdefault(why, []).append(f"annotation {one['id']}")
            continue
        found.append(one)
        image.append(row)
        labels.append(label)
    boxes = np.array([content.box(one) for one in found], np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    objects = Objects(boxes, image, sizes)
    kept = [found[place] for place in objects.kept.tolist()]
    further: dict[str, Any] = {}
    if masks and not found and NO_MASK in skipped:
        raise ArgumentError(f"masks must be in the file, and {content.path!r} has none; pass masks=False")
    if masks:
        segments = (
            content.segments(one, tuple(sizes[row]))
            for one, row in zip(kept, np.repeat(np.arange(len(sizes)), objects.counts), strict=True)
        )
        further["masks"] = InstanceMasks(segments, objects.counts, sizes)
    if keypoints:
        further["keypoints"] = objects.column(content.keypoints(found))
    if crowd:
        further["iscrowd"] = objects.column(np.array([content.is_crowd(one) for one in found], bool))
    return objects.source(
        content.path, paths, [one["id"] for one in pictures], sizes, labels, names, further,
        lambda place: f"annotation {found[place]['id']}", skipped, absent,
    )  # fmt: skip


class _Content:
    """The content of a COCO file. Its methods return parts of it, or raise errors that name the file and the id."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.parts = json.load(file)
        except OSError as error:
            raise not_opened(path, error) from error
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"annotations must be JSON, and {path!r} is not: {error}; replace it") from None
        needed = ("images", "annotations", "categories")
        if not isinstance(self.parts, dict) or not all(isinstance(self.parts.get(name), list) for name in needed):
            has = ", ".join(map(repr, self.parts)) if isinstance(self.parts, dict) else "no names"
            raise ArgumentError(
                f"annotations must be a COCO file, with lists 'images', 'annotations' and 'categories', and {path!r} "
                f"has {has}; pass one of instances or keypoints"
            )

    def wrong(self, kind: str, one: Mapping[str, Any], why: str) -> ArgumentError:
        """Return the error of an image, an annotation or a category."""
        return ArgumentError(f"annotations: {kind} {one.get('id')!r} of {self.path!r} {why}")

    def entries(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list. Their ids are all numbers or all texts, each once."""
        seen: set[Any] = set()
        kind = name.removesuffix("s").replace("ie", "y")
        for place, one in enumerate(self.parts[name]):
            number = one.get("id") if isinstance(one, dict) else None
            if type(number) not in (int, str):
                raise ArgumentError(
                    f"annotations: {kind} {place}, from 0, of {self.path!r} must have an 'id', a whole number or text; "
                    f"give it one"
                )
            if seen and type(number) is not type(next(iter(seen))):
                raise self.wrong(kind, one, "must have an id like the others, all whole numbers or all text")
            if number in seen:
                raise self.wrong(kind, one, "must have an id of its own, and another has it too; renumber one of them")
            seen.add(number)
            yield one

    def text(self, kind: str, one: Mapping[str, Any], name: str) -> str:
        value = one.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(kind, one, f"must have a {name!r}, a text, not {value!r:.80}; add it")
        return value

    def side(self, one: Mapping[str, Any], name: str) -> int:
        """Return the height or width of an image."""
        value: Any = one.get(name)
        if type(value) not in (int, float) or not 1 <= value < 2**31 or value != int(value):
            raise self.wrong("image", one, f"must have a {name!r} in pixels, not {value!r:.80}; correct it")
        return int(value)

    def classes(self, class_names: Sequence[str] | None) -> tuple[tuple[str, ...], dict[Any, int]]:
        """Return the names of the classes, and the number of each category id."""
        categories = sorted(self.entries("categories"), key=lambda one: one["id"])
        own = [self.text("category", one, "name") for one in categories]
        names = checked_class_names(list(dict.fromkeys(own)) if class_names is None else class_names)
        if unknown := [name for name in own if name not in names]:
            raise ArgumentError(
                f"class_names must name every category of {self.path!r}, and lacks {unknown[:10]}; add them"
            )
        return names, {one["id"]: names.index(name) for one, name in zip(categories, own, strict=True)}

    def looked_up(self, one: Mapping[str, Any], name: str, known: Mapping[Any, int]) -> int:
        """Return the number of the image or the category of an annotation."""
        value = one.get(name)
        if type(value) not in (int, str) or value not in known:
            of = "image" if name == "image_id" else "category"
            raise self.wrong("annotation", one, f"has {name} {value!r:.80}, the id of no {of}; add it, or remove this")
        return known[value]

    def is_crowd(self, one: Mapping[str, Any]) -> bool:
        value = one.get("iscrowd") or 0
        if value not in (0, 1):
            raise self.wrong("annotation", one, f"must have 'iscrowd' 0 or 1, not {value!r:.80}; correct it")
        return bool(value)

    def has_mask(self, one: Mapping[str, Any]) -> bool:
        """Return whether an annotation has run lengths, a polygon of three points or more, or another form."""
        given = one.get("segmentation")
        if isinstance(given, list):
            return any(not isinstance(polygon, list) or len(polygon) not in (0, 2, 4) for polygon in given)
        return given is not None

    def box(self, one: Mapping[str, Any]) -> list[float]:
        box: Any = one.get("bbox")
        if not isinstance(box, list) or len(box) != 4 or not are_finite(box):
            raise self.wrong(
                "annotation", one, f"must have a 'bbox' [left, top, width, height], not {box!r:.80}; correct it"
            )
        return box

    def segments(self, one: Mapping[str, Any], size: tuple[int, int]) -> list[np.ndarray]:
        """Return the parts of the mask of an annotation whose image has this height and width."""
        given = one.get("segmentation")
        try:
            if isinstance(given, dict):
                return of_runs(given, (int(size[0]), int(size[1])))
            if isinstance(given, list):
                return of_polygons(given)
        except (ValueError, TypeError) as error:
            raise self.wrong(
                "annotation", one, f"has a 'segmentation' that cannot be read: {error}; correct it, or pass masks=False"
            ) from None
        raise self.wrong(
            "annotation",
            one,
            f"must have a 'segmentation', polygons or run lengths, not {given!r:.80}; pass masks=False",
        )

    def keypoints(self, found: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return the keypoints of annotations: ``(total, m, 3) float32``."""
        of_all: list[Any] = [one.get("keypoints") or [] for one in found]
        n = max((len(each) for each in of_all if isinstance(each, list)), default=0) // 3 * 3
        if n == 0:
            raise ArgumentError(
                f"keypoints must be in the file, and {self.path!r} has none; pass person_keypoints_*.json, or "
                f"keypoints=False"
            )
        points = np.zeros((len(found), n), np.float32)
        for place, one, given in zip(points, found, of_all, strict=True):
            if not isinstance(given, list) or len(given) not in (0, n) or not are_finite(given):
                raise self.wrong(
                    "annotation", one, f"must have keypoints x, y, visibility, {n // 3} times, not {given!r:.80}; "
                    f"correct it, or pass keypoints=False"
                )  # fmt: skip
            place[: len(given)] = given
        return points.reshape(len(found), -1, 3)


def are_finite(values: list[Any]) -> bool:
    """Return whether all values are numbers of JSON that a place in an image can be: finite, and none of 400 digits."""
    return all(type(each) in (int, float) and -FARTHEST < each < FARTHEST for each in values)
