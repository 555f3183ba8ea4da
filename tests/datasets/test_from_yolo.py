"""`from_yolo`: boxes in text files, as shares of the sides of an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
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

NAMES = ["a.png", "b.png", "deep/c.png", "d.JPG.png", "e.png"]
IDS = ["a", "b", "d.JPG", "deep/c", "e"]
NUMBERS = [0, 1, 3, 2, 4]  # of the images with these ids
TEXTS = {
    "a": "0 0.5 0.5 1 1\n\n2 0.1 0.25 0.2 0.1\n",
    "b": "",
    "d.JPG": "1 0.9 0.9 0.4 0.4\n1 0.5 0.5 0 0.5\n",  # the second has no area
    "deep/c": "1.0 0.3 0.3 0.1 0.2",
}


def write(root: Path, images: str = "images", labels: str = "labels") -> Path:
    write_images(root / images, NAMES)
    for name, text in TEXTS.items():
        path = root / labels / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path)
    (tmp_path / "classes.txt").write_text("dog\ncat\nbird\n")
    return tmp_path


def test_shares_become_pixels(root: Path) -> None:
    (root / "labels" / "unused.txt").write_text("what no image has is not read")
    source = bu.from_yolo(root)
    x = columns(source)
    assert list(x) == ["image", "boxes", "labels", "image_id"]
    assert x["image_id"] == IDS
    assert_images(x["image"], NUMBERS)
    for row, (name, number) in enumerate(zip(IDS, NUMBERS, strict=True)):
        height, width = SIZES[number]
        boxes, labels = [], []
        for line in TEXTS.get(name, "").splitlines():
            if line:
                label, cx, cy, w, h = map(float, line.split())
                if w and h:
                    edges = (cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height
                    boxes.append([max(edges[0], 0), max(edges[1], 0), min(edges[2], width), min(edges[3], height)])
                    labels.append(int(label))
        assert x["boxes"][row].dtype == np.float32
        np.testing.assert_allclose(x["boxes"][row], np.reshape(boxes, (-1, 4)), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(x["labels"][row], np.array(labels, np.int64), strict=True)
    assert source.class_names == ("dog", "cat", "bird")
    report = report_of(source)
    assert dict(report.class_counts) == {"dog": 1, "cat": 2, "bird": 1}
    assert dict(report.skipped) == {
        "a label file without an image": [str(root / "labels" / "unused.txt")],
        "a box without area in its image": [f"line 2 of {root / 'labels' / 'd.JPG.txt'}"],
    }


def test_it_is_like_any_source(root: Path, pools: list[AbstractWorkerPool]) -> None:
    assert_is_like_any_source(bu.from_yolo(root), pools)


@pytest.mark.parametrize("folders", [("images/train", "labels/train"), ("train/images", "train/labels")])
def test_a_split_is_a_folder_in_either_order(tmp_path: Path, folders: tuple[str, str]) -> None:
    write(tmp_path, *folders)
    source = bu.from_yolo(tmp_path, "train", class_names=["dog", "cat", "bird"])
    assert columns(source)["image_id"] == IDS


@pytest.mark.parametrize(
    "text", ["names: [dog, 'cat', \"bird\"]", "nc: 3\nnames:\n- dog\n- cat\n- bird", "names: {0: dog, 2: bird, 1: cat}"]
)
def test_names_in_yaml(root: Path, text: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (root / "data.yaml").write_text(f"{text}\ntrain: images\n")  # goes before classes.txt
    (root / "classes.txt").write_text("other\n")
    assert bu.from_yolo(root).class_names == ("dog", "cat", "bird")
    assert bu.from_yolo(root, class_names=root / "data.yaml").class_names == ("dog", "cat", "bird")
    for wrong in (
        "train: images", "names: 3", "names: {0: dog, 5: cat}", "names: [", "- a",
        "names: [yes, no]", "names: {0: a, 1: }",  # truth values and nothing
    ):  # fmt: skip
        (root / "data.yaml").write_text(wrong)
        with raises((ArgumentError, ArgumentTypeError)):
            bu.from_yolo(root)


def test_without_pyyaml_lists_of_names_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    (root / "data.yaml").write_text("names: [a]")
    with raises(ModuleNotFoundError):
        bu.from_yolo(root)
    (root / "labels" / "classes.txt").write_text("in the labels\n")
    assert bu.from_yolo(root, class_names=root / "classes.txt").class_names == ("dog", "cat", "bird")


def test_an_orientation_counts(root: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    for ending in ("png", "jpg"):
        Image.new("RGB", (40, 20)).save(root / "images" / f"turned.{ending}", exif=exif)
        (root / "labels" / "turned.txt").write_text("0 0.5 0.5 1 1")
        x = columns(bu.from_yolo(root))
        assert x["image"][-1].shape == (40, 20, 3)
        assert x["boxes"][-1].tolist() == [[0, 0, 20, 40]]
        (root / "images" / f"turned.{ending}").unlink()


def test_line_ends_of_windows_and_tabs_are_spaces(root: Path) -> None:
    (root / "labels" / "e.txt").write_bytes(b"\xef\xbb\xbf0\t0.5 0.5  1 1 \r\n\r\n 2 0.5 0.5 1 1\r\n")
    (root / "classes.txt").write_bytes(b"dog\r\ncat\r\nbird\r\n")
    source = bu.from_yolo(root)
    assert columns(source)["labels"][-1].tolist() == [0, 2]
    assert source.class_names == ("dog", "cat", "bird")


def test_images_that_differ_in_their_endings_are_refused(root: Path) -> None:
    Image.new("RGB", (9, 9)).save(root / "images" / "a.jpg")
    with raises(ArgumentError):
        bu.from_yolo(root)


def test_an_image_may_be_called_classes(root: Path) -> None:
    Image.new("RGB", (40, 20)).save(root / "images" / "classes.png")
    (root / "labels" / "classes.txt").write_text("1 0.5 0.5 1 1")
    x = columns(bu.from_yolo(root))
    assert x["boxes"][x["image_id"].index("classes")].tolist() == [[0, 0, 40, 20]]


def test_an_image_that_changes_size_is_named(root: Path) -> None:
    source = bu.from_yolo(root)
    Image.new("RGB", (9, 9)).save(root / "images" / "b.png")
    with raises(SampleReadError):
        source.data[0][1]


WRONG = [
    "0 0.5 0.5 1", "0 0.1 0.1 0.2 0.1 0.2 0.2", "0 0.5 0.5 1 1 0.9", "0 0.5 0.5 1 1 0.1 0.1 2", "0,0.5,0.5,1,1",
    "0 0.5 0.5 1 x", "3 0.5 0.5 1 1", "-1 0.5 0.5 1 1", "0.5 0.5 0.5 1 1",
    "0 12 0.5 1 1", "0 0.5 0.5 -0.1 1", "0 nan 0.5 1 1", "\n\n0 0.5 0.5 1", "é".encode("latin-1"),
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_line_that_is_wrong_is_named(root: Path, text: Any) -> None:
    (root / "labels" / "e.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    with raises(ArgumentError):
        bu.from_yolo(root)


def test_what_to_do_with_keypoints_and_polygons_works(root: Path) -> None:
    pose, polygon = "1 0.5 0.5 0.5 0.5 0.1 0.1 2 0.3 0.3 1", "1 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75"
    corners = np.array(polygon.split()[1:], float).reshape(-1, 2)
    around = [*(corners.min(0) + corners.max(0)) / 2, *np.ptp(corners, 0)]
    for text in (" ".join(pose.split()[:5]), f"1 {' '.join(map(str, around))}"):
        (root / "labels" / "e.txt").write_text(text)
        Image.new("RGB", (40, 20)).save(root / "images" / "e.png")
        x = columns(bu.from_yolo(root))
        assert x["boxes"][x["image_id"].index("e")].tolist() == [[10, 5, 30, 15]]


def test_folders_and_images_that_are_wrong_are_named(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with raises(ArgumentError):
        bu.from_yolo(root / "images")
    with raises(ArgumentError):
        bu.from_yolo(root.parent)
    for split in ("val", "deeper"):  # there is images/deep
        with raises(ArgumentError):
            bu.from_yolo(root, split)
    with raises(ArgumentError):
        bu.from_yolo(root / "classes.txt")
    (root / "images" / "a.png").write_bytes(b"broken")
    with raises(ArgumentError):
        bu.from_yolo(root)
    (root / "classes.txt").unlink()
    with raises(ArgumentError):
        bu.from_yolo(root)
    empty = tmp_path_factory.mktemp("empty")
    for name in ("images", "labels"):
        (empty / name).mkdir()
    with raises(ArgumentError):
        bu.from_yolo(empty, class_names=["x"])
    write_images(empty / "images", NAMES)
    (empty / "labels" / "other.txt").touch()
    with raises(ArgumentError):
        bu.from_yolo(empty, class_names=["x"])
