"""Operations that change the colours of pixels, or mix the colours of neighbours."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..accessors.image_decoding import opencv
from ..errors import ArgumentError
from .base import InPlace
from .options import names_checked
from .ranges import between, span

LUMA = np.array([0.299, 0.587, 0.114])
"""Weights of red, green and blue in grey: ITU-R BT.601."""
RED, _, BLUE = np.eye(3) - LUMA
YIQ = np.array([LUMA, 0.74 * RED - 0.27 * BLUE, 0.48 * RED + 0.41 * BLUE])
"""RGB to luma and chroma, as the FCC defined them for NTSC in 1953 (47 CFR 73.682)."""
GREY = np.tile(LUMA, (3, 1))
QUARTER_TURN = np.linalg.inv(YIQ) @ [[0, 0, 0], [0, 0, 1], [0, -1, 0]] @ YIQ
"""The matrix that a quarter turn of the hue adds to grey: it rotates the chroma of colours."""


@names_checked
@dataclass(frozen=True)
class color_jitter(InPlace):
    """Changes brightness, contrast, saturation and hue of RGB images, each by a factor or angle drawn for the image.

    With luma Y of BT.601 and its mean m over the image, contrast c and brightness b turn x into ``b (c (x - m) + m)``.
    Saturation scales the chroma (I, Q) about Y, and hue rotates it. All four are affine maps that commute, so they are
    one product with a matrix, rounded and clipped once. torchvision's ``ColorJitter`` applies them one by one in a
    random order, clips after each, and rotates the hue in HSV, which does not keep Y.

    Each is a range, or a number d: for factors from ``max(0, 1 - d)`` to ``1 + d``, for angles from -d to d.

    Args:
        brightness, contrast, saturation: Factors.
        hue: Turns, from -0.5 to 0.5; a third of a turn takes red to green.
        p: The probability that an image is changed.

    Raises:
        ArgumentError: in a call: the images do not have 3 channels.
    """

    brightness: float | tuple[float, float] = 0.0
    contrast: float | tuple[float, float] = 0.0
    saturation: float | tuple[float, float] = 0.0
    hue: float | tuple[float, float] = 0.0
    _: KW_ONLY
    p: float = 1.0
    numbers = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        opencv()
        self.ranges()

    def ranges(self) -> tuple[tuple[float, float], ...]:
        """Return the limits of the four changes."""
        names = ("brightness", "contrast", "saturation")
        factors = [span(name, getattr(self, name), 0.0, np.inf, around=1.0) for name in names]
        return (*factors, span("hue", self.hue, -0.5, 0.5, around=0.0))

    def change(self, image: np.ndarray, *numbers: float) -> None:
        cv2 = opencv()
        _three_channels(image)
        brightness, contrast, saturation, hue = map(between, self.ranges(), numbers)
        cos, sin = saturation * math.cos(2 * math.pi * hue), saturation * math.sin(2 * math.pi * hue)
        mean = sum(weight * channel for weight, channel in zip(LUMA.tolist(), cv2.mean(image), strict=False))
        matrix = np.empty((3, 4), np.float32)
        matrix[:, :3] = brightness * contrast * (GREY + cos * (np.eye(3) - GREY) + sin * QUARTER_TURN)
        matrix[:, 3] = brightness * (1 - contrast) * mean
        image[...] = cv2.transform(image, matrix)


@names_checked
@dataclass(frozen=True)
class grayscale(InPlace):
    """Makes RGB images grey, with three equal channels: luma of ITU-R BT.601, 0.299 R + 0.587 G + 0.114 B.

    Args:
        p: The probability that an image is changed.

    Raises:
        ArgumentError: in a call: the images do not have 3 channels.
    """

    _: KW_ONLY
    p: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        opencv()

    def change(self, image: np.ndarray, *numbers: float) -> None:
        cv2 = opencv()
        _three_channels(image)
        image[...] = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)


@names_checked
@dataclass(frozen=True)
class blur(InPlace):
    """Blurs with a Gaussian, cut off at three standard deviations. Pixels beyond the edge mirror the pixels within.

    Args:
        sigma: Least and greatest standard deviation, in pixels.
        p: The probability that an image is changed.
    """

    sigma: tuple[float, float] = (0.1, 2.0)
    _: KW_ONLY
    p: float = 0.5
    numbers = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        opencv()
        span("sigma", self.sigma, 1e-3, 1e3)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        sigma = between(self.sigma, *numbers)
        side = 2 * math.ceil(3 * sigma) + 1
        image[...] = opencv().GaussianBlur(image, (side, side), sigma).reshape(image.shape)


def _three_channels(image: np.ndarray) -> None:
    if image.shape[2] != 3:
        raise ArgumentError(f"images must have 3 channels, red, green and blue, not {image.shape[2]}; read them as RGB")
