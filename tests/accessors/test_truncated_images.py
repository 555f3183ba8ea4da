"""Pictures that end too early: an error or filled, whatever Pillow's own global says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from tests.messages import raises

from .image_helpers import colours

KINDS = {
    "JPEG": {}, "JPEG progressive": {"progressive": True}, "PNG": {}, "GIF": {}, "BMP": {}, "PPM": {}, "TIFF": {},
    "TIFF lzw": {"compression": "tiff_lzw"}, "WEBP": {}, "JPEG2000": {},
}  # fmt: skip


def read(path: Path, truncated: str) -> Any:
    """Return the picture, or "an error"."""
    try:
        return bu.ImageFiles([path], truncated=truncated)[0].tolist()
    except SampleReadError:
        return "an error"


@pytest.mark.filterwarnings("ignore:(Corrupt EXIF|Truncated File):UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_end_too_early_are_read_as_the_option_says(
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
        found = {}
        for own in (False, True):
            monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", own)
            found[own] = [read(path, "error"), read(path, "fill")]
            assert found[own][own] == by_pillow(path)
        assert found[True][1] == found[False][1]
    assert found[False][0] == found[False][1] != "an error"
    with raises(SampleReadError):
        bu.ImageFiles([path], truncated="error", decoder="pillow")[0]


def by_pillow(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return np.asarray(Image.open(file).convert("RGB")).tolist()
    except (OSError, SyntaxError):
        return "an error"


def test_what_pillow_says_is_read_once_and_holds_in_every_pool(
    pools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, path = io.BytesIO(), tmp_path / "picture"
    colours(60, 80).save(file, "JPEG")
    path.write_bytes(file.getvalue()[:-200])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    filled = bu.ArrayDataSource([bu.ImageFiles([path], size=60)])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    strict = bu.ArrayDataSource([bu.ImageFiles([path], size=60)])
    ((expected,),) = filled.batch_iterator(1)
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for pool in pools:
        (((got),),) = pool.parallel_data_source(filled).batch_iterator(1)
        np.testing.assert_array_equal(got, expected)
        with raises(SampleReadError):
            list(pool.parallel_data_source(strict).batch_iterator(1))


def test_the_option_is_checked() -> None:
    with raises(ArgumentError):
        bu.ImageFiles(["a.jpg"], truncated="skip")
