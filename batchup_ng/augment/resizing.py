"""Operations that make images of any size one size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ..accessors.image_decoding import opencv
from ..display import counted
from ..errors import ArgumentError
from ..validation import height_and_width
from .annotations import Annotations
from .base import Operation
from .batch_memory import BATCH_MEMORY
from .geometry import colour
from .options import names_checked
from .points import Moves, placed

Size = tuple[int, int]
"""Height and width."""


class Resizing(Operation):
    """An operation that resizes each image, and puts it into an image of one size. It draws nothing.

    It also takes a list of images, ``(height, width, channels)`` or ``(height, width)`` each, of different sizes. All
    have one dtype, and equally many channels.
    """

    size: int | Size
    fill: float | tuple[float, ...] = 0
    random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        opencv()
        height_and_width(self.size)

    def checked(self, images: Any) -> Any:
        return of_any_size(super().checked, images)

    def draw(self, rng: Any) -> None:
        """Draw nothing."""

    def apply(self, images: Any, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        made = height_and_width(self.size)
        channels = images.shape[3] if isinstance(images, np.ndarray) else images[0].shape[2]
        out = BATCH_MEMORY.empty((len(images), *made, channels), images[0].dtype if len(images) else images.dtype)
        for image, place in zip(images, out, strict=True):
            top, left, part = self.place(image.shape[:2])
            if part != made:
                place[...] = colour(self.fill, out)
            place[top : top + part[0], left : left + part[1]] = resized(image, part)
        return out, labels

    def apply_to_all(self, images: Any, labels: Any, drawn: Any, annotations: Annotations) -> tuple[Any, Any]:
        sizes = [image.shape[:2] for image in images]
        maps = [placed(*self.place(size), size) for size in sizes]
        annotations.move(Moves(np.array(maps).reshape(-1, 2, 3), height_and_width(self.size)))
        return self.apply(images, labels, drawn)

    def place(self, size: Size) -> tuple[int, int, Size]:
        """Return top, left, and height and width, of an image of the height and width `size` in the result."""
        raise NotImplementedError


def of_any_size(check: Callable[[Any], Any], images: Any) -> Any:
    """Return the images of a batch, checked: an array, or a list of images of different sizes.

    `check` returns an array of images as ``(n, height, width, channels)``.
    """
    if not isinstance(images, list) or not images:
        return check(images)
    several = [check(np.asarray(image)[np.newaxis])[0] for image in images]
    kinds = sorted({f"{image.dtype}, {counted(image.shape[2], 'channel')}" for image in several})
    if len(kinds) > 1:
        raise ArgumentError(f"images must have one dtype and equally many channels, not {'; '.join(kinds)}")
    return several


@names_checked
@dataclass(frozen=True)
class resize(Resizing):
    """Resizes images of any size to one size. It does not keep the ratio of their sides.

    The images are an array, or a list of images of different sizes, as a source of files gives them without a size. The
    result is an array. With ``compose(resize(256), masks="mask")`` masks take the nearest pixel.

    An image at least twice as high and as wide as the result is averaged (OpenCV's INTER_AREA); any other is
    interpolated from the nearest pixels (INTER_LINEAR). It draws nothing, so a map of it needs no ``rng=``.

    Args:
        size: ``(height, width)`` in pixels, or one int for a square.
    """

    size: int | Size

    def place(self, size: Size) -> tuple[int, int, Size]:
        return 0, 0, height_and_width(self.size)


@names_checked
@dataclass(frozen=True)
class letterbox(Resizing):
    """Resizes images of any size to fit into one size, keeps the ratio of their sides, and fills the rest.

    The image lies in the middle. If the rest is an odd number of pixels, the top or the left has the smaller half. This
    is how YOLO networks take their images. Images and filters are as for :class:`resize`.

    Example: ``letterbox(100)`` makes an image of 100 × 200 pixels 50 × 100, below 25 rows of the colour `fill`. A box
    ``[0, 0, 200, 100]`` becomes ``[0, 25, 100, 75]``.

    Args:
        size: ``(height, width)`` in pixels, or one int for a square.
        fill: The colour of the rest: a number, or one per channel, in the units of the images. YOLO takes 114.
    """

    size: int | Size
    _: KW_ONLY
    fill: float | tuple[float, ...] = 0

    def place(self, size: Size) -> tuple[int, int, Size]:
        made = height_and_width(self.size)
        scale = min(made[0] / size[0], made[1] / size[1])
        tall, wide = (max(1, round(side * scale)) for side in size)
        return (made[0] - tall) // 2, (made[1] - wide) // 2, (tall, wide)


def resized(image: np.ndarray, size: Size) -> np.ndarray:
    """Return an image ``(height, width, channels)`` in another size."""
    if image.shape[:2] == size:
        return image
    cv2 = opencv()
    how = cv2.INTER_AREA if image.shape[0] >= 2 * size[0] and image.shape[1] >= 2 * size[1] else cv2.INTER_LINEAR
    made: np.ndarray = cv2.resize(image, size[::-1], interpolation=how).reshape(*size, image.shape[2])
    return made
