"""Operations that mix each sample with another, and their labels likewise.

With ``map(operation, companions=1)`` a sample's partner is its companion, and the result for a sample does not depend
on its batch. Otherwise its partner is the sample before it in the batch; the first sample's partner is the last, as in
torchvision. Then the result for a sample depends on its batch, and thus on the batch size, on shards and on samples
that are left out, but not on the pool and its workers. Weights are multiples of 1/256: `uint8` images are mixed without
rounding the weight, so image and label agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from ..validation import positive_int
from .annotation_columns import AnnotationColumns
from .base import Operation
from .options import names_checked
from .parts import Part
from .ranges import number


@dataclass(frozen=True)
class Mixing(Operation):
    """Mixes each sample of a batch with its companion, or with the one before it.

    Labels become soft. Whole numbers ``(n,)`` become one-hot rows ``(n, num_classes) float32``; floats stay floats of
    their shape. Each label is then ``w * own + (1 - w) * partner's``, where w is the weight of the sample's own image.
    """

    alpha: float = 1.0
    _: KW_ONLY
    num_classes: int | None = None
    p: float = 1.0
    numbers = 3
    in_place = True
    companion_counts = (0, 1)

    def __post_init__(self) -> None:
        number("alpha", self.alpha, 1e-3, 1e3)
        number("p", self.p, 0.0, 1.0)
        if self.num_classes is not None:
            positive_int("num_classes", self.num_classes)

    def draw(self, rng: Any) -> Any:
        numbers = rng.random(self.numbers)
        weights = np.array([each.beta(self.alpha, self.alpha) for each in rng.generators()])
        numbers[:, 0] = np.where(numbers[:, 0] < self.p, np.rint(256 * weights.reshape(-1)), 256)
        return numbers

    def apply(self, images: np.ndarray, labels: Any, drawn: Any) -> tuple[np.ndarray, Any]:
        soft = self.soft(labels, len(images))
        if len(images) < 2:
            return images, soft
        last, weights = images[-1].copy(), _room_for_weights(soft)
        for i in reversed(range(len(images))):  # backwards: the partner is still unchanged
            weights[i] = self.mix(images[i], images[i - 1] if i else last, *drawn[i].tolist())
        return images, _blended(weights, soft, np.roll(soft, 1, axis=0))

    def join(self, own: Part, others: Sequence[Part], drawn: Any) -> Part:
        (images, labels, _), ((partners, theirs, _),) = own, others
        check_same_size(self, images, partners)
        soft, other = self.soft(labels, len(images)), self.soft(theirs, len(images))
        weights = _room_for_weights(soft)
        for i, (image, partner) in enumerate(zip(images, partners, strict=True)):
            weights[i] = self.mix(image, partner, *drawn[i].tolist())
        return Part(images, _blended(weights, soft, other), None)

    def check_annotations(self, columns: AnnotationColumns) -> None:
        if columns.given:
            raise ArgumentError(
                f"{type(self).__name__} must not be in a chain with boxes, masks or keypoints, which it cannot mix; "
                f"leave it out"
            )

    def mix(self, image: np.ndarray, partner: np.ndarray, weight: float, y: float, x: float) -> float:
        """Mix the partner into an image, in place. Return the image's own share."""
        raise NotImplementedError

    def soft(self, labels: Any, n: int) -> np.ndarray:
        """Return the labels as floats."""
        if not isinstance(labels, np.ndarray) or len(labels) != n or labels.dtype.kind not in "iuf":
            raise ArgumentTypeError(
                f"{type(self).__name__} needs labels beside the images, an array of {n} numbers or rows of numbers, "
                f"not {labels!r:.80}; compose(label=) says which part of the batch they are"
            )
        if labels.dtype.kind == "f":
            return labels
        if self.num_classes is None or labels.ndim != 1:
            raise ArgumentError(
                f"{type(self).__name__} needs num_classes= for labels that are whole numbers, (n,); make others float32"
            )
        if n and not 0 <= labels.min() <= labels.max() < self.num_classes:
            raise ArgumentError(
                f"labels must be below num_classes, {self.num_classes}, and not negative; they are "
                f"{labels.min()} to {labels.max()}"
            )
        soft = np.zeros((n, self.num_classes), np.float32)
        soft[np.arange(n), labels] = 1
        return soft


def _room_for_weights(labels: np.ndarray) -> np.ndarray:
    return np.empty((len(labels), *[1] * (labels.ndim - 1)), labels.dtype)


def _blended(weights: np.ndarray, labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the weighted means of labels. Where the weight is 1, the other label does not count, even if infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(weights == 1, labels, weights * labels + (1 - weights) * others)


def check_same_size(operation: Operation, images: np.ndarray, partners: np.ndarray) -> None:
    """Raise :class:`~batchup_ng.errors.ArgumentError` if companions have images of another shape or dtype."""
    if images.shape != partners.shape or images.dtype != partners.dtype:
        raise ArgumentError(
            f"{type(operation).__name__} needs companions with images of one size and dtype, {images.shape[1:]} "
            f"{images.dtype}, not {partners.shape[1:]} {partners.dtype}; map resize or letterbox before"
        )


@names_checked
@dataclass(frozen=True)
class mixup(Mixing):
    """Blends each image with another one (Zhang et al., mixup, arXiv:1710.09412).

    With ``source.map(mixup(), companions=1)`` the other image is the companion: the result for a sample is then the
    same for any batch size and number of ranks. Without, it is the image before it in the batch.

    Args:
        alpha: The weight of a sample is drawn from Beta(alpha, alpha): 1 is uniform, smaller values are nearer 0 or 1.
        num_classes: Number of classes, for labels that are whole numbers from 0.
        p: The probability that a sample is mixed.

    Raises:
        ArgumentError: in a call: labels are whole numbers, and one is negative or not below `num_classes`, or they are
            not of shape ``(n,)``, or `num_classes` is missing.
        ArgumentTypeError: in a call: the batch has no labels, or labels that are not numbers.
    """

    def mix(self, image: np.ndarray, partner: np.ndarray, weight: float, y: float, x: float) -> float:
        if image.dtype == np.uint8:
            own = np.multiply(image, int(weight), dtype=np.uint16)
            own += np.multiply(partner, 256 - int(weight), dtype=np.uint16)
            own += 128
            np.right_shift(own, 8, out=image, casting="unsafe")
        elif weight < 256:
            image *= np.float32(weight / 256)
            image += partner * np.float32(1 - weight / 256)
        return weight / 256


@names_checked
@dataclass(frozen=True)
class cutmix(Mixing):
    """Pastes a box of another image into each image (Yun et al., CutMix, arXiv:1905.04899).

    The other image is as for :class:`mixup`: the companion with ``companions=1``, or the image before it in the batch.
    The box has the image's shape and a share ``1 - w`` of its area. Its centre is uniform in the image, and the part
    outside the image is cut off. The weight of the labels is the share that is left of the sample's own image.

    Args:
        alpha: w is drawn from Beta(alpha, alpha): 1 is uniform, smaller values are nearer 0 or 1.
        num_classes: Number of classes, for labels that are whole numbers from 0.
        p: The probability that a sample is mixed.

    Raises:
        ArgumentError: in a call: labels are whole numbers, and one is negative or not below `num_classes`, or they are
            not of shape ``(n,)``, or `num_classes` is missing.
        ArgumentTypeError: in a call: the batch has no labels, or labels that are not numbers.
    """

    def mix(self, image: np.ndarray, partner: np.ndarray, weight: float, y: float, x: float) -> float:
        height, width = image.shape[:2]
        half = math.sqrt(1 - weight / 256) / 2
        middle_y, middle_x = int(y * height), int(x * width)
        top, bottom = max(0, middle_y - int(half * height)), min(height, middle_y + int(half * height))
        left, right = max(0, middle_x - int(half * width)), min(width, middle_x + int(half * width))
        image[top:bottom, left:right] = partner[top:bottom, left:right]
        kept: float = 1 - (bottom - top) * (right - left) / (height * width)
        return kept
