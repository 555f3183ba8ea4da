"""Options of annotations and parts of batches that do not fit each other are refused."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.augment.annotated import OPTIONS, batch
from tests.augment.helpers import images, rng
from tests.messages import raises


@pytest.mark.parametrize(
    "options",
    [
        {"boxes": 1, "box_format": "yolo"},
        {"boxes": 1, "min_area": -1},
        {"boxes": 1, "min_visibility": 1.5},
        {"boxes": ["a", "b"]},
        {"boxes": "a", "masks": ["b", "a"]},
        {"boxes": -1},
        {"box_labels": "labels"},
        {"keypoint_labels": "names"},
        {"boxes": "a", "box_labels": "k", "keypoints": "k", "keypoint_labels": "names"},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any]) -> None:
    with raises(ArgumentError):
        augment.compose(augment.flip(), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"boxes": 1.5},
        {"keypoints": 1, "remove_invisible": 1},
        {"masks": 1, "mask_fill": "black"},
        {"bboxes": 1},
        {"boxes": 1, "label_fields": ["labels"]},
        {"boxes": 1, "mask": 2},
    ],
)
def test_options_of_the_wrong_kind_are_refused(options: dict[str, Any]) -> None:
    with raises(ArgumentTypeError):
        augment.compose(augment.flip(), **options)


def test_operations_that_mix_samples_are_refused() -> None:
    for operation in (augment.mixup(), augment.cutmix()):
        augment.compose(operation)
        for options in ({"boxes": 1}, {"masks": 1}, {"keypoints": 1}):
            with raises(ArgumentError):
                augment.compose(augment.flip(), augment.compose(operation), **options)


def test_annotations_of_an_inner_chain_are_refused() -> None:
    with raises(ArgumentError):
        augment.compose(augment.compose(augment.flip(), boxes="boxes"))
    nested = augment.compose(augment.compose(augment.flip()), boxes="boxes")
    assert nested.operations == (augment.flip(),)


BOX = [[1, 1, 5, 5]]
OF_BOXES = {"boxes": "boxes", "masks": "mask", "box_labels": "mask"}
BAD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no such part": ({"boxes": "box"}, {}),
    "another number of rows": ({"boxes": "boxes"}, {"boxes": [BOX]}),
    "five numbers": ({"boxes": "boxes"}, {"boxes": [[[1, 2, 3, 4, 5]], BOX]}),
    "one box an image": ({"boxes": "boxes"}, {"boxes": np.ones((2, 4))}),
    "texts": ({"boxes": "boxes"}, {"boxes": [[["a"] * 4], BOX]}),
    "not finite": ({"boxes": "boxes"}, {"boxes": [BOX, [[1, 2, np.nan, 4]]]}),
    "labels of another number": ({"boxes": "boxes"}, {"labels": [[1], [1, 2]]}),
    "labels of images": ({"boxes": "boxes"}, {"labels": np.arange(2)}),
    "masks of another size": ({"masks": "mask"}, {"mask": np.zeros((2, 30, 20))}),
    "masks of boxes that are not named": ({"masks": "mask"}, {"mask": [np.zeros((1, 20, 30))] * 2}),
    "masks of boxes of another number": (OF_BOXES, {"mask": [np.zeros((1, 20, 30)), np.zeros((3, 20, 30))]}),
    "masks of boxes without theirs": (OF_BOXES, {"mask": np.zeros((2, 20, 30))}),
    "a fill that the masks cannot hold": ({"masks": "mask", "mask_fill": 300}, {}),
    "a fill below zero": ({"masks": "mask", "mask_fill": -1}, {}),
    "boxes that are padded": ({"boxes": "boxes"}, {"boxes_mask": np.ones((2, 1), bool)}),
    "keypoints of one number": ({"keypoints": "points"}, {"points": [[[1]], [[1]]]}),
    "keypoints of two forms": ({"keypoints": "points"}, {"points": [[[1, 2]], [[1, 2, 3]]]}),
    "a single keypoint": ({"keypoints": "points"}, {"points": [[1, 2], [1, 2]]}),
    "keypoints of boxes without theirs": (
        {"boxes": "boxes", "keypoints": "points", "box_labels": "points"}, {"points": [[[1, 2]], [[1, 2]]]}
    ),
    "flags that are not dropped": (
        {"boxes": "boxes", "box_labels": ["labels"]}, {"labels": [[1], [2]], "iscrowd": [[0], [1]]}
    ),
    "masks that do not move": ({"boxes": "boxes"}, {"masks": [[], []]}),
    "keypoints that do not move": ({"boxes": "boxes", "masks": "mask"}, {"keypoints": [[], []]}),
    "names of another number": ({"keypoints": "points", "keypoint_labels": "names"}, {"names": [["a"], ["b", "c"]]}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_parts_that_do_not_fit_are_refused(case: str) -> None:
    options, parts = BAD[case]
    given = {"image": images(2), "boxes": [BOX, BOX], "mask": np.zeros((2, 20, 30), np.uint8), "points": [[[1, 2]]] * 2}
    given = {name: part for name, part in given.items() if name in ("image", "points", *options.values())} | parts
    with raises(ArgumentError):
        augment.compose(augment.flip(), **options)(**given, rng=rng(2))


@pytest.mark.parametrize("name", ["boxes", "bbox", "bboxes", "mask", "masks", "keypoints"])
def test_parts_that_would_not_move_with_the_images_are_refused(name: str) -> None:
    parts = {"image": images(2), name: [np.zeros((1, 4))] * 2}
    source = bu.ArrayDataSource(parts)
    for operation in (augment.flip(), augment.compose(augment.normalize(0, 1)), augment.random_crop(8)):
        moves = not isinstance(operation, augment.compose)
        for call in (
            lambda: operation(**parts, rng=rng(2)),  # noqa: B023
            lambda: next(source.map(operation).batch_iterator(2, shuffle=1)),  # noqa: B023
            lambda: source.map(operation, on=["image", name])[0:1],  # noqa: B023
        ):
            with raises(ArgumentError) if moves else contextlib.nullcontext():
                call()
        next(source.map(operation, on="image").batch_iterator(2, shuffle=1))


CLASSES: dict[str, Any] = {
    "arrays": [np.array([3, 4]), np.array([5])], "lists": [[3, 4], [5]],
    "rows": [np.zeros((2, 3)), np.zeros((1, 3), np.uint8)], "texts": [["cat", "dog"], ["cat"]],
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_a_column_with_a_row_for_each_box_is_dropped_with_them_or_refused(kind: str) -> None:
    """Where a box is dropped: not in a batch that keeps all, nor where one sample has another number of rows."""
    outside, inside = [[0, 0, 9, 9], [900, 0, 950, 9]], [[1, 1, 5, 5]]
    cls = CLASSES[kind]
    for boxes in ([outside, inside], [np.array(outside), np.array(inside)]):
        source = bu.ArrayDataSource({"image": images(2), "n": np.arange(2)})
        source = source.map(lambda n: ([boxes[i] for i in n], [cls[i] for i in n]), on="n", out=["boxes", "cls"])  # noqa: B023
        chain = augment.compose(augment.flip(), boxes="boxes")
        more = {"labels": [[1, 2], [3]], "image": images(2), "boxes": boxes, "cls": cls}
        for call in (
            lambda: source.map(chain)[:],  # noqa: B023
            lambda: augment.compose(augment.flip(), boxes="boxes", box_labels=["labels"])(**more, rng=rng(2)),  # noqa: B023
            lambda: augment.compose(augment.flip(), boxes=1)(images(2), boxes, cls, rng=rng(2)),  # noqa: B023
        ):
            with raises(ArgumentError):
                call()
        named = source.map(augment.compose(augment.flip(), boxes="boxes", box_labels=["cls"]))[:]
        assert [len(rows) for rows in named["cls"]] == [len(rows) for rows in named["boxes"]] == [1, 1]
        for other in (source.map(chain, on=["image", "boxes"]), source.map(
            augment.compose(augment.flip(), boxes="boxes", box_labels=[])
        )):  # fmt: skip
            assert [len(rows) for rows in other[:]["cls"]] == [2, 1]
        assert len(source.map(chain)[1:]["boxes"][0]) == 1
        longer = [*cls[:1], [*cls[1], *cls[1]]]
        made = chain(image=images(2), boxes=boxes, cls=longer, rng=rng(2))
        assert made["cls"] is longer


FORGOTTEN: dict[str, Any] = {
    "a column beside boxes": augment.compose(augment.random_crop(20), boxes="boxes"),
    "boxes": augment.random_crop(20),
    "no such part": augment.compose(augment.random_crop(20), boxes="bboxes"),
}


@pytest.mark.parametrize("kind", FORGOTTEN)
def test_no_policy_leaves_out_samples_for_a_forgotten_option(kind: str, pools: list[Any]) -> None:
    n = 12
    boxes = [np.array([[0, 0, 8, 8], [20, 12, 30, 20]], "f4") for _ in range(n)]
    source = bu.ArrayDataSource({"image": images(n), "boxes": boxes, "score": [np.array([0.1, 0.2])] * n})
    source = source.map(FORGOTTEN[kind])
    for made in (source, *[pool.parallel_data_source(source) for pool in pools]):
        for policy in ("skip", "replace"):
            with raises(bu.MapCallError):
                list(made.batch_iterator(4, 1, on_error=policy))


def test_arrays_with_a_row_for_each_box_are_refused_beside_an_array_of_boxes() -> None:
    boxes = np.array([[[0, 0, 9, 9], [900, 0, 950, 9]]] * 2)
    chain = augment.compose(augment.flip(), boxes="boxes")
    with raises(ArgumentError):
        chain(image=images(2), boxes=boxes, cls=np.zeros((2, 2)), rng=rng(2))
    others = {"features": np.zeros((2, 3)), "label": np.arange(2), "name": ["ab", "cd"]}
    assert list(chain(image=images(2), boxes=boxes, **others, rng=rng(2))["boxes"][0].shape) == [1, 4]
    assert chain(image=images(2), boxes=list(boxes), cls=np.zeros((2, 2)), rng=rng(2))["cls"].shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"boxes": "boxes"}, {"boxes": {"a": 1, "b": 2}}),
        ({"boxes": "boxes"}, {"boxes": 5}),
        ({"masks": "mask"}, {"mask": np.full((2, 20, 30), "a")}),
    ],
)
def test_parts_of_the_wrong_kind_are_refused(options: dict[str, Any], parts: dict[str, Any]) -> None:
    with raises(ArgumentTypeError):
        augment.compose(augment.flip(), **options)(image=images(2), **parts, rng=rng(2))


def test_columns_of_the_readers_belong_to_the_boxes_by_default() -> None:
    boxes = [np.array([[0, 0, 9, 9], [9, 9, 9.5, 9.5]]), np.array([[1, 1, 5, 5]])]
    flags = [np.array([False, True]), np.array([True])]
    given = {"image": images(2), "boxes": boxes, "labels": [[3, 4], [5]], "difficult": flags, "iscrowd": flags}
    flags = [np.array([False, True, True]), np.array([True])]
    made = augment.compose(augment.flip(), boxes="boxes")(**given, other=flags, rng=rng(2))
    for name, expected in {"labels": [[3], [5]], "difficult": [[False], [True]], "iscrowd": [[False], [True]]}.items():
        assert [rows.tolist() for rows in made[name]] == expected
    assert made["other"] is flags


def test_a_chain_shows_its_options_and_can_be_pickled() -> None:
    chain = augment.compose(augment.flip(), augment.random_crop(20), **OPTIONS, min_area=4.0)
    assert repr(chain).endswith("keypoints='keypoints', keypoint_labels='names')")
    assert "box_labels=['labels', 'masks'], min_area=4.0, masks=" in repr(chain)
    assert repr(augment.compose(augment.flip(), image="x")).endswith("image='x')")
    again = pickle.loads(pickle.dumps(chain))
    assert repr(again) == repr(chain)
    made, wanted = (one(**batch(5), rng=rng(5)) for one in (again, chain))
    for boxes, others in zip(made["boxes"], wanted["boxes"], strict=True):
        np.testing.assert_array_equal(boxes, others)


def test_boxes_are_converted_between_formats() -> None:
    boxes = np.random.default_rng(0).uniform(0, 9, (4, 3, 4))
    for one in ("xyxy", "xywh", "cxcywh"):
        for other in ("xyxy", "xywh", "cxcywh"):
            there = augment.box_convert(boxes, one, other)
            np.testing.assert_allclose(augment.box_convert(there, other, one), boxes, atol=1e-12)
    assert augment.box_convert([1, 2, 4, 8], "xyxy", "cxcywh").tolist() == [2.5, 5, 3, 6]
    assert augment.box_convert(np.zeros((0, 4), np.float32), "xyxy", "xywh").dtype == np.float32
    for given, out_fmt in ((boxes, "yxyx"), ([1, 2], "xywh")):
        with raises(ArgumentError):
            augment.box_convert(given, "xyxy", out_fmt)
    with raises(ArgumentTypeError):
        augment.box_convert([["a"] * 4], "xywh", "xyxy")


def test_images_do_not_move_without_the_boxes_of_their_targets() -> None:
    source = bu.ArrayDataSource({"image": images(2), "boxes": [np.ones((1, 4))] * 2, "labels": [np.ones(1, int)] * 2})
    targets = source.map(bu.DetectionTargets("boxes", "labels"))
    with raises(ArgumentError):
        targets.map(augment.flip())[0:1]
    assert len(targets.map(augment.normalize(0, 1))[0:1]["target"]) == 1


@pytest.mark.parametrize("name", ["boxes", "bbox", "bboxes", "mask", "masks", "keypoints"])
def test_images_do_not_move_without_annotations_in_dicts(name: str) -> None:
    n, values = 4, np.ones((4, 1, 4), "f4")
    source = bu.ArrayDataSource({"image": images(n), "values": values})
    nested = source.map(lambda image, values: {"image": image, "target": {name: values, "id": values[:, 0]}})
    deep = source.map(lambda image, values: {"image": image, "target": {"of": {name: values}}})
    of_tuples = source.map(lambda image, values: (image, {name: values}))
    rows = [(image, {name: row}) for image, row in zip(images(n), values, strict=True)]
    samples = bu.ArrayDataSource([bu.MapStyle(rows)])
    listed = source.map(lambda image, values: {"image": image, "target": [{name: row} for row in values]})
    for each in (nested, deep, of_tuples, samples, listed):
        for operation in (augment.flip(), augment.compose(augment.random_crop(8))):
            with raises(bu.MapCallError):
                next(each.map(operation).batch_iterator(n, 1, on_error="skip"))
        with raises(bu.MapCallError):
            next(of_tuples.map(augment.flip(), on=[0, 1]).batch_iterator(n, 1))
        next(each.map(augment.normalize(0, 1)).batch_iterator(n, 1))
    assert source.map(lambda image, values: {"image": image, "t": {"id": values}}).map(augment.flip())[:]["t"]
