"""The operation that puts four images together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..validation import height_and_width
from .base import Operation
from .batch_memory import BATCH_MEMORY
from .geometry import colour
from .joining import Windows, joined
from .options import names_checked
from .parts import Part
from .ranges import span
from .resizing import of_any_size


@names_checked
@dataclass(frozen=True)
class mosaic(Operation):
    """Puts each image and three companions together around a random point (Bochkovskiy et al., arXiv:2004.10934).

    Map it with ``companions=3``. The own image touches the point with its lower right corner, the companions with their
    lower left, upper right and upper left corners. Images keep their scale, and may differ in size. What reaches out of
    an image's quarter is cut off, and `fill` is what no image covers. Boxes, masks and keypoints that ``compose`` names
    move with their images and are cut with them. All other parts of the batch stay those of the own sample.

    YOLO's mosaic of images of 640 pixels is ``compose(mosaic(1280, fill=114), random_crop(640), boxes="boxes")``.

    >>> import batchup_ng as bu
    >>> source = bu.ArrayDataSource([np.full((9, 4, 4), 7, np.uint8)]).map(mosaic(6), companions=3)
    >>> source[0][0].shape
    (6, 6, 1)

    Args:
        size: ``(height, width)`` of the result in pixels, or one int for a square.
        center: Where the point is, from and to, as a share of height and width.
        fill: The colour of the rest: a number, or one per channel, in the units of the images. YOLO takes 114.

    Raises:
        ArgumentError: in a call: there are labels of whole images, and no boxes, masks or keypoints; pass
            ``map(..., on="image")`` if the labels are to stay.
    """

    size: int | tuple[int, int]
    _: KW_ONLY
    center: tuple[float, float] = (0.25, 0.75)
    fill: float | tuple[float, ...] = 0
    numbers = 2
    companion_counts = (3,)

    def __post_init__(self) -> None:
        height_and_width(self.size)
        span("center", self.center, 0.0, 1.0)

    def checked(self, images: Any) -> Any:
        return of_any_size(super().checked, images)

    def join(self, own: Part, others: Sequence[Part], drawn: Any) -> Part:
        if own.annotations is None and own.labels is not None:
            raise ArgumentError(
                "mosaic cannot join the labels of whole images; pass map(..., on='image') if the labels stay those of "
                "the own image, or name boxes, masks or keypoints: compose(mosaic(...), boxes='boxes')"
            )
        size, parts = height_and_width(self.size), [own, *others]
        low, high = self.center
        points = (np.array(size) * (low + (high - low) * drawn)).astype(np.int64)
        windows = [_window(number, part.images, points, size) for number, part in enumerate(parts)]
        (channels, dtype), *kinds = [_kind(part.images) for part in parts]
        if set(kinds) != {(channels, dtype)}:
            raise ArgumentError(
                f"mosaic needs companions with images of one dtype and equally many channels, ({channels}, "
                f"{dtype}), not {', '.join(f'({n}, {kind})' for n, kind in kinds)}; convert them in a map before"
            )
        out = BATCH_MEMORY.empty((len(own.images), *size, channels), dtype)
        out[...] = colour(self.fill, out)
        for part, window in zip(parts, windows, strict=True):
            window.paste(part.images, out)
        several = [part.annotations for part in parts if part.annotations is not None]
        return Part(out, own.labels, joined(several, windows, size) if several else None)


def _kind(images: Any) -> tuple[int, Any]:
    """Return the number of channels and the dtype of images, an array or a list."""
    first = images[0] if isinstance(images, list) else images
    return first.shape[-1], first.dtype


def _window(number: int, images: Any, points: np.ndarray, size: tuple[int, int]) -> Windows:
    """Return the parts of images that a quarter shows: 0 is above and left of the points, 1 right, 2 below, 3 both."""
    whole = np.array([image.shape[:2] for image in images], np.int64).reshape(-1, 2)
    behind = np.array(divmod(number, 2), bool)  # below, to the right
    sizes = np.minimum(whole, np.where(behind, np.array(size) - points, points))
    return Windows(np.where(behind, 0, whole - sizes), sizes, np.where(behind, points, points - sizes))
