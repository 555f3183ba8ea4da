"""Tables whose columns hold lists, such as boxes and tokens, and samples as dicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
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
    options: dict[str, Any] = {"label": "kind", "size": 2, "root": tmp_path, "columns": ["id", "boxes"]}
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


def test_two_columns_of_one_name_in_a_dict_are_refused() -> None:
    for table, columns in ((TABLE, ["id", "id"]), ({**TABLE, "label": PATHS}, ["label"])):
        with raises(bu.ArgumentError):
            unchecked(table, label="kind", columns=columns, as_dict=True)
