"""What batches hold is contiguous, writable, native and their own; it is copied only where it is not so already."""

from __future__ import annotations

import collections
import copy
import functools
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.batch_layout import apart, copied, finished, own_parts
from batchup_ng.memory.leases import BufferPool, Buffers
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

BIG = (64, 3, 40, 40)
KEPT = np.arange(12.0)
FIXED = np.arange(4.0)
FIXED.flags.writeable = False


class Counting(Buffers):
    """Memory that counts how often it is asked for: once a copy."""

    def __init__(self) -> None:
        self.copies = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        self.copies += 1
        return super().empty(shape, dtype)


def leased() -> np.ndarray:
    array = BufferPool().empty(BIG, np.dtype("f4"))
    array[...] = 1
    return array


def in_place() -> Any:
    x = leased()
    x *= 2
    return x, x.sum(axis=(1, 2, 3))


def twice() -> Any:
    x = np.ones(3)
    return x, x


def turned() -> Any:
    x = np.arange(6.0).reshape(2, 3)
    return x, x.T


ALREADY: dict[str, Callable[[], Any]] = {
    "leased memory": lambda: (leased(), np.arange(64)),
    "written in place": in_place,
    "reshaped": lambda: (leased().reshape(64, -1), np.arange(6).reshape(2, 3)),
    "another dtype": lambda: (np.arange(5).astype(np.float32), np.zeros(())),
    "rows": lambda: (np.arange(40).reshape(10, 4)[np.array([3, 1])],),
    "nested": lambda: (np.zeros(3), [np.ones(2), {"a": np.zeros(1), "b": (np.arange(3),)}], "text", 3.0),
    "strides of an axis of one": lambda: (np.zeros((2, 4, 5, 1)).transpose(0, 3, 1, 2),),
    "an ordered mapping": lambda: collections.OrderedDict(a=np.zeros(3)),
    "no rows": lambda: (np.zeros((0, 3)), [np.zeros((0, 4)), np.zeros(0), np.zeros((2, 0, 3)), np.zeros(0, "U0")], []),
}

COPIED: dict[str, tuple[int, Callable[[], Any]]] = {
    "transposed": (1, lambda: (leased().transpose(0, 2, 3, 1),)),
    "backwards": (2, lambda: (np.arange(6)[::-1], np.arange(6).reshape(2, 3)[:, ::-1])),
    "columns first": (1, lambda: (np.asfortranarray(np.ones((3, 4))),)),
    "broadcast": (1, lambda: (np.broadcast_to(np.zeros(3), (4, 3)),)),
    "read-only": (1, lambda: (FIXED,)),
    "foreign byte order": (2, lambda: (np.arange(3, dtype=">i4"), {"x": np.zeros((), ">f8")})),
    "fields of foreign byte order": (1, lambda: (np.zeros(3, [("a", ">i4"), ("b", "<f8")]),)),
    "what is kept": (2, lambda: (KEPT, KEPT[2:5])),
    "bytes of another library": (1, lambda: (np.frombuffer(bytearray(16), "f4"),)),
    "one array twice": (2, twice),
    "an array and its view": (2, turned),
    "records": (1, lambda: (np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),)),
    "strings": (1, lambda: (np.array(["ab", "c"], ">U3"),)),
    "odd address": (1, lambda: (np.frombuffer(bytearray(17), np.uint8)[1:].view("f8"),)),
}


@pytest.mark.parametrize("case", ALREADY)
def test_what_is_right_already_is_not_copied(case: str) -> None:
    memory = Counting()
    result = finished(ALREADY[case](), memory)
    assert memory.copies == 0
    check(result)


@pytest.mark.parametrize("case", COPIED)
def test_what_is_not_is_copied_once(case: str) -> None:
    copies, make = COPIED[case]
    memory, expected = Counting(), make()
    result = finished(make(), memory)
    assert memory.copies == copies
    assert type(result) is type(expected)
    check(result)
    for one, other in zip(result, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one) if not isinstance(one, dict) else one["x"],
                                      np.asarray(other) if not isinstance(other, dict) else other["x"])  # fmt: skip


@pytest.mark.parametrize("case", ["leased memory", "written in place", "reshaped", "another dtype", "rows"])
def test_arrays_made_for_a_batch_are_its_own(case: str) -> None:
    batch, own = own_parts(ALREADY[case]())
    assert own == list(range(len(batch)))
    assert own_parts({"a": np.zeros(3), "b": FIXED, "c": KEPT, "d": [1]})[1] == ["a"]


@pytest.mark.parametrize(
    "case",
    ["read-only", "broadcast", "what is kept", "bytes of another library", "one array twice", "an array and its view"],
)
def test_arrays_that_something_else_may_see_are_not_the_batchs_own(case: str) -> None:
    batch, own = own_parts(COPIED[case][1]())
    assert batch
    assert own == []


def test_what_is_in_a_container_that_is_kept_is_not_the_batchs_own() -> None:
    for kept in ((np.zeros(3), leased()), {"x": np.zeros(3)}):
        assert own_parts(kept)[1] == []
    assert own_parts([np.zeros(3)])[1] == []


def check(part: Any) -> None:
    if isinstance(part, np.ndarray):
        assert type(part) is np.ndarray
        assert part.flags.carray
        assert part.dtype.isnative
        assert part.strides == np.empty([n or 1 for n in part.shape], part.dtype).strides
    elif isinstance(part, (tuple, list)):
        for one in part:
            check(one)
    elif isinstance(part, dict):
        check(list(part.values()))


def test_containers_that_are_kept_are_not_written_to() -> None:
    kept_tuple, kept_list, kept_dict = (np.arange(3),), [np.arange(3)], {"x": np.arange(3)}
    for kept in (kept_tuple, kept_list, kept_dict):
        result = finished(kept, Buffers())
        for key in [0] if not isinstance(kept, dict) else ["x"]:
            result[key][...] = 9
            assert kept[key].tolist() == [0, 1, 2]  # type: ignore[call-overload, index]


def test_objects_keep_their_kind_and_lose_their_owner() -> None:
    row, named = np.arange(3), collections.namedtuple("named", "x y")  # as users write it
    rows = np.empty(3, object)
    rows[:] = [row, [row], {"x": row}]
    (got, pair) = finished((rows[:], named(row, 1)), Buffers())
    assert type(pair) is named
    for one in (got[0], got[1][0], got[2]["x"], pair.x):
        one += 1
    assert row.tolist() == [0, 1, 2]


def test_a_masked_array_is_refused() -> None:
    with raises(bu.ArgumentTypeError):
        finished((np.ma.masked_array([1, 2], [0, 1]),), Buffers())


MAPS: dict[str, Callable[..., Any]] = {
    "channels first": lambda x, y: (x.transpose(0, 3, 1, 2), y),
    "one channel": lambda x, y: (x[..., :1].transpose(0, 3, 1, 2), y),
    "mirrored": lambda x, y: (x[:, :, ::-1], y[::-1]),
    "broadcast": lambda x, y: (np.broadcast_to(x.mean(axis=0), x.shape), np.broadcast_to(y[:1], y.shape)),
    "as it is": lambda x, y: (x, y),
    "views of one": lambda x, y: (x, x[..., 0], x[..., 1:]),
    "foreign": lambda x, y: {"x": x.astype(">f4"), "y": (y.astype(">i2"), (y, x[:, 0]))},
    "scalars": lambda x, y: (x, y, np.array(3), np.float32(1), 2, "text", None),
    "text": lambda x, y: (np.array([f"{i}" * (i % 3) for i in y]), y.astype("S2"), [f"{i}" for i in y]),
    "rows of objects": lambda x, y: (np.array([x[0], None], object)[[0] * len(y)], y),
}


def images(dtype: Any = np.float32) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(30 * 16 * 16 * 3).reshape(30, 16, 16, 3).astype(dtype), np.arange(30)])


@pytest.mark.parametrize("name", MAPS)
def test_every_way_hands_out_the_same_layout(name: str, pools: list[AbstractWorkerPool]) -> None:
    source = images().map(MAPS[name])
    expected = list(source.batch_iterator(8, shuffle=3))
    for batch in expected:
        check(batch)
    for pool in [bu.SerialPool(), *pools]:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(8, shuffle=3)), expected)
    streamed = bu.CallableDataSource(lambda batch_size: reading(source, batch_size))
    assert_same_batches(list(streamed.batch_iterator(8)), expected)


def reading(source: Any, batch_size: int) -> Any:
    """Yield the batches of a source as they are read."""
    for planned in source.plan(batch_size, 3):
        yield source.node.read(planned.rows, planned.key, Buffers())


def test_a_stream_that_is_prefetched_has_that_layout(pools: list[AbstractWorkerPool]) -> None:
    source = bu.zip(*[images().map(MAPS[name]) for name in ("channels first", "mirrored", "broadcast", "text")])
    expected = list(source.batch_iterator(8, shuffle=3))
    for pool in [bu.SerialPool(), *pools]:
        streamed = pool.prefetch(bu.CallableDataSource(lambda batch_size: reading(source, batch_size)))
        assert_same_batches(list(streamed.batch_iterator(8)), expected)


def test_data_of_a_foreign_byte_order_is_handed_out_native(pools: list[AbstractWorkerPool]) -> None:
    source = images(">f4")
    for over in (source, *[pool.parallel_data_source(source) for pool in pools]):
        for x, _ in over.batch_iterator(8):
            assert x.dtype == np.dtype("=f4")
            assert x.dtype.isnative


def test_nothing_imports_torch_where_there_are_no_tensors() -> None:
    source = bu.ArrayDataSource([np.arange(8)]).map(lambda x: (x, "torch" in sys.modules))
    with bu.WorkerProcessPool(1) as pool:  # of its own, for those of the other tests may have been sent tensors
        assert [told for _, told in pool.parallel_data_source(source).batch_iterator(4, shuffle=1)] == [False, False]


def test_a_map_behind_a_pool_hands_out_what_it_returns(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        behind = pool.parallel_data_source(images()).map(lambda x, y: (x.transpose(0, 3, 1, 2), y))
        assert not any(x.flags.c_contiguous for x, _ in behind.batch_iterator(8))
        twice = pool.parallel_data_source(images()).map(lambda x, y: (x, x))
        assert all(x is z for x, z in twice.batch_iterator(8))


def test_samples_that_the_data_set_keeps_may_be_written_to() -> None:
    ragged = [np.arange(n) for n in (1, 2, 3)]
    held = np.empty(3, object)
    held[:] = ragged
    named = [{"x": [n, n]} for n in range(3)]

    def spoil(*columns: Any, **by_name: Any) -> Any:
        for column in [*columns, *by_name.values()]:
            for sample in column:
                sample[0] = -1
        return columns or by_name

    for data in (bu.MapStyle(ragged), held, bu.MapStyle(named), bu.MapStyle([(row, row) for row in ragged])):
        list(bu.ArrayDataSource([data]).map(spoil).batch_iterator(2))
        list(bu.ArrayDataSource([data]).collate(lambda samples: samples).map(lambda *b: (b,)).batch_iterator(2))
    assert [row[0] for row in ragged] == [0, 0, 0]
    assert [sample["x"] for sample in named] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("kind", [bytearray, set, collections.deque, functools.partial(array, "b")])
def test_samples_of_pythons_own_types_may_be_written_to(kind: Any) -> None:
    samples = [kind([1, 2]), kind([3, 4])]
    kept = copy.deepcopy(samples)

    def spoil(column: list[Any]) -> Any:
        for sample in column:
            sample.pop()
        return (column,)

    source = bu.ArrayDataSource([bu.MapStyle(samples)])
    for mapped in (source.map(spoil), source.collate(spoil)):
        list(mapped.batch_iterator(2))
    assert samples == kept


def test_arrays_in_a_deque_may_be_written_to() -> None:
    row = np.arange(3)
    (got,) = copied([collections.deque([row], maxlen=4)])
    got[0] += 1
    assert row.tolist() == [0, 1, 2]
    assert got.maxlen == 4


def test_samples_that_are_collated_may_be_written_to() -> None:
    rows = [np.arange(3) for _ in range(4)]
    table = np.arange(12).reshape(4, 3)

    class Views:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, i: int) -> Any:
            return rows[i], table[i]

    def spoil(samples: list[Any]) -> Any:
        for one, other in samples:
            one[:] = other[:] = -1
        return samples

    list(bu.ArrayDataSource([bu.MapStyle(Views())]).collate(spoil).batch_iterator(2))
    assert [row.tolist() for row in rows] == [[0, 1, 2]] * 4
    assert table.tolist() == np.arange(12).reshape(4, 3).tolist()


def doubled(column: Any) -> Any:
    """Change a column in place, and return it."""
    for rows in column if isinstance(column, list) else [column]:
        rows *= 2
    return column


def doubled_first(g: Any, h: Any) -> Any:
    return doubled(g), h


def row_views(x: np.ndarray) -> list[np.ndarray]:
    return list(x)


def twice_from(memory: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    first, second = (np.frombuffer(memory).reshape(shape) for _ in range(2))
    return first, second


ALIKE: dict[str, Any] = {
    "one array": lambda x: (x, x),
    "a view": lambda x: (x, x[:]),
    "two views": lambda x: (x[:, ::2], x[:, 1:]),
    "columns of one array": lambda x: (x[:, :2], x[:, 2:]),
    "a reshaped array": lambda x: (x.reshape(-1, 1, 4), x),
    "one list": lambda x: 2 * (row_views(x),),
    "lists of the same arrays": lambda x: (rows := row_views(x), list(rows)),
    "lists of views": lambda x: (row_views(x), [row[1:] for row in row_views(x)]),
    "an array and its rows": lambda x: (x, row_views(x)),
    "rolled lists": lambda x: (rows := row_views(x), rows[1:] + rows[:1]),
    "a sliding window": lambda x: (x, np.lib.stride_tricks.sliding_window_view(x, 2, axis=1)),
    "views of a bytearray": lambda x: twice_from(bytearray(x.tobytes()), x.shape),
    "views of a memoryview": lambda x: twice_from(memoryview(bytearray(x.tobytes())), x.shape),
    "new arrays": lambda x: (x + 1, x + 2),
    "new lists": lambda x: ([row + 1 for row in x], [row + 2 for row in x]),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_a_map_that_writes_to_a_column_changes_no_other(kind: str, pools: list[AbstractWorkerPool]) -> None:
    """Also if the map before gave two columns the same memory."""
    fn, x = ALIKE[kind], np.arange(24.0).reshape(6, 4)
    expected_g, expected_h = doubled(copy.deepcopy(fn(x.copy())[0])), fn(x.copy())[1]
    data = bu.ArrayDataSource({"f": x})
    made = data.map(fn, on="f", out=["g", "h"])
    named = data.map(lambda f: dict(zip("gh", fn(f), strict=True)))
    of_tuples = bu.ArrayDataSource([x]).map(fn)
    sources = [made.map(doubled, on="g"), named.map(doubled, on="g"), of_tuples.map(doubled, on=0),
               of_tuples.map(doubled_first), made.map(doubled_first, on=["g", "h"])]  # fmt: skip
    behind = pools[0].parallel_data_source(data).map(fn, on="f", out=["g", "h"]).map(doubled, on="g")
    for source in (*sources, pools[1].parallel_data_source(sources[0]), behind):
        (batch,) = source.batch_iterator(6)
        g, h = (batch["g"], batch["h"]) if isinstance(batch, dict) else batch
        np.testing.assert_equal((g, h), (expected_g, expected_h))
        if isinstance(batch, dict) and "f" in batch:
            np.testing.assert_equal(batch["f"], x)
    assert x.tolist() == np.arange(24.0).reshape(6, 4).tolist()


def test_a_tensor_beside_the_array_whose_memory_it_has_comes_apart() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = np.ones((4, 2), np.float32)
    tensor = torch.ones(4, 2)
    for batch in ((x, torch.from_numpy(x)), (tensor, tensor.numpy()), (tensor.numpy(), tensor.numpy())):
        first, second = apart(batch, ())
        first *= 0
        assert float(second.sum()) == 8.0
        first += 1


def test_lists_of_many_numbers_are_not_looked_through() -> None:
    tokens = [list(range(1000)) for _ in range(10)]
    looked: list[Any] = []
    sys.setprofile(lambda frame, event, argument: looked.append(frame) if event == "call" else None)
    try:
        assert apart((tokens, [list(each) for each in tokens]), ())
    finally:
        sys.setprofile(None)
    assert len(looked) < 1000


def test_what_a_map_returns_is_copied_only_if_columns_share_memory() -> None:
    def once(*fns: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yield a batch, what a map returned for it, and what comes of that. Nothing else holds the columns."""
        for fn in fns:
            before = (np.arange(3.0), np.arange(3), ["a", "b", "c"])
            returned = fn(*before)
            yield before, returned, apart(returned, before)

    for _, returned, made in once(
        lambda x, y, texts: (x, y), lambda x, y, texts: (x, y, texts, list(texts)), lambda x, y, texts: [x, x],
        lambda x, y, texts: {"x": x[:2], "y": x[2:]}, lambda x, y, texts: x, lambda x, y, texts: (x,),
        lambda x, y, texts: {"rows": list(x), "x": y},
    ):  # fmt: skip
        assert made is returned
    for (x, y, _), returned, (first, second, third) in once(
        lambda x, y, texts: (x, y, x), lambda x, y, texts: (x, y, x[:1])
    ):
        assert first is x
        assert second is y
        assert not np.shares_memory(third, x)
        np.testing.assert_equal(third, returned[2])
    x, texts = np.arange(3.0), ["a", "b", "c"]
    turned = np.asfortranarray(np.ones((3, 4)))
    assert apart((turned, turned), ())[1].flags.f_contiguous
    many = apart(tuple(np.arange(80.0)[i : i + 2] for i in range(0, 80, 2)), ())
    assert apart((texts, texts), ())[1] is not texts
    assert [part.tolist() for part in many] == np.arange(80.0).reshape(-1, 2).tolist()
    nested = apart({"x": x, "target": {"x": x}}, {"x": x})
    assert not np.shares_memory(nested["target"]["x"], nested["x"])
