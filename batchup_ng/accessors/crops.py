"""Crops: the part of an image that is decoded, planned from the image's size before decoding."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError

CROP_TRIES = 10
"""How many sizes a random crop draws; it takes the first that fits, like torchvision's."""


class Box(NamedTuple):
    """A part of an image, in pixels; ``size`` is its height and width."""

    top: int
    left: int
    size: tuple[int, int]


@validation.known_options
@dataclasses.dataclass(frozen=True)
class CenterCrop:
    """The largest part in the middle that has the requested ratio of sides, or a `fraction` of its sides.

    Args:
        fraction: 0 (excluded) to 1. 0.875 with ``size=224`` is the part in "resize to 256, crop 224 in the middle".
    """

    fraction: float = 1.0
    draws = 0

    def __post_init__(self) -> None:
        validation.number_between("fraction", self.fraction, 0.0, 1.0)

    def box(self, picture: tuple[int, int], size: tuple[int, int], drawn: Any) -> Box:
        """Return the part that is resized to `size`, of an image with the height and width `picture`."""
        height, width = picture
        scale = self.fraction * min(height / size[0], width / size[1])
        tall = min(height, max(1, round(scale * size[0])))
        wide = min(width, max(1, round(scale * size[1])))
        return Box((height - tall) // 2, (width - wide) // 2, (tall, wide))


@validation.known_options
@dataclasses.dataclass(frozen=True)
class RandomResizedCrop:
    """A part of random area and ratio of sides at a random place, as networks for ImageNet are trained on.

    The area is uniform over `scale`, the logarithm of width / height over `ratio`. The part is the first of ten draws
    that fits into the image, else the largest part in the middle whose ratio is in `ratio` (Szegedy et al., "Going
    Deeper with Convolutions", 2014, section 6, with torchvision's limits).

    Args:
        scale: The least and the most of the image's area: above 0, at most 1.
        ratio: The least and the most of width / height.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    draws = 2 * CROP_TRIES + 2

    def __post_init__(self) -> None:
        for name, limits, most in (("scale", self.scale, 1.0), ("ratio", self.ratio, sys.float_info.max)):
            if not isinstance(limits, (tuple, list)) or len(limits) != 2:
                raise ArgumentTypeError(f"{name} must be a pair of numbers, (least, most), not {limits!r}")
            low, high = (validation.number_between(f"{name}[{i}]", each, 0.0, most) for i, each in enumerate(limits))
            if low > high:
                raise ArgumentError(f"{name} must be (least, most), not {limits!r}; swap them")

    def box(self, picture: tuple[int, int], size: tuple[int, int], drawn: np.ndarray) -> Box:
        """Return the part that the numbers `drawn` from [0, 1) pick, of an image with height and width `picture`."""
        height, width = picture
        low, high = map(math.log, self.ratio)
        for area, ratio in drawn[: 2 * CROP_TRIES].reshape(CROP_TRIES, 2).tolist():
            pixels = height * width * (self.scale[0] + area * (self.scale[1] - self.scale[0]))
            sides = math.exp(low + ratio * (high - low))
            tall, wide = round(math.sqrt(pixels / sides)), round(math.sqrt(pixels * sides))
            if 0 < tall <= height and 0 < wide <= width:
                break
        else:
            tall, wide = height, width
            if wide / tall < self.ratio[0]:
                tall = min(height, max(1, round(wide / self.ratio[0])))
            elif wide / tall > self.ratio[1]:
                wide = min(width, max(1, round(tall * self.ratio[1])))
            return Box((height - tall) // 2, (width - wide) // 2, (tall, wide))
        top, left = drawn[-2:].tolist()
        return Box(int(top * (height - tall + 1)), int(left * (width - wide + 1)), (tall, wide))


CROPS = {"center": CenterCrop(), "random": RandomResizedCrop()}
"""The crops with a short name."""
