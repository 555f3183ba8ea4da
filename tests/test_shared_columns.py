"""Columns on one memory come apart: whatever is written to one of them, the others keep their values."""

from __future__ import annotations

import copy
from collections import UserDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch_layout
from batchup_ng.batch_layout import apart
from batchup_ng.memory.leases import BufferPool
from batchup_ng.shared_columns import span_of
from batchup_ng.work_pool import AbstractWorkerPool

N, WIDTH = 4, 3


def as_objects(values: Any) -> np.ndarray:
    made = np.empty(len(values), object)
    made[:] = list(values)
    return made


FORMS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "a view": lambda x: x[:],
    "reversed": lambda x: x[::-1],
    "every other": lambda x: x[::2],
    "transposed": lambda x: x.T,
    "bytes": lambda x: x.view(np.uint8),
    "a memoryview": lambda x: np.asarray(memoryview(x)),
    "a diagonal": lambda x: np.lib.stride_tricks.as_strided(x, (2,), (x.strides[0] + x.strides[1],)),
    "rows": list,
    "rolled rows": lambda x: [*x[1:], x[0]],
    "rows in tuples": lambda x: [(row, 1) for row in x],
    "rows in dicts": lambda x: [{"row": row} for row in x],
    "rows in mappings": lambda x: [UserDict(row=row) for row in x],
    "a tuple of rows": tuple,
    "a deque of rows": deque,
    "an array of rows": as_objects,
    "a dict": lambda x: {"part": x},
    "nested": lambda x: [{"parts": [row, {"again": [row]}]} for row in x],
    "memoryviews": lambda x: [memoryview(row) for row in x],
    "a copy": lambda x: x.copy(),
    "copies": lambda x: [row.copy() for row in x],
    "texts": lambda x: ["a", "b"],
}


def spoil(value: Any) -> None:
    """Write to all that can be written to."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        for each in value.ravel():
            spoil(each)
    elif isinstance(value, np.ndarray):
        value += 1
    elif isinstance(value, memoryview):
        spoil(np.asarray(value))
    elif isinstance(value, Mapping):
        for each in list(value.values()):
            spoil(each)
        value["new"] = 0  # type: ignore[index]
    elif isinstance(value, (list, tuple, deque)):
        for each in value:
            spoil(each)
        if not isinstance(value, tuple):
            value.append("new")


def told(value: Any) -> Any:
    """Return the values in a column."""
    if isinstance(value, np.ndarray):
        return [told(each) for each in value.ravel()] if value.dtype.hasobject else value.tolist()
    if isinstance(value, memoryview):
        return np.asarray(value).tolist()
    if isinstance(value, Mapping):
        return {key: told(each) for key, each in value.items()}
    return [told(each) for each in value] if isinstance(value, (list, tuple, deque)) else value


def base(leased: bool) -> np.ndarray:
    memory = BufferPool(smallest=1).empty((N, WIDTH), np.dtype(np.int64)) if leased else np.empty((N, WIDTH), np.int64)
    memory[...] = np.arange(N * WIDTH).reshape(N, WIDTH)
    return memory


@given(
    st.lists(st.sampled_from(list(FORMS)), min_size=2, max_size=4), st.booleans(), st.booleans(),
    st.sampled_from([dict, UserDict, tuple]), st.data(),
)  # fmt: skip
def test_what_is_written_to_one_column_stays_in_it(
    forms: list[str], leased: bool, one: bool, kind: Any, data: st.DataObject
) -> None:
    x = base(leased)
    same = FORMS[forms[0]](x)
    columns = [same if one and form == forms[0] else FORMS[form](x) for form in forms]
    batch = tuple(columns) if kind is tuple else kind({str(place): column for place, column in enumerate(columns)})
    made = apart(batch, ())
    assert type(made) is type(batch)
    values = list(made if kind is tuple else made.values())
    assert list(map(told, values)) == list(map(told, columns))
    chosen = data.draw(st.integers(0, len(values) - 1))
    before = [told(value) for value in values]
    spoil(values[chosen])
    assert [told(value) for value in values[:chosen]] == before[:chosen]
    assert [told(value) for value in values[chosen + 1 :]] == before[chosen + 1 :]


@given(st.lists(st.sampled_from(list(FORMS)), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_a_column_that_a_map_leaves_alone_keeps_its_memory(forms: list[str], leased: bool, named: bool) -> None:
    def fn(x: np.ndarray, y: np.ndarray) -> Any:
        new = [FORMS[form](x) for form in forms]
        return {"x": x, "y": y, **{str(i): each for i, each in enumerate(new)}} if named else (x, y, *new)

    before = {"x": base(leased), "y": np.arange(N)} if named else (base(leased), np.arange(N))
    made = apart(fn(*before.values()) if isinstance(before, dict) else fn(*before), before)
    values, old = (list(each.values()) if isinstance(each, dict) else list(each) for each in (made, before))
    assert values[0] is old[0] or any("memoryview" in form for form in forms)  # nobody knows who has a memoryview
    assert values[1] is old[1]
    expected = [told(value) for value in values]
    spoil(values[0])
    assert [told(value) for value in values[1:]] == expected[1:]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("named", [False, True])
def test_a_map_that_writes_changes_nothing_that_the_map_before_it_keeps(form: str, named: bool) -> None:
    kept = base(leased=False)
    column = FORMS[form](kept)
    expected = told(column), told(kept)
    for once in (lambda: column, lambda: FORMS[form](kept)):
        batch = {"x": once()} if named else (once(), np.arange(N))
        made = apart(batch, ())
        spoil(made["x"] if isinstance(made, dict) else made[0])
        assert (told(column), told(kept)) == expected


@pytest.mark.parametrize("form", [form for form in FORMS if "memoryview" not in form])  # those are always copied
def test_new_memory_and_memory_of_the_batch_are_not_copied(form: str) -> None:
    def fn(x: np.ndarray, y: np.ndarray) -> Any:
        return FORMS[form](x.copy()), y

    before = (base(leased=True), np.arange(N))
    batch = fn(*before)
    assert apart(batch, before) is batch
    del batch  # it holds a column of both
    views = (FORMS[form](before[0]), before[1])
    assert apart(views, before) is views


def test_a_constant_of_a_map_stays_as_it_is_in_all_pools(pools: list[AbstractWorkerPool]) -> None:
    kept, rows = np.arange(4.0), [np.ones(2) for _ in range(4)]
    data = bu.ArrayDataSource({"x": np.arange(16.0), "y": np.arange(16)})
    constant = data.map(lambda x: kept, on="x").map(lambda x: np.negative(x, out=x), on="x")
    listed = data.map(lambda x: rows, on="x").map(lambda x: [np.negative(row, out=row) for row in x], on="x")
    samples = data.map_samples(lambda x: rows[int(x) % 4][: 1 + int(x) % 2], on="x")
    samples = samples.map(lambda x: [np.negative(row, out=row) for row in x], on="x")
    for each in (lambda source: source, *[pool.parallel_data_source for pool in pools]):
        for batch in each(constant).batch_iterator(4):
            np.testing.assert_array_equal(batch["x"], [0, -1, -2, -3])
        for source in (listed, samples):
            for batch in each(source).batch_iterator(4):
                assert all((row == -1).all() for row in batch["x"])
    assert kept.tolist() == [0, 1, 2, 3]
    assert all(row.tolist() == [1, 1] for row in rows)
    behind = pools[0].parallel_data_source(data).map(lambda x, y: [kept, y])
    behind = behind.map(lambda x, y: (np.negative(x, out=x), y))
    assert [batch[0].tolist() for batch in behind.batch_iterator(4)] == [[0, -1, -2, -3]] * 4


def test_lists_that_a_map_fills_with_rows_of_another_come_apart() -> None:
    a, b = ([np.full(2, 10 * k + i) for i in range(3)] for k in range(2))
    before = {"a": a, "b": b}
    a[1] = b[1]
    a[2] = b[0][:1]
    made = apart(before, before)
    spoil(made["a"])
    assert told(made["b"]) == [[10, 10], [11, 11], [12, 12]]
    untouched = {"a": [np.zeros(1)], "b": [np.zeros(1)], "c": ["text"]}
    assert apart(untouched, untouched) is untouched


@pytest.mark.parametrize("n", [2, 40])
def test_arrays_side_by_side_in_one_memory_are_not_copied(n: int) -> None:
    def parts() -> list[np.ndarray]:
        memory = np.arange(4.0 * n)
        return [memory[2 * i : 2 * i + 2] for i in range(2 * n)]

    def halves(parts: list[np.ndarray]) -> Any:
        return parts[:n], parts[n:]

    def mixed(parts: list[np.ndarray]) -> Any:
        return parts[::2], parts[1::2]

    def shifted(parts: list[np.ndarray]) -> Any:
        return parts[::2], [*parts[1::2][:-1], parts[0]]

    for divide in (halves, mixed):
        batch = divide(parts())
        assert apart(batch, ()) is batch
    batch = shifted(parts())
    assert apart(batch, ())[1] is not batch[1]


@given(st.integers(0, 11), st.integers(0, 3), st.integers(0, 2), st.integers(-2, 3), st.integers(-2, 3))
def test_a_span_is_from_the_first_byte_to_the_last(start: int, n: int, m: int, step: int, other: int) -> None:
    memory = np.zeros(12, np.int32)
    reach = [(n - 1) * step, (m - 1) * other] if n and m else []
    low, high = sum(min(0, r) for r in reach) + start, sum(max(0, r) for r in reach) + start
    if low < 0 or high > 11:
        return
    view = np.lib.stride_tricks.as_strided(memory[start:], (n, m), (4 * step, 4 * other))
    begin, end = span_of(view)
    first = memory.__array_interface__["data"][0]
    expected = np.lib.array_utils.byte_bounds(view) if hasattr(np.lib, "array_utils") else None
    assert begin == end if 0 in (n, m) else (begin, end) == (first + 4 * low, first + 4 * high + 4)
    assert expected is None or 0 in (n, m) or expected == (begin, end)


@pytest.mark.parametrize("n", [4, 8])  # 64 kB, and 128 kB, which is reused memory
def test_tensors_come_apart_from_arrays_at_any_size(n: int, pools: list[AbstractWorkerPool]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    data = bu.ArrayDataSource({"x": np.ones((2 * n, 4000), np.float32)})
    sources = [
        data.map(lambda x: {"t": torch.from_numpy(x), "x": x}),
        data.map(lambda x: {"t": [torch.from_numpy(row) for row in x], "x": x}),
        data.map(lambda x: UserDict(t=np.asarray(memoryview(x)), x=x)),
    ]
    for source in sources:
        written = source.map(lambda x: np.negative(x, out=x), on="x")
        for each in (written, pools[0].parallel_data_source(written)):
            for batch in each.batch_iterator(n):
                assert float(np.asarray(batch["t"][0]).sum()) == 4000.0
                assert float(batch["x"].sum()) == -4000.0 * n


def test_a_tensor_of_each_form_comes_apart() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for form in (lambda t: t, lambda t: t[1:], lambda t: t.T, list, lambda t: t.numpy(), lambda t: {"row": t[3]},
                 lambda t: t.view(torch.uint8)):  # fmt: skip
        tensor = torch.ones(4, 3)
        first, second = apart((tensor, form(tensor)), ())
        before = copy.deepcopy(second)
        first *= 5
        torch.testing.assert_close(second, before)


class Remembers:
    """A map that keeps its first input, as it is or as a view, and hands it on."""

    def __init__(self, view: bool) -> None:
        self.first: Any = None
        self.view = view

    def __call__(self, x: np.ndarray) -> Any:
        if self.first is None:
            self.first = x[:] if self.view else x
        return x, np.full(len(x), self.first.sum())


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("width", [1, 20_000])  # small, and reused memory
def test_an_input_that_a_map_keeps_stays_as_it_is(view: bool, width: int) -> None:
    data = bu.ArrayDataSource([np.ones((8, width), np.float32)])
    source = data.map(Remembers(view)).map(lambda x, total: (np.multiply(x, 0, out=x), total))
    assert [batch[1].tolist() for batch in source.batch_iterator(2)] == [[2 * width] * 2] * 4


def test_a_constant_in_a_list_or_dict_of_the_batch_stays_as_it_is() -> None:
    kept = np.ones(2)

    def put(rows: list[Any]) -> Any:
        rows[0] = kept
        return rows

    def put_into(rows: list[Any]) -> Any:
        rows[0]["row"] = kept
        return rows

    def spoilt(rows: list[Any]) -> Any:
        spoil(rows)
        return rows

    lists = bu.ArrayDataSource([np.arange(6)]).map_samples(lambda i: (np.ones(int(i) % 2 + 1),))
    dicts = bu.ArrayDataSource([np.arange(6)]).map(lambda i: ([{"row": np.ones(2)} for _ in i],))
    for source in (lists.map(put, on=0), dicts.map(put_into, on=0)):
        for _ in source.map(spoilt, on=0).map(lambda rows: (np.zeros(len(rows)),)).batch_iterator(3):
            pass
        assert kept.tolist() == [1, 1]


def test_rows_of_a_constant_structured_array_stay_as_they_are() -> None:
    kept = np.zeros(3, [("a", int), ("b", float)])

    def add(rows: list[Any]) -> Any:
        for row in rows:
            row["a"] += 1
        return rows

    source = bu.ArrayDataSource([np.arange(6)]).map(lambda i: (list(kept[: len(i)]),)).map(add, on=0)
    for _ in range(2):
        assert [[int(row["a"]) for row in rows] for (rows,) in source.batch_iterator(3)] == [[1, 1, 1]] * 2
    assert kept["a"].tolist() == [0, 0, 0]
    both = bu.ArrayDataSource([np.arange(3)]).map(lambda i: (r := np.zeros(3, kept.dtype), list(r))).map(add, on=1)
    ((array, rows),) = both.batch_iterator(3)
    assert (array["a"].tolist(), [int(row["a"]) for row in rows]) == ([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize("named", [False, True])
def test_maps_behind_a_pool_copy_no_column_that_they_leave_alone(
    named: bool, pools: list[AbstractWorkerPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    copy_of = batch_layout._copy
    monkeypatch.setattr(batch_layout, "_copy", lambda value: copies.append(value) or copy_of(value))
    data: Any = {"x": np.ones((16, 20_000)), "y": np.arange(16)}
    # Not of processes: small arrays that came by a socket lie on a memoryview, which is always copied.
    source = pools[0].parallel_data_source(bu.ArrayDataSource(data if named else list(data.values())))
    for fn in (lambda x: x * 2, lambda x: x[:, ::-1], lambda x: x + 1):
        source = source.map(fn, on="x" if named else 0)
    for batch in source.batch_iterator(8):
        assert (batch["x"] if named else batch[0]).sum() == 3 * 8 * 20_000
    assert copies == []


SHARED_ROWS: dict[str, Callable[[int], Any]] = {
    "one array": lambda n: [np.ones(2)] * n,
    "one array and others": lambda n: (lambda a: [np.ones(2) if i == 1 else a for i in range(n)])(np.ones(2)),
    "views that overlap": lambda n: (lambda a: [a[i : i + 2] for i in range(n)])(np.ones(n + 1)),
    "views of one array": lambda n: (lambda a: [a[:2] for _ in range(n)])(np.ones(2)),
    "a dict": lambda n: [{"x": np.ones(2), "l": [1.0, 1.0]}] * n,
    "dicts of one array": lambda n: (lambda a: [{"x": a} for _ in range(n)])(np.ones(2)),
    "tuples of one list": lambda n: (lambda a: [(a, 1.0) for _ in range(n)])([1.0, 1.0]),
    "objects": lambda n: as_objects([np.ones(2)] * n) if n > 1 else as_objects([np.ones(2)]),
    "a dict of lists": lambda n: {"of": [np.ones(2)] * n, "n": np.ones(n)},
    "one list": lambda n: [[1.0, 1.0]] * n,
}


def doubled(value: Any) -> Any:
    """Double all numbers in place, and return the value."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        value *= 2
    elif isinstance(value, dict):
        for each in value.values():
            doubled(each)
    elif isinstance(value, list) and value and isinstance(value[0], float):
        value[:] = [2 * each for each in value]
    elif isinstance(value, (list, tuple, np.ndarray)):
        for each in value:
            doubled(each)
    return value


def doubled_column(column: Any) -> Any:
    return (doubled(column),)


def numbers_in(value: Any) -> set[float]:
    if isinstance(value, dict):
        return set().union(*map(numbers_in, value.values()))
    if isinstance(value, (list, tuple, np.ndarray)):
        return set().union(*map(numbers_in, value))
    return {float(value)}


@pytest.mark.parametrize("kind", SHARED_ROWS)
def test_a_map_that_writes_to_each_row_writes_once_to_each(kind: str, pools: list[AbstractWorkerPool]) -> None:
    """For any batch size, in any pool: the rows that the map before it returned are one object, or overlap."""
    made = bu.ArrayDataSource({"n": np.arange(7)}).map(lambda n: (SHARED_ROWS[kind](len(n)),), on="n", out="x")
    written = made.map(doubled_column, on="x").map(lambda **batch: batch)
    fixed = {2.0} if kind != "tuples of one list" else {1.0, 2.0}
    for size in (1, 2, 3, 7):
        for batch in written.batch_iterator(size):
            assert numbers_in(batch["x"]) == fixed
    for pool in pools:
        for batch in pool.parallel_data_source(written).batch_iterator(3):
            assert numbers_in(batch["x"]) == fixed
    one = np.ones(2)
    by_samples = bu.ArrayDataSource({"n": np.arange(7)}).map_samples(lambda n: one[: 1 + n % 2], on="n")
    assert numbers_in(next(by_samples.map(doubled_column, on="n").batch_iterator(7))["n"]) == {2.0}


def test_rows_that_share_no_memory_are_not_copied() -> None:
    rows: dict[str, Callable[[], Any]] = {
        "own": lambda: [np.ones(k) for k in (1, 2, 3)],
        "side by side": lambda: (lambda a: [a[:1], a[1:3], a[3:]])(np.ones(6)),
        "lists": lambda: [[1, 2], [3], []],
        "texts": lambda: ["a", "a", "a"],
        "nothing": lambda: [np.ones(0), np.ones(0), np.ones(0)],
    }
    for make in rows.values():
        batch: Any = {"x": make()}
        held = [id(row) for row in batch["x"]]
        assert [id(row) for row in apart(batch, ())["x"]] == held
