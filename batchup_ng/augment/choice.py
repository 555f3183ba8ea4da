"""The operation that applies some of several to each image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..validation import known_names, positive_int
from .base import InPlace
from .color import color_jitter
from .geometry import affine
from .options import ADVICE_ON_AUGMENT_OPTIONS
from .ranges import number


class choose(InPlace):
    """Applies `n` operations to each image, one after the other, each drawn from `operations`. One may come twice.

    Boxes, masks and keypoints move as in a ``compose`` of the operations that are drawn: each of them cuts them to the
    image.

    Args:
        *operations: Operations that keep shape and dtype: ``flip``, ``affine``, ``color_jitter``, ``grayscale``,
            ``blur``, ``cutout``, ``choose``. An operation that is drawn acts with its own `p`.
        n: Number of operations drawn per image.

    Raises:
        ArgumentError: there are no operations.
        ArgumentTypeError: an operation is of another kind.
    """

    @known_names(ADVICE_ON_AUGMENT_OPTIONS)
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

    @property
    def keeps_points(self) -> bool:
        return all(operation.keeps_points for operation in self.operations)

    def change(self, image: np.ndarray, *numbers: float) -> None:
        for operation, its_numbers in self.chosen(*numbers):
            operation.perhaps(image, *its_numbers)

    def perhaps_moved(self, size: tuple[int, int], chance: float, *numbers: float) -> list[np.ndarray]:
        every = [operation.perhaps_moved(size, *own) for operation, own in self.chosen(*numbers)]
        return list(itertools.chain.from_iterable(every))

    def chosen(self, *numbers: float) -> Iterator[tuple[InPlace, tuple[float, ...]]]:
        """Yield the operations that the numbers choose, each with its own numbers."""
        for start in range(0, self.numbers, 1 + self.most):
            operation = self.operations[int(numbers[start] * len(self.operations))]
            yield operation, numbers[start + 1 : start + 2 + operation.numbers]

    def __repr__(self) -> str:
        return f"choose({', '.join(map(repr, self.operations))}, n={self.n})"


@known_names(ADVICE_ON_AUGMENT_OPTIONS)
def rand_augment(n: int = 2, magnitude: float = 9.0, *, fill: float | tuple[float, ...] = 0) -> choose:
    """Return a choice of `n` changes per image of one strength, as in RandAugment (Cubuk et al., arXiv:1909.13719).

    The changes are the paper's affine maps of colours or of the plane: brightness, contrast, colour (saturation),
    rotation, shear and shift. Each change is drawn within the limit that `magnitude` sets; the paper takes the limit
    itself. At magnitude 30 the limits are factors of 1 ± 0.9, 30 degrees, shears of 0.3, shifts by 0.45 of the side.

    Args:
        n: Number of changes.
        magnitude: Their strength, from 0 to 30.
        fill: The colour of pixels from outside the image.
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
