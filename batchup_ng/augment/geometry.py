"""Operations that move pixels: flips, crops, affine maps."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..accessors.crops import Box, RandomResizedCrop
from ..accessors.image_decoding import found_opencv, opencv
from ..errors import ArgumentError
from ..validation import height_and_width, not_negative, true_or_false
from .base import InPlace, Operation
from .batch_memory import BATCH_MEMORY
from .options import names_checked
from .points import Moves, cut_out, mirrored, of_edges
from .ranges import between, span


@names_checked
@dataclass(frozen=True)
class flip(InPlace):
    """Mirrors left and right, or top and bottom.

    >>> from batchup_ng import SampleRng
    >>> flip(p=1.0)(np.arange(6, dtype=np.uint8).reshape(1, 2, 3), rng=SampleRng(0, np.arange(1)))[0][0, :, :, 0]
    array([[2, 1, 0],
           [5, 4, 3]], dtype=uint8)

    Args:
        p: The probability that an image is changed.
        vertical: Whether to swap top and bottom instead of left and right.
    """

    _: KW_ONLY
    p: float = 0.5
    vertical: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        true_or_false("vertical", self.vertical)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        cv2 = found_opencv()  # ten times faster, with the same pixels
        if cv2 is not None:
            image[...] = cv2.flip(image, 0 if self.vertical else 1).reshape(image.shape)
        else:
            image[...] = image[::-1] if self.vertical else image[:, ::-1]

    def moved(self, size: tuple[int, int], *numbers: float) -> np.ndarray:
        return mirrored(size, self.vertical)


@names_checked
@dataclass(frozen=True)
class random_crop(Operation):
    """Cuts out a part of one size, at a random place of the image with a border around it.

    Args:
        size: ``(height, width)`` in pixels, or one int for a square.
        padding: Pixels of the border, on each side.
        fill: The border's colour: a number, or one per channel, in the units of the images.

    Raises:
        ArgumentError: in a call: the image with its border is smaller than `size`.
    """

    size: int | tuple[int, int]
    _: KW_ONLY
    padding: int = 0
    fill: float | tuple[float, ...] = 0
    numbers = 2

    def __post_init__(self) -> None:
        height_and_width(self.size)
        not_negative("padding", self.padding)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        (n, height, width, channels), (tall, wide) = images.shape, height_and_width(self.size)
        corners = self.corners((height, width), drawn)
        out, fill = BATCH_MEMORY.empty((n, tall, wide, channels), images.dtype), colour(self.fill, images)
        for image, place, (top, left) in zip(images, out, corners, strict=True):
            part = image[max(0, top) : max(0, top + tall), max(0, left) : max(0, left + wide)]
            if part.shape != place.shape:
                place[...] = fill
            down, right = max(0, -top), max(0, -left)
            place[down : down + len(part), right : right + part.shape[1]] = part
        return out, labels

    def moves(self, size: tuple[int, int], drawn: Any) -> Moves:
        cut = height_and_width(self.size)
        return _joined([cut_out(top, left, cut, cut) for top, left in self.corners(size, drawn)], cut)

    def corners(self, size: tuple[int, int], drawn: np.ndarray) -> list[list[int]]:
        """Return top and left of each crop, for images of this height and width. The border has negative ones."""
        (height, width), pad, (tall, wide) = size, self.padding, height_and_width(self.size)
        free = np.array([height, width]) + 2 * pad - (tall, wide)
        if free.min() < 0:
            raise ArgumentError(
                f"size must be at most that of the images with their padding, {(height + 2 * pad, width + 2 * pad)}, "
                f"not {(tall, wide)}; raise padding, or resize the images"
            )
        corners: list[list[int]] = ((drawn * (free + 1)).astype(int) - pad).tolist()
        return corners


@names_checked
@dataclass(frozen=True)
class resized_crop(Operation):
    """Cuts out a box of random area and shape, and resizes it to one size: the crop of Inception.

    The box is drawn as in :class:`batchup_ng.RandomResizedCrop`. If the images come from files, pass such a crop to
    `ImageFiles` instead, which then decodes less. A box at least twice as high and as wide as `size` is averaged
    (OpenCV's INTER_AREA); any other is interpolated from the nearest pixels (INTER_LINEAR).

    Args:
        size: ``(height, width)`` in pixels, or one int for a square.
        scale: Least and greatest area of the box, as a share of the image's.
        ratio: Least and greatest width over height.
    """

    size: int | tuple[int, int]
    _: KW_ONLY
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    numbers = RandomResizedCrop.draws

    def __post_init__(self) -> None:
        opencv()
        height_and_width(self.size)
        RandomResizedCrop(self.scale, self.ratio)

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        cv2, (n, tall, wide, channels), size = opencv(), images.shape, height_and_width(self.size)
        out = BATCH_MEMORY.empty((n, *size, channels), images.dtype)
        crops = self.crops((tall, wide), drawn)
        for image, place, (top, left, (height, width)) in zip(images, out, crops, strict=True):
            part = image[top : top + height, left : left + width]
            how = cv2.INTER_AREA if height >= 2 * size[0] and width >= 2 * size[1] else cv2.INTER_LINEAR
            place[...] = cv2.resize(part, size[::-1], interpolation=how).reshape(place.shape)
        return out, labels

    def moves(self, size: tuple[int, int], drawn: Any) -> Moves:
        made = height_and_width(self.size)
        return _joined([cut_out(top, left, part, made) for top, left, part in self.crops(size, drawn)], made)

    def crops(self, size: tuple[int, int], drawn: np.ndarray) -> list[Box]:
        """Return the box of each image of this height and width."""
        crop, made = RandomResizedCrop(self.scale, self.ratio), height_and_width(self.size)
        return [crop.box(size, made, numbers) for numbers in drawn]


@names_checked
@dataclass(frozen=True)
class affine(InPlace):
    """Rotates, shifts, scales and shears about the centre, with OpenCV's bilinear interpolation.

    Each of `rotate`, `translate` and `shear` is a range, or a number d for the range from -d to d.

    Args:
        rotate: Degrees, clockwise.
        translate: Shares of the width, to the right, and of the height, down; drawn separately.
        scale: Least and greatest factor.
        shear: Degrees of lean of the vertical and of the horizontal axis; drawn separately.
        fill: The colour of pixels from outside the image: a number, or one per channel, in the units of the images.
        p: The probability that an image is changed.

    Raises:
        ArgumentError: an option is out of its range, or `shear` is 45 degrees for both axes in every draw.
    """

    _: KW_ONLY
    rotate: float | tuple[float, float] = 0.0
    translate: float | tuple[float, float] = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float | tuple[float, float] = 0.0
    fill: float | tuple[float, ...] = 0
    p: float = 1.0
    numbers = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        opencv()
        least, greatest = self.ranges()[4]
        if least == greatest and abs(least) == 45:
            raise ArgumentError(
                f"shear must not be {self.shear} for both axes, which makes a line of each image; pass a range"
            )

    def ranges(self) -> tuple[tuple[float, float], ...]:
        """Return the limits of angle, shifts, scale and shears."""
        translate = span("translate", self.translate, -1.0, 1.0, around=0.0)
        shear = span("shear", self.shear, -80.0, 80.0, around=0.0)
        rotate = span("rotate", self.rotate, -360.0, 360.0, around=0.0)
        return rotate, translate, translate, span("scale", self.scale, 1e-3, 1e3), shear, shear

    def change(self, image: np.ndarray, *numbers: float) -> None:
        (height, width), matrix = image.shape[:2], self.centres_moved(image.shape[:2], *numbers)
        fill = np.broadcast_to(colour(self.fill, image), image.shape[2:]).tolist()
        cv2 = opencv()
        turned = cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_CONSTANT, borderValue=fill)
        image[...] = turned.reshape(image.shape)

    def moved(self, size: tuple[int, int], *numbers: float) -> np.ndarray:
        return of_edges(self.centres_moved(size, *numbers))

    def centres_moved(self, size: tuple[int, int], *numbers: float) -> np.ndarray:
        """Return the map of the centres of pixels, counted from 0, as OpenCV takes it: ``(2, 3)``."""
        height, width = size
        angle, right, down, scale, lean, rise = map(between, self.ranges(), numbers)
        sin, cos = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        lean, rise = math.tan(math.radians(lean)), math.tan(math.radians(rise))
        a, b = scale * (cos - sin * rise), scale * (cos * lean - sin)
        c, d = scale * (sin + cos * rise), scale * (sin * lean + cos)
        x, y = (width - 1) / 2, (height - 1) / 2
        return np.array([[a, b, x - a * x - b * y + right * width], [c, d, y - c * x - d * y + down * height]])


@names_checked
@dataclass(frozen=True)
class cutout(InPlace):
    """Paints over a random box: Cutout (DeVries and Taylor, arXiv:1708.04552).

    The box is drawn as in random erasing (Zhong et al., arXiv:1708.04896). It is cut to the image's height and width,
    and lies within the image.

    Args:
        scale: Least and greatest area, as a share of the image's.
        ratio: Least and greatest width over height. The logarithm of the ratio is uniform.
        fill: The colour: a number, or one per channel, in the units of the images.
        p: The probability that an image is changed.
    """

    _: KW_ONLY
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    fill: float | tuple[float, ...] = 0
    p: float = 0.5
    numbers = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        span("scale", self.scale, 0.0, 1.0)
        span("ratio", self.ratio, 1e-6, 1e6)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        (tall, wide), (area, shape, y, x) = image.shape[:2], numbers
        pixels = tall * wide * between(self.scale, area)
        sides = self.ratio[0] * (self.ratio[1] / self.ratio[0]) ** shape
        height, width = min(round(math.sqrt(pixels / sides)), tall), min(round(math.sqrt(pixels * sides)), wide)
        top, left = int(y * (tall - height + 1)), int(x * (wide - width + 1))
        image[top : top + height, left : left + width] = colour(self.fill, image)


def _joined(maps: list[np.ndarray], size: tuple[int, int]) -> Moves:
    return Moves(np.array(maps).reshape(-1, 2, 3), size)


def colour(fill: float | tuple[float, ...], images: np.ndarray) -> np.ndarray:
    """Return a colour in the dtype of the images, ``()`` or ``(channels,)``; for `uint8`, rounded and clipped."""
    values, channels = np.asarray(fill, np.float64), images.shape[-1]
    if values.shape not in ((), (channels,)):
        raise ArgumentError(f"fill must be a number, or one for each of the {channels} channels, not {fill!r}")
    if images.dtype == np.uint8:
        values = np.rint(values).clip(0, 255)
    return values.astype(images.dtype)  # a single number stays single: NumPy fills ten times faster
