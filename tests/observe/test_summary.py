"""The table of columns has NumPy's numbers for columns of any kind, for all samples and for some."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from tests.messages import raises


def columns(n: int = 90) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    age = rng.normal(40, 9, n)
    age[::9] = np.nan
    return {
        "age": age,
        "image": rng.integers(0, 256, (n, 5, 4, 3)).astype(np.uint8),
        "vector": rng.normal(size=(n, 6)).astype(np.float32),
        "label": rng.integers(0, 4, n),
        "big": rng.integers(2**60, 2**62, n),
        "ids": bu.Ragged(rng.integers(0, 9, n * (n - 1) // 2), np.cumsum([0, *range(n)])),
        "boxes": bu.Ragged(rng.normal(size=(n * 2, 4)), np.arange(n + 1) * 2),
        "text": [f"t{i % 3}" * (1 + i % 5) for i in range(n)],
        "flag": rng.random(n) > 0.5,
    }


def check(column: bu.ColumnSummary, values: np.ndarray) -> None:
    """Compare the range of a column with NumPy's."""
    flat = np.asarray(values).reshape(-1)
    there = flat[~np.isnan(flat)] if flat.dtype.kind == "f" else flat
    assert column.missing == len(flat) - len(there)
    assert (column.min, column.max) == (there.min(), there.max())
    np.testing.assert_allclose(column.mean or 0, float(there.astype(np.longdouble).mean()), rtol=1e-12)


def check_all(found: bu.Summary, data: dict[str, Any], rows: np.ndarray) -> None:
    assert list(found) == list(data)
    for name in ("age", "image", "vector", "label", "big", "flag"):
        check(found[name], data[name][rows])
        assert found[name].dtype == str(data[name].dtype)
        assert found[name].shape == data[name].shape[1:]
        assert found[name].lengths is None
    for name, shape in (("ids", (None,)), ("boxes", (2, 4))):
        parts = [data[name][int(row)] for row in rows]
        check(found[name], np.concatenate(parts))
        lengths = [len(part) for part in parts]
        assert found[name].shape == shape
        expected = (min(lengths), pytest.approx(np.mean(lengths)), max(lengths)) if shape == (None,) else None
        assert found[name].lengths == expected
    texts = [data["text"][row] for row in rows]
    lengths = [len(text) for text in texts]
    text = found["text"]
    assert (text.dtype, text.shape, text.min, text.missing) == ("str", None, None, 0)
    assert text.lengths == (min(lengths), pytest.approx(np.mean(lengths)), max(lengths))
    for name, values in (("label", data["label"][rows].tolist()), ("text", texts)):
        assert found[name].distinct == len(set(values))
        assert dict(found[name].common) == {value: values.count(value) for value in set(values)}
        counts = [count for _, count in found[name].common]
        assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("batch_size", [1, 7, 90, 1000])
def test_all_samples(batch_size: int) -> None:
    data = columns()
    found = bu.summary(data, None, batch_size=batch_size)
    check_all(found, data, np.arange(90))
    assert (found.samples, found.total, found.drawn) == (90, 90, False)
    assert str(found).startswith("all 90 samples\n")
    assert bu.summary(data, 90).to_dict() == found.to_dict() == bu.summary(data, 91).to_dict()


def test_some_samples_are_drawn_by_a_fixed_seed() -> None:
    data = {**columns(), "row": np.arange(90)}
    np.random.seed(3)
    state = np.random.get_state()[1].tolist()
    found = bu.summary(bu.ArrayDataSource(data).map(lambda **all: {**all, "x": np.random.random(len(all["row"]))}), 40)
    assert np.random.get_state()[1].tolist() == state
    rows = np.sort([row for row, _ in found["row"].common])
    assert len(rows) == 40
    assert (np.diff(rows) > 1).any()
    assert (found.samples, found.total, found.drawn) == (40, 90, True)
    assert str(found).startswith("40 of 90 samples, drawn by the seed 0\n")
    check_all(bu.summary({name: data[name] for name in columns()}, 40), columns(), rows)


def test_pools_change_nothing(pools: Any) -> None:
    data = columns()
    expected = bu.summary(data, 50)
    for pool in pools:
        assert bu.summary(data, 50, pool=pool).to_dict() == expected.to_dict()


@pytest.mark.in_turn
@given(st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5), st.text(max_size=3)), min_size=1, max_size=12))
def test_mixed_objects_are_counted_and_never_fail(items: list[Any]) -> None:
    column = np.empty(len(items), object)
    column[:] = items
    found = bu.summary({"x": column}, batch_size=5)["x"]
    numbers = [item for item in items if isinstance(item, (int, float))]
    texts = [item for item in items if isinstance(item, str)]
    missing = [item for item in items if item is None or (isinstance(item, float) and np.isnan(item))]
    assert found.missing == len(missing)
    there = [float(number) for number in numbers if not np.isnan(number)]
    if texts and there:
        assert (found.min, found.common) == (None, ()), "numbers and texts have no range together"
    elif there:
        assert (found.min, found.max) == (min(there), max(there))
    elif texts:
        assert dict(found.common) == {text: texts.count(text) for text in set(texts)}
    json.dumps(bu.summary({"x": column}).to_dict(), allow_nan=False)


def test_tuples_nests_and_dicts_of_samples() -> None:
    found = bu.summary([np.arange(4), np.zeros((4, 2))])
    assert list(found) == ["0", "1"]
    assert found[0].max == 3  # type: ignore[index]  # by place, too
    boxes = columns()["boxes"]
    labels = [np.array([row, 2 * row]) for row in range(len(boxes))]
    targets = bu.ArrayDataSource({"boxes": boxes, "labels": labels})
    found = bu.summary(targets.map(bu.DetectionTargets("boxes", "labels")).take(20))
    assert {name: column.shape for name, column in found.items()} == {"target.boxes": (2, 4), "target.labels": (2,)}
    assert found["target.labels"].max == 38
    batch = {"x": {"y": np.arange(3)}, "z": [1.5, float("nan"), 2.5]}
    found = bu.summary(batch)
    assert {name: (column.max, column.missing) for name, column in found.items()} == {"x.y": (2, 0), "z": (2.5, 1)}


def test_types_that_are_no_numbers() -> None:
    days = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    for column, dtype, lengths in (
        (np.array(["ab", "c"]), "str", (1, 1.5, 2)), (np.array([b"ab", b"c"]), "bytes", (1, 1.5, 2)),
        (days, "datetime64[D]", None), (np.array([1 + 2j, 3]), "complex128", None),
        ([[1, 2], [3]], "int64", (1, 1.5, 2)), (np.array([None, {"a": 1}], object), "dict", None),
    ):  # fmt: skip
        found = bu.summary({"x": column})["x"]
        assert (found.dtype, found.lengths) == (dtype, lengths)
        assert found.missing == int(dtype == "dict")


def test_empty_parts() -> None:
    found = bu.summary({"ids": bu.Ragged(np.zeros(0, int), [0, 0, 0]), "x": np.full(2, np.nan)})
    assert (found["ids"].lengths, found["ids"].min, found["ids"].common) == (None, None, ())
    assert found["ids"].shape == (0,)
    assert (found["x"].missing, found["x"].mean) == (2, None)
    assert "nan" not in repr(found)


def test_images_of_folders_have_class_names(tmp_path: Path) -> None:
    for name, count in (("<b>cat", 2), ("dog\x1b[31m", 3)):
        (tmp_path / name).mkdir()
        for i in range(count):
            Image.fromarray(np.full((4 + i, 5, 3), i, np.uint8)).save(tmp_path / name / f"{i}.png")
    found = bu.summary(bu.from_folder(tmp_path))
    assert list(found) == ["image", "label"]
    assert (found["image"].shape, found["image"].lengths) == ((None, 5, 3), (4, pytest.approx(4.8), 6))
    assert found["label"].common == ((1, 3), (0, 2))
    assert "1 ('dog\\x1b[31m'): 3, 0 (<b>cat): 2" in repr(found)
    assert "0 (&lt;b&gt;cat)" in found._repr_html_()
    assert "\x1b" not in repr(found) + found._repr_html_()


def test_maps_keep_their_own_state(pools: Any) -> None:
    rng, calls = np.random.default_rng(3), []

    def drawn(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        return x + rng.random(len(x))

    state = rng.bit_generator.state
    mapped = bu.ArrayDataSource({"x": np.arange(9)}).map(drawn, on="x")
    for data in (mapped, mapped.subset([4, 5]), mapped.concat(mapped)):
        for pool in (None, pools[0]):
            assert bu.summary(data, 2, pool=pool)["x"].shape == ()
    assert (calls, rng.bit_generator.state) == ([], state)
    lock = threading.Lock()  # which cannot be pickled, nor the function
    unsent = bu.ArrayDataSource({"x": np.arange(9)}).map(lambda x: x + lock.locked(), on="x")
    assert bu.summary(unsent)["x"].max == 8


def test_names_are_escaped() -> None:
    found = bu.summary({"<script>\x1b[2J": np.arange(3), "x": ["<i>", "\x07", "\u202e"]})
    for text in (repr(found), found._repr_html_()):
        assert not any(bad in text for bad in ("\x1b", "\x07", "\u202e"))
    assert "<script>" not in found._repr_html_()
    assert "<i>" not in found._repr_html_()
    assert found["<script>\x1b[2J"].max == 2


def test_streams_and_orders_that_are_drawn() -> None:
    def batches(batch_size: int, **options: Any) -> Iterator[Any]:
        for start in range(0, 60, 3):
            yield (np.arange(start, start + 3),)

    found = bu.summary(bu.CallableDataSource(batches), 10)
    assert (found.samples, found["0"].max, found.drawn) == (10, 9, False)
    assert str(found).startswith("the first 10 samples\n")
    endless = bu.ArrayDataSource([np.arange(50)]).repeat(-1)
    found = bu.summary(endless, 20, batch_size=8)
    assert (found.samples, found.drawn) == (20, True)
    weighted = bu.ArrayDataSource([np.arange(50)]).sample(weights=np.eye(50)[3])
    assert bu.summary(weighted, 20)["0"].common == ((3, 20),)
    with raises(bu.ArgumentError):
        bu.summary(endless, None)


def test_progress_is_shown() -> None:
    calls = []

    def progress(iterator: Any, **options: Any) -> Any:
        calls.append(options["total"])
        return iterator

    bu.summary([np.arange(100)], None, batch_size=30, progress=progress)
    assert calls == [4]


def test_wrong_arguments_are_refused() -> None:
    for wrong in ({"samples": 0}, {"batch_size": 0}):
        with raises(bu.ArgumentError):
            bu.summary([np.arange(3)], **wrong)
    for wrong in ({"samples": 1.5}, {"pool": 2}, {"progress": 3}):
        with raises(bu.ArgumentTypeError):
            bu.summary([np.arange(3)], **wrong)  # type: ignore[arg-type]
    with raises(bu.ArgumentTypeError):
        bu.summary(bu.IteratorDataSource(iter([(np.arange(3),)])))
    with bu.Loader([np.arange(3)], 2, pool="serial") as loader, raises(bu.ArgumentTypeError):
        bu.summary(loader)
    with raises(bu.ArgumentError):
        bu.summary(bu.ArrayDataSource([np.zeros((0, 3))]))
    with raises(KeyError):
        bu.summary([np.arange(3)])["no"]
