"""Pipelines of Albumentations and transforms of torchvision get boxes, masks and keypoints beside their images."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from benchmarks.peers.augmentations import torchvision_v2
from tests.augment.annotated import FIRST, OPTIONS, SIZE, batch
from tests.augment.helpers import images, rng
from tests.messages import raises

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries' own

HEIGHT, WIDTH = SIZE
N = 30


@pytest.fixture(scope="module")
def A() -> Iterator[Any]:  # the name by which its users import it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # it would look for a newer version
        yield pytest.importorskip("albumentations", reason="Albumentations is not installed")


@pytest.fixture(scope="module")
def v2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for library in ("torch", "torchvision"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield torchvision_v2()


def check_crops(x: dict[str, Any], made: dict[str, Any], size: tuple[int, int]) -> None:
    """Check that all is cut out at the place that the numbers in the mask tell, which differs from image to image."""
    places = set()
    for i, mask in enumerate(made["mask"]):
        top, left = divmod(int(mask[0, 0]) - FIRST, WIDTH)
        places.add((top, left))
        window = slice(top, top + size[0]), slice(left, left + size[1])
        np.testing.assert_array_equal(made["image"][i], x["image"][i][window])
        np.testing.assert_array_equal(mask, x["mask"][i][window])
        boxes = x["boxes"][i].clip(0, [WIDTH, HEIGHT] * 2)
        boxes = (boxes - [left, top, left, top]).clip(0, [size[1], size[0]] * 2)
        kept = np.flatnonzero(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) >= 1)
        np.testing.assert_array_equal(made["labels"][i], kept)
        np.testing.assert_allclose(made["boxes"][i], boxes[kept], atol=1e-4)
        np.testing.assert_array_equal(made["masks"][i], x["masks"][i][kept][(slice(None), *window)])
        points = x["keypoints"][i] - [left, top]
        inside = ((points >= 0) & (points < [size[1], size[0]])).all(axis=1)
        sure = inside == ((points >= -0.5) & (points < np.array([size[1], size[0]]) - 0.5)).all(axis=1)
        assert set(x["names"][i][inside & sure]) <= set(made["names"][i]) <= set(x["names"][i][inside | ~sure])
        assert len(made["keypoints"][i]) == len(made["names"][i])
    assert len(places) > 5


def check_same(made: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Check that two batches are the same, within rounding of floats."""
    for name, column in wanted.items():
        for one, other in zip(made[name], column, strict=True):
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, atol=1e-3, err_msg=name)
            else:
                np.testing.assert_array_equal(one, other, err_msg=name)


def turned(x: dict[str, Any]) -> dict[str, Any]:
    """Return the batch turned upside down by our operations."""
    chain = augment.compose(augment.flip(p=1), augment.flip(p=1, vertical=True), **OPTIONS)
    made: dict[str, Any] = chain(**x, rng=rng(len(x["image"])))
    return made


def within(x: dict[str, Any]) -> dict[str, Any]:
    """Return the batch with keypoints that both libraries call within the image."""
    limits = np.array([WIDTH, HEIGHT]) - 1.0
    return {**x, "keypoints": [points.clip(0, limits) for points in x["keypoints"]]}


@pytest.mark.parametrize("box_format", ["pascal_voc", "coco", "albumentations", "yolo"])
def test_albumentations_moves_them(A: Any, box_format: str) -> None:
    x = within(batch(N))
    params: dict[str, Any] = {
        "bbox_params": A.BboxParams(box_format, label_fields=["labels"] if box_format == "yolo" else None),
        "keypoint_params": A.KeypointParams("xy", label_fields=["names"] if box_format == "coco" else None),
    }
    both = A.Compose([A.HorizontalFlip(p=1), A.VerticalFlip(p=1)], **params)
    check_same(augment.compose(augment.albumentations(both), **OPTIONS)(**x, rng=rng(N)), turned(x))
    crop = augment.albumentations(A.Compose([A.RandomCrop(20, 26, p=1)], **params))
    check_crops(x, augment.compose(crop, **OPTIONS)(**x, rng=rng(N)), (20, 26))
    between = augment.compose(augment.flip(p=1), crop, augment.flip(p=1), **OPTIONS)
    made = between(**x, rng=rng(N))
    assert made["image"].shape == (N, 20, 26, 3)
    nothing = augment.albumentations(A.Compose([A.HorizontalFlip(p=1)], p=0.0, **params))
    check_same(augment.compose(nothing, **OPTIONS)(**x, rng=rng(N)), augment.compose(**OPTIONS)(**x))


def test_images_of_several_sizes_and_their_annotations_go_through_albumentations(A: Any) -> None:
    pictures = [images(1, size)[0] for size in ((20, 40), (40, 20))]
    boxes = [[[0, 0, 40, 10]], [[10, 20, 20, 40], [0, 0, 1, 1]]]
    masks = [np.arange(800).reshape(picture.shape[:2]).astype(np.int16) for picture in pictures]
    pipeline = A.Compose([A.Resize(10, 10, p=1)], bbox_params=A.BboxParams("coco"))
    chain = augment.compose(augment.albumentations(pipeline), augment.flip(p=1), boxes=1, masks=2, min_area=0.5)
    x, made, mask = chain(pictures, boxes, masks, rng=rng(2))
    assert (x.shape, mask.shape, mask.dtype) == ((2, 10, 10, 3), (2, 10, 10), np.int16)
    assert [each.tolist() for each in made] == [[[0, 0, 10, 5]], [[0, 5, 5, 10]]]


def test_keypoints_of_boxes_stay_with_them_in_albumentations(A: Any) -> None:
    people = np.arange(24.0).reshape(2, 4, 3) - 2
    x = {"image": images(2), "boxes": [[[40, 0, 50, 9], [1, 1, 5, 5]], []], "people": [people, []]}
    keeping = A.KeypointParams("xy", remove_invisible=False)
    flip = A.Compose([A.HorizontalFlip(p=1)], bbox_params=A.BboxParams("pascal_voc"), keypoint_params=keeping)
    options: dict[str, Any] = {"boxes": "boxes", "box_labels": "people", "keypoints": "people"}
    made = augment.compose(augment.albumentations(flip), **options)(**x, rng=rng(2))
    check_same(made, augment.compose(augment.flip(p=1), **options)(**x, rng=rng(2)))


def test_a_pipeline_without_parameters_for_them_is_refused(A: Any) -> None:
    flip = augment.albumentations(A.HorizontalFlip(p=1))
    whole = A.Compose([A.HorizontalFlip()], keypoint_params=A.KeypointParams("yx"), bbox_params=A.BboxParams("coco"))
    augment.compose(flip, masks="mask")
    for operation, options in (
        (flip, {"boxes": "boxes"}),
        (flip, {"keypoints": "keypoints"}),
        (augment.albumentations(whole), {"keypoints": "keypoints"}),
    ):
        with raises(ArgumentError):
            augment.compose(operation, **options)
    xy = A.Compose([A.HorizontalFlip()], keypoint_params=A.KeypointParams("xy"), bbox_params=A.BboxParams("coco"))
    augment.compose(augment.albumentations(xy), keypoints="keypoints")
    with raises(ArgumentError):
        augment.compose(augment.albumentations(xy), boxes="boxes", box_labels="points", keypoints="points")


def test_torchvision_moves_them(v2: Any) -> None:
    x = batch(N)
    both = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)])
    check_same(augment.compose(augment.torchvision(both), **OPTIONS)(**x, rng=rng(N)), turned(x))
    crop = augment.torchvision(v2.RandomCrop((20, 26)))
    check_crops(x, augment.compose(crop, **OPTIONS)(**x, rng=rng(N)), (20, 26))
    listed = v2.Compose([v2.RandomCrop((20, 26)), v2.ConvertBoundingBoxFormat("CXCYWH")])
    check_crops(x, augment.compose(augment.torchvision(listed), **OPTIONS)(**x, rng=rng(N)), (20, 26))
    pure = v2.Compose([v2.RandomCrop((20, 26)), v2.ToPureTensor()])
    check_crops(x, augment.compose(augment.torchvision(pure), **OPTIONS)(**x, rng=rng(N)), (20, 26))
    without = {name: column for name, column in x.items() if name != "mask"}
    clean = augment.torchvision(v2.Compose([both, v2.SanitizeBoundingBoxes()]))
    made = augment.compose(clean, **{**OPTIONS, "masks": "masks"})(**without, rng=rng(N))
    check_same(made, {name: column for name, column in turned(x).items() if name != "mask"})


def test_images_alone_go_through_torchvision(v2: Any) -> None:
    import torch

    x = images(N, (32, 40))
    transform = v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    operation = augment.torchvision(transform)
    state = torch.get_rng_state()
    (made,) = operation(x, rng=rng(N))
    assert torch.equal(torch.get_rng_state(), state)
    assert (made.shape, made.dtype, made.flags.c_contiguous) == ((N, 24, 24, 3), np.float32, True)
    (first,) = augment.torchvision(transform, layout="NCHW")(x, rng=rng(N))
    np.testing.assert_array_equal(first, made.transpose(0, 3, 1, 2))
    parts = [operation(x[rows], rng=bu.SampleRng(7, rows))[0] for rows in (np.arange(7), np.arange(7, N))]
    np.testing.assert_array_equal(np.concatenate(parts), made)
    assert len(np.unique(made.reshape(N, -1), axis=0)) == N
    again, _ = pickle.loads(pickle.dumps(augment.compose(operation, augment.flip(p=0.0))))(x, x, rng=rng(N))
    np.testing.assert_array_equal(again, made)
    assert operation(x[:0], rng=rng(0))[0].shape == (0, 32, 40, 3)
    x.flags.writeable = False
    frozen = x.copy()
    augment.torchvision(lambda image: image.mul_(0))(x, rng=rng(N))
    np.testing.assert_array_equal(x, frozen)
    assert "torchvision(Compose, layout='NHWC')" in repr(operation)


def test_threads_take_turns_with_the_generator_of_torch(v2: Any) -> None:
    transform = v2.Compose([v2.RandomCrop(16), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4)])
    source = bu.ArrayDataSource([images(60, (24, 24)), np.arange(60)]).map(augment.torchvision(transform), rng="sample")
    expected = list(source.batch_iterator(5, shuffle=3))
    with bu.WorkerThreadPool(3) as pool:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(5, shuffle=3)), expected)


def test_transforms_of_torchvision_that_do_not_fit_are_refused(v2: Any) -> None:
    x = batch(4, seed=3)
    assert sum(map(len, x["boxes"])) > 0
    for transform in (
        lambda sample: {**sample, "boxes": sample["boxes"][:0]},
        lambda sample: {**sample, "keypoints": sample["keypoints"][:0]},
    ):
        with raises(ArgumentError):
            augment.compose(augment.torchvision(transform), **OPTIONS)(**x, rng=rng(4))
    with raises(ArgumentTypeError):
        augment.torchvision(v2.Compose([v2.ToPILImage()]))(x["image"], rng=rng(4))
    with raises(ArgumentError):
        augment.compose(augment.torchvision(v2.Identity(), layout="NCHW"), augment.flip())
    with raises(ArgumentError):
        augment.torchvision(v2.Identity(), layout="CHW")


def test_what_is_no_transform_is_refused() -> None:
    with raises(ArgumentTypeError):
        augment.torchvision(None)
