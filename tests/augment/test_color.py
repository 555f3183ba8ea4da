"""Colours, grey and blur against plain formulas; all need OpenCV."""

from __future__ import annotations

import colorsys
import math
from typing import Any

import numpy as np
import pytest

from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from tests.augment.helpers import images, ramp, rng
from tests.messages import raises

pytest.importorskip("cv2", reason="OpenCV, which changes colours, is not installed")
LUMA = np.array([0.299, 0.587, 0.114])


def jittered(x: np.ndarray, **fixed: float) -> np.ndarray:
    """Return images with these factors, exactly."""
    options: dict[str, Any] = {name: (value, value) for name, value in fixed.items()}
    made: np.ndarray = augment.color_jitter(**options)(x, rng=rng(len(x)))[0]
    return made


FORMULAS: list[tuple[dict[str, float], Any]] = [
    ({"brightness": 1.3}, lambda x: 1.3 * x),
    ({"contrast": 0.4}, lambda x: 0.4 * x + 0.6 * (x @ LUMA).mean(axis=(1, 2))[:, None, None, None]),
    ({"saturation": 1.7}, lambda x: 1.7 * x - 0.7 * (x @ LUMA)[..., None]),
    ({"saturation": 0.0, "hue": 0.2}, lambda x: np.repeat((x @ LUMA)[..., None], 3, axis=3)),
    ({"hue": 0.5}, lambda x: 2 * (x @ LUMA)[..., None] - x),
]


@pytest.mark.parametrize(("factors", "formula"), FORMULAS, ids=range(len(FORMULAS)))
def test_colors_follow_the_formula(factors: dict[str, float], formula: Any) -> None:
    floats = images(dtype=np.float32)
    np.testing.assert_allclose(jittered(floats, **factors), formula(floats.astype(float)), atol=1e-5)
    x = images()
    wanted = np.clip(np.rint(formula(x.astype(float))), 0, 255)
    # OpenCV rounds the matrix to 10 bits where it computes with bytes.
    assert np.abs(jittered(x, **factors) - wanted).max() <= 1


def test_all_four_commute() -> None:
    x = images(dtype=np.float32)
    factors = {"brightness": 0.8, "contrast": 1.2, "saturation": 0.5, "hue": 0.1}
    one_by_one = x
    for name in ("hue", "contrast", "brightness", "saturation"):
        one_by_one = jittered(one_by_one, **{name: factors[name]})
    np.testing.assert_allclose(jittered(x, **factors), one_by_one, atol=1e-5)


def test_a_turn_of_the_hue_goes_from_red_over_green_to_blue_and_keeps_luma() -> None:
    red = np.zeros((1, 2, 2, 3), np.float32)
    red[..., 0] = 0.5
    hues = []
    for turn in np.arange(-5, 6) / 12:
        (r, g, b) = color = jittered(red, hue=turn)[0, 0, 0].astype(float)
        assert math.isclose(color @ LUMA, 0.5 * 0.299, abs_tol=1e-5)
        hues.append(colorsys.rgb_to_hsv(r - color.min(), g - color.min(), b - color.min())[0])
    hues = np.unwrap(np.array(hues), period=1.0)
    assert (np.diff(hues) > 0.02).all()
    assert abs(hues[9] - hues[5] - 1 / 3) < 0.1


def test_numbers_are_ranges_around_no_change() -> None:
    operation = augment.color_jitter(brightness=0.4, contrast=2.0, hue=0.1)
    assert operation.ranges() == ((0.6, 1.4), (0.0, 3.0), (1.0, 1.0), (-0.1, 0.1))
    x = images(200, (2, 2), dtype=np.float32)
    factors = augment.color_jitter(brightness=0.4)(x, rng=rng(200))[0].mean(axis=(1, 2, 3)) / x.mean(axis=(1, 2, 3))
    assert 0.59 < factors.min() < 0.65 < 1.35 < factors.max() < 1.41


def test_grey_is_luma() -> None:
    x = images()
    (made,) = augment.grayscale(p=1.0)(x, rng=rng(6))
    assert (made == made[..., :1]).all()
    assert np.abs(made[..., 0] - x @ LUMA).max() <= 0.51
    floats = images(dtype=np.float32)
    np.testing.assert_allclose(augment.grayscale(p=1.0)(floats, rng=rng(6))[0][..., 2], floats @ LUMA, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sigma", [0.5, 1.7])
def test_blur_is_a_gaussian_with_mirrored_edges(sigma: float, channels: int) -> None:
    x = images(2, channels=channels, dtype=np.float32)
    (made,) = augment.blur((sigma, sigma), p=1.0)(x, rng=rng(2))
    reach = math.ceil(3 * sigma)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    padded = np.pad(x.astype(float), ((0, 0), (reach, reach), (reach, reach), (0, 0)), mode="reflect")
    rows = sum(w * padded[:, i : i + 20] for i, w in enumerate(weights))
    wanted = sum(w * rows[:, :, i : i + 30] for i, w in enumerate(weights))
    np.testing.assert_allclose(made, wanted, atol=1e-5)
    bytes_ = (255 * x).astype(np.uint8)
    assert np.abs(augment.blur((sigma, sigma), p=1.0)(bytes_, rng=rng(2))[0] - 255.0 * wanted).max() < 2


def test_a_blur_leaves_a_ramp_as_it_is() -> None:
    (made,) = augment.blur((1.0, 2.0), p=1.0)(ramp(30, 40)[None], rng=rng(1))
    np.testing.assert_allclose(made[0, 6:-6, 6:-6], ramp(30, 40)[6:-6, 6:-6], atol=1e-4)


@pytest.mark.parametrize("operation", [augment.color_jitter(brightness=0.5), augment.grayscale(p=1.0)], ids=str)
def test_colors_need_three_channels(operation: Any) -> None:
    with raises(ArgumentError):
        operation(images(channels=1), rng=rng(6))


@pytest.mark.parametrize(
    "options", [{"brightness": -1}, {"contrast": (1, float("inf"))}, {"hue": 0.7}, {"saturation": (2, 1)}]
)
def test_options_are_checked_when_made(options: Any) -> None:
    with raises(ArgumentError):
        augment.color_jitter(**options)
    with raises(ArgumentError):
        augment.blur((0.0, 1.0))
