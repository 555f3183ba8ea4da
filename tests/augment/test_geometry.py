"""Flips, crops, affine maps and cutout against plain formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.augment.helpers import images, ramp, rng, without_opencv
from tests.messages import raises


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("vertical", "axis"), [(False, 2), (True, 1)])
def test_flip_mirrors_with_and_without_opencv(dtype: Any, channels: int, vertical: bool, axis: int) -> None:
    x = images(channels=channels, dtype=dtype)
    flip = augment.flip(p=1.0, vertical=vertical)
    np.testing.assert_array_equal(flip(x, rng=rng(6))[0], np.flip(x, axis))
    with without_opencv():
        np.testing.assert_array_equal(flip(x, rng=rng(6))[0], np.flip(x, axis))


def test_each_image_is_flipped_with_its_probability() -> None:
    x = np.tile(np.arange(4, dtype=np.uint8), (2000, 1, 1))
    (made,) = augment.flip(p=0.3)(x, rng=rng(2000))
    assert 0.25 < (made[:, 0, 0, 0] == 3).mean() < 0.35
    np.testing.assert_array_equal(augment.flip(p=0.0)(x, rng=rng(2000))[0], x[..., None])


sizes = st.integers(1, 9)


@given(sizes, sizes, sizes, sizes, st.integers(0, 5), st.integers(0, 2**32))
def test_a_crop_is_a_window_of_the_padded_image(
    height: int, width: int, tall: int, wide: int, padding: int, seed: int
) -> None:
    x = images(3, (height, width))
    crop = augment.random_crop((tall, wide), padding=padding, fill=(1, 2, 3))
    if tall > height + 2 * padding or wide > width + 2 * padding:
        with raises(ArgumentError):
            crop(x, rng=rng(3))
        return
    padded = np.full((3, height + 2 * padding, width + 2 * padding, 3), (1, 2, 3), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = x
    drawn = crop.draw(rng(3, seed))
    for image, whole, (y, x0) in zip(crop(x, rng=rng(3, seed))[0], padded, drawn, strict=True):
        top, left = int(y * (height + 2 * padding - tall + 1)), int(x0 * (width + 2 * padding - wide + 1))
        np.testing.assert_array_equal(image, whole[top : top + tall, left : left + wide])


def test_every_place_of_a_crop_is_drawn() -> None:
    x = np.tile(np.arange(12, dtype=np.uint8).reshape(3, 4), (600, 1, 1))
    made = augment.random_crop((2, 2))(x, rng=rng(600))[0]
    assert set(made[:, 0, 0, 0].tolist()) == {0, 1, 2, 4, 5, 6}


@given(st.integers(1, 60), st.integers(1, 60), sizes, sizes, st.integers(0, 2**32))
def test_a_resized_crop_is_that_of_the_accessors_resized(
    height: int, width: int, tall: int, wide: int, seed: int
) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    x = images(3, (height, width))
    operation = augment.resized_crop((tall, wide), scale=(0.2, 0.9), ratio=(0.5, 2))
    crop = bu.RandomResizedCrop(scale=(0.2, 0.9), ratio=(0.5, 2))
    (made,) = operation(x, rng=rng(3, seed))
    for image, got, row in zip(x, made, rng(3, seed).random(crop.draws), strict=True):
        top, left, (h, w) = crop.box((height, width), (tall, wide), row)
        how = cv2.INTER_AREA if h >= 2 * tall and w >= 2 * wide else cv2.INTER_LINEAR
        wanted = cv2.resize(image[top : top + h, left : left + w], (wide, tall), interpolation=how)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("size", "tolerance"), [((40, 60), 0.04), ((20, 30), 1e-4), ((10, 15), 1e-4)])
def test_a_resized_crop_interpolates_or_averages(size: tuple[int, int], tolerance: float) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    crop = augment.resized_crop(size, scale=(1.0, 1.0), ratio=(1.5, 1.5))
    (made,) = crop(ramp(20, 30)[None], rng=rng(1))
    step = 20 / size[0]
    centres = [(np.arange(n) + 0.5) * step - 0.5 for n in size]
    inside = (slice(2, -2), slice(2, -2))
    np.testing.assert_allclose(made[0, ..., 0][inside], np.tile(centres[1], (size[0], 1))[inside], atol=tolerance)
    np.testing.assert_allclose(
        made[0, ..., 1][inside].T, np.tile(centres[0], (size[1], 1))[inside[::-1]], atol=tolerance
    )


MAPS: list[tuple[dict[str, Any], Any]] = [
    ({"rotate": (90, 90)}, lambda x, y: (y, -x)),  # what is at (x, y) about the middle comes from there
    ({"rotate": (30, 30)}, lambda x, y: (math.cos(math.pi / 6) * x + y / 2, math.cos(math.pi / 6) * y - x / 2)),
    ({"translate": (0.1, 0.1)}, lambda x, y: (x - 4.1, y - 4.1)),
    ({"scale": (2, 2)}, lambda x, y: (x / 2, y / 2)),
]


@pytest.mark.parametrize(("options", "origin"), MAPS, ids=lambda value: str(value)[:20])
def test_affine_maps_move_pixels_as_said(options: dict[str, Any], origin: Any) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    (made,) = augment.affine(**options, fill=-7)(ramp(41, 41)[None], rng=rng(1))
    y, x = np.mgrid[:41, :41] - 20.0
    from_x, from_y = (each + 20 for each in origin(x, y))
    near = (from_x >= 0) & (from_x <= 40) & (from_y >= 0) & (from_y <= 40)
    assert near.mean() > 0.6
    np.testing.assert_allclose(made[0, ..., 0][near], from_x[near], atol=0.04)  # OpenCV may round places to 1/32
    np.testing.assert_allclose(made[0, ..., 1][near], from_y[near], atol=0.04)
    outside = (from_x < -1.05) | (from_x > 41.05) | (from_y < -1.05) | (from_y > 41.05)
    assert (made[0][outside] == -7).all()


def test_shears_lean_each_axis_by_its_own_angle() -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    operation = augment.affine(shear=30)
    image = ramp(41, 41)
    operation.change(image, 0.5, 0.5, 0.5, 0.0, 1.0, 0.5)  # the vertical axis by 30 degrees, the horizontal by none
    y, x = np.mgrid[:41, :41] - 20.0
    np.testing.assert_allclose(image[10:30, 10:30, 0], (x - math.tan(math.pi / 6) * y + 20)[10:30, 10:30], atol=0.04)
    np.testing.assert_allclose(image[10:30, 10:30, 1], (y + 20)[10:30, 10:30], atol=0.04)


def test_affine_without_options_changes_nothing_and_fills_each_channel() -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    x = images()
    np.testing.assert_array_equal(augment.affine()(x, rng=rng(6))[0], x)
    (made,) = augment.affine(translate=(1.0, 1.0), fill=(9, 8, 7))(x, rng=rng(6))
    assert (made == (9, 8, 7)).all()


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**32))
def test_cutout_paints_one_box(height: int, width: int, seed: int) -> None:
    x = np.full((3, height, width, 3), 5, np.uint8)
    (made,) = augment.cutout(p=1.0, scale=(0.1, 0.4), ratio=(0.5, 2.0), fill=(1, 2, 3))(x, rng=rng(3, seed))
    for image in made:
        painted = (image == (1, 2, 3)).all(axis=2)
        assert (image[~painted] == 5).all()
        rows, columns = np.flatnonzero(painted.any(axis=1)), np.flatnonzero(painted.any(axis=0))
        assert painted.sum() == len(rows) * len(columns)
        assert np.ptp(rows, axis=0) + 1 == len(rows) if len(rows) else True
        if min(height, width) > 30:
            assert 0.07 < painted.mean() < 0.43
            assert 0.45 < len(columns) / len(rows) < 2.2 or len(rows) == height or len(columns) == width


FILLED: dict[str, Any] = {
    "random_crop": lambda fill: augment.random_crop(40, padding=40, fill=fill),
    "cutout": lambda fill: augment.cutout(scale=(0.5, 0.5), fill=fill, p=1.0),
    "affine": lambda fill: augment.affine(translate=(0.5, 0.5), fill=fill),
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize(("fill", "held"), [(300, (255, 255, 255)), ((-1, 0.6, 7), (0, 1, 7))])
def test_a_colour_is_rounded_and_clipped_to_uint8(name: str, fill: Any, held: tuple[int, ...]) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    given = np.full((4, 20, 30, 3), 100, np.uint8)
    made = FILLED[name](fill)(given, rng=rng(4))[0].reshape(-1, 3)
    assert (made == held).all(axis=1).any()
    assert ((made == held) | (made == 100)).all()


@pytest.mark.parametrize("name", FILLED)
def test_a_colour_of_another_number_of_channels_is_refused(name: str) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    with raises(ArgumentError):
        FILLED[name]((1, 2))(images(), rng=rng(6))


@pytest.mark.parametrize(
    "make",
    [
        lambda: augment.flip(p=1.5),
        lambda: augment.random_crop((1, 2, 3)),
        lambda: augment.random_crop(0),
        lambda: augment.random_crop(4, padding=-1),
        lambda: augment.resized_crop(4, scale=(0.5, 0.1)),
        lambda: augment.resized_crop(4, ratio=(0, 1)),
        lambda: augment.affine(rotate=400),
        lambda: augment.affine(shear=(-90, 0)),
        lambda: augment.affine(shear=(45, 45)),
        lambda: augment.affine(shear=(-45, -45)),
        lambda: augment.cutout(scale=(0.1, 2)),
        lambda: augment.flip(p="often"),  # type: ignore[arg-type]
        lambda: augment.flip(vertical=1),  # type: ignore[arg-type]
        lambda: augment.cutout(scale=0.5),  # type: ignore[arg-type]
    ],
)
def test_options_are_checked_when_made(make: Any) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    with raises((ArgumentError, ArgumentTypeError)):
        make()
