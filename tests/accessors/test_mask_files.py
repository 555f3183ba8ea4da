"""MaskFiles: the numbers in a file, without a conversion of colours."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from batchup_ng.accessors.mask_files import MaskFiles
from batchup_ng.errors import SampleReadError
from batchup_ng.testing.accessors import AccessorContract, Made
from tests.messages import raises


def masks(n: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 20, (4 + i, 7), dtype=np.uint8) for i in range(n)]


def write(folder: Path, values: np.ndarray, name: str, palette: bool = False) -> str:
    image = Image.fromarray(values)
    if palette:
        image = Image.new("P", values.shape[::-1])
        image.putdata(values.reshape(-1).tolist())
        image.putpalette(np.random.default_rng(1).integers(0, 256, 768).tolist())
    image.save(folder / name)
    return str(folder / name)


def write_grey_png(path: Path, values: np.ndarray, bits: int) -> None:
    """Write a PNG whose grey levels have fewer than 8 bits, which Pillow cannot write."""
    rows = b""
    for row in values.tolist():
        text = "".join(format(value, f"0{bits}b") for value in row)
        size = -(-len(text) // 8)
        rows += b"\0" + int(text.ljust(8 * size, "0"), 2).to_bytes(size, "big")
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(content)


class TestGreyAndPalette(AccessorContract):
    def make(self, tmp_path: Path) -> Made:
        expected = masks()
        endings = (".png", ".png", ".bmp", ".png", ".tif")
        paths = [write(tmp_path, m, f"{i}{endings[i]}", palette=i % 2 == 1) for i, m in enumerate(expected)]
        return MaskFiles(paths, np.uint8), expected


class TestManyClasses(AccessorContract):
    def make(self, tmp_path: Path) -> Made:
        expected = [(m.astype(np.int32) * 3000) for m in masks()]
        paths = [write(tmp_path, m.astype(np.uint16), f"{i}.png") for i, m in enumerate(expected)]
        return MaskFiles(paths, np.int32), expected


def test_one_bit_is_0_and_1_and_an_orientation_turns(tmp_path: Path) -> None:
    values = masks()[0] > 9
    assert MaskFiles([write(tmp_path, values, "a.png")], np.uint8)[0].tolist() == values.astype(int).tolist()
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(masks()[0]).save(tmp_path / "b.png", exif=exif)
    assert MaskFiles([tmp_path / "b.png"], np.uint8)[0].tolist() == np.rot90(masks()[0], -1).tolist()


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_grey_levels_are_those_of_the_file_for_any_number_of_bits(tmp_path: Path, bits: int) -> None:
    values = np.random.default_rng(bits).integers(0, 2**bits, (5, 7))
    values[0, 0] = 2**bits - 1
    write_grey_png(tmp_path / "a.png", values, bits)
    files = MaskFiles([tmp_path / "a.png"], np.int32)
    np.testing.assert_array_equal(files[0], values)
    assert files.size(0) == (5, 7)


def test_what_is_no_mask_is_named(tmp_path: Path) -> None:
    Image.new("RGB", (3, 2)).save(tmp_path / "colours.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    write(tmp_path, np.full((2, 2), 300, np.uint16), "large.png")
    Image.fromarray(np.full((2, 2), -1, np.int32)).save(tmp_path / "negative.tif")
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "lossy.png", "jpeg")
    names = ("colours.png", "broken.png", "large.png", "absent.png", "negative.tif", "lossy.png")
    files = MaskFiles([tmp_path / name for name in names], np.uint8)
    assert files.size(0) == (2, 3)
    assert files.size(1) is files.size(3) is None
    for row in range(len(names)):
        with raises(SampleReadError) as caught:
            files[row]
        assert caught.value.source == files.sample_name(row)


def test_a_large_mask_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = write(tmp_path, masks()[0], "a.png")
    with pytest.raises(SampleReadError):
        MaskFiles([path], np.uint8, max_pixels=10)[0]
