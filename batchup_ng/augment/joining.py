"""The annotations of several images that become one image."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from .annotations import Annotations, Boxes, Keypoints
from .batch_memory import BATCH_MEMORY


@dataclasses.dataclass
class Windows:
    """A part of each image of a batch, and its place in the new image, in whole pixels.

    Attributes:
        corners: Top and left of the part: ``(n, 2) int``.
        sizes: Height and width of the part: ``(n, 2) int``.
        places: Top and left of the place: ``(n, 2) int``.
    """

    corners: np.ndarray
    sizes: np.ndarray
    places: np.ndarray

    def paste(self, images: Any, out: Any) -> None:
        """Write the part of each image, ``(height, width, ...)``, to its place in the new image."""
        bounds = np.hstack([self.corners, self.sizes, self.places]).tolist()
        for image, place, (top, left, height, width, y, x) in zip(images, out, bounds, strict=True):
            place[y : y + height, x : x + width] = image[top : top + height, left : left + width]


def joined(parts: Sequence[Annotations], windows: Sequence[Windows], size: tuple[int, int]) -> Annotations:
    """Return the annotations of images that are put together from a part of an image of each batch.

    Args:
        parts: The annotations of the batches, which have one length.
        windows: The parts of the images of each batch.
        size: Height and width of the new images.
    """
    first, pairs = parts[0], list(zip(parts, windows, strict=True))
    boxes = None
    if first.boxes is not None:
        boxes = joined_boxes([_moved_boxes(part.boxes, each) for part, each in pairs if part.boxes is not None])
    masks = {}
    for key in first.masks:
        each = [part.masks[key] for part in parts]
        masks[key] = (_masks_of_boxes if key in first.of_boxes else _masks)(each, windows, size, first.fill)
    keypoints = None
    if first.keypoints is not None:
        moved = [_moved_keypoints(part.keypoints, each) for part, each in pairs if part.keypoints is not None]
        keypoints = _joined_keypoints(moved)
    return dataclasses.replace(
        first, boxes=boxes, masks=masks, keypoints=keypoints, labels=joined_rows([part.labels for part in parts]),
        keypoint_labels=joined_rows([part.keypoint_labels for part in parts]),
    )  # fmt: skip


def joined_boxes(several: Sequence[Boxes]) -> Boxes:
    """Return the boxes of several batches as boxes of one, image by image."""
    made = copy.copy(several[0])
    image = np.concatenate([boxes.image for boxes in several])
    order = np.argsort(image, kind="stable")
    made.image = image[order]
    made.corners = np.concatenate([boxes.corners for boxes in several])[order]
    made.visible = np.concatenate([boxes.visible for boxes in several])[order]
    return made


def joined_rows(columns: Sequence[dict[Any, list[np.ndarray]]]) -> dict[Any, list[np.ndarray]]:
    """Return columns of several batches, with a row for each box, as columns of one, image by image."""
    first, *others = columns
    return {
        key: [_concatenated([rows[i], *[other[key][i] for other in others]]) for i in range(len(rows))]
        for key, rows in first.items()
    }


def _concatenated(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows one after the other. An array without rows may be an empty list, of another dtype and shape."""
    return np.concatenate([each for each in rows if len(each)] or rows[:1])


def _moved_boxes(boxes: Boxes, windows: Windows) -> Boxes:
    made = copy.copy(boxes)
    made.corners = boxes.corners - windows.corners[boxes.image][:, [1, 0, 1, 0]]
    made.cut(windows.sizes[boxes.image].astype(np.float64))
    made.corners += windows.places[boxes.image][:, [1, 0, 1, 0]]
    return made


def _moved_keypoints(keypoints: Keypoints, windows: Windows) -> Keypoints:
    made = copy.copy(keypoints)
    broad = (len(made.image), *[1] * (made.points.ndim - 2), 2)
    left_top, at = (each[made.image][:, ::-1].reshape(broad) for each in (windows.corners, windows.places))
    made.place(made.points - left_top, windows.sizes)
    made.points = made.points + at
    return made


def _joined_keypoints(several: Sequence[Keypoints]) -> Keypoints:
    some = [keypoints for keypoints in several if len(keypoints.image)] or several[:1]
    made = copy.copy(some[0])
    image = np.concatenate([keypoints.image for keypoints in some])
    order = np.argsort(image, kind="stable")
    made.image = image[order]
    for name in ("points", "values", "seen"):
        setattr(made, name, np.concatenate([getattr(keypoints, name) for keypoints in some])[order])
    return made


def _masks(several: Sequence[Any], windows: Sequence[Windows], size: tuple[int, int], fill: Any) -> np.ndarray:
    """Return masks of the new images."""
    kinds = [masks if isinstance(masks, np.ndarray) else masks[0][np.newaxis] for masks in several]
    dtypes = [mask.dtype for masks in several for mask in masks]
    out = BATCH_MEMORY.empty(
        (len(several[0]), *size, *kinds[0].shape[3:]), np.result_type(*dtypes) if dtypes else kinds[0].dtype
    )
    out[...] = fill
    for masks, each in zip(several, windows, strict=True):
        each.paste(masks, out)
    return out


def _masks_of_boxes(
    several: Sequence[Sequence[np.ndarray]], windows: Sequence[Windows], size: tuple[int, int], fill: Any
) -> list[np.ndarray]:
    """Return masks of the boxes of the new images, image by image."""
    moved = []
    for masks, each in zip(several, windows, strict=True):
        out = [np.full((len(of_image), *size), fill, of_image.dtype) for of_image in masks]
        each.paste([of_image.transpose(1, 2, 0) for of_image in masks], [place.transpose(1, 2, 0) for place in out])
        moved.append(out)
    return [_concatenated(of_image) for of_image in zip(*moved, strict=True)]
