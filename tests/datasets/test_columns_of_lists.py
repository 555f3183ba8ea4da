"""Tables whose columns hold lists, such as boxes and tokens, and samples as dicts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import augment
from tests.datasets.table_helpers import KINDS, PATHS, TABLE, each_kind, unchecked, write_pictures
from tests.messages import raises

LISTS = {
    "boxes": [[[1.0, 2.0, 3.0, 4.0]], [], [[5.0, 6.0, 7.0, 8.0], [1.0, 1.0, 2.0, 2.0]], []],
    "tokens": [[1, 2], [], [3], [4, 5, 6]],
    "pair": [[1, 2], [3, 4], [5, 6], [7, 8]],
}


@each_kind
def test_lists_are_a_list_of_arrays_and_boxes_have_four_columns(kind: str) -> None:
    source = unchecked(KINDS[kind]({"path": PATHS, **LISTS}), columns=[*LISTS], as_dict=True)
    _check_lists(source.select("boxes", "tokens", "pair"))
    assert source.lengths("tokens").tolist() == [2, 0, 1, 3]


def _check_lists(source: Any) -> None:
    batch = next(source.batch_iterator(4))
    assert [each.shape for each in batch["boxes"]] == [(1, 4), (0, 4), (2, 4), (0, 4)]
    for listed, got in zip(LISTS["boxes"] + LISTS["tokens"], batch["boxes"] + batch["tokens"], strict=True):
        np.testing.assert_array_equal(got, np.asarray(listed).reshape(got.shape))
    np.testing.assert_array_equal(batch["pair"], LISTS["pair"])


def test_lists_out_of_a_parquet_file(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    pytest.importorskip("narwhals", reason="narwhals is not installed")
    read = pytest.importorskip("pandas", reason="pandas is not installed").read_parquet  # gives arrays of arrays
    parquet.write_table(KINDS["pyarrow"]({"path": PATHS, **LISTS}), tmp_path / "x.parquet")
    source = unchecked(read(tmp_path / "x.parquet"), columns=[*LISTS], as_dict=True)
    _check_lists(source.select("boxes", "tokens", "pair"))


def test_rows_that_are_left_out_have_no_lists(tmp_path: Path) -> None:
    write_pictures(tmp_path, PATHS[1:])
    table = {"path": PATHS, **LISTS}
    source = bu.from_table(table, root=tmp_path, size=2, columns=["tokens", "pair"], missing="skip", as_dict=True)
    batch = next(source.batch_iterator(4))
    assert [each.tolist() for each in batch["tokens"]] == LISTS["tokens"][1:]
    assert (batch["pair"].tolist(), batch["image"].shape) == (LISTS["pair"][1:], (3, 2, 2, 3))


def test_dicts_are_the_tuples_by_name_in_every_pool(pools: list[Any], tmp_path: Path) -> None:
    write_pictures(tmp_path)
    options: dict[str, Any] = {"label": "kind", "root": tmp_path, "columns": ["id", "boxes"]}
    tuples, dicts = (bu.from_table({**TABLE, **LISTS}, **options, as_dict=as_dict) for as_dict in (False, True))
    assert (list(dicts.columns), dicts.class_names) == (["image", "label", "id", "boxes"], tuples.class_names)
    np.testing.assert_array_equal(dicts.labels, tuples.labels)
    assert dicts.with_images(mode="L").split([0.5, 0.5], seed=1, groups="id")[0].num_samples() == 2
    for pool in pools:
        made = pool.parallel_data_source(dicts).batch_iterator(3, shuffle=1)
        for batch, (image, label, number, boxes) in zip(made, tuples.batch_iterator(3, shuffle=1), strict=True):
            np.testing.assert_array_equal(batch["image"], image)
            np.testing.assert_array_equal((batch["label"], batch["id"]), (label, number))
            assert [each.tolist() for each in batch["boxes"]] == [each.tolist() for each in boxes]


OF_IMAGES: dict[str, Any] = {
    "boxes": [[[50, 25, 100, 50]], []], "bbox": np.ones((2, 4)), "bboxes": [[1, 2, 3, 4], [1, 2, 3, 4]],
    "mask": [[[0, 1], [1, 0]]] * 2, "masks": np.zeros((2, 1, 3, 3)), "keypoints": [[[1, 2]], [[3, 4], [5, 6]]],
}  # fmt: skip
OTHER: dict[str, Any] = {"boxes": [2, 0], "mask": ["a.png", "b.png"], "masks": [[1, 1], [1]], "bbox": [0.5, 1.5]}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_annotations_beside_images_that_are_resized_alone_are_refused(name: str, tmp_path: Path) -> None:
    write_pictures(tmp_path, PATHS[:2])
    table = {"path": PATHS[:2], "n": [1, 2], name: OF_IMAGES[name]}
    sized = functools.partial(bu.ImageFiles, size=8, crop="center")
    for as_dict in (False, True):
        given = functools.partial(bu.from_table, table, root=tmp_path, columns=["n", name], as_dict=as_dict)
        for options in ({"size": 2}, {"images": sized}):
            with raises(bu.ArgumentError):
                given(**options)
        source = given()
        for chain in (source, source.split([0.5], 1)[0], source.zip(bu.ArrayDataSource({"m": np.arange(2)}))):
            for options in ({"size": 2}, {"size": 2, "crop": "random"}):
                with raises(bu.ArgumentError):
                    chain.with_images(**options)
        assert np.shape(source.with_images(mode="L", size=None)[0]["image" if as_dict else 0]) == (2, 3)
    by_hand = bu.ArrayDataSource({"image": sized([str(tmp_path / path) for path in PATHS[:2]]), name: OF_IMAGES[name]})
    with raises(bu.ArgumentError):
        by_hand.with_images(crop="random")
    plain = source.drop(name)
    assert plain.with_images(size=4)[0]["image"].shape == (4, 4, 3)
    with raises(bu.ArgumentError):
        plain.with_column(name, OF_IMAGES[name]).with_images(size=4)
    renamed = {"path": PATHS[:2], f"{name}_of_small": OF_IMAGES[name]}
    assert bu.from_table(renamed, size=2, root=tmp_path, columns=[f"{name}_of_small"])[0][0].shape == (2, 2, 3)


@pytest.mark.parametrize("name", OTHER)
def test_columns_with_such_names_that_are_no_annotations_are_taken(name: str) -> None:
    table = {"path": PATHS[:2], name: OTHER[name]}
    source = unchecked(table, size=2, columns=[name], as_dict=True).with_images(crop="random")
    assert len(source) == 2


def test_boxes_in_the_pixels_of_the_files_are_resized_with_their_images(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    Image.new("RGB", (200, 100)).save(tmp_path / "w.png")
    table = {"path": ["w.png"], "boxes": [[[100, 50, 200, 100]]]}
    with raises(bu.ArgumentError):
        bu.from_table(table, root=tmp_path, size=50, columns=["boxes"], as_dict=True)
    source = bu.from_table(table, root=tmp_path, columns=["boxes"], as_dict=True)
    chain = augment.compose(augment.resize(50), augment.flip(p=1.0), boxes="boxes")
    assert source.map(chain)[:]["boxes"][0].tolist() == [[0, 25, 25, 50]]


def test_two_columns_of_one_name_in_a_dict_are_refused() -> None:
    for table, columns in ((TABLE, ["id", "id"]), ({**TABLE, "label": PATHS}, ["label"])):
        with raises(bu.ArgumentError):
            unchecked(table, label="kind", columns=columns, as_dict=True)
