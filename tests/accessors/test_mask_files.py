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


def write_pgm(path: Path, values: np.ndarray, most: int, text: bool = False) -> None:
    """Write a PGM file, in text or binary; numbers above 255 have two bytes, the higher first."""
    header = b"P%d\n# by hand\n%d %d\n%d\n" % (2 if text else 5, values.shape[1], values.shape[0], most)
    numbers = values.reshape(-1).tolist()
    data = " ".join(map(str, numbers)).encode() + b"\n"
    path.write_bytes(header + (data if text else b"".join(each.to_bytes(1 + (most > 255), "big") for each in numbers)))


def write_tiff(path: Path, values: np.ndarray, bits: int, kind: int, order: int = 1, sign: int = 1) -> None:
    """Write a TIFF file of one uncompressed strip: photometric interpretation, order of bits, sample format."""
    rows = b""
    for row in values.tolist():
        if bits > 8:
            rows += b"".join((each % 2**bits).to_bytes(bits // 8, "little") for each in row)
            continue
        text = "".join(format(each % 2**bits, f"0{bits}b") for each in row)
        packed = [text[at : at + 8].ljust(8, "0") for at in range(0, len(text), 8)]
        rows += bytes(int(each[::-1] if order == 2 else each, 2) for each in packed)
    height, width = values.shape
    fields = [(256, width), (257, height), (258, bits), (259, 1), (262, kind), (266, order), (273, 0), (277, 1),
              (278, height), (279, len(rows)), (339, sign)]  # fmt: skip
    start = 8 + 2 + 12 * len(fields) + 4
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in fields)
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(fields)) + entries + bytes(4) + rows)


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


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("most", [1, 2, 15, 254, 255, 256, 65534, 65535])
def test_the_numbers_of_a_pgm_are_those_of_the_file(tmp_path: Path, most: int, text: bool) -> None:
    values = np.unique(np.linspace(0, most, 300).astype(int))[None]
    write_pgm(tmp_path / "a.pgm", np.vstack([values, values[:, ::-1]]), most, text)
    files = MaskFiles([tmp_path / "a.pgm"], np.int32)
    assert files[0].tolist() == [values[0].tolist(), values[0, ::-1].tolist()]
    assert files.size(0) == (2, values.size)


@pytest.mark.parametrize(("most", "more"), [(2, 3), (2, 255), (254, 255), (256, 257), (65534, 65535)])
def test_a_pgm_with_a_number_above_its_highest_is_refused(tmp_path: Path, most: int, more: int) -> None:
    for text in (False, True):
        write_pgm(tmp_path / "a.pgm", np.array([[0, more]]), most, text)
        with raises(SampleReadError):
            MaskFiles([tmp_path / "a.pgm"], np.int32)[0]


def test_a_file_that_counts_0_as_white_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pbm").write_bytes(b"P1\n3 1\n1 0 1\n")
    (tmp_path / "binary.pbm").write_bytes(b"P4\n3 1\n\xa0")
    for bits in (1, 2, 4, 8):
        for order in (1, 2):
            write_tiff(tmp_path / f"{bits}-{order}.tif", np.array([[0, 1]]), bits, 0, order)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 10
    for path in paths:
        with raises(SampleReadError):
            MaskFiles([path], np.uint8)[0]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_numbers_of_a_tiff_are_those_of_the_file(tmp_path: Path, bits: int, order: int) -> None:
    values = np.arange(2**bits).reshape(2, -1)
    write_tiff(tmp_path / "grey.tif", values, bits, 1, order)
    np.testing.assert_array_equal(MaskFiles([tmp_path / "grey.tif"], np.uint8)[0], values)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_the_sign_of_a_tiff_is_that_of_the_file(tmp_path: Path, bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    write_tiff(tmp_path / "signed.tif", np.array([[least, -1, 0, most]]), bits, 1, sign=2)
    assert MaskFiles([tmp_path / "signed.tif"], np.int64)[0].tolist() == [[least, -1, 0, most]]
    write_tiff(tmp_path / "unsigned.tif", np.array([[0, most, most + 1, 2**bits - 1]]), bits, 1)
    assert MaskFiles([tmp_path / "unsigned.tif"], np.int64)[0].tolist() == [[0, most, most + 1, 2**bits - 1]]


def test_a_lossy_compression_is_refused_in_any_container(tmp_path: Path) -> None:
    values = masks()[4]
    for number, options in enumerate([{"compression": "jpeg"}, {"irreversible": True}]):
        path = tmp_path / ("a.tif" if number == 0 else "a.jp2")
        try:
            Image.fromarray(values).save(path, **options)  # type: ignore[arg-type]
        except (OSError, KeyError) as error:
            pytest.skip(f"Pillow cannot write it here: {error}")
        with raises(SampleReadError):
            MaskFiles([path], np.uint8)[0]


@pytest.mark.parametrize(("name", "options"), [
    ("a.jp2", {}), ("a.j2k", {}), ("a.tif", {"compression": "tiff_lzw"}), ("b.tif", {"compression": "tiff_deflate"}),
])  # fmt: skip
def test_a_lossless_compression_is_read(tmp_path: Path, name: str, options: dict[str, str]) -> None:
    values = np.random.default_rng(0).integers(0, 20, (40, 50), dtype=np.uint8)
    try:
        Image.fromarray(values).save(tmp_path / name, **options)  # type: ignore[arg-type]
    except (OSError, KeyError) as error:
        pytest.skip(f"Pillow cannot write it here: {error}")
    np.testing.assert_array_equal(MaskFiles([tmp_path / name], np.uint8)[0], values)


def test_the_end_of_a_jpeg_2000_before_its_wavelet_is_no_endless_search(tmp_path: Path) -> None:
    try:
        Image.fromarray(masks()[4]).save(tmp_path / "a.j2k", irreversible=True)
    except (OSError, KeyError) as error:
        pytest.skip(f"Pillow cannot write it here: {error}")
    content = (tmp_path / "a.j2k").read_bytes()
    for length in (45, 50, 51, 52, 64, 65):
        (tmp_path / "a.j2k").write_bytes(content[:length])
        with pytest.raises(SampleReadError):
            MaskFiles([tmp_path / "a.j2k"], np.uint8)[0]
