"""Boxes, masks and keypoints agree with torchvision v2 and Albumentations, within a pixel.

Both libraries are called with the numbers that our operations drew. Keypoints differ by up to half a pixel of the
smaller image: they resize x to s x, and torchvision turns about the edge of the middle pixel, ours go with the pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from batchup_ng import augment
from batchup_ng.augment.ranges import between
from benchmarks.peers.augmentations import torchvision_v2
from tests.augment.annotated import FIRST, OPTIONS, SIZE, batch
from tests.augment.helpers import rng

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries' own

Size = tuple[int, int]
HEIGHT, WIDTH = SIZE
CUT = (20, 26)
PLAIN: dict[str, Any] = {**OPTIONS, "mask_fill": 0, "remove_invisible": False}
"""Options as the libraries have them."""

OURS: dict[str, Callable[[], Any]] = {
    "flip": lambda: augment.flip(p=1.0),
    "flip-vertical": lambda: augment.flip(p=1.0, vertical=True),
    "random_crop": lambda: augment.random_crop(CUT),
    "random_crop-padding": lambda: augment.random_crop(CUT, padding=4),
    "resized_crop": lambda: augment.resized_crop(CUT, scale=(0.3, 1.0)),
    "turned": lambda: augment.affine(rotate=45, scale=(0.8, 1.2)),
    "affine": lambda: augment.affine(rotate=45, translate=0.2, scale=(0.8, 1.2)),
}


@pytest.fixture
def n(in_full: bool) -> int:
    """The number of random cases."""
    return 1000 if in_full else 60


def drawn(name: str, n: int) -> list[Any]:
    """Return what our operation does to each image: corners, boxes or angle, shifts, scale, shears."""
    operation = OURS[name]()
    numbers = operation.draw(rng(n))
    if name.startswith("random_crop"):
        return operation.corners(SIZE, numbers)
    if name == "resized_crop":
        return operation.crops(SIZE, numbers)
    if name in ("turned", "affine"):
        return [[*map(between, operation.ranges(), row[1:])] for row in numbers.tolist()]
    return [None] * n


def ours(name: str, x: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of the batch after our operation."""
    yield from samples(augment.compose(OURS[name](), **PLAIN)(**x, rng=rng(len(x["image"]))))


def check(
    x: dict[str, Any], made: dict[str, Any], boxes: np.ndarray, mask: np.ndarray, masks: np.ndarray, keypoints: Any,
    part: Size | None = None,
) -> None:  # fmt: skip
    """Check a sample of ours, `made` of `x`, against another library's, with all its boxes cut to the image.

    `part` is the height and width that the whole image has in the result. A pixel is one of the coarser image.
    """
    height, width = x["image"].shape[:2]
    down, across = (1, 1) if part is None else (part[0] / height, part[1] / width)
    areas = np.prod((boxes[:, 2:] - boxes[:, :2]).clip(0), axis=1) * inside(x)
    assert set(np.flatnonzero(areas > 1.01)) <= set(made["labels"]) <= set(np.flatnonzero(areas > 0.99))
    np.testing.assert_allclose(made["boxes"], boxes[made["labels"]], atol=0.01)
    offsets = np.abs(np.asarray(made["keypoints"]) - np.asarray(keypoints).reshape(-1, 2))
    assert (offsets <= (max(1, across), max(1, down))).all()
    # The numbers in the masks tell which pixels they show. At the border, one may show a pixel and the other none.
    (rows, columns), (their_rows, their_columns) = (divmod(each - FIRST, width) for each in (made["mask"], mask))
    both = (made["mask"] >= FIRST) & (mask >= FIRST)
    assert (both == (made["mask"] >= FIRST)).mean() > 0.9
    assert (both == (mask >= FIRST)).mean() > 0.9
    assert (np.abs(rows - their_rows)[both] <= max(1, 1 / down)).all()
    assert (np.abs(columns - their_columns)[both] <= max(1, 1 / across)).all()
    for one, other, label in zip(made["masks"], masks[made["labels"]], made["labels"], strict=True):
        given = x["masks"][label]
        np.testing.assert_array_equal(one[both], given[rows[both], columns[both]])
        # Albumentations may round masks of uint8 otherwise than those of int32.
        assert not both.any() or (other[both] == given[their_rows[both], their_columns[both]]).mean() > 0.95


def inside(x: dict[str, Any]) -> np.ndarray:
    """Return whether each box of a sample shows a part of the image, which may be turned to a box with an area."""
    height, width = x["image"].shape[:2]
    inner = x["boxes"].clip(0, [width, height] * 2)
    found: np.ndarray = (inner[:, 2:] > inner[:, :2]).all(axis=1)
    return found


def samples(x: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the samples of a batch."""
    for i in range(len(x["image"])):
        yield {key: column[i] for key, column in x.items()}


@pytest.fixture(scope="module")
def v2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for library in ("torch", "torchvision"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield torchvision_v2()


@pytest.mark.parametrize("name", OURS)
def test_they_agree_with_torchvision(name: str, v2: Any, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which moves pixels, is not installed")
    import torch
    from torchvision import tv_tensors

    functional, x = v2.functional, batch(n)
    theirs: dict[str, Callable[[Any, Any], Any]] = {
        "flip": lambda given, _: functional.horizontal_flip(given),
        "flip-vertical": lambda given, _: functional.vertical_flip(given),
        "random_crop": lambda given, corner: functional.crop(given, *corner, *CUT),
        "random_crop-padding": lambda given, corner: functional.crop(given, *corner, *CUT),
        "resized_crop": lambda given, box: functional.resized_crop(given, box.top, box.left, *box.size, list(CUT)),
        "turned": lambda given, by: functional.affine(given, by[0], [0, 0], by[3], [0.0, 0.0]),
        "affine": lambda given, by: functional.affine(given, by[0], [by[1] * WIDTH, by[2] * HEIGHT], by[3], [0.0, 0.0]),
    }
    for one, made, numbers in zip(samples(x), ours(name, x), drawn(name, n), strict=True):
        boxes = torch.from_numpy(one["boxes"].clip(0, [WIDTH, HEIGHT] * 2).astype(np.float32))
        given = [
            tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=SIZE),
            tv_tensors.Mask(torch.from_numpy(one["mask"].copy())),
            tv_tensors.Mask(torch.from_numpy(one["masks"])),
            tv_tensors.KeyPoints(torch.from_numpy(one["keypoints"].astype(np.float32)), canvas_size=SIZE),
        ]
        results = [np.asarray(theirs[name](each, numbers)) if len(each) else np.asarray(each) for each in given]
        check(one, made, *results)


@pytest.fixture(scope="module")
def A() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # it would look for a newer version
        yield pytest.importorskip("albumentations", reason="Albumentations is not installed")


@pytest.mark.parametrize("name", ["flip", "flip-vertical", "random_crop", "resized_crop", "turned"])
def test_they_agree_with_albumentations(name: str, A: Any, n: int) -> None:
    x = batch(n)
    theirs: dict[str, Callable[[Any], list[Any]]] = {
        "flip": lambda _: [A.HorizontalFlip(p=1)],
        "flip-vertical": lambda _: [A.VerticalFlip(p=1)],
        "random_crop": lambda at: [A.Crop(at[1], at[0], at[1] + CUT[1], at[0] + CUT[0], p=1)],
        "resized_crop": lambda box: [
            A.Crop(box.left, box.top, box.left + box.size[1], box.top + box.size[0], p=1), A.Resize(*CUT, p=1)
        ],
        "turned": lambda by: [A.Affine(scale=(by[3], by[3]), rotate=(-by[0], -by[0]), p=1)],
    }  # fmt: skip
    boxes_of = A.BboxParams("pascal_voc", label_fields=["labels"], min_area=1e-3)
    points_of = A.KeypointParams("xy", remove_invisible=False)
    for one, made, numbers in zip(samples(x), ours(name, x), drawn(name, n), strict=True):
        inner = one["boxes"].clip(0, [WIDTH, HEIGHT] * 2)
        some = inside(one)
        pipeline = A.Compose(theirs[name](numbers), bbox_params=boxes_of, keypoint_params=points_of)
        result = pipeline(
            image=one["image"], bboxes=inner[some].astype(np.float32), labels=np.flatnonzero(some), mask=one["mask"],
            keypoints=one["keypoints"].astype(np.float32), **({"masks": one["masks"]} if len(some) else {}),
        )  # fmt: skip
        boxes = np.zeros((len(some), 4))
        boxes[np.asarray(result["labels"], int)] = np.asarray(result["bboxes"]).reshape(-1, 4)
        check(one, made, boxes, result["mask"], result.get("masks", made["masks"]), result["keypoints"])


RESIZING: dict[str, Callable[..., Any]] = {"resize": augment.resize, "letterbox": augment.letterbox}


def of_several_sizes(name: str, n: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], Size, Any, Any]]:
    """Yield samples, of several sizes in a batch, and ours, their new size, that of the image there, and its place."""
    draws = np.random.default_rng(3)
    for first in range(0, n, 3):
        size = tuple(draws.integers(16, 90, 2).tolist())
        given = [batch(1, tuple(draws.integers(16, 90, 2).tolist()), seed) for seed in range(first, first + 3)]
        x = {key: [one[key][0] for one in given] for key in given[0]}
        chain = augment.compose(RESIZING[name](size), **PLAIN)
        for one, made in zip(samples(x), samples(chain(**x)), strict=True):
            height, width = one["image"].shape[:2]
            if name == "resize":
                yield one, made, size, size, (0, 0)
            else:
                scale = min(size[0] / height, size[1] / width)
                part = max(1, round(height * scale)), max(1, round(width * scale))
                yield one, made, size, part, ((size[0] - part[0]) // 2, (size[1] - part[1]) // 2)


@pytest.mark.parametrize("name", RESIZING)
def test_images_of_several_sizes_agree_with_torchvision(name: str, v2: Any, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    import torch
    from torchvision import tv_tensors

    for one, made, size, part, (top, left) in of_several_sizes(name, n):
        canvas = one["image"].shape[:2]
        boxes = one["boxes"].clip(0, [canvas[1], canvas[0]] * 2).astype(np.float32)
        given = [
            tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=canvas),
            tv_tensors.Mask(torch.from_numpy(one["mask"].copy())),
            tv_tensors.Mask(torch.from_numpy(one["masks"])),
            tv_tensors.KeyPoints(torch.from_numpy(one["keypoints"].astype(np.float32)), canvas_size=canvas),
        ]
        padding = [left, top, size[1] - part[1] - left, size[0] - part[0] - top]
        results = [
            np.asarray(v2.functional.pad(v2.functional.resize(each, list(part)), padding) if len(each) else each)
            for each in given
        ]
        check(one, made, *results, part)


@pytest.mark.parametrize("name", RESIZING)
def test_images_of_several_sizes_agree_with_albumentations(name: str, A: Any, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    for one, made, size, part, _ in of_several_sizes(name, n):
        canvas = one["image"].shape[:2]
        inner, some = one["boxes"].clip(0, [canvas[1], canvas[0]] * 2), inside(one)
        pad = A.PadIfNeeded(*size, border_mode=0, p=1)
        pipeline = A.Compose(
            [A.Resize(*part, p=1), pad], bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"], min_area=1e-3),
            keypoint_params=A.KeypointParams("xy", remove_invisible=False),
        )  # fmt: skip
        result = pipeline(
            image=one["image"], bboxes=inner[some].astype(np.float32), labels=np.flatnonzero(some), mask=one["mask"],
            keypoints=one["keypoints"].astype(np.float32), **({"masks": one["masks"]} if len(some) else {}),
        )  # fmt: skip
        assert result["image"].shape == made["image"].shape
        boxes = np.zeros((len(some), 4))
        boxes[np.asarray(result["labels"], int)] = np.asarray(result["bboxes"]).reshape(-1, 4)
        check(one, made, boxes, result["mask"], result.get("masks", made["masks"]), result["keypoints"], part)


@pytest.mark.parametrize("side", [64, 65])
def test_a_letterbox_lies_where_that_of_albumentations_does(side: int, A: Any, n: int) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    draws = np.random.default_rng(0)
    both = A.Compose([A.LongestMaxSize(side), A.PadIfNeeded(side, side)], bbox_params=A.BboxParams("pascal_voc"))
    for _ in range(n):
        height, width = draws.integers(20, 200, 2)
        box = np.array([[0, 0, width, height]], np.float32)
        chain = augment.compose(augment.letterbox(side), boxes="boxes", min_area=0)
        made = chain(image=[np.zeros((height, width, 3), np.uint8)], boxes=[box])
        theirs = both(image=np.zeros((height, width, 3), np.uint8), bboxes=box)
        np.testing.assert_allclose(made["boxes"][0], theirs["bboxes"], atol=0.01)
