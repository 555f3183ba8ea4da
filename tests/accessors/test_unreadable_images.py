"""A file that ImageFiles cannot read is an error that names it, with the cause."""

import errno
import os
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, features

from batchup_ng.accessors import image_decoding, image_files
from batchup_ng.accessors.image_files import ImageFiles
from batchup_ng.errors import SampleReadError
from tests.messages import raises

from .image_helpers import colours, paths_of_all_kinds, png_chunk, save


def write_bomb(path, width, height):
    """Write a PNG of 1 kB that says it has so many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100_000))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", data))
    assert path.stat().st_size < 1024
    return str(path)


def write_webp_bomb(path, width, height):
    """Write a lossless WebP file of 100 bytes with a header that says it has so many pixels."""
    content = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(75)
    path.write_bytes(b"RIFF" + struct.pack("<I", 92) + b"WEBPVP8L" + struct.pack("<I", len(content)) + content)
    return str(path)


def as_truncated_jpeg(path):
    save(path, colours(200, 200))
    path.write_bytes(path.read_bytes()[:-1000])


def as_truncated_header(path):
    save(path, format="PNG")
    path.write_bytes(path.read_bytes()[:20])


BAD = {
    "truncated.jpg": (as_truncated_jpeg, OSError),
    "header.png": (as_truncated_header, Exception),
    "empty.jpg": (lambda path: path.touch(), OSError),
    "text.jpg": (lambda path: path.write_text("no picture, text"), OSError),
    "one_byte.jpg": (lambda path: path.write_bytes(b"P"), OSError),
    "script.jpg": (lambda path: path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n"), OSError),
    "missing.jpg": (lambda path: None, FileNotFoundError),
    "folder.jpg": (lambda path: path.mkdir(), IsADirectoryError),
    "pipe.jpg": (os.mkfifo, OSError),
    "noise.jpg": (lambda path: path.write_bytes(b"\xff\xd8\xff" + 999 * b"noise"), Exception),
}


WAYS = [{"decoder": "pillow"}, {}, {"resize": "fast", "crop": "random"}]
"""Options of pictures that decode in different ways."""


@pytest.mark.parametrize("options", WAYS if image_decoding.simplejpeg() else WAYS[:1], ids=str)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_an_error_that_names_it_with_its_cause(tmp_path, name, options):
    make, cause = BAD[name]
    path = tmp_path / name
    make(path)
    files = ImageFiles([save(tmp_path / "good.png"), path], 8, **options)
    assert files[0].shape == (8, 8, 3)
    for read in (lambda: files[1], lambda: files[:], lambda: files.read_into(np.array([1]), np.empty((1, 8, 8, 3)))):
        with raises(SampleReadError) as caught:
            read()
        assert caught.value.source == str(path)
        assert f"picture 1, {str(path)!r}, cannot be" in str(caught.value)
        assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (10_000, 10_000), (89_478_486, 1), (2**31 - 1, 2**31 - 1)]
)
def test_too_many_pixels_are_refused_from_the_header(tmp_path, width, height):
    path = write_bomb(tmp_path / "bomb.png", width, height)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with raises(SampleReadError) as caught:
            ImageFiles([path], 8)[0]
    assert caught.value.source == path
    assert isinstance(caught.value.__cause__, Image.DecompressionBombError)
    assert f"{width} × {height} pixels are more than max_pixels=89478485" in str(caught.value)
    assert heard == []


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peaks of memory are read from /proc")
@pytest.mark.parametrize("suffix", ["png", pytest.param("webp", marks=pytest.mark.thorough)])
def test_a_refused_picture_takes_no_memory(tmp_path, suffix):
    if suffix == "webp" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    write = write_bomb if suffix == "png" else write_webp_bomb
    path = write(tmp_path / f"bomb.{suffix}", 16_000, 10_000)
    code = (
        "import sys, numpy\n"
        "from batchup_ng.accessors.image_files import ImageFiles\n"
        "from batchup_ng.accessors.image_decoding import _readers\n"
        "from batchup_ng.errors import SampleReadError\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "_readers()\n"
        "before = peak()\n"
        "try:\n"
        "    ImageFiles([sys.argv[1]], 8)[0]\n"
        "except SampleReadError as error:\n"
        "    print(peak() - before, 'max_pixels' in str(error))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    kilobytes, by_our_rule = ran.stdout.split()
    assert by_our_rule == "True"
    assert int(kilobytes) < 64 * 1024


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tif", "webp", "ppm", "jp2"])
def test_max_pixels_holds_for_each_format(tmp_path, suffix):
    if not (features.check("webp") and features.check("jpg_2000")):
        pytest.skip("this Pillow lacks a format")
    path = save(tmp_path / f"picture.{suffix}")
    assert ImageFiles([path], max_pixels=240)[0].shape == (12, 20, 3)
    with raises(SampleReadError):
        ImageFiles([path], max_pixels=239)[0]


def test_max_pixels_may_be_above_pillows_own_limit(picture, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert ImageFiles([picture])[0].shape == (12, 20, 3)


@pytest.mark.parametrize("kind", [Image.DecompressionBombWarning, Image.DecompressionBombError, ValueError])
def test_what_pillow_finds_later_is_our_error_in_printable_characters(picture, monkeypatch, kind):
    def load(self):
        raise kind("found later\x1b[31m" + 1000 * "x")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with raises(SampleReadError) as caught:
        ImageFiles([picture])[0]
    assert isinstance(caught.value.__cause__, kind)
    assert str(caught.value).isprintable()
    assert "x" * 600 not in str(caught.value)


def test_a_lack_of_memory_is_not_blamed_on_the_file(picture, monkeypatch):
    def load(self):
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(MemoryError):
        ImageFiles([picture])[0]


def test_other_errors_of_the_system_are_told_in_its_words(picture, monkeypatch):
    def stat(path):
        raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(image_files.os, "stat", stat)
    with raises(SampleReadError):
        ImageFiles([picture])[0]


@pytest.mark.parametrize("name", ["\x1b[31mred\n", "</script>", "a'b\"c", "\udcff\udc80", "é 画", "x" * 4000, "nul\0"])
def test_any_file_name_is_shown_in_printable_characters(name):
    with pytest.raises(SampleReadError) as caught:
        ImageFiles([name])[0]
    assert caught.value.source == name
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def test_no_file_stays_open(tmp_path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("open files are counted in /proc")
    paths = paths_of_all_kinds(tmp_path)
    as_truncated_jpeg(tmp_path / "bad.jpg")
    files = ImageFiles([*paths, tmp_path / "bad.jpg"], 4)
    before = os.listdir("/proc/self/fd")
    kept = []
    for _ in range(3):
        kept.append(files[:-1])
        with pytest.raises(SampleReadError) as caught:
            files[-1]
        kept.append(caught.value)
    assert len(os.listdir("/proc/self/fd")) == len(before)
