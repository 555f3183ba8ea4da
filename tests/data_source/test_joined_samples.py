"""``concat`` and ``mix`` of columns that are made of single samples: lists or arrays, as of one source."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import MapResultError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 8
ROWS = np.arange(N)
RAGGED = [np.full(row % 3 + 1, float(row)) for row in range(N)]


def row_of(number: Any) -> Any:
    return RAGGED[int(number) % 100].copy()


def by_name(row: Any, v: Any) -> dict[str, Any]:
    return {"v": row_of(v), "row": row}


def named(start: int) -> Any:
    return bu.ArrayDataSource({"row": ROWS + start, "v": ROWS})


def placed(start: int) -> Any:
    return bu.ArrayDataSource([ROWS + start, ROWS])


WAYS: dict[str, Any] = {
    "all columns of a dict": lambda start: named(start).map_samples(by_name),
    "one column of a dict": lambda start: named(start).map_samples(row_of, on="v"),
    "one column of a tuple": lambda start: placed(start).map_samples(row_of, on=1),
    "all columns of a tuple": lambda start: placed(start).map_samples(lambda row, v: (row, row_of(v))),
    "a data set": lambda start: bu.ArrayDataSource({"row": ROWS + start, "v": bu.MapStyle(RAGGED)}),
    "a data set in a tuple": lambda start: bu.ArrayDataSource([ROWS + start, bu.MapStyle(RAGGED)]),
    "a data set of pairs": lambda start: bu.ArrayDataSource(
        [bu.MapStyle([(row + start, one) for row, one in enumerate(RAGGED)])]
    ),
    "columns by other names": lambda start: bu.ArrayDataSource({"v": ROWS + start, "w": bu.MapStyle(RAGGED)}).rename(
        {"v": "row", "w": "v"}
    ),
    "side by side": lambda start: bu.ArrayDataSource([ROWS + start]).zip(
        bu.ArrayDataSource([ROWS]).map_samples(row_of)
    ),
    "side by side in a dict": lambda start: bu.ArrayDataSource({"row": ROWS + start}).zip(
        bu.ArrayDataSource({"w": ROWS}).map_samples(row_of, on="w").rename({"w": "v"})
    ),
    "with another column": lambda start: bu.ArrayDataSource({"w": bu.MapStyle(RAGGED)}).rename({"w": "v"}).with_column(
        "row", ROWS + start
    ),
    "joined before": lambda start: bu.concat(
        *[named(start).map_samples(row_of, on="v").subset(half) for half in np.split(ROWS, 2)]
    ),
    "an earlier map": lambda start: named(start).map_samples(row_of, on="v").map(np.negative, on="row").map(
        np.negative, on="row"
    ),
}  # fmt: skip


def columns(batch: Any) -> tuple[Any, Any]:
    return (batch["row"], batch["v"]) if isinstance(batch, dict) else batch


@pytest.mark.parametrize("kind", WAYS)
def test_samples_of_several_shapes_are_a_list_as_of_one_source(kind: str, pools: list[AbstractWorkerPool]) -> None:
    one, other = WAYS[kind](0), WAYS[kind](100)
    in_processes = kind == "one column of a dict"
    for source in (one.concat(other), bu.mix(one, other), one.concat(other).select(*_keys(one))):
        for made in (source, *[pool.parallel_data_source(source) for pool in pools[: 1 + in_processes]]):
            for size in (1, 3, N, 2 * N):
                for shuffle in (None, 3, 4):
                    rows = []
                    for batch in made.batch_iterator(size, shuffle):
                        numbers, values = columns(batch)
                        expected = [row_of(number) for number in numbers]
                        alike = len({value.shape for value in expected}) == 1
                        assert type(values) is (np.ndarray if alike else list)
                        assert all(np.array_equal(*pair) for pair in zip(values, expected, strict=True))
                        rows += numbers.tolist()
                    assert sorted(rows) == [*range(N), *range(100, 100 + N)]


def _keys(source: Any) -> list[Any]:
    return ["row", "v"] if isinstance(source[0], dict) else [0, 1]


def test_lists_of_joined_samples_share_no_memory() -> None:
    source = bu.concat(*[WAYS["one column of a dict"](start) for start in (0, 100)])
    for batch in source.map(lambda v: [x.__iadd__(1) for x in v], on="v").batch_iterator(3, shuffle=3):
        assert all(np.array_equal(v, row_of(row) + 1) for row, v in zip(batch["row"], batch["v"], strict=True))


def wide(width: int, v: np.ndarray) -> np.ndarray:
    return np.zeros((len(v), width))


@pytest.mark.parametrize("tuples", [False, True])
def test_views_and_row_numbers_of_such_samples_can_be_joined(tuples: bool) -> None:
    one = placed(0) if tuples else named(0)
    key: Any = 1 if tuples else "v"
    views = one.map_samples(row_of, on=key).views(2, doubled, on=0 if tuples else "row").concat(
        one.map_samples(row_of, on=key).views(2, doubled, on=0 if tuples else "row")
    )  # fmt: skip
    sizes = [len(batch["v"] if isinstance(batch, dict) else batch[2]) for batch in views.batch_iterator(3, shuffle=3)]
    assert sum(sizes) == 2 * N
    numbered = one.map_samples(row_of, on=key).with_index()
    assert len(list(numbered.concat(numbered).batch_iterator(3, shuffle=3))) == 6


def doubled(row: np.ndarray, rng: Any) -> np.ndarray:
    return row * 2


@pytest.mark.parametrize("tuples", [False, True])
def test_columns_of_batches_beside_such_samples_are_compared_as_before(tuples: bool) -> None:
    key: Any = 0 if tuples else "row"
    parts = [
        (placed(0) if tuples else named(0)).map_samples(row_of, on=1 if tuples else "v").map(
            functools.partial(wide, width), on=key
        )
        for width in (2, 3)
    ]  # fmt: skip
    with raises(MapResultError):
        list(bu.concat(*parts).batch_iterator(3, on_error="skip"))
    padded = [named(0).map_samples(row_of, on="v").subset(rows).pad("v") for rows in ([0, 3], [1, 2])]
    with raises(MapResultError):
        list(bu.concat(*padded).batch_iterator(4, on_error="skip"))
    assert next(named(0).map_samples(row_of, on="v").concat(named(0).map_samples(row_of, on="v")).pad("v")
                .batch_iterator(2 * N))["v"].shape == (2 * N, 3)  # fmt: skip


def test_dtypes_of_such_samples_are_compared() -> None:
    floats, ints = [named(0).map_samples(functools.partial(cast, dtype), on="v") for dtype in ("f8", "i8")]
    with raises(MapResultError):
        list(floats.concat(ints).batch_iterator(2 * N, on_error="skip"))


def cast(dtype: str, number: Any) -> Any:
    return row_of(number).astype(dtype)
