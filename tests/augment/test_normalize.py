"""``normalize`` against its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.augment.helpers import images, rng
from tests.messages import raises

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.mark.parametrize("size", [(20, 30), (210, 190), (1, 1)])  # less and more than a band of values
@pytest.mark.parametrize("given", [np.uint8, np.float32])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_values_follow_the_formula(size: tuple[int, int], given: Any, dtype: str, layout: str) -> None:
    x = images(2, size, dtype=given)
    wanted = (x.astype(float) / (255 if given == np.uint8 else 1) - MEAN) / STD
    (made,) = augment.normalize(MEAN, STD, layout=layout, dtype=dtype)(x)
    assert made.dtype == dtype
    assert made.flags.c_contiguous
    got = made if layout == "NHWC" else made.transpose(0, 2, 3, 1)
    if given == np.uint8:
        np.testing.assert_array_equal(got, wanted.astype(dtype))  # rounded once
    else:
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if dtype == "float16" else 0, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_numbers_stand_for_all_channels(channels: int) -> None:
    x = images(channels=channels)
    (made,) = augment.normalize(0.5, 0.25, layout="NCHW")(x)
    np.testing.assert_array_equal(made, ((x.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25).astype(np.float32))


def test_it_draws_nothing_and_takes_images_that_lie_anyhow() -> None:
    x = images(8)[::2, ::-1, ::3]
    wanted = augment.normalize(MEAN, STD)(np.ascontiguousarray(x))[0]
    np.testing.assert_array_equal(augment.normalize(MEAN, STD)(x, rng=rng(4))[0], wanted)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"std": 0.0}, ArgumentError),
        ({"mean": float("nan")}, ArgumentError),
        ({"mean": "imagenet"}, ArgumentTypeError),
        ({"layout": "NCWH"}, ArgumentError),
        ({"dtype": np.float64}, ArgumentError),
    ],
)
def test_options_are_checked_when_made(options: Any, error: Any) -> None:
    with raises(error):
        augment.normalize(**{"mean": 0.5, "std": 0.5, **options})


def test_the_number_of_channels_is_checked() -> None:
    with raises(ArgumentError):
        augment.normalize(MEAN, STD)(images(channels=4))


def test_means_of_bytes_are_refused_for_bytes() -> None:
    images = np.zeros((2, 4, 4, 3), np.uint8)
    with raises(ArgumentError):
        augment.normalize((123.7, 116.3, 103.5), (58.4, 57.1, 57.4))(images)
    assert augment.normalize(123.7, 58.4)(images.astype(np.float32))[0][0, 0, 0, 0] == pytest.approx(-123.7 / 58.4)
