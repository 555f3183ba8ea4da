"""Maps of points: where an operation moves the boxes, masks and keypoints of each image.

A point is (x, y) in pixels, x to the right, y down. The first pixel of a row covers 0 to 1, so an image covers 0 to its
width and its height, and a box can have these edges. A keypoint that is a whole number lies in the centre of a pixel,
as in torchvision and Albumentations. It is the point half a pixel farther, so all that moves is moved by one map.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

UNMOVED = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
"""The map that leaves all points where they are."""

TIE = 1e-6
"""Added to the place that a pixel comes from, in pixels. If an image is halved, all places are on the edge between two
pixels. They then belong to the pixel behind the edge, however they are rounded."""


class Moves(NamedTuple):
    """How an operation moves the points of the images of a batch.

    Attributes:
        maps: An affine map for each image, ``(n, 2, 3) float64``: a row times (x, y, 1) is the new x, or the new y.
        size: Height and width of the results.
    """

    maps: np.ndarray
    size: tuple[int, int]


def mirrored(size: tuple[int, int], vertical: bool) -> np.ndarray:
    """Return the map of an image of that height and width that swaps left and right, or top and bottom: ``(2, 3)``."""
    height, width = size
    return np.array([[1.0, 0, 0], [0, -1, height]] if vertical else [[-1.0, 0, width], [0, 1, 0]])


def cut_out(top: float, left: float, part: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Return the map that cuts out a part, with its height and width, and resizes it to `size`: ``(2, 3)``."""
    tall, wide = size[0] / part[0], size[1] / part[1]
    return np.array([[wide, 0, -left * wide], [0, tall, -top * tall]])


def placed(top: int, left: int, part: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    """Return the map that resizes an image of height and width `size` to `part`, and puts it at a place: ``(2, 3)``."""
    return np.array([[part[1] / size[1], 0, left], [0, part[0] / size[0], top]])


def of_edges(centres: np.ndarray) -> np.ndarray:
    """Return the map of points that moves the centres of pixels, counted from 0, as the map `centres` does."""
    linear, shift = centres[:, :2], centres[:, 2:]
    return np.hstack([linear, shift + 0.5 - linear @ [[0.5], [0.5]]])


def moved_points(points: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Return points, ``(m, ..., 2)``, moved each by its map, ``(m, 2, 3)``."""
    wide = maps.reshape(len(maps), *[1] * (points.ndim - 2), 2, 3)
    x, y = points[..., 0], points[..., 1]
    return np.stack([wide[..., i, 0] * x + wide[..., i, 1] * y + wide[..., i, 2] for i in (0, 1)], axis=-1)


def moved_boxes(boxes: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Return the smallest boxes around boxes, ``(m, 4)`` as left, top, right, bottom, moved each by its map."""
    corners = moved_points(boxes[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 4, 2), maps)
    return np.hstack([corners.min(axis=1), corners.max(axis=1)])


def resampled(image: np.ndarray, moves: np.ndarray, out: np.ndarray, fill: Any) -> None:
    """Write to `out`, ``(height, width, ...)``, the pixels of `image` after a move by the map: ``(2, 3)``.

    Each pixel takes the value at the place that its centre comes from, or `fill` if that lies outside of the image.
    """
    (a, b, x), (c, d, y) = moves.tolist()
    area = a * d - b * c
    if abs(area) < 1e-12:  # the image becomes a line
        out[...] = fill
        return
    a, b, c, d = d / area, -b / area, -c / area, a / area
    x, y = TIE - a * x - b * y, TIE - c * x - d * y
    across, down = np.arange(out.shape[1]) + 0.5, np.arange(out.shape[0]) + 0.5
    if b == 0 == c:
        columns, rows = np.floor(a * across + x).astype(np.intp), np.floor(d * down + y).astype(np.intp)
        inside = [_inside(places, n) for places, n in ((rows, image.shape[0]), (columns, image.shape[1]))]
        if any(part.stop - part.start < n for part, n in zip(inside, out.shape, strict=False)):
            out[...] = fill
        out[inside[0], inside[1]] = image[_as_slice(rows[inside[0]])][:, _as_slice(columns[inside[1]])]
        return
    columns = np.floor((a * across + x) + (b * down)[:, np.newaxis]).astype(np.intp)
    rows = np.floor((c * across + y) + (d * down)[:, np.newaxis]).astype(np.intp)
    seen = (columns >= 0) & (columns < image.shape[1]) & (rows >= 0) & (rows < image.shape[0])
    out[...] = fill
    out[seen] = image[rows[seen], columns[seen]]


def _inside(places: np.ndarray, n: int) -> slice:
    """Return where the places, which only rise or only fall, lie from 0 to n - 1."""
    seen = np.flatnonzero((places >= 0) & (places < n))
    return slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)


def _as_slice(places: np.ndarray) -> Any:
    """Return places, which only rise or only fall, as a slice if they are neighbours: it copies faster."""
    if len(places) < 2 or abs(int(places[-1]) - int(places[0])) != len(places) - 1:
        return places
    step = 1 if places[-1] > places[0] else -1
    end = int(places[-1]) + step
    return slice(int(places[0]), None if end < 0 else end, step)


def in_image(points: np.ndarray, height: Any, width: Any) -> np.ndarray:
    """Return whether points, ``(..., 2)``, lie in images of these heights and widths: ``(...) bool``."""
    x, y = points[..., 0], points[..., 1]
    seen: np.ndarray = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return seen
