"""The files of shapes agree: each box is that of its shape in the mask, in every format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.demo.shapes import OUTLINES, write_shapes
from tests.short_folder import short_folder

COUNT = 40


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with short_folder() as made:
        write_shapes(made, COUNT, seed=3)
        yield made


def test_boxes_are_those_of_the_shapes_in_the_masks(folder: Path) -> None:
    coco, masks = (
        bu.from_coco(folder / "images", folder / "instances.json"),
        bu.from_pairs(folder / "images", folder / "masks"),
    )
    assert coco.class_names == tuple(OUTLINES)
    counts, classes = set(), set()
    for row in range(COUNT):
        sample, mask = coco[row], masks[row]["mask"]
        assert sample["image"].shape == (*mask.shape, 3)
        assert 90 <= min(mask.shape) <= max(mask.shape) <= 130
        left = mask.copy()
        for (x, y, right, bottom), label in zip(sample["boxes"].astype(int), sample["labels"], strict=True):
            inside = left[y:bottom, x:right]
            assert set(np.unique(inside)) <= {0, label + 1}
            ys, xs = np.nonzero(inside)
            assert (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) == (0, 0, right - x, bottom - y)
            assert {right - x, bottom - y} <= set(range(22, 43))
            inside[...] = 0
            classes.add(int(label))
        assert not left.any()
        counts.add(len(sample["boxes"]))
    assert (counts, classes) == ({2, 3, 4}, {0, 1, 2})


def test_yolo_has_the_boxes_of_coco(folder: Path) -> None:
    coco, yolo = bu.from_coco(folder / "images", folder / "instances.json"), bu.from_yolo(folder)
    assert yolo.class_names == coco.class_names
    for row in range(COUNT):
        np.testing.assert_allclose(yolo[row]["boxes"], coco[row]["boxes"], atol=1e-4)
        np.testing.assert_array_equal(yolo[row]["labels"], coco[row]["labels"])


def test_a_seed_gives_the_same_files_and_another_one_others(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("same", 3), ("other", 4)):
        (tmp_path / name).mkdir()
        write_shapes(tmp_path / name, 3, seed)
    for number in range(3):
        of = [
            np.asarray(Image.open(root / "images" / f"{number:03}.jpg").convert("RGB"))
            for root in (folder, tmp_path / "same", tmp_path / "other")
        ]
        np.testing.assert_array_equal(of[0], of[1])
        assert not np.array_equal(of[0], of[2])
