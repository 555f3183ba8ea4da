"""Encoded images: as they are stored, or made smaller and encoded again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL
from PIL import Image

from .base import chosen_rows
from .pictures import Pictures

JPEG_QUALITY = 90
"""The quality of a JPEG if none is given."""


class EncodedPictures:
    """Images as an accessor with rows of ``bytes``; several rows are a list.

    Args:
        pictures: The images.
        size: Pixels of the shorter side, at most. A larger image is made smaller and keeps its ratio (the longer side
            rounded down, by an antialiased bilinear filter), as torchvision's ``Resize(size)`` does before the centre
            of an ImageNet image is cut out. No image is enlarged. Each is then encoded again, as JPEG. None leaves the
            sizes as they are.
        quality: Of the JPEG, 1 to 100, as in Pillow; None for 90 with `size`. Without `size` and `quality`, all images
            stay as they are encoded.
    """

    def __init__(self, pictures: Pictures, size: int | None = None, quality: int | None = None) -> None:
        self.pictures = pictures
        self.size = size
        self.quality = quality

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, rows: Any) -> Any:
        """Return the bytes of one image for an int, else a list, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: an image cannot be read or decoded; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = [chosen] if isinstance(chosen, int) else chosen.tolist()
        if self.size is None and self.quality is None:
            encoded = self.pictures.read_encoded(several)
        else:
            encoded = [self._again(row) for row in several]
        return encoded[0] if isinstance(chosen, int) else encoded

    def sample_name(self, row: int) -> str | None:
        """Return the path of an image; None if it has none."""
        return self.pictures.sample_name(row)

    def fingerprint(self) -> list[Any]:
        """Return everything that the bytes depend on."""
        return [self.pictures.fingerprint(), self.size, self.quality, PIL.__version__]

    def _again(self, row: int) -> bytes:
        picture = Image.fromarray(np.asarray(self.pictures[row]).astype(np.uint8))
        width, height = picture.size
        shorter = min(width, height)
        if self.size is not None and shorter > self.size:
            sides = (self.size * width // shorter, self.size * height // shorter)
            picture = picture.resize(sides, Image.Resampling.BILINEAR)
        if picture.mode == "RGBA":
            picture = picture.convert("RGB")  # JPEG has no transparency
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=JPEG_QUALITY if self.quality is None else self.quality)
        return file.getvalue()
