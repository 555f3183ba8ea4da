"""Pictures as they are encoded."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors.encoded_pictures import EncodedPictures
from batchup_ng.testing.accessors import AccessorContract, Made


def png(side: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((side, 2 * side), 9 * side, np.uint8)).save(file, "PNG")
    return file.getvalue()


class TestEncodedPictures(AccessorContract):
    """Rows that are the bytes of files."""

    def make(self, tmp_path: Path) -> Made:
        pictures = [png(side) for side in (3, 5, 7, 9)]
        return EncodedPictures(bu.ImageBytes(pictures)), pictures


def test_grey_pictures_stay_grey_and_transparency_goes() -> None:
    for mode, expected in [("L", "L"), ("RGB", "RGB"), ("RGBA", "RGB")]:
        encoded = EncodedPictures(bu.ImageBytes([png(9)], mode=mode), size=4)[0]
        with Image.open(io.BytesIO(encoded)) as picture:
            assert (picture.format, picture.mode, picture.size) == ("JPEG", expected, (8, 4))
