"""The formats, modes and depths of pictures that ImageFiles reads."""

import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, features

from batchup_ng.accessors.image_files import ImageFiles
from batchup_ng.errors import SampleReadError
from tests.messages import raises

from .image_helpers import by_pillow, colours, png_chunk, save


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("stored", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_each_stored_mode_becomes_each_mode(tmp_path, stored, mode):
    suffix = "jpg" if stored in ("CMYK", "YCbCr") else "tif" if stored == "PA" else "png"
    path = save(tmp_path / f"picture.{suffix}", colours().convert("RGBA" if stored == "PA" else "RGB").convert(stored))
    np.testing.assert_array_equal(ImageFiles([path], mode=mode)[0], by_pillow(path, mode=mode), strict=True)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("transparency", [1, bytes(range(200))])
def test_palettes_with_transparency_are_read_without_a_warning(tmp_path, transparency, mode):
    path = save(tmp_path / "picture.png", colours().quantize(200), transparency=transparency)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        expected = by_pillow(path, mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(ImageFiles([path], mode=mode)[0], expected, strict=True)


@pytest.mark.parametrize(("name", "mode"), [("p.png", None), ("p.tif", None), ("p.ppm", "I"), ("p.jp2", None)])
def test_16_bits_are_scaled_not_clipped(tmp_path, name, mode):
    if name.endswith("jp2") and not features.check("jpg_2000"):
        pytest.skip("this Pillow has no JPEG 2000")
    values = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    image = Image.fromarray(values)
    path = save(tmp_path / name, image.convert(mode) if mode else image)
    expected = np.round(values / 257.0).astype(np.uint8)
    np.testing.assert_array_equal(ImageFiles([path], mode="L")[0], expected, strict=True)
    np.testing.assert_array_equal(ImageFiles([path])[0], np.repeat(expected[:, :, None], 3, axis=2), strict=True)


def test_16_bit_colours_are_scaled_not_clipped(tmp_path):
    # Pillow cannot write this file; made by hand: PNG signature, header (16 bits, RGB), one row of data, end.
    values = np.array([[[0, 257, 65535], [32768, 1000, 65278]]], dtype=">u2")
    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0" + values.tobytes())), (b"IEND", b""))
    path = tmp_path / "deep.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(map(png_chunk, *zip(*chunks, strict=True))))
    np.testing.assert_allclose(ImageFiles([path])[0].astype(float), values / 257.0, atol=1.0)


def test_12_bits_in_a_tiff_file_are_scaled_by_their_own_white(tmp_path):
    # Two pixels of 12 bits, 0xFFF and 0x800, in three bytes; tags in the order that TIFF asks for.
    tags = [(256, 2), (257, 1), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 3)]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    path = tmp_path / "deep.tif"
    header = struct.pack("<2sHI", b"II", 42, 12) + b"\xff\xf8\x00\0"
    path.write_bytes(header + struct.pack("<H", 9) + entries + bytes(4))
    np.testing.assert_array_equal(ImageFiles([path], mode="L")[0], np.array([[255, 128]], np.uint8), strict=True)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_have_no_known_range_and_are_refused(tmp_path, mode):
    path = save(tmp_path / "deep.tif", Image.new(mode, (4, 4)))
    with raises(SampleReadError) as caught:
        ImageFiles([path])[0]
    assert caught.value.source == path


@pytest.mark.parametrize(
    ("name", "feature"),
    [("p.webp", "webp"), ("p.gif", None), ("p.tif", None), ("p.jp2", "jpg_2000"), ("p.avif", "avif"), ("p.ppm", None)],
)
def test_each_format_is_read(tmp_path, name, feature):
    if feature and not (feature in features.get_supported() and features.check(feature)):
        pytest.skip(f"this Pillow has no {feature}")
    path = save(tmp_path / name)
    np.testing.assert_array_equal(ImageFiles([path])[0], by_pillow(path), strict=True)


def test_the_format_is_told_by_the_content_not_by_the_name(tmp_path):
    path = save(tmp_path / "wrong.jpg", format="PNG")
    np.testing.assert_array_equal(ImageFiles([path])[0], np.asarray(colours()), strict=True)


@pytest.mark.parametrize("name", ["frames.gif", "frames.tif", "frames.png"])
def test_of_several_frames_the_first_is_read(tmp_path, name):
    path = save(tmp_path / name, save_all=True, append_images=[colours(seed=1), colours(seed=2)])
    np.testing.assert_array_equal(ImageFiles([path])[0], by_pillow(path), strict=True)
