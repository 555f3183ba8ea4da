"""Masks of objects that COCO files store as polygons or run lengths, made into pixels when they are read.

All numbers of all polygons and runs are in one array of int32, which worker processes share. An object has parts: its
polygons, or its one list of run lengths. Polygons are kept as pycocotools rounds them, in fifths of a pixel, so the
pixels are the same as from ``pycocotools.mask``, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .base import chosen_rows
from .own_rows import OwnRows

FINE = 5
"""Places in a pixel, along each axis, that the border of a polygon is drawn in."""


class InstanceMasks(OwnRows):
    """The masks of the objects of each image, ``(k, height, width) uint8`` of 0 and 1, as an accessor.

    Several rows are a list.

    Args:
        objects: The parts of each object, by :func:`of_polygons` or :func:`of_runs`, image by image.
        counts: The number of objects of each image.
        sizes: Height and width of each image: ``(n, 2) int``.
    """

    def __init__(self, objects: Iterable[list[np.ndarray]], counts: np.ndarray, sizes: np.ndarray) -> None:
        parts: list[np.ndarray] = []
        parts_of_objects = [0]
        for each in objects:
            parts += each
            parts_of_objects.append(len(parts))
        self._values = np.concatenate([np.zeros(0, np.int32), *[part.reshape(-1) for part in parts]])
        self._ends = np.cumsum([0, *[part.size for part in parts]])
        self._is_polygon = np.array([part.ndim == 2 for part in parts], bool)
        self._parts = np.array(parts_of_objects)
        self._objects = np.cumsum([0, *counts.tolist()])
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, rows: Any) -> Any:
        """Return the masks of one image for an int, else a list, in the order asked for.

        Raises:
            IndexError: a row is out of range.
        """
        chosen = chosen_rows(rows, len(self))
        return self._masks(chosen) if isinstance(chosen, int) else [self._masks(row) for row in chosen.tolist()]

    def fingerprint(self) -> list[Any]:
        """Return everything that the masks depend on."""
        arrays = (self._values, self._ends, self._is_polygon, self._parts, self._objects, self._sizes)
        return [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]

    def __repr__(self) -> str:
        return f"InstanceMasks({len(self._parts) - 1} objects in {len(self)} images)"

    def _masks(self, row: int) -> np.ndarray:
        height, width = self._sizes[row].tolist()
        objects = range(int(self._objects[row]), int(self._objects[row + 1]))
        columns = np.zeros((len(objects), width, height), np.uint8)  # column by column, as COCO counts pixels
        for place, each in zip(columns, objects, strict=True):
            for part in range(int(self._parts[each]), int(self._parts[each + 1])):
                values = self._values[self._ends[part] : self._ends[part + 1]]
                if self._is_polygon[part]:
                    fill(place, values.reshape(-1, 2))
                else:
                    place.reshape(-1)[...] |= np.repeat(np.arange(len(values), dtype=np.uint8) & 1, values)
        return np.ascontiguousarray(columns.transpose(0, 2, 1))


def of_polygons(polygons: Sequence[Any]) -> list[np.ndarray]:
    """Return the parts of an object that has polygons ``[x, y, x, y, ...]``, in pixels.

    Raises:
        ValueError: a polygon is no list of an even count of finite numbers.
    """
    parts = []
    for polygon in polygons:
        points = np.array(polygon, np.float64)
        if points.ndim != 1 or len(points) % 2 or not np.isfinite(points).all():
            raise ValueError("a polygon must be a list of numbers x, y, x, y, ...")
        parts.append(np.trunc(FINE * points + 0.5).clip(-(2**30), 2**30).astype(np.int32).reshape(-1, 2))
    return parts


def of_runs(runs: Any, size: tuple[int, int]) -> list[np.ndarray]:
    """Return the part of an object that has run lengths ``{"size": [height, width], "counts": ...}``.

    The counts are the lengths of runs of 0 and 1 in turn, column by column, as a list or as COCO's compressed text.

    Raises:
        ValueError: they do not cover an image of this height and width.
    """
    counts = runs.get("counts")
    if isinstance(counts, (str, bytes)):
        lengths = uncompressed(counts.encode("latin-1") if isinstance(counts, str) else counts)
    else:
        lengths = np.array(counts)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (len(lengths) and lengths.min() < 0):
        raise ValueError("'counts' must be a list of whole numbers, or COCO's compressed text")
    area = size[0] * size[1]
    if list(runs.get("size", ())) != list(size) or lengths.max(initial=0) > area or lengths.sum() != area:
        raise ValueError(
            f"its runs must cover the image, (height, width) = {size}, and are {lengths.sum()} pixels of "
            f"{runs.get('size')}"
        )
    return [lengths.astype(np.int32)]


def uncompressed(text: bytes) -> np.ndarray:
    """Return the run lengths of a compressed text: ``(n,) int64``.

    A number has five bits in each byte, the lowest first, from 48 on; a sixth bit says that more follow, the highest of
    the last five is the sign. From the fourth on, a number is the difference from the one two before (``rleFrString``
    of pycocotools).

    >>> uncompressed(b"52203")
    array([5, 2, 2, 2, 5])
    """
    codes = np.frombuffer(text, np.uint8).astype(np.int64) - 48
    if not len(codes) or codes.min() < 0 or codes.max() >= 64 or codes[-1] & 32:
        raise ValueError("'counts' must be COCO's compressed text, of whole numbers")
    ends = np.flatnonzero((codes & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 10:
        raise ValueError("'counts' must be COCO's compressed text, of numbers that 64 bits hold")
    shifts = 5 * (np.arange(len(codes)) - np.repeat(starts, ends - starts + 1))
    numbers = np.add.reduceat((codes & 31) << shifts, starts)
    numbers -= np.where(codes[ends] & 16, np.int64(32) << shifts[ends], 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def fill(columns: np.ndarray, points: np.ndarray) -> None:
    """Set the pixels inside of a polygon to 1: ``rleFrPoly`` of pycocotools.

    Its border is drawn in fifths of a pixel. Each place where it passes from one column of pixels to the next begins
    or ends a run of pixels there.

    Args:
        columns: ``(width, height) uint8``.
        points: Corners in fifths of a pixel, as :func:`of_polygons` returns them: ``(m, 2)``.
    """
    width, height = columns.shape
    border = _border(points)
    before, after = border[:-1], border[1:]
    steps = np.flatnonzero(before[:, 0] != after[:, 0])
    x = (np.minimum(before[steps, 0], after[steps, 0]) + 0.5) / FINE - 0.5
    y = (np.minimum(before[steps, 1], after[steps, 1]) + 0.5) / FINE - 0.5
    inside = (np.floor(x) == x) & (x >= 0) & (x <= width - 1)
    places = np.sort(x[inside] * height + np.ceil(y[inside].clip(0, height))).astype(np.int64)
    if len(places):
        first, last = places[0], places[-1] if len(places) % 2 == 0 else height * width
        turns = np.bincount(places - first, minlength=last - first)[: last - first]
        columns.reshape(-1)[first:last] |= (np.cumsum(turns) & 1).astype(np.uint8)


def _border(corners: np.ndarray) -> np.ndarray:
    """Return the points of the closed line through the corners, one for each step along its longer axis."""
    start, end = corners.astype(np.int64), np.roll(corners, -1, axis=0).astype(np.int64)
    steps = np.abs(end - start)
    long = (steps[:, 1] > steps[:, 0]).astype(np.intp)  # 1: more down than across
    edges = np.arange(len(start))
    n = steps[edges, long]
    backward = start[edges, long] > end[edges, long]  # drawn from its lower end, to round alike
    low, high = np.where(backward[:, np.newaxis], end, start), np.where(backward[:, np.newaxis], start, end)
    slopes = (high - low)[edges, 1 - long] / np.maximum(n, 1)
    edge = np.repeat(edges, n + 1)
    step = np.arange(len(edge)) - np.repeat(np.cumsum(n + 1) - n - 1, n + 1)
    step = np.where(backward[edge], n[edge] - step, step)
    border = np.empty((len(edge), 2), np.int64)
    every = np.arange(len(edge))
    border[every, long[edge]] = low[edge, long[edge]] + step
    border[every, 1 - long[edge]] = np.trunc(low[edge, 1 - long[edge]] + slopes[edge] * step + 0.5)
    return border
