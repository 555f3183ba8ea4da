"""`from_voc`: the boxes of XML files in a folder like that of Pascal VOC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.datasets.annotated_helpers import (
    SIZES,
    assert_images,
    assert_is_like_any_source,
    columns,
    report_of,
    write_images,
)  # fmt: skip
from tests.messages import raises

NAMES = ["2007_01.jpg.png", "2007_02.png", "2007_03.PNG", "a.png", "b.png"]
IDS = ["2007_01.jpg", "2007_02", "2007_03", "a", "b"]
Object = tuple[str, tuple[Any, Any, Any, Any], int]
OBJECTS: list[list[Object]] = [
    [("dog", (1, 1, 30, 20), 0), ("cat", ("3.5", 2, 9, 9), 1)],
    [],
    [("dog", (5, 5, 99, 99), 0), ("cow", (4, 9, 3, 12), 0)],  # the second from right to left
    [("ant", (1, 33, 1, 33), 0)],  # one pixel
    [("ant", (7, 2, 8, 3), 0)],
]


def annotation(size: tuple[int, int], objects: list[Object]) -> str:
    boxes = "".join(
        f"<object><name> {name} </name><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
        f"<difficult>{hard}</difficult><bndbox><xmax>{x1}</xmax><xmin>{x0}</xmin><ymin>{y0}</ymin><ymax>{y1}</ymax>"
        f"</bndbox></object>"
        for name, (x0, y0, x1, y1), hard in objects
    )
    return f"<annotation><size><width>{size[1]}</width><height>{size[0]}</height></size>{boxes}</annotation>"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "JPEGImages", NAMES)
    (tmp_path / "Annotations").mkdir()
    for name, size, objects in zip(IDS, SIZES, OBJECTS, strict=True):
        (tmp_path / "Annotations" / f"{name}.xml").write_text(annotation(size, objects))
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("b\n2007_01.jpg\n\n")
    (tmp_path / "ImageSets" / "Main" / "ant_train.txt").write_text("a  1\nb -1\n")
    return tmp_path


@pytest.mark.parametrize("one_based", [True, False])
def test_the_boxes_and_labels_of_each_image(root: Path, one_based: bool) -> None:
    source = bu.from_voc(root, one_based=one_based)
    x = columns(source)
    assert list(x) == ["image", "boxes", "labels", "difficult", "image_id"]
    assert x["image_id"] == IDS
    assert_images(x["image"], [0, 1, 2, 3, 4])
    found = {name for objects in OBJECTS for name, _, _ in objects}
    assert source.class_names == tuple(sorted(found))
    counts = dict.fromkeys(sorted(found), 0)
    for row, ((height, width), objects) in enumerate(zip(SIZES, OBJECTS, strict=True)):
        boxes, labels, hard = [], [], []
        for name, edges, difficult in objects:
            x0, y0, x1, y1 = map(float, edges)
            box = [max(0, x0 - one_based), max(0, y0 - one_based), min(width, x1), min(height, y1)]
            if box[2] > box[0] and box[3] > box[1]:
                boxes.append(box)
                labels.append(source.class_names.index(name))
                hard.append(bool(difficult))
                counts[name] += 1
        np.testing.assert_array_equal(x["boxes"][row], np.array(boxes, np.float32).reshape(-1, 4), strict=True)
        np.testing.assert_array_equal(x["labels"][row], np.array(labels, np.int64), strict=True)
        np.testing.assert_array_equal(x["difficult"][row], np.array(hard, bool), strict=True)
    report = report_of(source)
    assert dict(report.class_counts) == counts
    left_out = [] if one_based else ["ant in a.xml"]
    assert dict(report.skipped) == {"a box without area in its image": ["cow in 2007_03.xml", *left_out]}


def test_a_split_is_a_list_of_names(root: Path) -> None:
    train = bu.from_voc(root, "train", class_names=["background", "dog", "cat", "ant", "cow"])
    assert columns(train)["image_id"] == ["b", "2007_01.jpg"]
    assert [labels.tolist() for labels in columns(train)["labels"]] == [[3], [1, 2]]
    assert columns(bu.from_voc(root, "ant_train"))["image_id"] == ["a", "b"]


def test_it_is_like_any_source(root: Path, pools: list[AbstractWorkerPool]) -> None:
    assert_is_like_any_source(bu.from_voc(root), pools)


def test_images_may_be_missing(root: Path) -> None:
    (root / "JPEGImages" / NAMES[1]).unlink()
    with raises(ArgumentError):
        bu.from_voc(root)
    source = bu.from_voc(root, missing="skip")
    assert columns(source)["image_id"] == [IDS[0], *IDS[2:]]
    assert list(source.report.missing) == [str(root / "JPEGImages" / "2007_02.jpg")]


def test_each_split_numbers_the_classes_alike(root: Path) -> None:
    for split in ("train", "ant_train", None):
        assert bu.from_voc(root, split).class_names == ("ant", "cat", "cow", "dog")
    train = columns(bu.from_voc(root, "ant_train"))
    whole = columns(bu.from_voc(root))
    for row, name in enumerate(train["image_id"]):
        np.testing.assert_array_equal(train["labels"][row], whole["labels"][IDS.index(name)])


def test_an_encoding_and_a_namespace_of_windows_count(root: Path) -> None:
    text = '<?xml version="1.0" encoding="windows-1252"?>\r\n' + annotation(SIZES[3], [("café", (1, 1, 5, 5), 0)])
    (root / "Annotations" / "a.xml").write_bytes(text.encode("windows-1252"))
    (root / "Annotations" / "b.xml").rename(root / "Annotations" / "b.XML")
    source = bu.from_voc(root)
    assert "café" in source.class_names
    assert columns(source)["image_id"] == IDS


def test_images_that_differ_in_their_endings_are_refused(root: Path) -> None:
    write_images(root / "JPEGImages", ["b.jpg"])
    with raises(ArgumentError):
        bu.from_voc(root)


BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
WRONG = [
    "<annotation>", "<annotation/>", annotation((0, 0), []),
    annotation((33, 21), []).replace("<height>33</height>", ""),
    annotation((33, 21), [("x", ("one", 1, 2, 2), 0)]), annotation((33, 21), [("x", ("nan", 1, 2, 2), 0)]),
    annotation((33, 21), [("", (1, 1, 2, 2), 0)]), annotation((33, 21), [("x", (1, 1, 2, 2), "yes")]),  # type: ignore
    annotation((33.5, 21), []),  # type: ignore[arg-type]
    '<?xml version="1.0" encoding="no-such"?><annotation/>', '<?xml version="1.0" encoding="gbk"?><annotation/>',
    annotation((33, 21), []).replace("</annotation>", "<object><name>x</name></object></annotation>"),
    annotation((33, 21), []).replace("</annotation>", f"<object>{BOX}</object></annotation>"),
    annotation((33, 21), [("x", ("", 1, 2, 2), 0)]),
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_file_that_is_wrong_is_named(root: Path, text: str) -> None:
    (root / "Annotations" / "a.xml").write_text(text)
    with raises(ArgumentError):
        bu.from_voc(root)


def test_folders_and_lists_that_are_wrong_are_named(root: Path) -> None:
    with raises(ArgumentError):
        bu.from_voc(root / "JPEGImages")
    with raises(ArgumentError):
        bu.from_voc(root, "val")
    with raises(ArgumentError):
        bu.from_voc(root, class_names=["dog"])
    for lines in ("a\nb\na", "a\nc", ""):
        (root / "ImageSets" / "Main" / "train.txt").write_text(lines)
        with raises(ArgumentError):
            bu.from_voc(root, "train")
    for path in (root / "Annotations").iterdir():
        path.unlink()
    with raises(ArgumentError):
        bu.from_voc(root)
