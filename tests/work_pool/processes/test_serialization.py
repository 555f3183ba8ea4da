"""Arrays of every kind arrive at workers as they were."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.work_pool.processes.serialization import SMALLEST_APART, pack
from tests.work_pool.processes.serialization_helpers import MB, crossing, one, same

DTYPES = [
    "u1", "?", "<i2", ">i4", "<f2", "<f4", ">f8", "<c8", "<c16", "M8[ns]", "m8[s]", "S7", "<U3", ">U2", "V5",
    [("a", "<i2"), ("b", ">f8", (2,))],
]  # fmt: skip
VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:-1],
    "steps": lambda a: a[:, ::3],
    "backwards": lambda a: a[::-1, ::-2],
    "columns first": np.asfortranarray,
    "turned": lambda a: a.T,
    "turned and cut": lambda a: a[1:, ::2].T,
    "repeated": lambda a: np.broadcast_to(a[None], (3, *a.shape)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 5, axis=0),
    "one": lambda a: a[:1, :1],
    "none": lambda a: a[:0],
    "scalar": lambda a: a[0, 0, ...],
    "fixed": lambda a: _fixed(a),
}


def _fixed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@given(
    st.sampled_from(range(len(DTYPES))), st.sampled_from(sorted(VIEWS)), st.integers(5, 40), st.booleans(),
    st.integers(0, 9),
)  # fmt: skip
def test_arrays_arrive_as_they_were(kind: int, view: str, rows: int, room: bool, seed: int) -> None:
    dtype = np.dtype(DTYPES[kind])
    columns = max(4, 2 * SMALLEST_APART // dtype.itemsize // rows)
    rng = np.random.default_rng(seed)
    if dtype.kind == "U":
        base = rng.integers(0, 99999, (rows, columns)).astype(dtype)
    else:
        base = np.frombuffer(rng.bytes(rows * columns * dtype.itemsize), dtype).reshape(rows, columns).copy()
        if dtype.kind == "?":
            base = base.view("u1") > 100
    array = VIEWS[view](base)
    with crossing(256 * MB if room else 2 * MB) as both:
        constant = both.share({"x": [array, (array,)], "small": np.arange(3)})
        arrived = both.arrived(constant)
        assert arrived["x"][0] is arrived["x"][1][0]
        assert same(arrived["x"][0], array)
        assert arrived["x"][0].flags.writeable == array.flags.writeable
        if array.nbytes >= SMALLEST_APART:
            assert arrived["x"][0].flags.f_contiguous == array.flags.f_contiguous
        assert arrived["small"].tolist() == [0, 1, 2]
        del arrived, constant


def test_repeated_rows_and_windows_travel_without_being_written_out() -> None:
    base = np.arange(50_000.0)
    with crossing() as both:
        for array in (np.broadcast_to(base, (1000, 50_000)), np.lib.stride_tricks.sliding_window_view(base, 1000)):
            constant = both.share([array])
            assert both.arena.taken < 2 * base.nbytes
            arrived = both.arrived(constant)[0]
            assert (arrived.shape, arrived.strides) == (array.shape, array.strides)
            assert arrived[7, 3] == array[7, 3]


def test_what_was_packed_goes_with_its_last_reference() -> None:
    offset = np.arange(100_000.0)
    array = np.arange(100_000.0)
    alive = [weakref.ref(offset), weakref.ref(array)]
    packed = pack(bu.ArrayDataSource([array]).map(lambda x, offset=offset: (x + offset[0],)))
    assert len(packed.buffers) >= 2
    gc.disable()  # which would only come to it some time
    try:
        del array, offset, packed
        assert all(array() is None for array in alive)
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [
    lambda: np.array([None, {"a": 1}] * 40_000, dtype=object),
    lambda: np.ma.masked_array(np.arange(40_000.0), np.arange(40_000) % 3 == 0),
    lambda: np.arange(40_000.0).view(np.recarray),
    lambda: np.rec.fromarrays([np.arange(40_000), np.ones(40_000)], names="a,b"),
])  # fmt: skip
def test_other_kinds_of_arrays_arrive_as_they_were(make: Any) -> None:
    array = make()
    with crossing() as both:
        arrived = both.arrived(both.share([array]))[0]
        assert type(arrived) is type(array)
        assert arrived.dtype == array.dtype
        assert (arrived == array).all()


def test_what_a_worker_writes_to_an_array_nobody_else_sees() -> None:
    def scribble(array: np.ndarray) -> tuple[int, int]:
        before = int(array[5])
        array[5] += 1
        return os.getpid(), before

    array = np.zeros(100_000, int)
    with bu.WorkerProcessPool(2) as pool:
        constant = pool.shared_constant(array)
        seen: dict[int, list[int]] = {}
        for _ in range(30):
            pid, before = one(pool, scribble, constant)
            seen.setdefault(pid, []).append(before)
    assert all(counts == list(range(len(counts))) for counts in seen.values())
    assert not array.any()
