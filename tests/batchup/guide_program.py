"""The functions and classes that a reader of BatchUp's guide writes for himself, in our own words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]


def find_pictures(folder: Path) -> list[str]:
    """The paths of the pictures, sorted."""
    return sorted(str(path) for path in folder.glob("*.png"))


def is_dog(paths: list[str]) -> Array:
    """The class of each picture, which its file name begins with."""
    return np.array([os.path.basename(path).startswith("dog") for path in paths]).astype(np.int32)


def load_array(path: str) -> Array:
    """One picture as `(height, width, 3)` uint8."""
    with Image.open(path) as picture:
        return np.array(picture)


class PictureArrays:
    """Pictures of one size, read when they are asked for; a batch is one array."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Array:
        if isinstance(index, (int, np.integer)):
            return load_array(self.paths[index])
        if isinstance(index, slice):
            return np.stack([load_array(path) for path in self.paths[index]])
        if not isinstance(index, np.ndarray):
            raise TypeError(f"index should be an integer, a slice or an array, not {type(index)}")
        if index.ndim != 1:
            raise ValueError(f"an index array should have 1 dimension, not {index.ndim}")
        return np.stack([load_array(self.paths[i]) for i in index])


class PictureLists:
    """Pictures of any size, left open as Pillow images; a batch is a list. No slices, as in the guide."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            return Image.open(self.paths[index])
        if isinstance(index, np.ndarray):
            return [Image.open(self.paths[i]) for i in index]
        raise TypeError(f"index should be an integer or an array, not {type(index)}")


def augment_batch(batch_x: list[Image.Image], batch_y: Array) -> tuple[Array, Array]:
    """Bring a list of pictures to 16 by 16 pixels, as one array."""
    return np.stack([np.array(picture.resize((16, 16))) for picture in batch_x]), batch_y


def flip_batch(batch_x: Array, batch_y: Array) -> tuple[Array, Array]:
    """Mirror about half of the images, written into the batch itself."""
    flags = np.random.binomial(1, 0.5, size=(len(batch_x),)).astype(bool)
    batch_x[flags, ...] = batch_x[flags, :, :, ::-1]
    return batch_x, batch_y
