"""The boxes, masks and keypoints of a batch, while operations move them with the images.

All boxes of a batch are in one array, and so are all keypoints, with the number of the image of each. So a move takes
a few calls of NumPy for the whole batch. Nothing writes to the arrays of the batch that they come from.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..batch import stack
from .batch_memory import BATCH_MEMORY
from .points import UNMOVED, Moves, in_image, moved_boxes, moved_points, resampled

ROUNDING = 1e-6
"""By how much an area, or the share of one, may be below its least value."""

Size = tuple[int, int]
"""Height and width of an image."""


class Boxes:
    """The boxes of a batch, cut to their images.

    Args:
        corners: Left, top, right, bottom, one image after the other: ``(total, 4) float64``.
        image: Number of the image of each: ``(total,) int``.
        sizes: Height and width of each image: ``(n, 2)``.

    Attributes:
        visible: Product of the shares of its area that the cuts of each box left: ``(total,) float64``.
    """

    def __init__(self, corners: np.ndarray, image: np.ndarray, sizes: np.ndarray) -> None:
        self.corners, self.image = corners, image
        self.visible = np.ones(len(corners))
        self.cut(sizes[image])

    def cut(self, sizes: np.ndarray) -> None:
        """Cut the boxes to images of these heights and widths: ``(total, 2)``, or ``(2,)`` for all."""
        before = self.areas()
        self.corners = self.corners.clip(0, sizes[..., [1, 0, 1, 0]])
        self.visible = self.visible * np.divide(self.areas(), before, out=np.zeros(len(before)), where=before > 0)

    def areas(self) -> np.ndarray:
        """Return the area of each box, 0 if its edges are in the wrong order: ``(total,)``."""
        sides = (self.corners[:, 2:] - self.corners[:, :2]).clip(0)
        areas: np.ndarray = sides[:, 0] * sides[:, 1]
        return areas

    def move(self, moves: Moves) -> None:
        self.corners = moved_boxes(self.corners, moves.maps[self.image])
        self.cut(np.array(moves.size, np.float64))

    def take(self, chosen: np.ndarray) -> None:
        self.corners, self.image, self.visible = self.corners[chosen], self.image[chosen], self.visible[chosen]


class Keypoints:
    """The keypoints of a batch.

    Args:
        rows: x, y, and values that stay as they are: ``(total, ..., 2 or more) float64``.
        image: Number of the image of each row: ``(total,) int``.
        sizes: Height and width of each image: ``(n, 2)``.

    Attributes:
        points: The points at the keypoints, half a pixel farther: ``(total, ..., 2)``.
        seen: Whether each has been in the image all the time: ``(total, ...) bool``.
    """

    def __init__(self, rows: np.ndarray, image: np.ndarray, sizes: np.ndarray) -> None:
        self.image, self.values = image, rows[..., 2:]
        self.seen = np.ones(rows.shape[:-1], bool)
        self.place(rows[..., :2] + 0.5, sizes)

    def place(self, points: np.ndarray, sizes: np.ndarray) -> None:
        """Put the keypoints at other points, of images of these heights and widths: ``(n, 2)``, or ``(2,)`` for all."""
        self.points = points
        height, width = sizes if sizes.ndim == 1 else sizes[self.image].T.reshape(2, -1, *[1] * (points.ndim - 2))
        self.seen = self.seen & in_image(points, height, width)

    def move(self, moves: Moves) -> None:
        self.place(moved_points(self.points, moves.maps[self.image]), np.array(moves.size))

    def take(self, chosen: np.ndarray) -> None:
        self.image, self.seen = self.image[chosen], self.seen[chosen]
        self.points, self.values = self.points[chosen], self.values[chosen]

    def rows(self) -> np.ndarray:
        """Return the keypoints: ``(total, ..., 2 or more) float64``."""
        return np.concatenate([self.points - 0.5, self.values], axis=-1)


@dataclasses.dataclass
class Sample:
    """The annotations of one image, before or after a library moved them.

    A sample that was not moved yet is called given, a moved one an answer.

    Attributes:
        boxes: Left, top, right, bottom: ``(k, 4)``. In an answer, only the boxes that are left.
        labels: Rows for the boxes and for the keypoints, by their column.
        kept: In an answer, the places of these boxes among those given: ``(k,) int``.
        masks: Masks by their column: ``(height, width, ...)``.
        box_masks: Masks of boxes by their column: ``(k, height, width)``.
        keypoints: x and y: ``(m, 2)``, or ``(k, m, 2)`` for the keypoints of each box.
        kept_keypoints: In an answer, the places of keypoints that are left: ``(m,) int``.
        size: In an answer, the height and width to cut boxes to; None if the library has dropped what is outside.
    """

    boxes: np.ndarray | None = None
    labels: dict[Any, np.ndarray] = dataclasses.field(default_factory=dict)
    kept: np.ndarray | None = None
    masks: dict[Any, np.ndarray] = dataclasses.field(default_factory=dict)
    box_masks: dict[Any, np.ndarray] = dataclasses.field(default_factory=dict)
    keypoints: np.ndarray | None = None
    kept_keypoints: np.ndarray | None = None
    size: Size | None = None


@dataclasses.dataclass
class Annotations:
    """The annotations of a batch of `n` images.

    Attributes:
        n: Number of images.
        boxes: The boxes, or None.
        labels: Columns with a row for each box: for each image an array ``(k, ...)``.
        masks: Columns of masks: an array ``(n, height, width, ...)``, or a list with an array for each image.
        of_boxes: Keys of the columns among `masks` with a mask for each box, ``(k, height, width)``, in a list.
        fill: The value of masks where a new image shows no part of the old one.
        keypoints: The keypoints, or None.
        grouped: Whether they are rows ``(k, m, 2 or more)``, one for each box.
        keypoint_labels: Columns with a row for each keypoint.
        remove_invisible: Whether keypoints outside of the images are dropped, unless they belong to boxes.
    """

    n: int
    boxes: Boxes | None = None
    labels: dict[Any, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    masks: dict[Any, Any] = dataclasses.field(default_factory=dict)
    of_boxes: frozenset[Any] = frozenset()
    fill: Any = 0
    keypoints: Keypoints | None = None
    grouped: bool = False
    keypoint_labels: dict[Any, list[np.ndarray]] = dataclasses.field(default_factory=dict)
    remove_invisible: bool = True

    def move(self, moves: Moves) -> None:
        """Move all annotations."""
        if self.boxes is not None:
            self.boxes.move(moves)
        if self.keypoints is not None:
            self.keypoints.move(moves)
        for key, masks in self.masks.items():
            self.masks[key] = self._moved(masks, moves, key in self.of_boxes)

    def take_boxes(self, chosen: np.ndarray) -> None:
        """Keep only the `chosen` boxes, ``(m,) int``, and their rows of labels, masks and keypoints."""
        if self.boxes is None or np.array_equal(chosen, np.arange(len(self.boxes.image))):
            return
        places = self._places(chosen, self.boxes.image)
        self.boxes.take(chosen)
        for columns in (self.labels, {key: self.masks[key] for key in self.of_boxes}):
            for column in columns.values():
                column[:] = [rows[kept] for rows, kept in zip(column, places, strict=True)]
        if self.keypoints is not None and self.grouped:
            self.keypoints.take(chosen)

    def take_keypoints(self, chosen: np.ndarray) -> None:
        """Keep only the `chosen` keypoints, ``(m,) int``, and their labels."""
        if self.keypoints is None or np.array_equal(chosen, np.arange(len(self.keypoints.image))):
            return
        places = self._places(chosen, self.keypoints.image)
        self.keypoints.take(chosen)
        for column in self.keypoint_labels.values():
            column[:] = [rows[kept] for rows, kept in zip(column, places, strict=True)]

    def drop(self, min_area: float = 0.0, min_visibility: float = 0.0) -> None:
        """Drop boxes with no area left, or with less than the given limits, and keypoints that left the images."""
        if self.boxes is not None:
            areas, visible = self.boxes.areas(), self.boxes.visible
            enough = (areas >= min_area - ROUNDING) & (visible >= min_visibility - ROUNDING)
            self.take_boxes(np.flatnonzero(enough & (areas > ROUNDING) & (visible > 0)))
        if self.keypoints is not None and self.remove_invisible and not self.grouped:
            self.take_keypoints(np.flatnonzero(self.keypoints.seen))

    def samples(self) -> Iterator[Sample]:
        """Yield the annotations of each image."""
        boxes = None if self.boxes is None else self.split(self.boxes.corners, self.boxes.image)
        keypoints = None
        if self.keypoints is not None:
            keypoints = self.split(self.keypoints.points - 0.5, self.keypoints.image)
        for i in range(self.n):
            yield Sample(
                boxes=None if boxes is None else boxes[i],
                labels={key: rows[i] for key, rows in {**self.labels, **self.keypoint_labels}.items()},
                masks={key: masks[i] for key, masks in self.masks.items() if key not in self.of_boxes},
                box_masks={key: self.masks[key][i] for key in sorted(self.of_boxes, key=str)},
                keypoints=None if keypoints is None else keypoints[i],
            )

    def replace(self, answers: Sequence[Sample]) -> None:
        """Put a library's answers to :meth:`samples` in place of the annotations."""
        sizes = np.array([(np.inf, np.inf) if one.size is None else one.size for one in answers]).reshape(-1, 2)
        if self.boxes is not None:
            self.take_boxes(self._chosen([one.kept for one in answers], self.boxes.image))
            self.boxes.corners = np.concatenate([np.zeros((0, 4)), *[one.boxes for one in answers]])
            self.boxes.cut(sizes[self.boxes.image])
        for key in self.masks if answers else ():
            if key in self.of_boxes:
                self.masks[key] = [_of_kept(one.box_masks[key], one.kept) for one in answers]
            else:
                self.masks[key] = stack([one.masks[key] for one in answers])
        if self.keypoints is not None:
            if self.grouped:
                points = [_of_kept(one.keypoints, one.kept) for one in answers]
            else:
                points = [one.keypoints for one in answers]
                self.take_keypoints(self._chosen([one.kept_keypoints for one in answers], self.keypoints.image))
            self.keypoints.place(np.concatenate([self.keypoints.points[:0], *points]) + 0.5, sizes)

    def split(self, rows: np.ndarray, image: np.ndarray) -> list[np.ndarray]:
        """Return the rows of each image, as copies."""
        ends = np.searchsorted(image, np.arange(self.n + 1)).tolist()
        return [rows[start:end].copy() for start, end in itertools.pairwise(ends)]

    def _places(self, chosen: np.ndarray, image: np.ndarray) -> list[np.ndarray]:
        """Return, for each image, which of its own rows are `chosen`."""
        starts = np.searchsorted(image, np.arange(self.n))
        return self.split(chosen - starts[image[chosen]], image[chosen])

    def _chosen(self, places: Sequence[Any], image: np.ndarray) -> np.ndarray:
        """Return which of all rows are those at `places` of each image."""
        starts = np.searchsorted(image, np.arange(self.n)).tolist()
        rows = [start + each for start, each in zip(starts, places, strict=True)]
        return np.concatenate([np.zeros(0, np.intp), *rows])

    def _moved(self, masks: Any, moves: Moves, several: bool) -> Any:
        """Return masks in new memory, moved: nearest neighbours, and `fill` from outside of the images."""
        out: Any
        if isinstance(masks, np.ndarray):
            out = BATCH_MEMORY.empty((self.n, *moves.size, *masks.shape[3:]), masks.dtype)
        elif several:
            out = [np.empty((len(one), *moves.size), one.dtype) for one in masks]
        else:  # of several sizes, which become one
            out = BATCH_MEMORY.empty((self.n, *moves.size, *masks[0].shape[2:]), np.result_type(*masks))
        for mask, place, of_image in zip(masks, out, moves.maps, strict=True):
            if several:
                mask, place = mask.transpose(1, 2, 0), place.transpose(1, 2, 0)
            if mask.shape == place.shape and np.array_equal(of_image, UNMOVED):
                place[...] = mask
            else:
                resampled(mask, of_image, place, self.fill)
        return out


def _of_kept(rows: Any, kept: Any) -> Any:
    """Return the rows of the boxes that are `kept`. A library may have dropped the others itself."""
    return rows if len(rows) == len(kept) else rows[kept]
