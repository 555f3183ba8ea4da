"""`from_pairs`: images with masks of classes in files of the same names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.accessors.encoded_pictures import EncodedPictures
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

NAMES = ["a.png", "b.png", "deep/c.png", "d.x.png", "e.png"]
IDS = ["a", "b", "d.x", "deep/c", "e"]
NUMBERS = [0, 1, 3, 2, 4]


def mask(number: int) -> np.ndarray:
    return np.random.default_rng(100 + number).integers(0, 21, SIZES[number], dtype=np.uint8)


def write_masks(folder: Path, suffix: str = "") -> None:
    """Write a mask for each image, the odd ones with a palette."""
    for number, name in enumerate(NAMES):
        path = folder / f"{name.removesuffix('.png')}{suffix}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(mask(number))
        if number % 2:
            image.putpalette(np.random.default_rng(number).integers(0, 256, 768).tolist())
        image.save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "images", NAMES)
    write_masks(tmp_path / "masks")
    return tmp_path


def pairs(root: Path, **options: object) -> bu.FilesDataSource:
    return bu.from_pairs(root / "images", root / "masks", **options)  # type: ignore[arg-type]


def test_a_mask_has_the_numbers_in_its_file(root: Path) -> None:
    source = pairs(root)
    x = columns(source)
    assert list(x) == ["image", "mask", "image_id"]
    assert x["image_id"] == IDS
    assert_images(x["image"], NUMBERS)
    for found, number in zip(x["mask"], NUMBERS, strict=True):
        np.testing.assert_array_equal(found, mask(number), strict=True)
    assert columns(pairs(root, mask_dtype="int64"))["mask"][0].dtype == np.int64
    report = report_of(source)
    assert (report.samples, dict(report.skipped), source.class_names) == (5, {}, ())


def test_it_is_like_any_source(root: Path, pools: list[AbstractWorkerPool]) -> None:
    assert_is_like_any_source(pairs(root), pools)


def test_masks_are_resized_with_their_images(root: Path) -> None:
    pytest.importorskip("cv2", reason="OpenCV, which resizes, is not installed")
    chain = augment.compose(augment.resize((10, 12)), masks="mask")
    (batch,) = pairs(root).map(chain).batch_iterator(9)
    assert (batch["image"].shape, batch["mask"].shape, batch["mask"].dtype) == ((5, 10, 12, 3), (5, 10, 12), np.uint8)
    for made, number in zip(batch["mask"], NUMBERS, strict=True):
        height, width = SIZES[number]
        down, across = (np.arange(10) + 0.5) * height / 10, (np.arange(12) + 0.5) * width / 12
        nearest = np.ix_(*(np.floor(places + 1e-6).astype(int) for places in (down, across)))
        np.testing.assert_array_equal(made, mask(number)[nearest])
    with raises(ArgumentError):
        pairs(root).with_images(size=9)


def test_suffixes_and_names_choose_pairs(root: Path, tmp_path: Path) -> None:
    write_masks(tmp_path / "masks", "_labels")  # beside those without it
    source = pairs(root, suffixes=("", "_labels"))
    assert columns(source)["image_id"] == IDS
    assert source.data[1].sample_name(0).endswith("a_labels.png")
    (tmp_path / "train.txt").write_text("e\n\ndeep/c\n")
    for names in (["e", "deep/c"], tmp_path / "train.txt", str(tmp_path / "train.txt"), iter(["e", "deep/c"])):
        assert columns(pairs(root, suffixes=("", "_labels"), names=names))["image_id"] == ["e", "deep/c"]


def test_both_may_lie_in_one_folder(root: Path) -> None:
    for number, name in enumerate(NAMES):
        Image.fromarray(mask(number)).save(root / "images" / f"{name.removesuffix('.png')}_mask.png")
    source = bu.from_pairs(root / "images", root / "images", suffixes=("", "_mask"))
    assert columns(source)["image_id"] == IDS
    np.testing.assert_array_equal(columns(source)["mask"][1], mask(1))


@pytest.mark.parametrize("inner", ["images", "masks"])
def test_one_folder_may_lie_in_the_other(tmp_path: Path, inner: str) -> None:
    folders = {"images": tmp_path / "all", "masks": tmp_path / "all"}
    folders[inner] = tmp_path / "all" / "inner"
    write_images(folders["images"], NAMES)
    write_masks(folders["masks"])
    source = bu.from_pairs(folders["images"], folders["masks"])
    assert columns(source)["image_id"] == IDS
    np.testing.assert_array_equal(columns(source)["mask"][1], mask(1))


def test_a_mask_of_another_size_than_its_image_is_named_when_it_is_read(root: Path) -> None:
    Image.new("L", (4, 3)).save(root / "masks" / "b.png")
    source = pairs(root)
    with raises(SampleReadError) as caught:
        source.data[0][1]
    with raises(SampleReadError):
        EncodedPictures(source.data[0])[[1]]
    assert caught.value.source == str(root / "images" / "b.png")
    with pytest.warns(bu.SampleWarning):
        (batch,) = source.batch_iterator(9, on_error="skip")
    assert batch["image_id"] == [each for each in IDS if each != "b"]


def test_an_orientation_turns_images_and_masks(root: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(mask(0)).save(root / "masks" / "a.png", exif=exif)
    Image.new("RGB", SIZES[0][::-1]).save(root / "images" / "a.png", exif=exif)
    x = columns(pairs(root))
    assert x["image"][0].shape[:2] == x["mask"][0].shape == SIZES[0][::-1]


def test_what_has_no_partner_is_named_or_left_out(root: Path) -> None:
    (root / "masks" / "a.png").rename(root / "masks" / "f.png")
    with raises(ArgumentError):
        pairs(root)
    source = pairs(root, missing="skip")
    assert columns(source)["image_id"] == IDS[1:]
    assert {why: list(paths) for why, paths in source.report.skipped.items()} == {
        "an image without a mask": [str(root / "images" / "a.png")],
        "a mask without an image": [str(root / "masks" / "f.png")],
    }
    assert len(pairs(root, names=["b"])) == 1
    for names in (["a"], ["b", "b"], ["b.png"], []):
        with raises(ArgumentError):
            pairs(root, names=names)


def test_what_is_wrong_is_named(root: Path) -> None:
    with raises(ArgumentError):
        bu.from_pairs(root / "images", root / "no")
    with raises(ArgumentError):
        pairs(root, suffixes=("", "_labels"))
    for suffixes in ("_m", 5, ("", 1)):
        with raises(ArgumentTypeError):
            pairs(root, suffixes=suffixes)
    for dtype in ("float32", "no dtype"):
        with raises(ArgumentTypeError):
            pairs(root, mask_dtype=dtype)
    with raises(ArgumentTypeError):
        pairs(root, size=64)
    with raises(ArgumentTypeError):
        pairs(root, names=5)
    (root / "images" / "a.jpg").touch()
    with raises(ArgumentError):
        pairs(root)
