"""Pictures come out the same whichever library decodes them, whole, cut or reduced."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.accessors import image_decoding
from tests.messages import raises

from .image_helpers import by_pillow, colours, paths_of_all_kinds, save

pytest.importorskip("simplejpeg", reason="needs the extra 'images'")
cv2 = pytest.importorskip("cv2", reason="needs the extra 'images'")

JPEGS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "best": {"quality": 100},
    "worst": {"quality": 1},
    "restart markers": {"restart_marker_rows": 1},
    "RGB inside": {"keep_rgb": True},
}


def jpeg(image, **options):
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def both(encoded, *arguments, **options):
    """Return what both decoders make of pictures."""
    return [bu.ImageBytes(encoded, *arguments, decoder=each, **options)[:] for each in ("auto", "pillow")]


@pytest.fixture
def no_pillow(monkeypatch):
    """Make Pillow fail, to see that it was not asked."""

    def fail(*arguments):
        raise AssertionError("Pillow was asked")

    monkeypatch.setattr(image_decoding, "_open", fail)


@pytest.mark.parametrize("name", JPEGS)
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
@pytest.mark.parametrize("shape", [(64, 48), (37, 51), (1, 1), (8, 9)])
def test_the_pixels_are_pillows(name, mode, shape, monkeypatch):
    encoded = jpeg(colours(*shape), **JPEGS[name])
    expected = np.asarray(Image.open(io.BytesIO(encoded)).convert(mode))
    (mine,), (theirs,) = both([encoded], mode=mode)
    np.testing.assert_array_equal(mine, expected, strict=True)
    np.testing.assert_array_equal(theirs, expected, strict=True)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_a_grey_jpeg(mode, no_pillow):
    encoded = jpeg(colours(40, 30, channels=1))
    expected = np.asarray(Image.open(io.BytesIO(encoded)).convert(mode))
    np.testing.assert_array_equal(bu.ImageBytes([encoded], mode=mode)[0], expected, strict=True)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("kind", ["CMYK", "YCCK"])
def test_jpegs_in_four_colours_are_left_to_pillow(mode, kind, tmp_path):
    path = tmp_path / "four.jpg"
    image = colours(40, 30).convert("CMYK")
    image.save(path, **({} if kind == "CMYK" else {"subsampling": 2}))
    np.testing.assert_array_equal(bu.ImageFiles([path], mode=mode)[0], by_pillow(path, mode=mode), strict=True)


@pytest.mark.parametrize("size", [None, (16, 24), (30, 20)])
@pytest.mark.parametrize("orientation", range(10))
def test_pictures_are_turned_upright_by_both(orientation, size):
    exif = Image.Exif()
    exif[0x0112] = orientation
    mine, theirs = both([jpeg(colours(60, 40), exif=exif)], size)
    np.testing.assert_array_equal(mine[0], theirs[0], strict=True)


@pytest.mark.parametrize("before", [b"", b"\xff", b"\xff\xff", b"\xff\xd0"])
def test_an_orientation_is_found_behind_bytes_that_fill(before):
    """Any marker may have fill bytes before it (ITU-T T.81, B.1.1.2)."""
    exif = Image.Exif()
    exif[0x0112] = 6
    segment = exif.tobytes()
    segment = b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment
    encoded = jpeg(colours(60, 40))
    mine, theirs = both([encoded[:2] + before + segment + encoded[2:]], (16, 24))
    np.testing.assert_array_equal(mine, theirs, strict=True)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("crop", [None, "center", "random"])
@pytest.mark.parametrize("size", [(90, 70), (50, 45), (25, 20), (12, 11), (300, 200)])
def test_what_is_reduced_in_the_decoder_is_the_same_by_both(size, crop, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = [jpeg(colours(203, 151, seed=seed), exif=exif) for seed in range(3)]
    mine, theirs = both(encoded, size, resize="fast", crop=crop)
    np.testing.assert_array_equal(mine, theirs, strict=True)


def test_a_crop_of_two_pixels_that_is_reduced_to_one_has_that_one():
    pictures = bu.ImageBytes([jpeg(colours(7, 7))] * 300, 1, resize="fast", crop="random")
    assert pictures[:].shape == (300, 1, 1, 3)


@pytest.mark.parametrize(("size", "factor"), [(200, 1), (101, 1), (100, 2), (51, 2), (50, 4), (25, 8), (10, 8)])
def test_fast_is_bilinear_on_the_smallest_that_is_large_enough(size, factor):
    encoded = jpeg(colours(200, 200))
    reduced = Image.open(io.BytesIO(encoded))
    if factor > 1:
        reduced.draft(None, (200 // factor, 200 // factor))
    expected = cv2.resize(np.asarray(reduced), (size, size), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(bu.ImageBytes([encoded], size, resize="fast")[0], expected, strict=True)


def test_a_picture_of_another_format_is_resized_by_the_fast_way_too(tmp_path):
    path = save(tmp_path / "picture.png", colours(90, 60))
    expected = cv2.resize(by_pillow(path), (20, 30), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(bu.ImageFiles([path], (30, 20), resize="fast")[0], expected, strict=True)


@pytest.mark.parametrize("dtype", ["u1", "f4", "u2"])
@pytest.mark.parametrize("options", [{}, {"resize": "fast"}, {"crop": "center"}, {"mode": "L"}])
def test_read_into_equals_rows_one_by_one(tmp_path, dtype, options):
    files = bu.ImageFiles(paths_of_all_kinds(tmp_path), 16, dtype=dtype, **options)
    out = np.empty(files.shape, dtype)
    files.read_into(np.arange(len(files)), out)
    np.testing.assert_array_equal(out, np.stack([files[row] for row in range(len(files))]), strict=True)
    everything = np.zeros((*out.shape, 2), dtype)
    files.read_into(np.arange(len(files)), everything[..., 0])  # not contiguous
    np.testing.assert_array_equal(everything[..., 0], out)


def test_center_is_the_largest_part_of_that_ratio(tmp_path):
    path = save(tmp_path / "picture.png", colours(40, 100))
    whole = Image.open(path)
    for size, fraction, box in [((20, 20), 1.0, (30, 0, 70, 40)), ((10, 20), 0.5, (30, 10, 70, 30))]:
        expected = np.asarray(whole.crop(box).resize(size[::-1], Image.Resampling.BILINEAR))
        found = bu.ImageFiles([path], size, crop=bu.CenterCrop(fraction))[0]
        np.testing.assert_array_equal(found, expected, strict=True)


@given(
    height=st.integers(1, 3000), width=st.integers(1, 3000), seed=st.integers(0, 99),
    scale=st.tuples(st.floats(1e-4, 1), st.floats(1e-4, 1)).map(sorted).map(tuple),
    ratio=st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)).map(sorted).map(tuple),
)  # fmt: skip
@settings(deadline=None)
def test_a_random_crop_lies_in_the_picture(height, width, seed, scale, ratio):
    crop = bu.RandomResizedCrop(scale, ratio)
    for drawn in (np.random.default_rng(seed).random(crop.draws), np.zeros(22), np.full(22, 1 - 2**-53)):
        top, left, (tall, wide) = crop.box((height, width), (8, 8), drawn)
        assert 0 <= top <= top + tall <= height
        assert 0 <= left <= left + wide <= width
        assert min(tall, wide) >= 1
    middle = bu.CenterCrop().box((height, width), (30, 40), None)
    assert middle.size[0] == height or middle.size[1] == width


def test_a_random_crop_draws_area_ratio_and_place_evenly():
    crop = bu.RandomResizedCrop((0.1, 0.5), (0.5, 2.0))
    drawn = np.random.default_rng(1).random((20_000, crop.draws))
    boxes = [crop.box((1000, 1000), (8, 8), each) for each in drawn]
    tall, wide = np.array([box.size for box in boxes]).T
    area, ratio = tall * wide / 1e6, np.log2(wide / tall)
    first = drawn[:, :2] * [0.4, 2.0] + [0.1, -1.0]  # all fit at once in a square, as the area is at most a half
    np.testing.assert_allclose(area, first[:, 0], atol=2e-3)
    np.testing.assert_allclose(ratio, first[:, 1], atol=2e-2)
    top, left = np.array([(box.top, box.left) for box in boxes]).T
    assert abs(np.mean(top / (1000 - tall)) - 0.5) < 0.01  # 2.04e-3 is the standard error
    assert abs(np.mean(left / (1000 - wide)) - 0.5) < 0.01


def test_random_crops_are_drawn_for_the_sample_in_each_pool(tmp_path, pools):
    paths = [save(tmp_path / f"{seed}.jpg", colours(90, 120, seed=seed)) for seed in range(12)]
    column = bu.ImageArrayUInt8ToFloat32(bu.ImageFiles(paths, 16, crop="random", resize="fast"))
    source = bu.ArrayDataSource([column, column, bu.ImageFiles(paths, 16), np.arange(12)])

    def epoch(source, batch_size, number):
        batches = list(source.batch_iterator(batch_size, shuffle=3, epoch=number))
        return [np.concatenate(parts) for parts in zip(*batches, strict=True)]

    first, second, whole, rows = epoch(source, 4, 0)
    for other in (epoch(source, 5, 0), *(epoch(pool.parallel_data_source(source), 3, 0) for pool in pools)):
        for part, expected in zip(other, (first, second, whole, rows), strict=True):
            np.testing.assert_array_equal(part, expected, strict=True)
    assert not np.array_equal(first, second)  # each column draws for itself
    later = epoch(source, 4, 1)
    assert not np.array_equal(later[0][np.argsort(later[3])], first[np.argsort(rows)])
    np.testing.assert_array_equal(column[3], column[[0, 3]][1])  # by the row, where there is no epoch


@pytest.mark.parametrize("accessor", [bu.ImageFiles, bu.ImageBytes])
def test_options_of_others_are_told_what_they_are_here(accessor):
    for option in ("resample", "transform", "siez"):
        with raises(bu.errors.ArgumentTypeError):
            accessor([b""], **{option: 5})


@pytest.mark.parametrize(
    "make",
    [
        lambda: bu.CenterCrop(0.0),
        lambda: bu.CenterCrop(1.5),
        lambda: bu.RandomResizedCrop((0.5, 0.1)),
        lambda: bu.RandomResizedCrop((0.5, 1.1)),
        lambda: bu.RandomResizedCrop(ratio=(0.0, 1.0)),
        lambda: bu.RandomResizedCrop(ratio=(1.0, np.inf)),
        lambda: bu.CenterCrop("most"),
        lambda: bu.RandomResizedCrop(0.5),
    ],
)
def test_wrong_crops(make):
    with raises((bu.errors.ArgumentError, bu.errors.ArgumentTypeError)):
        make()
