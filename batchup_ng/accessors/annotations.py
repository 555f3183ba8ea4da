"""Options of images that would not move the boxes, masks or keypoints beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..columns import ANNOTATIONS
from ..errors import ArgumentError
from .own_rows import PictureRows
from .packed_texts import PackedTexts
from .ragged import Ragged
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

RESIZE_ALL = "resize all together by a map: augment.compose(augment.letterbox(640), boxes='boxes'), or masks='mask'"
"""The remedy for a size that would not move the annotations."""

RESIZED_ONCE = "write them in one size, with their boxes, by batchup_ng.convert(source.map(chain), 'resized.lmdb')"
"""The remedy for a program that would keep decoded images."""


def refuse_annotations(option: str, columns: Mapping[Any, Any]) -> None:
    """Refuse columns of boxes, masks or keypoints beside images that `option` resizes or crops alone.

    Such a column is known by its name. Text, and one number a sample, is no annotation. Masks that are images
    themselves are resized by the same options.

    Raises:
        ArgumentError: there is such a column.
    """
    for name, column in columns.items():
        if name in ANNOTATIONS and _in_pixels(ANNOTATIONS[name], column):
            raise ArgumentError(
                f"{option} must be left out where images have boxes, masks or keypoints, which it would not move, and "
                f"the column {name!r} has some; {RESIZE_ALL}. If {name!r} is right for the resized images, give the "
                f"column another name first"
            )


def _in_pixels(option: str, column: Any) -> bool:
    if isinstance(column, (PictureRows, ImageArrayUInt8ToFloat32, PackedTexts)):
        return False
    shape = column.values.shape if isinstance(column, Ragged) else getattr(column, "shape", None)
    axes = len(shape) + isinstance(column, Ragged) if shape is not None else np.inf
    return axes > (2 if option == "masks" else 1)
