"""Boxes of images and their formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..validation import one_of

BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
"""Left, top, right, bottom; left, top, width, height (COCO); x and y of the centre, width, height."""


def box_convert(boxes: Any, in_fmt: str, out_fmt: str) -> np.ndarray:
    """Return boxes in another format, as torchvision's function of this name does. A copy.

    >>> box_convert([[10, 20, 30, 40]], "xywh", "xyxy")
    array([[10., 20., 40., 60.]])

    Args:
        boxes: ``(..., 4)``, of any numbers.
        in_fmt: Their format. ``"xyxy"``: left, top, right, bottom. ``"xywh"``: left, top, width, height.
            ``"cxcywh"``: x and y of the centre, width, height.
        out_fmt: The format of the result.

    Returns:
        ``(..., 4) float64``; ``float32`` for ``float32``.

    Raises:
        ArgumentError: a format is none of these, or the boxes do not have four numbers.
        ArgumentTypeError: they are not made of numbers.
    """
    one_of("in_fmt", in_fmt, BOX_FORMATS)
    one_of("out_fmt", out_fmt, BOX_FORMATS)
    given = np.asarray(boxes)
    if given.dtype.kind not in "iuf":
        raise ArgumentTypeError(f"boxes must be numbers, not {given.dtype}; pass numpy.asarray(boxes, 'f4')")
    if given.ndim == 0 or given.shape[-1] != 4:
        raise ArgumentError(f"boxes must have 4 numbers each, (..., 4), not {given.shape}; reshape them")
    made: Any = np.array(given, np.float32 if given.dtype == np.float32 else np.float64)
    first, second = made[..., :2], made[..., 2:]  # both are views
    if in_fmt == "cxcywh":
        first -= second / 2
    if in_fmt != "xyxy":
        second += first
    if out_fmt != "xyxy":
        second -= first
    if out_fmt == "cxcywh":
        first += second / 2
    converted: np.ndarray = made
    return converted


def boxes_of_image(i: int, given: Any) -> np.ndarray:
    """Return the boxes of image `i`, an array or lists of numbers: ``(k, 4)``. An empty list has no boxes."""
    boxes = np.asarray(given)
    if boxes.shape == (0,):
        return np.zeros((0, 4))
    if boxes.ndim != 2 or boxes.shape[1] != 4 or boxes.dtype.kind not in "iuf":
        raise ArgumentError(
            f"boxes[{i}] must be (k, 4) numbers, not {boxes.dtype} of shape {boxes.shape}; reshape them, one box an "
            f"image to (n, 1, 4)"
        )
    return boxes
