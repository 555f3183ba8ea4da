"""The columns of a batch that are annotations: boxes, masks, keypoints, and what belongs to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..batch import stack
from ..columns import ANNOTATIONS, column_names
from ..errors import ArgumentError, ArgumentTypeError, MapCallError
from ..validation import not_negative, one_of, true_or_false
from .annotations import Annotations, Boxes, Keypoints
from .boxes import BOX_FORMATS, box_convert, boxes_of_image
from .ranges import number

OF_BOXES = ("labels", "difficult", "iscrowd")
"""The columns of a dict that belong to the boxes by default: those of ``from_coco``, ``from_yolo`` and ``from_voc``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnnotationColumns:
    """The options for annotations of :class:`~batchup_ng.augment.compose`, where they are documented."""

    boxes: int | str | None = None
    box_format: str = "xyxy"
    box_labels: int | str | Sequence[int | str] | None = None
    min_area: float = 1.0
    min_visibility: float = 0.0
    masks: int | str | Sequence[int | str] | None = None
    mask_fill: float = 0
    keypoints: int | str | None = None
    keypoint_labels: int | str | Sequence[int | str] | None = None
    remove_invisible: bool = True

    def __post_init__(self) -> None:
        one_of("box_format", self.box_format, BOX_FORMATS)
        number("min_area", self.min_area, 0.0, np.inf)
        number("min_visibility", self.min_visibility, 0.0, 1.0)
        number("mask_fill", self.mask_fill, -np.inf, np.inf)
        true_or_false("remove_invisible", self.remove_invisible)
        moved = [column for name in ("boxes", "masks", "keypoints") for column in self.names(name)]
        if len(set(moved)) < len(moved):
            raise ArgumentError(f"boxes, masks and keypoints must be different columns, not {moved}; name each once")
        for name, labels in (("boxes", "box_labels"), ("keypoints", "keypoint_labels")):
            if len(self.names(name)) > 1:
                raise ArgumentError(f"{name} must be one column, not {getattr(self, name)!r}; join them in a map")
            if self.names(labels) and not self.names(name):
                raise ArgumentError(f"{labels} must be left out without {name}=, not {getattr(self, labels)!r}")
        if self.grouped and self.names("keypoint_labels"):
            raise ArgumentError(
                f"keypoint_labels must be left out where keypoints belong to boxes, not {self.keypoint_labels!r}; a "
                f"column with a row for each box is one of box_labels"
            )

    @property
    def given(self) -> bool:
        """Whether a batch has annotations."""
        return bool(self.names("boxes") or self.names("masks") or self.names("keypoints"))

    @property
    def grouped(self) -> bool:
        """Whether the keypoints belong to boxes."""
        return self.keypoints is not None and self.keypoints in self.names("box_labels")

    def names(self, option: str) -> list[Any]:
        """Return the columns that an option names."""
        chosen = getattr(self, option)
        none = chosen is None or (isinstance(chosen, (list, tuple)) and not chosen)
        columns = [] if none else column_names(option, chosen)
        return [one if isinstance(one, str) else not_negative(option, one) for one in columns]

    def for_columns(self, columns: Sequence[Any]) -> AnnotationColumns:
        """Return these options for a batch of `columns` by place, which they may name."""
        placed: dict[str, Any] = {}
        for option in ("boxes", "box_labels", "masks", "keypoints", "keypoint_labels"):
            chosen = getattr(self, option)
            if option == "box_labels" and chosen is None and self.boxes is not None:
                chosen = [column for column in OF_BOXES if column in columns]
            if isinstance(chosen, (list, tuple)):
                placed[option] = [place_among(option, one, columns) for one in chosen]
            else:
                placed[option] = place_among(option, chosen, columns)
        return dataclasses.replace(self, **placed)

    def taken_from(self, parts: Mapping[Any, Any], sizes: Sequence[tuple[int, int]]) -> Annotations:
        """Return the annotations of a batch whose images have these heights and widths."""
        self._refuse_undropped(parts)
        taken = Annotations(
            len(sizes), fill=self.mask_fill, grouped=self.grouped, remove_invisible=self.remove_invisible
        )
        shapes = np.array(sizes, np.float64).reshape(-1, 2)
        for name in filter(None, (self.boxes, self.keypoints)):
            if f"{name}_mask" in parts:
                raise MapCallError(
                    f"{name!r} must be a column that is not padded yet, and {name}_mask says it is; call pad() after "
                    f"the augmentation"
                )
        if self.boxes is not None:
            self._take_boxes(parts, shapes, taken)
        for column in self.names("masks"):
            self._take_masks(parts, column, sizes, taken)
        if self.keypoints is not None:
            self._take_keypoints(parts, shapes, taken)
        return taken

    def put_into(self, parts: dict[Any, Any], moved: Annotations, image: Any, joined: bool) -> None:
        """Replace the columns of a batch by annotations that were moved, without those that are no longer visible.

        `image` is the column of the images. `joined` is whether there are boxes of companions among them.
        """
        moved.drop(self.min_area, self.min_visibility)
        if moved.boxes is not None:
            self._refuse_left_behind(parts, -1 if joined else len(moved.boxes.image), image)
            corners = box_convert(moved.boxes.corners, "xyxy", self.box_format).astype(np.float32)
            parts[_key(parts, "boxes", self.boxes)] = moved.split(corners, moved.boxes.image)
        if moved.keypoints is not None:
            rows = moved.keypoints.rows().astype(np.float32)
            parts[_key(parts, "keypoints", self.keypoints)] = moved.split(rows, moved.keypoints.image)
        parts.update({**moved.labels, **moved.keypoint_labels, **moved.masks})

    def refuse_unmoved(self, parts: Collection[Any], operation: str) -> None:
        """Refuse columns of a dict that no option names, and that would not move with the images."""
        for column in self.unnamed(parts):
            if option := ANNOTATIONS.get(column):
                per_box = self.boxes is not None and option != "boxes" and column != "mask"
                further = f", if it has a row for each box box_labels=['labels', {column!r}] too" * per_box
                if column in ("bbox", "bboxes"):
                    further = " and box_format='xywh' if they are left, top, width, height as in COCO"
                raise MapCallError(
                    f"{option} must be given for the batch's part {column!r}, which would not move with the images; "
                    f"pass compose({operation}, {option}={column!r}){further}, or leave it out by "
                    f"source.drop({column!r})"
                )

    def unnamed(self, parts: Collection[Any]) -> list[Any]:
        """Return the parts of a batch that no option names, nor their place."""
        named = {column for option in ("boxes", "box_labels", "masks", "keypoints") for column in self.names(option)}
        return [column for place, column in enumerate(parts) if not named & {column, place}]

    def _refuse_undropped(self, parts: Mapping[Any, Any]) -> None:
        """Refuse columns of the readers that belong to boxes, and that no option names."""
        for column in self.unnamed(parts) if self.boxes is not None else ():
            if column in OF_BOXES and self.names("box_labels"):
                raise MapCallError(
                    f"box_labels must name the batch's part {column!r} too, whose rows would not be dropped with their "
                    f"boxes; add it to {self.names('box_labels')}, or leave it out by source.drop({column!r})"
                )

    def _refuse_left_behind(self, parts: Mapping[Any, Any], kept: int, image: Any) -> None:
        """Refuse a column with a row for each box, by its lengths, that no option names, unless all boxes were kept."""
        boxes = parts[_key(parts, "boxes", self.boxes)]
        counts = [len(each) for each in boxes]
        if sum(counts) == kept or (self.box_labels is not None and not self.names("box_labels")):
            return
        alike = type(boxes) is list, counts  # lists beside a list, an array beside an array
        others = {image, *OF_BOXES, *self.names("keypoint_labels")}
        for column in self.unnamed(parts):
            if column not in others and alike == (type(parts[column]) is list, _lengths(parts[column])):
                named = self.names("box_labels") or [each for each in OF_BOXES if each in parts]
                raise MapCallError(
                    f"box_labels must name the batch's part {column!r} too if it belongs to the boxes: it has a row "
                    f"for each box, and boxes are dropped or added here; pass compose(..., "
                    f"box_labels={[*named, column]!r}). If it does not belong to them, leave it out of the map's "
                    f"columns: on=[...]"
                )

    def _take_boxes(self, parts: Mapping[Any, Any], shapes: np.ndarray, taken: Annotations) -> None:
        boxes = [boxes_of_image(i, each) for i, each in enumerate(_column(parts, "boxes", self.boxes, taken.n))]
        counts = [len(each) for each in boxes]
        image = np.repeat(np.arange(taken.n), counts)
        corners = box_convert(np.concatenate([np.zeros((0, 4)), *boxes]), self.box_format, "xyxy")
        bad = np.flatnonzero(~np.isfinite(corners).all(axis=1))
        if len(bad):
            wrong = corners[bad[0]].tolist()
            raise ArgumentError(f"boxes[{image[bad[0]]}] must be finite, not {wrong}; drop such boxes before")
        taken.boxes = Boxes(corners, image, shapes)
        default = [column for column in OF_BOXES if column in parts]
        for column in default if self.box_labels is None else self.names("box_labels"):
            key = _key(parts, "box_labels", column)
            taken.labels[key] = _belonging(parts, "box_labels", column, counts, "boxes")

    def _take_masks(
        self, parts: Mapping[Any, Any], column: int | str, sizes: Sequence[tuple[int, int]], taken: Annotations
    ) -> None:
        key = _key(parts, "masks", column)
        masks: Any = taken.labels.pop(key, None)
        of_boxes = masks is not None
        if of_boxes:
            taken.of_boxes |= {key}
        else:
            masks = _column(parts, "masks", column, taken.n)
            masks = masks if isinstance(masks, np.ndarray) and masks.dtype != object else [*map(np.asarray, masks)]
        for i, (mask, size) in enumerate(zip(masks, sizes, strict=True)):
            if of_boxes and mask.shape == (0,):  # an empty list
                mask = masks[i] = np.zeros((0, *size), np.uint8)
            _check_mask(key, mask, size, of_boxes, self.mask_fill)
        taken.masks[key] = stack(masks) if type(masks) is list and masks and not of_boxes else masks

    def _take_keypoints(self, parts: Mapping[Any, Any], shapes: np.ndarray, taken: Annotations) -> None:
        given = taken.labels.pop(_key(parts, "keypoints", self.keypoints)) if self.grouped else None
        if given is None:
            given = _column(parts, "keypoints", self.keypoints, taken.n)
        rows = _keypoints([np.asarray(each) for each in given], self.grouped)
        counts = [len(each) for each in rows]
        every = np.concatenate(rows) if rows else np.zeros((0, 2))
        taken.keypoints = Keypoints(every, np.repeat(np.arange(taken.n), counts), shapes)
        for column in self.names("keypoint_labels"):
            key = _key(parts, "keypoint_labels", column)
            taken.keypoint_labels[key] = _belonging(parts, "keypoint_labels", column, counts, "keypoints")


def place_among(option: str, chosen: Any, columns: Sequence[Any], default: str | None = None) -> Any:
    """Return the place among `columns` of the name that an option chose. Without a choice, the place of `default`."""
    if chosen is None:
        return columns.index(default) if default in columns else None
    if chosen not in (columns if isinstance(chosen, str) else range(len(columns))):
        raise ArgumentError(
            f"{option} must be one of the columns on=, {list(columns)}, or its place among them, not {chosen!r}; name "
            f"it there too"
        )
    return columns.index(chosen) if isinstance(chosen, str) else chosen


def _lengths(column: Any) -> list[int] | None:
    """Return the number of rows that a part has for each image; None if one has no rows."""
    rows = list(column) if isinstance(column, (list, np.ndarray)) else []
    if not rows or not all(isinstance(each, (list, tuple)) or getattr(each, "ndim", 0) for each in rows):
        return None
    return [len(each) for each in rows]


def _key(parts: Mapping[Any, Any], option: str, chosen: Any) -> Any:
    """Return the key of a part, which is chosen by name or by place: places count parts that have names, too."""
    key = chosen if isinstance(chosen, str) else next(islice(parts, chosen, None), None)
    if key not in parts:
        raise MapCallError(
            f"{option} must be one of the batch's parts, {list(parts)}, not {chosen!r}; pass compose({option}=)"
        )
    return key


def _column(parts: Mapping[Any, Any], option: str, chosen: Any, n: int) -> Any:
    """Return a part of a batch with a row for each of `n` images."""
    column = parts[_key(parts, option, chosen)]
    if isinstance(column, (str, bytes, Mapping)) or not hasattr(column, "__len__"):
        raise ArgumentTypeError(
            f"{option} must be a list with an array for each image, or an array, not a {type(column).__name__}"
        )
    if len(column) != n:
        raise ArgumentError(f"{option} must have a row for each of the {n} images, not {len(column)}")
    return column


def _belonging(
    parts: Mapping[Any, Any], option: str, chosen: Any, counts: Sequence[int], of: str
) -> list[np.ndarray]:
    """Return a part with a row for each box, or each keypoint, as arrays."""
    column = [np.asarray(each) for each in _column(parts, option, chosen, len(counts))]
    for i, (rows, count) in enumerate(zip(column, counts, strict=True)):
        if rows.ndim == 0 or len(rows) != count:
            has = len(rows) if rows.ndim else "a single value"
            raise ArgumentError(
                f"{option} must have a row for each of the {of}, {count} in image {i}, and {chosen!r} has {has} there; "
                f"pass compose({option}=[]) if no column belongs to {of}"
            )
    return column


def _keypoints(given: list[np.ndarray], grouped: bool) -> list[np.ndarray]:
    """Return the keypoints of each image, of one shape but for their number: ``(k, ..., 2 or more) float64``."""
    ndim, row = (3, "(k, m, 2)") if grouped else (2, "(k, 2)")
    tail: tuple[int, ...] = (0, 2) if grouped else (2,)
    for each in given:
        if each.ndim == ndim:
            tail = each.shape[1:]
            if len(each):
                break
    rows = []
    for i, each in enumerate(given):
        if each.ndim and not len(each):  # perhaps an empty list
            rows.append(np.zeros((0, *tail)))
            continue
        if each.ndim != ndim or each.shape[1:] != tail or tail[-1] < 2 or each.dtype.kind not in "biuf":
            raise ArgumentError(
                f"keypoints[{i}] must be {row} numbers, x and y, perhaps with further columns, as many for all, not "
                f"{each.dtype} of shape {each.shape}; reshape them"
            )
        rows.append(each.astype(np.float64))
    return rows


def _check_mask(key: Any, mask: np.ndarray, size: tuple[int, int], of_boxes: bool, fill: float) -> None:
    if mask.ndim not in ((3,) if of_boxes else (2, 3)) or (mask.shape[1:] if of_boxes else mask.shape[:2]) != size:
        raise ArgumentError(
            f"masks must have the height and width of their image, {size}, and {key!r} has masks {mask.shape}: pass "
            f"(n, height, width) or (n, height, width, channels); masks of boxes, (k, height, width) in each image, "
            f"are also named in box_labels"
        )
    if mask.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"masks must be numbers, and {key!r} is {mask.dtype}; convert them: x.astype('u1')")
    with np.errstate(all="ignore"):
        if np.asarray(fill).astype(mask.dtype) != fill:
            raise ArgumentError(f"mask_fill must be a value that {mask.dtype} can hold, not {fill}")
