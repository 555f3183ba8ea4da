"""ImageFiles turns pictures as the file says, once."""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin, features

from batchup_ng.accessors.image_files import ImageFiles

from .image_helpers import by_pillow, colours, save

ORIENTATION = 0x0112


def with_orientation(path, value, **options):
    exif = Image.Exif()
    exif[ORIENTATION] = value
    return save(path, exif=exif, **options)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["p.jpg", "p.png", "p.tif", "p.webp"])
def test_pictures_are_turned_as_their_exif_orientation_says(tmp_path, name, orientation):
    if name == "p.webp" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    path = with_orientation(tmp_path / name, orientation)
    expected = by_pillow(path)
    assert expected.shape == ((12, 20, 3) if orientation < 5 else (20, 12, 3))
    np.testing.assert_array_equal(ImageFiles([path])[0], expected, strict=True)
    np.testing.assert_array_equal(ImageFiles([path], (9, 5))[0], by_pillow(path, (9, 5)), strict=True)


def test_an_orientation_in_xmp_is_honoured(tmp_path):
    path = save(tmp_path / "p.jpg")
    note = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta xmlns:x="adobe:ns:meta/"><d tiff:Orientation="6"/></x:xmpmeta>'
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(note) + 2) + note + data[2:])
    expected = by_pillow(path)
    if expected.shape == (12, 20, 3):
        pytest.skip("this Pillow takes no orientation from XMP")
    np.testing.assert_array_equal(ImageFiles([path])[0], expected, strict=True)


@pytest.mark.parametrize("tag", [None, 1, 6, 8])
def test_a_tiff_file_that_says_it_twice_is_turned_once(tmp_path, tag):
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[700] = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><d tiff:Orientation="6"/></x:xmpmeta>'
    if tag is not None:
        tags[ORIENTATION] = tag
    path = save(tmp_path / "p.tif", tiffinfo=tags)
    np.testing.assert_array_equal(ImageFiles([path])[0], by_pillow(path), strict=True)


@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0"])
def test_exif_data_that_cannot_be_read_counts_as_upright(tmp_path, exif):
    path = save(tmp_path / "p.png", exif=exif)
    np.testing.assert_array_equal(ImageFiles([path])[0], np.asarray(colours()), strict=True)
