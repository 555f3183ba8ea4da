"""Boxes, masks and keypoints move with their images: against plain NumPy, and against pictures of them.

The operations that interpolate are asked for a picture of coordinates: its colours are x and y of each pixel, of which
bilinear interpolation is exact. So the result says for each pixel where it came from, independently of any matrix.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from batchup_ng.testing.sources import assert_same_batch
from tests.augment.annotated import FIRST, OPTIONS, SIZE, batch
from tests.augment.helpers import images, ramp, rng
from tests.messages import raises

HEIGHT, WIDTH = SIZE
OUTSIDE = 255


@pytest.fixture
def n(in_full: bool) -> int:
    """The number of random images."""
    return 1000 if in_full else 150


def moved(operation: Any, given: dict[str, Any], seed: int = 7, **options: Any) -> dict[str, Any]:
    """Return the batch after an operation with its annotations."""
    return augment.compose(operation, **{**OPTIONS, **options})(**given, rng=rng(len(given["image"]), seed))


def clipped(boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.clip(boxes, 0, [size[1], size[0]] * 2)


def area(boxes: np.ndarray) -> np.ndarray:
    return np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1)


@pytest.mark.parametrize("vertical", [False, True])
def test_a_flip_mirrors_all(vertical: bool, n: int) -> None:
    x = batch(n)
    made = moved(augment.flip(p=0.5, vertical=vertical), x)
    flips = rng(n).random(1)[:, 0] < 0.5
    axis, length = (1, HEIGHT) if vertical else (0, WIDTH)
    for i in range(n):
        boxes, points = clipped(x["boxes"][i], SIZE), x["keypoints"][i].copy()
        inside = ((points >= -0.5) & (points < np.array([WIDTH, HEIGHT]) - 0.5)).all(axis=1)
        mask, masks = x["mask"][i], x["masks"][i]
        if flips[i]:
            boxes[:, [axis, axis + 2]] = length - boxes[:, [axis + 2, axis]]
            points[:, axis] = length - 1 - points[:, axis]
            mask, masks = np.flip(mask, 1 - axis), np.flip(masks, 2 - axis)
        left = area(boxes) > 0
        np.testing.assert_array_equal(made["boxes"][i], boxes[left].astype(np.float32), strict=True)
        np.testing.assert_array_equal(made["labels"][i], np.flatnonzero(left))
        np.testing.assert_array_equal(made["mask"][i], mask)
        np.testing.assert_array_equal(made["masks"][i], masks[left])
        np.testing.assert_allclose(made["keypoints"][i], points[inside].astype(np.float32), atol=1e-5)
        np.testing.assert_array_equal(made["names"][i], x["names"][i][inside])


def test_a_crop_cuts_all(n: int) -> None:
    x, size, pad = batch(n), (20, 26), 5
    crop = augment.random_crop(size, padding=pad)
    made = moved(crop, x, min_area=3.0, min_visibility=0.3)
    drawn = rng(n).random(2)
    tops = (drawn * (np.array(SIZE) + 2 * pad - size + 1)).astype(int)
    for i, (top, left) in enumerate(tops.tolist()):
        shift = np.array([pad - left, pad - top])
        inner = clipped(x["boxes"][i], SIZE)
        boxes = clipped(inner + np.tile(shift, 2), size)
        share = area(boxes) / area(x["boxes"][i])
        kept = (area(boxes) >= 3) & (share >= 0.3)
        np.testing.assert_array_equal(made["boxes"][i], boxes[kept].astype(np.float32))
        np.testing.assert_array_equal(made["labels"][i], np.flatnonzero(kept))
        window = slice(top, top + size[0]), slice(left, left + size[1])
        mask = np.pad(x["mask"][i], pad, constant_values=OUTSIDE)[window]
        np.testing.assert_array_equal(made["mask"][i], mask)
        masks = np.pad(x["masks"][i], ((0, 0), (pad, pad), (pad, pad)), constant_values=OUTSIDE)[(slice(None), *window)]
        np.testing.assert_array_equal(made["masks"][i], masks[kept])
        points = x["keypoints"][i] + shift
        limits = np.array([[WIDTH, HEIGHT], [size[1], size[0]]]) - 0.5
        seen = ((x["keypoints"][i] >= -0.5) & (x["keypoints"][i] < limits[0])).all(axis=1)
        seen &= ((points >= -0.5) & (points < limits[1])).all(axis=1)
        np.testing.assert_allclose(made["keypoints"][i], points[seen], atol=1e-5)


INTERPOLATING: dict[str, Any] = {
    "larger": lambda: augment.resized_crop((40, 50), scale=(0.3, 1.0), ratio=(0.5, 2.0)),
    "smaller": lambda: augment.resized_crop((11, 7), scale=(0.5, 1.0)),
    "affine": lambda: augment.affine(rotate=180, translate=0.2, scale=(0.7, 1.5), shear=20),
    "chosen": lambda: augment.choose(
        augment.flip(), augment.affine(rotate=30, p=0.7), augment.affine(translate=0.2), augment.blur(p=0.0), n=2
    ),
    "rand_augment": lambda: augment.rand_augment(2, 20.0),
}


def origins(operation: Any, n: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each image, the map of edges that its picture of coordinates shows, and its inverse: ``(3, 3)``."""
    pictures = np.repeat(ramp(HEIGHT, WIDTH)[None], n, axis=0)
    pictures[..., 2] = 1000.0  # lower where the border was mixed in
    (made,) = operation(pictures, rng=rng(n, seed))
    y, x = np.mgrid[: made.shape[1], : made.shape[2]]
    edge = np.ones(made.shape[1:3], bool)  # where a part that was enlarged repeats its last pixels
    edge[tuple([slice(side // 10 + 1, side - side // 10 - 1) for side in edge.shape])] = False
    for picture in made:
        whole = (picture[..., 2] > 999.9) & ~edge
        whole &= (picture[..., :2] > 0.51).all(axis=2) & (picture[..., :2] < [WIDTH - 1.51, HEIGHT - 1.51]).all(axis=2)
        places = np.stack([x[whole] + 0.5, y[whole] + 0.5, np.ones(whole.sum())], axis=1)
        if len(places) < 12:
            yield np.full((3, 3), np.nan), np.full((3, 3), np.nan)
            continue
        solved = np.linalg.lstsq(places, picture[whole][:, :2] + 0.5, rcond=None)[0]
        back = np.vstack([solved.T, [0, 0, 1]])
        yield np.linalg.inv(back), back


@pytest.mark.parametrize("name", INTERPOLATING)
def test_all_move_as_the_pixels_of_a_picture_do(name: str, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    operation, x = INTERPOLATING[name](), batch(n)
    if name == "rand_augment":  # only those of its changes that move pixels: the others would change the coordinates
        operation = augment.choose(*operation.operations[3:], n=2)
    made = moved(operation, x, min_area=0.0, remove_invisible=False)
    size = made["image"].shape[1:3]
    checked = 0
    for i, (there, back) in enumerate(origins(operation, n, 7)):
        if np.isnan(there).any():
            continue
        checked += 1
        points = np.hstack([x["keypoints"][i] + 0.5, np.ones((len(x["keypoints"][i]), 1))]) @ there[:2].T - 0.5
        np.testing.assert_allclose(made["keypoints"][i], points, atol=0.1)
        y, x_ = np.mgrid[: size[0], : size[1]] + 0.5
        came = np.stack([x_, y, np.ones(size)], axis=-1) @ back[:2].T
        mask = made["mask"][i] - FIRST
        shown = mask != OUTSIDE - FIRST
        off = np.abs(np.stack([mask % WIDTH, mask // WIDTH], axis=-1) + 0.5 - came)[shown]
        if name in ("chosen", "rand_augment"):
            assert (off < 1.2).all()  # two steps, each to the nearest
            continue  # boxes grow with each turn, so they depend on the steps
        assert (off < 0.55).all()
        assert shown[((came > 0.05) & (came < [WIDTH - 0.05, HEIGHT - 0.05])).all(axis=2)].all()
        assert not shown[((came < -0.05) | (came > [WIDTH + 0.05, HEIGHT + 0.05])).any(axis=2)].any()
        inner = clipped(x["boxes"][i], SIZE)
        corners = inner[:, [0, 1, 2, 1, 0, 3, 2, 3]].reshape(-1, 2)
        corners = (np.hstack([corners, np.ones((len(corners), 1))]) @ there[:2].T).reshape(-1, 4, 2)
        around = np.hstack([corners.min(axis=1), corners.max(axis=1)])
        boxes = clipped(around, size)
        sure, kept = np.abs(area(boxes) - 0.05) > 0.05, made["labels"][i]
        assert set(np.flatnonzero(sure & (area(boxes) > 0.1) & (area(inner) > 0))) <= set(kept)
        np.testing.assert_allclose(made["boxes"][i], boxes[kept], atol=0.15)
    assert checked > n / 2


@pytest.mark.parametrize("name", ["larger", "affine", "chosen"])
def test_boxes_are_around_what_is_painted_in_them(name: str, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    x = batch(n)
    for masks, boxes in zip(x["masks"], x["boxes"], strict=True):
        masks[...] = 0
        for mask, (left, top, right, bottom) in zip(masks, boxes.clip(0), strict=True):
            mask[top:bottom, left:right] = 1
    made = moved(INTERPOLATING[name](), x, mask_fill=0)
    compared = 0
    for masks, boxes in zip(made["masks"], made["boxes"], strict=True):
        for mask, box in zip(masks, boxes, strict=True):
            if name != "chosen":
                rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
                if not len(rows):
                    assert area(box[None])[0] < 12
                    continue
                extent = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1])
                assert (extent[:2] >= box[:2] - 1).all()
                assert (extent[2:] <= box[2:] + 1).all()
                compared += 1
            else:  # a box around a turned box may be larger than what is in it, but nothing is outside of it
                y, x_ = np.nonzero(mask)
                assert ((x_ + 1 >= box[0]) & (x_ <= box[2]) & (y + 1 >= box[1]) & (y <= box[3])).all()
                compared += 1
    assert compared > n / 2


@pytest.mark.parametrize("n_chosen", [1, 2, 3])
def test_nothing_stays_where_an_operation_that_was_chosen_pushed_out_the_pixels(n_chosen: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    there, back = augment.affine(translate=(0.5, 0.5)), augment.affine(translate=(-0.5, -0.5))
    again = augment.choose(there, back, n=2)
    operation = augment.choose(there, back, again, augment.flip(), augment.cutout(p=0.0), n=n_chosen)
    n, side = 60, 10
    pixels = np.arange(1, 1 + side * side, dtype=np.uint8).reshape(side, side)  # all differ, and none is the fill
    image, whole = np.repeat(pixels[None, ..., None], n, axis=0), np.array([[0.0, 0, side, side]])
    points = np.argwhere(pixels)[:, ::-1].astype(float)  # each pixel is a keypoint, and its value the label
    x = {"image": image, "boxes": [whole] * n, "mask": image[..., 0].copy(), "masks": [pixels[None]] * n}
    x |= {"labels": [np.arange(1)] * n, "keypoints": [points] * n, "names": [pixels.ravel()] * n}
    made = moved(operation, x, mask_fill=0)
    for i, shown in enumerate(made["image"][..., 0]):
        rows, columns = np.nonzero(shown)
        np.testing.assert_array_equal(made["mask"][i], shown)
        kept = {int(name): tuple(xy) for name, xy in zip(made["names"][i], made["keypoints"][i].tolist(), strict=True)}
        assert kept == {int(shown[y, x]): (x, y) for y, x in zip(rows, columns, strict=True)}
        if len(rows):
            np.testing.assert_array_equal(made["masks"][i][0], shown)
            corners = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_array_equal(made["boxes"][i], [corners])
        else:
            assert len(made["boxes"][i]) == len(made["masks"][i]) == 0
    assert len({int((shown > 0).sum()) for shown in made["image"]}) >= (2 if n_chosen < 2 else 3)


@given(st.integers(0, 2**32), st.integers(0, 6))
def test_annotations_change_nothing_else(seed: int, cut: int) -> None:
    x = batch(6, seed=seed)
    chain = [augment.flip(), augment.random_crop((20, 30), padding=3), augment.cutout(), augment.normalize(0.5, 0.5)]
    whole = augment.compose(*chain, **OPTIONS)(**x, rng=rng(6, seed))
    (plain,) = augment.compose(*chain)(x["image"], rng=rng(6, seed))
    np.testing.assert_array_equal(whole["image"], plain, strict=True)
    still = augment.compose(*chain[2:])(**x, rng=rng(6, seed))
    assert all(still[name] is x[name] for name in x if name != "image")
    parts = [
        augment.compose(*chain, **OPTIONS)(
            **{name: column[part] for name, column in x.items()}, rng=bu.SampleRng(seed, np.arange(6)[part])
        )
        for part in (slice(cut), slice(cut, None))
    ]
    for name in ("boxes", "labels", "masks", "keypoints", "names", "mask"):
        for one, other in zip(whole[name], [*parts[0][name], *parts[1][name]], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_colours_leave_all_where_it_is() -> None:
    pytest.importorskip("cv2", reason="OpenCV, which changes colours, is not installed")
    x = batch(20)
    chain = augment.compose(
        augment.color_jitter(brightness=0.5), augment.grayscale(p=0.5), augment.blur(), augment.cutout(p=1.0), **OPTIONS
    )
    made, cut = chain(**x, rng=rng(20)), augment.compose(**OPTIONS)(**x)
    for name in ("boxes", "labels", "masks", "keypoints", "names", "mask"):
        for one, other in zip(made[name], cut[name], strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
    for boxes, given_boxes in zip(cut["boxes"], x["boxes"], strict=True):
        inner = clipped(given_boxes, SIZE)
        np.testing.assert_array_equal(boxes, inner[area(inner) > 0])


@pytest.mark.parametrize("box_format", ["xyxy", "xywh", "cxcywh"])
def test_boxes_keep_their_format(box_format: str) -> None:
    x = {name: part for name, part in batch(50).items() if name in ("image", "boxes", "labels")}
    chain = [augment.flip(), augment.random_crop((20, 30), padding=3)]
    wanted = augment.compose(*chain, boxes="boxes")(**x, rng=rng(50))["boxes"]
    x["boxes"] = [augment.box_convert(boxes, "xyxy", box_format) for boxes in x["boxes"]]
    made = augment.compose(*chain, boxes="boxes", box_format=box_format)(**x, rng=rng(50))["boxes"]
    for one, other in zip(made, wanted, strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(augment.box_convert(one, box_format, "xyxy"), other, atol=1e-5)


def test_a_share_is_of_all_that_cuts_took() -> None:
    x = {"image": images(1, (10, 10)), "boxes": [[[0, 0, 8, 8], [-4, 0, 4, 4], [1, 1, 1, 5], [6, 6, 2, 2]]]}
    for limit, left in ((0.0, [0, 1]), (0.5, [0, 1]), (0.51, [0]), (1.0, [0])):
        chain = augment.compose(augment.flip(p=1), boxes="boxes", min_visibility=limit, box_labels="n")
        assert chain(**x, n=[np.arange(4)], rng=rng(1))["n"][0].tolist() == left


def test_what_a_cut_took_does_not_come_back() -> None:
    n = 400
    x = {"image": images(n), "boxes": [[[8, 5, 20, 15]]] * n, "labels": [[0]] * n}
    x["masks"] = np.zeros((n, 1, 20, 30), np.uint8)
    x["masks"][:, :, 5:15, 8:20] = 1
    chain = [augment.random_crop((20, 30), padding=12)] * 2
    options: dict[str, Any] = {"boxes": "boxes", "box_labels": ["labels", "masks"], "masks": "masks", "min_area": 0}
    made = augment.compose(*chain, **options)(**x, rng=rng(n))
    share = np.array([masks.sum() / 120 for masks in made["masks"]])
    assert 0.1 < (share < 0.4).mean() < 0.9
    kept = augment.compose(*chain, **options, min_visibility=0.4)(**x, rng=rng(n))["labels"]
    np.testing.assert_array_equal([len(labels) for labels in kept], share > 0.4 - 1e-9)
    for masks, boxes in zip(made["masks"], made["boxes"], strict=True):
        assert len(masks) == len(boxes) == bool(masks.any())
        for box in boxes:
            y, x_ = np.nonzero(masks[0])
            assert box.tolist() == [x_.min(), y.min(), x_.max() + 1, y.max() + 1]


@pytest.mark.parametrize("sizes", [(1,), (3, 0, 2), (0, 0), ()])
def test_columns_may_be_lists_arrays_or_objects(sizes: tuple[int, ...]) -> None:
    n = len(sizes)
    lists = [[[1.0, 2.0, 5.0, 6.0]] * k for k in sizes]
    objects = np.empty(n, object)
    for i, each in enumerate(lists):
        objects[i] = np.array(each)
    ragged = bu.Ragged(np.array([row for each in lists for row in each]).reshape(-1, 4), np.cumsum([0, *sizes]))
    ways: list[Any] = [lists, tuple(lists), [np.array(each, int) for each in lists], objects, ragged[np.arange(n)]]
    for way in ways:
        kept = copy.deepcopy(way)
        made = augment.compose(augment.flip(p=1.0), boxes=1)(images(n, (10, 10)), way, rng=rng(n))
        assert type(made[1]) is list
        assert [boxes.tolist() for boxes in made[1]] == [[[5.0, 2.0, 9.0, 6.0]] * k for k in sizes]
        assert all(boxes.shape[1:] == (4,) and boxes.dtype == np.float32 for boxes in made[1])
        assert all(np.array_equal(a, b) for a, b in zip(way, kept, strict=True))


def test_an_array_of_boxes_is_taken() -> None:
    given_boxes = np.tile([1, 2, 5, 6], (3, 2, 1))
    image, boxes, names = augment.compose(augment.flip(p=1.0), boxes=1, box_labels=2)(
        images(3, (10, 10)), given_boxes, np.array([["a", "b"]] * 3), rng=rng(3)
    )
    assert [each.tolist() for each in boxes] == [[[5, 2, 9, 6]] * 2] * 3
    assert [each.tolist() for each in names] == [["a", "b"]] * 3
    assert image.shape == (3, 10, 10, 3)


def test_labels_of_boxes_are_those_named_labels() -> None:
    x = {"image": images(1, (10, 10)), "boxes": [[[20, 0, 30, 9], [1, 1, 5, 5]]], "labels": [["far", "near"]]}
    made = augment.compose(augment.flip(), boxes="boxes")(**x, rng=rng(1))
    assert made["labels"][0].tolist() == ["near"]
    made = augment.compose(augment.flip(), boxes="boxes", box_labels=[])(**x, rng=rng(1))
    assert made["labels"] is x["labels"]


def test_keypoints_of_boxes_go_with_them_and_keep_further_values() -> None:
    people = np.arange(2 * 3 * 3, dtype=float).reshape(2, 3, 3) - 4
    x = {"image": images(2, (10, 10)), "boxes": [[[20, 0, 30, 9], [1, 1, 5, 5]], []], "people": [people, []]}
    chain = augment.compose(augment.flip(p=1.0), boxes="boxes", box_labels="people", keypoints="people")
    made = chain(**x, rng=rng(2))["people"]
    wanted = people[1:].copy()
    wanted[..., 0] = 9 - wanted[..., 0]
    np.testing.assert_array_equal(made[0], wanted.astype(np.float32), strict=True)  # also those outside of the image
    assert made[1].shape == (0, 3, 3)
    scored = augment.compose(augment.flip(p=1.0), keypoints=1)(images(1), [[[3, 4, 0.5], [99, 4, 0.1]]], rng=rng(1))[1]
    assert scored[0].tolist() == [[26, 4, 0.5]]


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.float32])
def test_masks_keep_their_dtype_and_channels(dtype: Any) -> None:
    x, masks = images(5, SIZE), np.random.default_rng(0).integers(0, 2, (5, *SIZE, 2)).astype(dtype)
    chain = augment.compose(augment.flip(p=0.5), augment.random_crop((20, 30)), masks=[1, 2], mask_fill=1)
    _, one, two = chain(x, masks, masks[..., 0], rng=rng(5))
    assert (one.shape, one.dtype, two.dtype) == ((5, 20, 30, 2), dtype, dtype)
    np.testing.assert_array_equal(one[..., 0], two)
    listed = chain(x, [*masks], [*masks[..., 0]], rng=rng(5))
    np.testing.assert_array_equal(listed[1], one, strict=True)


def test_nothing_that_is_given_is_written_to() -> None:
    for n in (3, 80):  # masks of 2 kB and of 250 kB: below and above the size at which memory is lent
        x = batch(n)
        kept = copy.deepcopy(x)
        chain = augment.compose(augment.flip(p=1.0), augment.flip(p=1.0, vertical=True), augment.cutout(), **OPTIONS)
        first, second = (chain(**x, rng=rng(n)) for _ in range(2))
        own = chain.writing_to(("image", "mask"), **copy.deepcopy(x), rng=rng(n))
        for name, column in kept.items():
            for made in (first[name], second[name], own[name]):
                for given_row, kept_row, row, again in zip(x[name], column, made, first[name], strict=True):
                    np.testing.assert_array_equal(given_row, kept_row, strict=True)
                    np.testing.assert_array_equal(row, again, strict=True)
                    assert name not in ("image", "boxes", "keypoints") or not np.shares_memory(row, given_row)


def test_names_are_found_among_the_columns_of_a_map() -> None:
    x = {"id": np.arange(7), **batch(7)}
    chain = augment.compose(augment.flip(), augment.random_crop(20, padding=5), augment.cutout(), **OPTIONS)
    source = bu.ArrayDataSource(x)
    whole = next(source.map(chain, rng="sample").batch_iterator(7, shuffle=3))
    names = [name for name in x if name != "id"]
    for columns in (names, names[::-1]):
        some = next(source.map(chain, on=columns, rng="sample").batch_iterator(7, shuffle=3))
        assert_same_batch(some, whole)
    boxes = {name: x[name] for name in ("image", "boxes", "labels")}
    by_name, by_place = augment.compose(augment.flip(), boxes="boxes"), augment.compose(augment.flip(), boxes=1)
    made = [chain.for_columns(list(boxes))(*boxes.values(), rng=rng(7)) for chain in (by_name, by_place)]
    assert_same_batch(made[0], tuple(by_name(**boxes, rng=rng(7)).values()))
    assert_same_batch(made[1], made[0])


def test_a_name_that_a_map_does_not_take_is_named() -> None:
    source = bu.ArrayDataSource({"image": images(3), "boxes": [np.zeros((1, 4))] * 3})
    with raises(ArgumentError):
        source.map(augment.compose(augment.flip(), boxes="boxes"), on="image", rng="sample")
    for image in ("x", 2):
        with raises(ArgumentError):
            source.map(augment.compose(augment.flip(), image=image), on=["image", "boxes"], rng="sample")


def test_without_images_there_are_no_annotations() -> None:
    made = augment.compose(augment.flip(), augment.random_crop(9), **OPTIONS)(**batch(0), rng=rng(0))
    assert {name: len(column) for name, column in made.items()} == dict.fromkeys(made, 0)
    assert made["mask"].shape == (0, 9, 9)
