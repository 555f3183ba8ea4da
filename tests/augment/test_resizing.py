"""`resize` and `letterbox`: images of any size become one size, with all that belongs to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.augment.annotated import OPTIONS as ALL
from tests.augment.annotated import batch
from tests.augment.helpers import images, ramp
from tests.messages import raises

cv2 = pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
sides = st.integers(1, 60)
OPTIONS: dict[str, Any] = {"boxes": "boxes", "masks": "mask", "mask_fill": 255, "keypoints": "keypoints"}


def given_batch(sizes: list[tuple[int, int]]) -> dict[str, Any]:
    """Return images of several sizes with a box around each, a mask that numbers its rows and columns, and corners."""
    return {
        "image": [images(1, size)[0] for size in sizes],
        "boxes": [np.array([[0, 0, width, height]]) for height, width in sizes],
        "mask": [np.add.outer(np.arange(height), np.arange(width)).astype(np.uint8) for height, width in sizes],
        "keypoints": [np.array([[0, 0], [width - 1, height - 1]]) for height, width in sizes],
    }


def oracle(tall: int, wide: int, height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of the part of a letterbox that the image fills, in plain arithmetic."""
    if tall * width <= wide * height:  # the height decides
        part = tall, max(1, round(width * (tall / height)))
    else:
        part = max(1, round(height * (wide / width))), wide
    return (tall - part[0]) // 2, (wide - part[1]) // 2, *part


@given(sides, sides, st.lists(st.tuples(sides, sides), min_size=1, max_size=3))
def test_a_letterbox_keeps_the_ratio_and_takes_all_along(tall: int, wide: int, sizes: list[tuple[int, int]]) -> None:
    x = given_batch(sizes)
    chain = augment.compose(augment.letterbox((tall, wide), fill=(7, 8, 9)), **OPTIONS, min_area=0)
    made = chain(**x)
    assert made["image"].shape == (len(sizes), tall, wide, 3)
    for i, (height, width) in enumerate(sizes):
        top, left, h, w = oracle(tall, wide, height, width)
        here = np.zeros((tall, wide), bool)
        here[top : top + h, left : left + w] = True
        assert (made["image"][i][~here] == (7, 8, 9)).all()
        how = cv2.INTER_AREA if height >= 2 * h and width >= 2 * w else cv2.INTER_LINEAR
        wanted = x["image"][i] if (h, w) == (height, width) else cv2.resize(x["image"][i], (w, h), interpolation=how)
        np.testing.assert_array_equal(made["image"][i][here], wanted.reshape(-1, 3))
        np.testing.assert_allclose(made["boxes"][i], [[left, top, left + w, top + h]], atol=1e-4)
        rows, columns = (np.floor((np.arange(n) + 0.5) * old / n + 1e-6) for n, old in ((h, height), (w, width)))
        np.testing.assert_array_equal(made["mask"][i][here], np.add.outer(rows, columns).reshape(-1).astype(np.uint8))
        assert (made["mask"][i][~here] == 255).all()
        first, last = made["keypoints"][i]
        np.testing.assert_allclose(first, [left + 0.5 * w / width - 0.5, top + 0.5 * h / height - 0.5], atol=1e-4)
        np.testing.assert_allclose(last + first, [2 * left + w - 1, 2 * top + h - 1], atol=1e-4)


def test_resize_fills_the_whole_and_moves_points_with_the_pixels() -> None:
    x = [ramp(20, 30), ramp(40, 90)]
    points = [np.array([[7, 5.0]]), np.array([[31, 12.0]])]
    made = augment.compose(augment.resize((40, 60)), keypoints="keypoints")(image=x, keypoints=points)
    for image, (point,), ((column, row),) in zip(made["image"], made["keypoints"], points, strict=True):
        at = np.clip(np.rint(point).astype(int), 0, (59, 39))
        np.testing.assert_allclose(image[at[1], at[0], :2], (column, row), atol=1.0)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_array_is_the_same_as_the_list_of_its_images(dtype: Any) -> None:
    for channels in (1, 3, 4):
        x = images(3, (20, 30), channels, dtype)
        for operation in (augment.resize((8, 9)), augment.letterbox(16, fill=0.5)):
            expected = operation(x)[0]
            assert (expected.dtype, expected.shape[3]) == (dtype, channels)
            np.testing.assert_array_equal(operation(list(x))[0], expected)
            np.testing.assert_array_equal(operation(list(x[..., 0]))[0], operation(x[..., 0])[0])
    assert augment.resize(8)(np.zeros((0, 4, 4, 3), np.uint8))[0].shape == (0, 8, 8, 3)


def test_what_is_of_the_size_is_unchanged_and_copied() -> None:
    x = images(2, (20, 30))
    for operation in (augment.resize((20, 30)), augment.letterbox((20, 30))):
        (made,) = operation(x)
        np.testing.assert_array_equal(made, x)
        assert not np.shares_memory(made, x)


def test_images_that_differ_in_more_than_size_are_refused() -> None:
    with raises(ArgumentError):
        augment.resize(8)([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.uint8)])
    with raises(ArgumentError):
        augment.letterbox(8)([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.float32)])


@pytest.mark.parametrize("operation", [augment.letterbox((64, 70), fill=114), augment.resize(64)])
def test_every_pool_gives_the_same_bits(operation: Any, pools: list[AbstractWorkerPool]) -> None:
    sizes = [tuple(size) for size in np.random.default_rng(1).integers(20, 90, (40, 2)).tolist()]
    parts = [batch(1, size, seed) for seed, size in enumerate(sizes)]
    rows = [{name: column[0] for name, column in part.items()} for part in parts]
    chain = augment.compose(operation, augment.flip(), augment.random_crop(60), **{**ALL, "min_visibility": 0.3})
    source = bu.ArrayDataSource([bu.MapStyle(rows)]).map(chain, rng="sample")
    whole = []
    for size in (3, 16):
        expected = list(source.batch_iterator(size, shuffle=5))
        for pool in (bu.SerialPool(), *pools):
            assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(size, shuffle=5)), expected)
        whole.append({name: [row for made in expected for row in made[name]] for name in expected[0]})
    for name in whole[0]:  # any batch size gives the same samples
        assert_same_batches([whole[0][name]], [whole[1][name]])
