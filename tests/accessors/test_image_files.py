"""ImageFiles keeps the accessor contract; its pictures are those of Pillow; bad files are errors that name them."""

import contextlib
import errno
import io
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps, TiffImagePlugin, features

from batchup_ng.accessors import image_files
from batchup_ng.accessors.image_files import ImageFiles
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import AccessorContract

ORIENTATION = 0x0112


def colours(height=12, width=20, channels=3, seed=0):
    """A picture that is smooth, so that JPEG keeps it, and that no turn or flip leaves as it is."""
    small = np.random.default_rng(seed).integers(0, 256, (3, 5, channels), dtype=np.uint8)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    return Image.fromarray(small[:, :, 0] if channels == 1 else small).convert(mode).resize((width, height))


def save(path, image=None, **options):
    (image or colours()).save(path, **options)
    return str(path)


def by_pillow(path, size=None, mode="RGB", resample=Image.Resampling.BILINEAR):
    """The plain reference: everything in Pillow's own words."""
    with Image.open(path) as image:
        image = ImageOps.exif_transpose(image).convert(mode)
    return np.asarray(image if size is None else image.resize(size[::-1], resample))


def paths_of_all_kinds(folder):
    return [
        save(folder / "a.jpg"),
        save(folder / "b.png", colours(30, 10, seed=1)),
        save(folder / "c.gif", colours(8, 8, seed=2)),
        save(folder / "d.bmp", colours(7, 9, channels=1, seed=3)),
        save(folder / "e.png", colours(9, 9, channels=4, seed=4)),
        save(folder / "f.tif", colours(5, 40, seed=5)),
    ]


class TestResizedColours(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths, (6, 8)), [by_pillow(path, (6, 8)) for path in paths]


class TestResizedGreyAsFloats(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        expected = [by_pillow(path, (6, 6), "L").astype(np.float32) for path in paths]
        return ImageFiles(paths, 6, "L", np.float32), expected


class TestResizedWithTransparency(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths, (6, 8), "RGBA"), [by_pillow(path, (6, 8), "RGBA") for path in paths]


class TestEachOfItsOwnSize(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths), [by_pillow(path) for path in paths]


@pytest.fixture
def picture(tmp_path):
    return save(tmp_path / "picture.png")


# What is returned


def test_several_sizes_come_as_a_list(tmp_path):
    pictures = ImageFiles(paths_of_all_kinds(tmp_path))[1:3]
    assert isinstance(pictures, list)
    assert [picture.shape for picture in pictures] == [(30, 10, 3), (8, 8, 3)]


def test_a_boolean_mask_chooses_rows(tmp_path):
    files = ImageFiles(paths_of_all_kinds(tmp_path), 4)
    mask = np.array([True, False, False, True, False, True])
    np.testing.assert_array_equal(files[mask], files[[0, 3, 5]], strict=True)


@pytest.mark.parametrize("size", [None, 6])
def test_all_arrays_are_the_callers_to_write_to(picture, size):
    files = ImageFiles([picture], size)
    assert files[0].flags.writeable
    assert all(row.flags.writeable for row in files[:])


@pytest.mark.parametrize(
    ("mode", "shape"), [("RGB", (1, 4, 6, 3)), ("L", (1, 4, 6)), ("RGBA", (1, 4, 6, 4))]
)
def test_the_mode_gives_the_last_axis(picture, mode, shape):
    files = ImageFiles([picture], (4, 6), mode, np.uint16)
    assert files.shape == files[:].shape == shape
    assert files.dtype == files[:].dtype == np.uint16


def test_without_a_size_there_is_no_shape(picture):
    files = ImageFiles([picture])
    assert not hasattr(files, "shape")
    assert files.dtype == np.uint8
    with pytest.raises(AttributeError, match="pass size="):
        files.shape  # noqa: B018 - the attribute itself is what is tested


@pytest.mark.parametrize("resample", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_each_way_to_resample_is_pillows(picture, resample):
    expected = by_pillow(picture, (5, 7), resample=Image.Resampling[resample.upper()])
    np.testing.assert_array_equal(ImageFiles([picture], (5, 7), resample=resample)[0], expected, strict=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.float16, np.float32, np.float64, ">u2"])
def test_values_are_0_to_255_in_each_dtype(picture, dtype):
    expected = by_pillow(picture, (5, 7)).astype(dtype)
    np.testing.assert_array_equal(ImageFiles([picture], (5, 7), dtype=dtype)[:], expected[None], strict=True)


def test_a_picture_of_the_size_asked_for_is_not_resized(picture, monkeypatch):
    expected = by_pillow(picture)
    monkeypatch.setattr(Image.Image, "resize", None)
    monkeypatch.setattr(Image.Image, "convert", None)
    np.testing.assert_array_equal(ImageFiles([picture], (12, 20))[0], expected, strict=True)


def test_its_repr_says_what_it_gives(picture):
    assert repr(ImageFiles([picture], 6, "L")) == "ImageFiles(1 files, size=(6, 6), mode='L', dtype=uint8)"


# Formats


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
    with pytest.raises(SampleReadError, match=f"pixels of mode '{mode}' have no known range") as caught:
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


# EXIF orientation


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


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_picture_shows_what_the_upright_one_does(tmp_path, orientation):
    upright = np.asarray(colours())
    undo = {5: 5, 6: 8, 7: 7, 8: 6}.get(orientation, orientation)
    stored = colours().transpose(image_files._TURNS[undo])
    path = with_orientation(tmp_path / "p.png", orientation, image=stored)
    np.testing.assert_array_equal(ImageFiles([path])[0], upright, strict=True)


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


# Files that cannot be read


def png_chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


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
    "truncated.jpg": (as_truncated_jpeg, "cannot be decoded .*truncated", OSError),
    "header.png": (as_truncated_header, "cannot be decoded", Exception),
    "empty.jpg": (lambda path: path.touch(), "the file is empty", OSError),
    "text.jpg": (lambda path: path.write_text("no picture, text"), "not a picture in one of the formats JPEG", OSError),
    "one_byte.jpg": (lambda path: path.write_bytes(b"P"), "not a picture in one of the formats", OSError),
    "script.jpg": (lambda path: path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n"), "not a picture in one of the", OSError),
    "missing.jpg": (lambda path: None, "cannot be opened .FileNotFoundError: No such file", FileNotFoundError),
    "folder.jpg": (lambda path: path.mkdir(), "cannot be opened .IsADirectoryError: a directory", IsADirectoryError),
    "pipe.jpg": (os.mkfifo, "cannot be opened .OSError: not a regular file", OSError),
    "noise.jpg": (lambda path: path.write_bytes(b"\xff\xd8\xff" + 999 * b"noise"), "cannot be decoded", Exception),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_an_error_that_names_it_with_its_cause(tmp_path, name):
    make, words, cause = BAD[name]
    path = tmp_path / name
    make(path)
    files = ImageFiles([save(tmp_path / "good.png"), path], 8)
    assert files[0].shape == (8, 8, 3)
    for read in (lambda: files[1], lambda: files[:], lambda: files.read_into(np.array([1]), np.empty((1, 8, 8, 3)))):
        with pytest.raises(SampleReadError, match=words) as caught:
            read()
        assert caught.value.source == str(path)
        assert f"picture 1, {str(path)!r}, cannot be" in str(caught.value)
        assert isinstance(caught.value.__cause__, cause)


@contextlib.contextmanager
def without_privileges():
    """Run the block as a user who may not read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no such permissions on this system")
def test_a_file_without_permission_is_an_error_that_names_it(tmp_path):
    path = save(tmp_path / "secret.png")
    os.chmod(path, 0)
    files = ImageFiles([path])
    with without_privileges(), pytest.raises(SampleReadError, match="PermissionError: Permission denied") as caught:
        files[0]
    assert caught.value.source == path
    assert isinstance(caught.value.__cause__, PermissionError)


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (10_000, 10_000), (89_478_486, 1), (2**31 - 1, 2**31 - 1)]
)
def test_too_many_pixels_are_refused_from_the_header(tmp_path, width, height):
    path = write_bomb(tmp_path / "bomb.png", width, height)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(SampleReadError, match="max_pixels") as caught:
            ImageFiles([path], 8)[0]
    assert caught.value.source == path
    assert isinstance(caught.value.__cause__, Image.DecompressionBombError)
    assert f"{width} × {height} pixels are more than max_pixels=89478485" in str(caught.value)
    assert heard == []


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peaks of memory are read from /proc")
@pytest.mark.parametrize("suffix", ["png", "webp"])
def test_a_refused_picture_takes_no_memory(tmp_path, suffix):
    if suffix == "webp" and not features.check("webp"):
        pytest.skip("this Pillow has no WebP")
    write = write_bomb if suffix == "png" else write_webp_bomb
    path = write(tmp_path / f"bomb.{suffix}", 16_000, 10_000)
    code = (
        "import sys, numpy\n"
        "from batchup_ng.accessors.image_files import ImageFiles, _readers\n"
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
        timeout=120,
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
    with pytest.raises(SampleReadError, match="20 × 12 pixels are more than max_pixels=239"):
        ImageFiles([path], max_pixels=239)[0]


def test_max_pixels_may_be_above_pillows_own_limit(picture, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert ImageFiles([picture])[0].shape == (12, 20, 3)


@pytest.mark.parametrize("kind", [Image.DecompressionBombWarning, Image.DecompressionBombError])
def test_a_bomb_that_pillow_itself_finds_is_our_error(picture, monkeypatch, kind):
    def load(self):
        raise kind("found later")

    files = ImageFiles([picture])
    monkeypatch.setattr(Image.Image, "load", load)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(SampleReadError, match=f"{kind.__name__}: found later") as caught:
        files[0]
    assert isinstance(caught.value.__cause__, kind)


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
    with pytest.raises(SampleReadError, match="Input/output error"):
        ImageFiles([picture])[0]


@pytest.mark.parametrize("name", ["\x1b[31mred\n", "</script>", "a'b\"c", "\udcff\udc80", "é 画", "x" * 4000, "nul\0"])
def test_any_file_name_is_shown_in_printable_characters(name):
    with pytest.raises(SampleReadError) as caught:
        ImageFiles([name])[0]
    assert caught.value.source == name
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def test_text_out_of_a_file_is_shown_in_printable_characters(picture, monkeypatch):
    def load(self):
        raise ValueError("\x1b[31m" + 1000 * "x")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    with pytest.raises(SampleReadError) as caught:
        ImageFiles([picture])[0]
    assert str(caught.value).isprintable()
    assert "x" * 600 not in str(caught.value)


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


# read_into


def test_read_into_writes_straight_into_the_rows_given(tmp_path):
    paths = paths_of_all_kinds(tmp_path)
    room = np.zeros((2, 6, 16, 3), np.float32)
    ImageFiles(paths, (6, 8)).read_into(np.array([-1, 1]), room[:, :, ::2])
    for place, row in enumerate([-1, 1]):
        np.testing.assert_array_equal(room[place, :, ::2], by_pillow(paths[row], (6, 8)))
    assert not room[:, :, 1::2].any()


def test_read_into_without_a_size_takes_pictures_of_one_size(tmp_path):
    paths = [save(tmp_path / f"{seed}.png", colours(seed=seed)) for seed in range(3)]
    out = np.empty((3, 12, 20, 3), np.uint8)
    ImageFiles(paths).read_into(np.arange(3), out)
    np.testing.assert_array_equal(out, [by_pillow(path) for path in paths])


@pytest.mark.parametrize("shape", [(1, 6, 8), (1, 6, 8, 4), (1, 6, 9, 3), (1, 8, 6, 3), (2, 6, 8, 3)])
def test_read_into_refuses_another_shape(picture, shape):
    with pytest.raises(ArgumentError, match="out must have"):
        ImageFiles([picture], (6, 8)).read_into(np.array([0]), np.empty(shape))


def test_a_row_out_of_range_names_the_number_of_rows(picture):
    files = ImageFiles([picture], 4)
    for read in (lambda: files[1], lambda: files[[-2]], lambda: files.read_into(np.array([1]), np.empty((1, 4, 4, 3)))):
        with pytest.raises(IndexError, match="out of range for 1 rows"):
            read()


# Paths


class OwnPath:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        lambda paths: np.array(paths, object),
        lambda paths: list(map(Path, paths)),
        lambda paths: list(map(OwnPath, paths)),
    ],
)
def test_paths_may_be_any_sequence_of_str_or_pathlike(tmp_path, kind):
    paths = paths_of_all_kinds(tmp_path)
    files = ImageFiles(kind(paths), 4)
    np.testing.assert_array_equal(files[2], by_pillow(paths[2], (4, 4)), strict=True)


@pytest.mark.parametrize("dtype", ["object", "string"])
def test_paths_may_be_a_column_of_a_table_by_position(tmp_path, dtype):
    pandas = pytest.importorskip("pandas", reason="its columns are what is read")
    paths = paths_of_all_kinds(tmp_path)
    table = pandas.DataFrame({"path": pandas.Series(paths, index=[5, 4, 3, 2, 1, 0], dtype=dtype)})
    np.testing.assert_array_equal(ImageFiles(table["path"], 4)[2], by_pillow(paths[2], (4, 4)), strict=True)
    with pytest.raises(ArgumentTypeError, match=r"paths must be a sequence .*one column of a table.*, not DataFrame"):
        ImageFiles(table)


@pytest.mark.parametrize("paths", ["one.jpg", b"one.jpg", Path("one.jpg")])
def test_one_path_is_refused_with_a_hint(paths):
    with pytest.raises(ArgumentTypeError, match=r"not the one path .*; pass \[.*one\.jpg.*\]"):
        ImageFiles(paths)


@pytest.mark.parametrize("paths", [{"a.jpg"}, {"a.jpg": 0}, iter(["a"]), 3, None, np.array([["a"]]), np.array("a")])
def test_what_is_no_sequence_is_refused(paths):
    with pytest.raises(ArgumentTypeError, match="paths must be a sequence"):
        ImageFiles(paths)


@pytest.mark.parametrize("paths", [[], (), np.array([], dtype=str)])
def test_no_paths_are_refused(paths):
    with pytest.raises(ArgumentError, match="paths must hold at least one path"):
        ImageFiles(paths)


@pytest.mark.parametrize("odd", [3, None, float("nan"), b"b.jpg", OwnPath(b"b.jpg"), ["b.jpg"]])
def test_what_is_no_path_is_refused_with_its_position(odd):
    with pytest.raises(ArgumentTypeError, match=r"paths must hold str or os\.PathLike; at 1 it holds"):
        ImageFiles(["a.jpg", odd])


@given(st.lists(st.text(st.characters(exclude_categories=())), min_size=1))
def test_any_str_comes_back_as_it_was(paths):
    files = pickle.loads(pickle.dumps(ImageFiles(paths)))
    assert [files._paths[row] for row in range(len(files))] == paths


def test_many_paths_travel_as_a_few_bytes_each():
    paths = [f"/data/train/{row % 100:03}/{row:06}.jpg" for row in range(100_000)]
    packed = pickle.dumps(ImageFiles(paths, 224), protocol=5)
    assert len(packed) < sum(map(len, paths)) + 8 * len(paths) + 2000


def test_few_objects_hold_many_paths():
    files = ImageFiles([f"{row}.jpg" for row in range(10_000)])
    assert sys.getsizeof(files._paths._joined) + files._paths._ends.nbytes < 20 * 10_000
    assert len(vars(files._paths)) == 2


# Options


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mode": "rgb"}, ArgumentError, "mode must be one of 'RGB', 'L', 'RGBA', not 'rgb'"),
        ({"mode": None}, ArgumentError, "mode must be one of"),
        ({"resample": "bilinaer"}, ArgumentError, "resample must be one of .*; did you mean 'bilinear'"),
        ({"size": 0}, ArgumentError, "size must be at least 1, not 0"),
        ({"size": 2.5}, ArgumentTypeError, "size must be a whole number, not 2.5"),
        ({"size": (4, -1)}, ArgumentError, r"size\[1\], the width, must be at least 1, not -1"),
        ({"size": (0, 4)}, ArgumentError, r"size\[0\], the height, must be at least 1, not 0"),
        ({"size": (4, 4, 3)}, ArgumentError, r"size must be an int or \(height, width\), not \(4, 4, 3\)"),
        ({"size": "44"}, ArgumentTypeError, "size must be a whole number, not '44'"),
        ({"dtype": str}, ArgumentError, "dtype must be numeric and hold all of 0–255, not <U0"),
        ({"dtype": object}, ArgumentError, "dtype must be numeric .*, not object"),
        ({"dtype": bool}, ArgumentError, "dtype must be numeric .*, not bool"),
        ({"dtype": np.int8}, ArgumentError, "dtype must be numeric and hold all of 0–255, not int8"),
        ({"dtype": "float33"}, ArgumentTypeError, "dtype must be a NumPy dtype, not 'float33'"),
        ({"dtype": None}, ArgumentTypeError, "dtype must be a NumPy dtype, not None"),
        ({"max_pixels": 0}, ArgumentError, "max_pixels must be at least 1"),
        ({"max_pixels": None}, ArgumentTypeError, "max_pixels must be a whole number"),
        ({"interpolation": "box"}, TypeError, "interpolation"),
    ],
)
def test_a_bad_option_is_refused_when_the_accessor_is_made(options, error, words):
    with pytest.raises(error, match=words):
        ImageFiles(["never_opened.jpg"], **options)


@pytest.mark.parametrize("size", [6, np.int64(6), (6, 6), [6, 6]])
def test_an_int_is_the_side_of_a_square(picture, size):
    assert ImageFiles([picture], size).shape == (1, 6, 6, 3)


def test_size_is_height_then_width(picture):
    assert ImageFiles([picture], (2, 5))[0].shape == (2, 5, 3)


def test_a_picture_in_memory_is_no_path():
    with pytest.raises(ArgumentTypeError, match="at 0 it holds"):
        ImageFiles([io.BytesIO(b"")])


def test_relative_paths_stay_what_they_were_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (2, 2), (7, 0, 0)).save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    files = ImageFiles(["a.png", "absent.png"])
    monkeypatch.chdir("/")
    assert files[0][0, 0, 0] == 7
    with pytest.raises(SampleReadError) as caught:
        files[1]
    assert caught.value.source == "absent.png"
