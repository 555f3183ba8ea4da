"""ImageFiles keeps the accessor contract; its pictures are those of Pillow."""

import numpy as np
import pytest
from PIL import Image

from batchup_ng.accessors.image_files import ImageFiles
from batchup_ng.errors import ArgumentError
from batchup_ng.testing.accessors import AccessorContract
from tests.messages import raises

from .image_helpers import by_pillow, colours, paths_of_all_kinds, save


class TestResizedColours(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths, (6, 8)), [by_pillow(path, (6, 8)) for path in paths]


class TestResizedGreyAsFloats(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        expected = [by_pillow(path, (6, 6), "L").astype(np.float32) for path in paths]
        return ImageFiles(paths, 6, "L", np.float32), expected


@pytest.mark.thorough
class TestResizedWithTransparency(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths, (6, 8), "RGBA"), [by_pillow(path, (6, 8), "RGBA") for path in paths]


class TestEachOfItsOwnSize(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return ImageFiles(paths), [by_pillow(path) for path in paths]


# What is returned


@pytest.mark.parametrize("size", [None, 6])
def test_all_arrays_are_the_callers_to_write_to(picture, size):
    files = ImageFiles([picture], size)
    assert files[0].flags.writeable
    assert all(row.flags.writeable for row in files[:])


@pytest.mark.parametrize(("mode", "shape"), [("RGB", (1, 4, 6, 3)), ("L", (1, 4, 6)), ("RGBA", (1, 4, 6, 4))])
def test_the_mode_gives_the_last_axis(picture, mode, shape):
    files = ImageFiles([picture], (4, 6), mode, np.uint16)
    assert files.shape == files[:].shape == shape
    assert files.dtype == files[:].dtype == np.uint16


def test_without_a_size_there_is_no_shape(picture):
    files = ImageFiles([picture])
    assert not hasattr(files, "shape")
    assert files.dtype == np.uint8
    with raises(AttributeError):
        files.shape  # noqa: B018 - the attribute itself is what is tested


@pytest.mark.parametrize("resize", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_each_way_to_resize_is_pillows(picture, resize):
    expected = by_pillow(picture, (5, 7), resample=Image.Resampling[resize.upper()])
    np.testing.assert_array_equal(ImageFiles([picture], (5, 7), resize=resize)[0], expected, strict=True)


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
    with raises(ArgumentError):
        ImageFiles([picture], (6, 8)).read_into(np.array([0]), np.empty(shape))
