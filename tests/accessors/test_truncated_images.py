"""Pictures that end too early: an error, or filled where Pillow is told to fill them, in every pool."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

import batchup_ng as bu
from batchup_ng.errors import SampleReadError

from .image_helpers import colours

KINDS = {
    "JPEG": {}, "JPEG progressive": {"progressive": True}, "PNG": {}, "GIF": {}, "BMP": {}, "PPM": {}, "TIFF": {},
    "TIFF lzw": {"compression": "tiff_lzw"}, "WEBP": {}, "JPEG2000": {},
}  # fmt: skip


def read(files: bu.ImageFiles) -> Any:
    """Return the picture, or "an error"."""
    try:
        return files[0].tolist()
    except SampleReadError:
        return "an error"


def by_pillow(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return np.asarray(Image.open(file).convert("RGB")).tolist()
    except (OSError, SyntaxError):
        return "an error"


@pytest.mark.filterwarnings("ignore:(Corrupt EXIF|Truncated File):UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_end_too_early_are_read_as_pillow_said_when_it_was_made(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = io.BytesIO(), tmp_path / "picture"
    try:
        colours(60, 80).save(file, kind.split()[0], **KINDS[kind])
    except (KeyError, OSError):
        pytest.skip(f"this Pillow cannot write {kind}")
    whole = file.getvalue()
    for part in (0.2, 0.5, 0.9, 1.0):
        path.write_bytes(whole[: int(part * len(whole))])
        for fills in (False, True):
            monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", fills)
            files, expected = bu.ImageFiles([path]), by_pillow(path)
            monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", not fills)
            assert read(files) == expected


def test_what_pillow_says_holds_in_every_pool(
    pools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = io.BytesIO(), tmp_path / "picture"
    colours(60, 80).save(file, "JPEG")
    path.write_bytes(file.getvalue()[:-200])
    for fills in (True, False):
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", fills)
        source = bu.ArrayDataSource([bu.ImageFiles([path], size=60)])
        for pool in pools:
            batches = pool.parallel_data_source(source).batch_iterator(1)
            if fills:
                (((got,),),) = batches
                np.testing.assert_array_equal(got, source[0][0])
            else:
                with pytest.raises(SampleReadError, match="truncated"):
                    next(batches)
