"""Columns joined to the targets of detection models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.messages import raises

IMAGES = np.zeros((3, 4, 4, 3), np.uint8)
BOXES = [np.array([[1, 2, 3, 5], [0, 0, 1, 1]]), [], np.array([[2.5, 2, 1, 1]])]
LABELS = [np.array([4, 5], np.uint8), [], [6]]


def test_targets_are_dicts_of_boxes_and_labels() -> None:
    batch = bu.DetectionTargets("boxes", "labels")(image=IMAGES, boxes=BOXES, labels=LABELS, name=["a", "b", "c"])
    assert list(batch) == ["image", "name", "target"]
    assert batch["image"] is IMAGES
    for target, boxes, labels in zip(batch["target"], BOXES, LABELS, strict=True):
        assert (target["boxes"].dtype, target["labels"].dtype) == (np.float32, np.int64)
        assert target["boxes"].shape == (len(boxes), 4)
        assert target["boxes"].tolist() == [list(box) for box in boxes]
        assert target["labels"].tolist() == list(labels)


@pytest.mark.parametrize(
    ("box_format", "first"), [("xyxy", [1, 2, 3, 5]), ("xywh", [1, 2, 4, 7]), ("cxcywh", [-0.5, -0.5, 2.5, 4.5])]
)
def test_boxes_become_edges(box_format: str, first: list[float]) -> None:
    (targets,) = bu.DetectionTargets({"boxes": 0}, box_format=box_format)(BOXES)
    assert targets[0]["boxes"][0].tolist() == first


def test_entries_may_have_other_names_than_columns_and_tuples_have_places() -> None:
    join = bu.DetectionTargets({"boxes": -2, "image_id": 3, "labels": 1})
    rows = np.arange(3)
    x, targets = join(IMAGES, LABELS, BOXES, rows)
    assert x is IMAGES
    assert list(targets[0]) == ["boxes", "image_id", "labels"]
    assert [int(target["image_id"]) for target in targets] == [0, 1, 2]
    named = bu.DetectionTargets({"boxes": "bbox"}, target="y")(image=IMAGES, bbox=BOXES)
    assert list(named) == ["image", "y"]
    assert repr(pickle.loads(pickle.dumps(join))) == repr(join)


def test_a_batch_without_samples_has_no_targets() -> None:
    assert bu.DetectionTargets("boxes")(boxes=[])["target"] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: bu.DetectionTargets(),
        lambda: bu.DetectionTargets("boxes", "boxes"),
        lambda: bu.DetectionTargets("boxes", box_format="yolo"),
        lambda: bu.DetectionTargets("boxes")(image=IMAGES),
        lambda: bu.DetectionTargets("boxes")(boxes=[[[1, 2, 3]]]),
        lambda: bu.DetectionTargets("boxes", "labels")(boxes=BOXES, labels=LABELS[:2]),
        lambda: bu.DetectionTargets("boxes")(boxes=BOXES, target=LABELS),
        lambda: bu.DetectionTargets("boxes", "labels")(boxes=[[[1, 2, 3, 4], [1, 2, 3, 4]]], labels=[[7]]),
        lambda: bu.DetectionTargets("boxes", "labels")(boxes=[[]], labels=[[7]]),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with raises(ArgumentError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: bu.DetectionTargets(0, 1),  # type: ignore[arg-type]
        lambda: bu.DetectionTargets({"boxes": 1.5}),  # type: ignore[dict-item]
        lambda: bu.DetectionTargets("boxes", target=0),  # type: ignore[arg-type]
        lambda: bu.DetectionTargets("labels")(labels=[["cat"]]),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused(call: Any) -> None:
    with raises(ArgumentTypeError):
        call()
