"""The operation that applies some of several to each image."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..validation import known_names, positive_int
from .base import InPlace, number
from .color import color_jitter
from .geometry import affine
from .options import OF_OTHERS


class choose(InPlace):
    """Applies `n` operations to each image, one after the other, each drawn from those given; one may come twice.

    Args:
        *operations: Those that keep shape and dtype: ``flip``, ``affine``, ``color_jitter``, ``grayscale``, ``blur``,
            ``cutout``, ``choose``. Each acts with its own `p` where it is drawn.
        n: How many are drawn for an image.

    Raises:
        ArgumentError: there are no operations.
        ArgumentTypeError: one is of another kind.
    """

    @known_names(OF_OTHERS)
    def __init__(self, *operations: InPlace, n: int = 1) -> None:
        for place, operation in enumerate(operations):
            if not isinstance(operation, InPlace):
                raise ArgumentTypeError(
                    f"operations[{place}] must keep the shape of images, as flip() does, and {operation!r:.80} does "
                    f"not; chain it by compose"
                )
        if not operations:
            raise ArgumentError("choose needs at least one operation to choose from")
        self.operations, self.n = operations, positive_int("n", n)
        self.most = 1 + max(operation.numbers for operation in operations)
        self.numbers = self.n * (1 + self.most)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        for start in range(0, self.numbers, 1 + self.most):
            operation = self.operations[int(numbers[start] * len(self.operations))]
            operation.perhaps(image, *numbers[start + 1 : start + 2 + operation.numbers])

    def __repr__(self) -> str:
        return f"choose({', '.join(map(repr, self.operations))}, n={self.n})"


@known_names(OF_OTHERS)
def rand_augment(n: int = 2, magnitude: float = 9.0, *, fill: float | tuple[float, ...] = 0) -> choose:
    """Return a choice of `n` changes an image of one strength, as RandAugment (Cubuk et al., arXiv:1909.13719).

    The changes are those of the paper that are affine maps of colours or of the plane: brightness, contrast, colour
    (saturation), rotation, shear and shift. They are drawn within what `magnitude` allows, of 30, where the paper
    takes its limit itself: factors of 1 ± 0.9, 30 degrees, shears of 0.3, shifts by 0.45 of the side at magnitude 30.

    Args:
        n: How many changes.
        magnitude: Their strength, from 0 to 30.
        fill: The colour of what comes from outside.
    """
    share = number("magnitude", magnitude, 0.0, 30.0) / 30
    return choose(
        color_jitter(brightness=0.9 * share),
        color_jitter(contrast=0.9 * share),
        color_jitter(saturation=0.9 * share),
        affine(rotate=30.0 * share, fill=fill),
        affine(shear=math.degrees(math.atan(0.3 * share)), fill=fill),
        affine(translate=0.45 * share, fill=fill),
        n=n,
    )
