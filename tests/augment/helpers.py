"""What the tests of augmentations share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.image_decoding import found_opencv


def rng(n: int, seed: int = 7) -> bu.SampleRng:
    """Return the draws of the first n samples of a stream."""
    return bu.SampleRng(seed, np.arange(n))


def images(n: int = 6, size: tuple[int, int] = (20, 30), channels: int = 3, dtype: Any = np.uint8) -> np.ndarray:
    """Return random images, float ones from 0 to 1."""
    drawn = np.random.default_rng(n).integers(0, 256, (n, *size, channels), dtype=np.uint8)
    return drawn if dtype == np.uint8 else (drawn / 255).astype(dtype)


def ramp(height: int, width: int) -> np.ndarray:
    """Return an image whose channels are x, y and 100, of which bilinear interpolation is exact: float32."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x, y, np.full_like(x, 100)], axis=2).astype(np.float32)


@contextmanager
def without_opencv() -> Iterator[None]:
    """Let ``import cv2`` fail, as where it is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cv2", None)
        found_opencv.cache_clear()
        try:
            yield
        finally:
            found_opencv.cache_clear()
