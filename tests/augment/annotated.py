"""Batches with boxes, masks and keypoints, for the tests of augmentations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.augment.helpers import images

SIZE = (24, 32)

FIRST = 1000
"""The number of the first pixel in a mask: above what masks are filled with."""


def boxes(n: int, size: tuple[int, int] = SIZE, seed: int = 0, most: int = 4) -> list[np.ndarray]:
    """Return up to `most` boxes for each of `n` images, with whole numbers as edges, some partly outside: xyxy."""
    rng = np.random.default_rng(seed)
    found = []
    for k in rng.integers(0, most + 1, n):
        start = rng.integers(-2, (size[1] - 2, size[0] - 2), (k, 2))
        found.append(np.hstack([start, start + rng.integers(1, (size[1] // 2, size[0] // 2), (k, 2))]))
    return found


def batch(n: int, size: tuple[int, int] = SIZE, seed: int = 0) -> dict[str, Any]:
    """Return a batch: images, a mask that numbers the pixels, boxes with labels and masks, keypoints with names."""
    rng, given = np.random.default_rng(seed + 1), boxes(n, size, seed)
    counts = [len(each) for each in given]
    points = [rng.uniform(-1, (size[1], size[0]), (k, 2)) for k in rng.integers(0, 4, n)]
    return {
        "image": images(n, size),
        "boxes": given,
        "labels": [np.arange(k) for k in counts],
        "mask": (FIRST + np.arange(size[0] * size[1], dtype=np.int32)).reshape(1, *size).repeat(n, axis=0),
        "masks": [rng.integers(0, 2, (k, *size), dtype=np.uint8) for k in counts],
        "keypoints": points,
        "names": [np.array([f"{i}-{j}" for j in range(len(each))], "U8") for i, each in enumerate(points)],
    }


OPTIONS: dict[str, Any] = {
    "boxes": "boxes",
    "box_labels": ["labels", "masks"],
    "masks": ["mask", "masks"],
    "mask_fill": 255,
    "keypoints": "keypoints",
    "keypoint_labels": "names",
}
"""Options of ``compose`` for such a batch."""
