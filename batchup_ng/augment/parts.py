"""The parts of a batch that operations change, and how they are found."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .annotations import Annotations


class Part(NamedTuple):
    """The parts of a batch that an operation changes. `labels` and `annotations` are None if the batch has none."""

    images: Any
    labels: Any
    annotations: Annotations | None


def key_of(parts: dict[Any, Any], chosen: int | str | None, name: str, place: int) -> Any:
    """Return the key of the part that the user chose, by default `name`, or else the key at `place`; None if none."""
    if isinstance(chosen, str):
        return chosen
    if chosen is None and name in parts:
        return name
    return next(islice(parts, place if chosen is None else chosen, None), None)  # counts the parts that have names too


def like_images(column: Any) -> bool:
    """Return whether a part may be images: of four axes, or of three and the dtype of images."""
    axes, dtype = axes_of(column)
    return axes == 4 or (axes == 3 and dtype in (np.uint8, np.float32))


def axes_of(column: Any) -> tuple[int, Any]:
    """Return the number of axes of a part, and its dtype. A list of arrays has one axis more than they have."""
    listed = isinstance(column, list)
    first: Any = column[0] if listed and column else column
    return getattr(first, "ndim", 0) + listed, getattr(first, "dtype", None)


def sizes_of(images: Any) -> list[tuple[int, int]]:
    """Return height and width of each image of an array, or of a list of arrays."""
    same = isinstance(images, np.ndarray)
    return [images.shape[1:3]] * len(images) if same else [np.shape(image)[:2] for image in images]
