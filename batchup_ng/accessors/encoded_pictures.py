"""Pictures as they are encoded: as they are stored, or made smaller and encoded again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL
from PIL import Image

from .base import chosen_rows
from .pictures import Pictures

QUALITY = 90
"""The quality of a JPEG where it is not told."""


class EncodedPictures:
    """Pictures as an accessor the rows of which are ``bytes``, several of them a list.

    Args:
        pictures: The pictures.
        size: Pixels that the shorter side has at most. A larger picture is made smaller, its ratio kept (the longer
            side rounded down, by an antialiased bilinear filter), as ``Resize(size)`` of torchvision does before the
            centre of an ImageNet picture is cut out; none is enlarged. Each is then encoded again, as JPEG. None leaves
            them as large as they are.
        quality: Of the JPEG, 1 to 100, as Pillow has it; None for 90 with `size`; without `size` it leaves all
            pictures as they are encoded, unless they are given a quality.
    """

    def __init__(self, pictures: Pictures, size: int | None = None, quality: int | None = None) -> None:
        self.pictures = pictures
        self.size = size
        self.quality = quality

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, rows: Any) -> Any:
        """Return the bytes of one picture for an int, else a list, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
            SampleReadError: a picture cannot be read or decoded; ``.source`` is its path.
        """
        chosen = chosen_rows(rows, len(self))
        several = [chosen] if isinstance(chosen, int) else chosen.tolist()
        if self.size is None and self.quality is None:
            encoded = self.pictures.read_encoded(several)
        else:
            encoded = [self._again(row) for row in several]
        return encoded[0] if isinstance(chosen, int) else encoded

    def sample_name(self, row: int) -> str | None:
        """Return the path of a picture; None where it has none."""
        return self.pictures.sample_name(row)

    def fingerprint(self) -> list[Any]:
        """Return what the bytes depend on."""
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
        picture.save(file, "JPEG", quality=QUALITY if self.quality is None else self.quality)
        return file.getvalue()
