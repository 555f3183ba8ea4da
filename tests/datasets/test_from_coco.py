"""`from_coco`: boxes, labels, masks and keypoints of a COCO file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.accessors.encoded_pictures import EncodedPictures
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.accessors.test_instance_masks import compressed, runs_of
from tests.datasets.annotated_helpers import (
    SIZES,
    assert_images,
    assert_is_like_any_source,
    columns,
    report_of,
    write_images,
)  # fmt: skip
from tests.messages import raises

NAMES = ["b.png", "sub/a.png", "d.png", "c.png", "e.png"]
IDS = [70, 9, 300, 12, 5]  # of the images of these names
CROWD = {"size": [20, 30], "counts": [5, 20, 575]}
SQUARE = [[1, 1, 4, 1, 4, 4, 1, 4]]
ANNOTATIONS: list[dict[str, Any]] = [
    # of image 70, which is 20 high and 30 wide
    {"id": 1, "image_id": 70, "category_id": 90, "bbox": [1, 2, 3, 4], "segmentation": SQUARE, "iscrowd": 0},
    {"id": 2, "image_id": 12, "category_id": 3, "bbox": [0.5, 0.25, 20, 10.5], "segmentation": SQUARE},
    {"id": 3, "image_id": 70, "category_id": 3, "bbox": [20, 10, 15, 15], "segmentation": [[20, 10, 30, 10, 30, 20]]},
    {"id": 4, "image_id": 70, "category_id": 3, "bbox": [0, 0, 30, 20], "segmentation": CROWD, "iscrowd": 1},
    {"id": 5, "image_id": 9, "category_id": 17, "bbox": [3, 3, 0, 5], "segmentation": SQUARE},
    {"id": 6, "image_id": 9, "category_id": 17, "bbox": [25, 3, 4, 5], "segmentation": SQUARE},
    {"id": 7, "image_id": 5, "category_id": 17, "bbox": [-3, 3, 10, 4], "segmentation": [*SQUARE, [], [1, 1, 9, 9]]},
]
CATEGORIES = [{"id": 90, "name": "brush"}, {"id": 3, "name": "car"}, {"id": 17, "name": "cat"}, {"id": 4, "name": "x"}]


def content() -> dict[str, Any]:
    """Return the content of a file. Each call makes another copy."""
    images = [
        {"id": number, "file_name": name, "height": height, "width": width}
        for number, name, (height, width) in zip(IDS, NAMES, SIZES, strict=True)
    ]
    return copy.deepcopy({"info": {}, "images": images, "annotations": ANNOTATIONS, "categories": CATEGORIES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("coco")
    write_images(root, NAMES)
    return root


def read(folder: Path, given: Any, **options: Any) -> bu.FilesDataSource:
    path = folder / "instances.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    return bu.from_coco(folder, path, **options)


def oracle(given: dict[str, Any], image_id: int, crowd: bool = False) -> list[dict[str, Any]]:
    """Return the annotations of an image that have an area in it, with the edges of the box as ``"edges"``."""
    (image,) = [one for one in given["images"] if one["id"] == image_id]
    found = []
    for one in given["annotations"]:
        x, y, width, height = one["bbox"]
        edges = [max(x, 0), max(y, 0), min(x + width, image["width"]), min(y + height, image["height"])]
        wanted = one["image_id"] == image_id and (crowd or not one.get("iscrowd"))
        if wanted and edges[2] > edges[0] and edges[3] > edges[1]:
            found.append({**one, "edges": edges})
    return found


@pytest.mark.parametrize("crowd", [False, True])
def test_the_boxes_and_labels_of_each_image(folder: Path, crowd: bool) -> None:
    given = content()
    source = read(folder, given, crowd=crowd)
    x = columns(source)
    assert list(x) == ["image", "boxes", "labels", *["iscrowd"] * crowd, "image_id"]
    assert x["image_id"] == sorted(IDS)
    assert next(source.batch_iterator(9))["image_id"].dtype == np.int64
    assert_images(x["image"], [IDS.index(number) for number in sorted(IDS)])
    assert source.class_names == ("car", "x", "cat", "brush")
    numbers = {3: 0, 4: 1, 17: 2, 90: 3}
    for row, number in enumerate(sorted(IDS)):
        expected = oracle(given, number, crowd)
        np.testing.assert_array_equal(
            x["boxes"][row], np.array([one["edges"] for one in expected], np.float32).reshape(-1, 4), strict=True
        )
        np.testing.assert_array_equal(
            x["labels"][row], np.array([numbers[one["category_id"]] for one in expected], np.int64), strict=True
        )
        if crowd:
            assert x["iscrowd"][row].tolist() == [bool(one.get("iscrowd")) for one in expected]
            assert x["iscrowd"][row].dtype == bool


def test_the_report_counts_boxes_and_lists_what_is_left_out(folder: Path) -> None:
    report = report_of(read(folder, content()))
    assert (report.samples, dict(report.class_counts)) == (5, {"car": 2, "x": 0, "cat": 1, "brush": 1})
    assert report.boxes == 4
    assert f"{report.where}: 5 images, 4 boxes in 4 classes\n" in str(report)
    assert dict(report.skipped) == {
        "a crowd": ["annotation 4"], "a box without area in its image": ["annotation 5", "annotation 6"]
    }  # fmt: skip


def test_masks_are_those_of_polygons_and_run_lengths(folder: Path) -> None:
    x = columns(read(folder, content(), masks=True, crowd=True))
    masks = x["masks"][x["image_id"].index(70)]
    assert (masks.shape, masks.dtype) == ((3, 20, 30), np.uint8)
    square, runs = np.zeros((20, 30)), np.zeros(600)
    square[1:4, 1:4] = runs[5:25] = 1
    np.testing.assert_array_equal(masks[0], square)
    np.testing.assert_array_equal(masks[2], runs.reshape(30, 20).T)  # column by column
    assert 45 <= masks[1].sum() <= 55
    assert masks[1][:10].sum() == masks[1][:, :20].sum() == 0
    assert x["masks"][x["image_id"].index(5)].sum() == 9
    assert x["masks"][x["image_id"].index(300)].shape == (0, 16, 16)


@pytest.mark.parametrize("none", [None, [], [[]], [[1, 2]], [[1, 2, 3, 4], []]])
def test_an_object_without_a_mask_is_left_out_if_masks_are_read(folder: Path, none: Any) -> None:
    given = content()
    given["annotations"][1]["segmentation"] = none
    x = columns(source := read(folder, given, masks=True))
    row = x["image_id"].index(12)
    assert x["boxes"][row].shape == (0, 4)
    assert (x["labels"][row].shape, x["masks"][row].shape) == ((0,), (0, 33, 21))
    assert dict(report_of(source).skipped)["without a mask"] == ["annotation 2"]
    assert len(columns(read(folder, given))["boxes"][row]) == 1
    for one in given["annotations"]:
        one["segmentation"] = none
    with raises(ArgumentError):
        read(folder, given, masks=True)


def test_a_file_that_two_images_have_is_listed(folder: Path) -> None:
    given = content()
    given["images"].append({**given["images"][0], "id": 400})
    source = read(folder, given)
    assert list(report_of(source).duplicates) == [str(folder / "b.png")]
    assert [len(boxes) for boxes in columns(source)["boxes"]] == [1, 0, 1, 2, 0, 0]


def test_sides_may_be_floats_that_are_whole(folder: Path) -> None:
    given = content()
    given["images"][0].update(height=20.0, width=30.0)
    both = columns(read(folder, given)), columns(read(folder, content()))
    np.testing.assert_array_equal(*[x["boxes"][3] for x in both])


@pytest.mark.parametrize("seed", range(20))
def test_random_files_are_read_as_plain_python_reads_them(folder: Path, seed: int) -> None:
    """Check objects in any order: crowds, boxes outside of their images, rectangles as polygons, run lengths."""
    rng = np.random.default_rng(seed)
    given, ids = content(), rng.permutation(1000)[:5].tolist()
    for one, number in zip(given["images"], ids, strict=True):
        one["id"] = number
    given["annotations"] = []
    expected: dict[int, list[tuple[list[float], str, np.ndarray, list[float]]]] = {number: [] for number in ids}
    for number in rng.permutation(60).tolist():
        image, (height, width) = (place := int(rng.integers(5))), SIZES[place]
        category = CATEGORIES[rng.integers(4)]
        left, top = rng.integers(-9, (width + 5, height + 5)).tolist()
        box = [left, top, *rng.integers(0, 20, 2).tolist()]
        mask = np.zeros((height, width), np.uint8)
        mask[max(0, top) : max(0, top + box[3]), max(0, left) : max(0, left + box[2])] = 1
        right, bottom = left + box[2], top + box[3]
        segmentation: Any = [[left, top, right, top, right, bottom, left, bottom]]
        if rng.random() < 0.5:
            mask = (rng.random((height, width)) < rng.random()).astype(np.uint8)
            segmentation = {"size": [height, width], "counts": runs_of(mask)}
            if rng.random() < 0.5:
                segmentation["counts"] = compressed(segmentation["counts"])
        points = rng.integers(-5, 60, 6).tolist()
        is_crowd = rng.random() < 0.2
        given["annotations"].append({
            "id": number, "image_id": ids[image], "category_id": category["id"], "bbox": box,
            "segmentation": segmentation, "keypoints": points, **({"iscrowd": 1} if is_crowd else {}),
        })  # fmt: skip
        edges = np.clip([left, top, right, bottom], 0, [width, height] * 2).tolist()
        if edges[2] > edges[0] and edges[3] > edges[1] and not is_crowd:
            expected[ids[image]].append((edges, str(category["name"]), mask, points))
    source = read(folder, given, masks=True, keypoints=True)
    x = columns(source)
    assert x["image_id"] == sorted(ids)
    for row, number in enumerate(sorted(ids)):
        size = SIZES[ids.index(number)]
        assert x["image"][row].shape[:2] == size
        assert x["boxes"][row].tolist() == [edges for edges, *_ in expected[number]]
        assert [source.class_names[label] for label in x["labels"][row]] == [name for _, name, *_ in expected[number]]
        wanted = np.array([mask for *_, mask, _ in expected[number]], np.uint8).reshape(-1, *size)
        np.testing.assert_array_equal(x["masks"][row], wanted, strict=True)
        assert x["keypoints"][row].reshape(-1, 6).tolist() == [points for *_, points in expected[number]]


def test_keypoints_belong_to_boxes(folder: Path) -> None:
    given = content()
    given["annotations"][0]["keypoints"] = [1, 2, 2, 3, 4.5, 1]
    given["annotations"][4]["keypoints"] = [9, 9, 2, 9, 9, 2]  # it has no area
    x = columns(read(folder, given, keypoints=True))
    points = x["keypoints"][x["image_id"].index(70)]
    assert points.tolist() == [[[1, 2, 2], [3, 4.5, 1]], [[0, 0, 0], [0, 0, 0]]]
    assert points.dtype == np.float32
    assert x["keypoints"][x["image_id"].index(300)].shape == (0, 2, 3)


def test_it_is_like_any_source(folder: Path, pools: list[AbstractWorkerPool]) -> None:
    given = content()
    given["annotations"][0]["keypoints"] = [1, 2, 2, 3, 4.5, 1]
    assert_is_like_any_source(read(folder, given, masks=True, keypoints=True, crowd=True), pools)


def test_all_move_with_a_letterbox(folder: Path, pools: list[AbstractWorkerPool]) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    chain = augment.compose(
        augment.letterbox(64), augment.flip(p=1.0), boxes="boxes", box_labels=["labels", "masks"], masks="masks"
    )
    plain = columns(read(folder, content(), masks=True))
    source = read(folder, content(), masks=True).map(chain, rng="sample")
    (batch,) = source.batch_iterator(9)
    assert batch["image"].shape == (5, 64, 64, 3)
    for (height, width), boxes, moved, masks in zip(
        [image.shape[:2] for image in plain["image"]], plain["boxes"], batch["boxes"], batch["masks"], strict=True
    ):
        scale = 64 / max(height, width)
        left, top = (64 - round(width * scale)) // 2, (64 - round(height * scale)) // 2
        across, down = round(width * scale) / width, round(height * scale) / height
        edges = boxes * (across, down, across, down) + (left, top, left, top)
        edges[:, [0, 2]] = 64 - edges[:, [2, 0]]
        np.testing.assert_allclose(moved, edges, atol=0.01)
        assert masks.shape == (len(boxes), 64, 64)
    for pool in pools:
        (other,) = pool.parallel_data_source(source).batch_iterator(9)
        for name, column in batch.items():
            assert all(map(np.array_equal, other[name], column))


def test_class_names_give_the_numbers(folder: Path) -> None:
    source = read(folder, content(), class_names=["background", "cat", "car", "brush", "x", "more"])
    assert source.class_names == ("background", "cat", "car", "brush", "x", "more")
    x = columns(source)
    assert x["labels"][x["image_id"].index(70)].tolist() == [3, 2]
    assert source.with_images(mode="L").class_names == source.class_names
    given = content()
    given["categories"][0]["name"] = "cat"  # as Roboflow writes
    source = read(folder, given)
    assert (source.class_names, source.report.class_counts["cat"]) == (("car", "x", "cat"), 2)


def test_ids_may_be_texts_and_images_may_be_missing(folder: Path) -> None:
    given = content()
    for one in given["images"]:
        one["id"] = f"n{one['id']}"
    for one in given["annotations"]:
        one["image_id"] = f"n{one['image_id']}"
    assert columns(read(folder, given))["image_id"] == ["n12", "n300", "n5", "n70", "n9"]
    given["images"][0]["file_name"] = "gone.png"  # with two objects
    source = read(folder, given, missing="skip")
    assert columns(source)["image_id"] == ["n12", "n300", "n5", "n9"]
    assert list(source.report.missing) == [str(folder / "gone.png")]
    assert source.report.class_counts["brush"] == 0
    assert len(read(folder, given, missing="ignore")) == 5
    with raises(ArgumentError):
        read(folder, given)


def test_an_image_of_another_size_is_named_when_it_is_read(folder: Path, tmp_path: Path) -> None:
    write_images(tmp_path, NAMES)
    exif = Image.Exif()
    exif[274] = 6  # to be turned by a quarter
    Image.new("RGB", SIZES[0][::-1]).save(tmp_path / NAMES[0], exif=exif)
    source = read(tmp_path, content())
    with raises(SampleReadError) as caught:
        source.data[0][3]
    with raises(SampleReadError):  # which would hide it from the reader of the new file
        EncodedPictures(source.data[0])[[2, 3]]
    assert len(EncodedPictures(source.data[0])[[0, 1, 2, 4]]) == 4
    assert caught.value.source == str(tmp_path / NAMES[0])
    with pytest.warns(bu.SampleWarning):
        (batch,) = source.batch_iterator(9, on_error="skip")
    assert len(batch["boxes"]) == 4


def test_a_size_or_crop_that_boxes_would_not_follow_is_refused(folder: Path) -> None:
    source = read(folder, content())
    with raises(ArgumentError):
        source.with_images(size=64)
    with raises(ArgumentError):
        source.split([0.5, 0.5], 1)[0].with_images(size=64, crop="center")
    with raises(ArgumentError):
        bu.convert(source, folder / "x.tar", size=8)
    with raises(ArgumentError):
        source.cache()
    with raises(ArgumentTypeError):
        bu.from_coco(folder, "x.json", size=64)  # type: ignore[call-arg]
    assert columns(source.with_images(mode="L", size=None))["image"][0].ndim == 2


def changed(**changes: Any) -> dict[str, Any]:
    """Return a content with other entries: ``annotations_0={"bbox": None}`` changes those of the first."""
    given = content()
    for name, values in changes.items():
        part, _, place = name.partition("_")
        given[part][int(place)].update(values)
    return given


WRONG: list[Any] = [
    "no json", "[]", {"images": []}, {**content(), "images": []},
    changed(images_0={"id": None}), changed(images_0={"id": 9}), changed(images_0={"id": "9"}),
    changed(images_0={"height": 0}), changed(images_0={"width": "30"}), changed(images_0={"file_name": None}),
    changed(annotations_1={"id": 1}), changed(annotations_1={"image_id": 8}), changed(annotations_1={"category_id": 8}),
    changed(annotations_1={"category_id": None}), changed(categories_1={"name": ""}), changed(categories_1={"id": 4}),
    changed(annotations_1={"bbox": None}), changed(annotations_1={"bbox": [1, 2, 3]}),
    changed(annotations_1={"bbox": [1, 2, 3, float("nan")]}), changed(annotations_1={"bbox": ["1", 2, 3, 4]}),
    changed(annotations_1={"segmentation": "x"}), changed(annotations_1={"segmentation": [[1, 2, 3]]}),
    changed(annotations_1={"segmentation": [1, 2, 3, 4, 5, 6]}), changed(annotations_1={"iscrowd": "0"}),
    changed(annotations_1={"bbox": [1, 2, 3, 10**400]}), changed(annotations_1={"bbox": [1, 2, 3, True]}),
    changed(annotations_1={"image_id": True}), changed(images_0={"height": 20.5}), changed(images_0={"height": 10**30}),
    changed(annotations_1={"segmentation": {"size": [33, 21], "counts": [2**62, 2**62, 2**62, 2**62, 693]}}),
    changed(annotations_1={"keypoints": 5}), changed(annotations_1={"keypoints": [1, 2, float("inf")]}),
    changed(annotations_1={"segmentation": {"size": [20, 30], "counts": [600]}}),  # that of another image
    changed(annotations_0={"keypoints": [1, 2, 3]}, annotations_1={"keypoints": [1, 2, 3, 4]}),
    changed(annotations_1={"keypoints": [1, 2, 0]}, annotations_2={"keypoints": [1, 2, 0, 1, 2, 0]}),
]  # fmt: skip


@pytest.mark.parametrize("given", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(folder: Path, given: Any) -> None:
    points = not isinstance(given, dict) or any("keypoints" in one for one in given.get("annotations", ()))
    with raises(ArgumentError):
        read(folder, given, masks=True, keypoints=points)


def test_options_that_do_not_suit_the_file_are_refused(folder: Path) -> None:
    with raises(ArgumentError):
        read(folder, content(), keypoints=True)
    with raises(ArgumentError):
        read(folder, content(), class_names=["cat"])
    with raises(ArgumentError):
        read(folder, content(), missing="no")


def test_a_file_that_cannot_be_opened_is_the_same_error_as_of_other_readers(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with raises(bu.SampleReadError) as caught:
            bu.from_coco(tmp_path, path)
        assert caught.value.source == str(path)
        assert isinstance(caught.value.__cause__, OSError)
