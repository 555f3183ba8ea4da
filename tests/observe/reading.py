"""Reads contact sheets back from their PNG files."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import batchup_ng as bu
from batchup_ng.observe.drawing import COLOURS, LINE
from batchup_ng.observe.sheet import GAP

SIDE = 160


@functools.lru_cache(maxsize=4)
def pixels_of(sheet: bu.ContactSheet) -> np.ndarray:
    """Return the pixels of a sheet: ``(height, width, 3) uint8``."""
    return np.asarray(Image.open(io.BytesIO(sheet._repr_png_())).convert("RGB"))


def file_pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def panel(sheet: bu.ContactSheet, place: int = 0, line: int = 0, *, header: int = 0, titles: int = 1) -> np.ndarray:
    """Return the square of a panel. All lines have panels of full height; `header` and `titles` count lines above."""
    staged = LINE * any(text.get_text() == "before" for text in sheet.figure.texts)
    above = (1 + header + titles) * LINE
    top = GAP + staged + above + line * (above + SIDE + GAP)
    left = GAP + place * (SIDE + GAP)
    return pixels_of(sheet)[top : top + SIDE, left : left + SIDE]


def image_of(square: np.ndarray, n: int) -> np.ndarray:
    """Return the image of `n` times `n` pixels that was drawn to a square: ``(n, n, 3) uint8``."""
    step = SIDE // n
    return square[step // 2 :: step, step // 2 :: step]


def rgb(number: int) -> tuple[int, ...]:
    return tuple(int(COLOURS[number % len(COLOURS)][place : place + 2], 16) for place in (1, 3, 5))


def near(colour: Any, other: Any, most: int = 12) -> bool:
    return bool((np.abs(np.asarray(colour, int) - np.asarray(other, int)) <= most).all())


def words(sheet: bu.ContactSheet) -> list[str]:
    """Return all texts of a sheet that stand beside its images."""
    return [text.get_text() for text in sheet.figure.texts]


def squares(n: int = 6, side: int = 16) -> np.ndarray:
    """Return random images: ``(n, side, side, 3) uint8``."""
    return np.random.default_rng(3).integers(0, 256, (n, side, side, 3)).astype(np.uint8)
