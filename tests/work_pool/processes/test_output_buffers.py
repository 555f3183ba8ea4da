"""Tuples of arrays come back as they were, large ones in the slot that the task was lent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.memory.leases import BufferPool
from batchup_ng.work_pool.processes.output_buffers import TaskMemory, packed
from batchup_ng.work_pool.processes.protocol import Frame, Kind, Placed
from batchup_ng.work_pool.processes.shared_memory import Arena, SharedView

MB = 1 << 20
DTYPES = ["u1", "?", "<i2", ">i4", "<f2", "<f4", ">f8", "<c8", "<c16", "M8[ns]", "m8[s]", "S7", "<U3", ">U2"]


class Lender:
    """A pool's side in short: lends slots of an arena, and loads what comes back."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.view = SharedView(arena.file)
        self.places: list[Placed] = []

    def memory(self, nbytes: int = 0) -> TaskMemory:
        """Return the memory of a task with a slot of so many bytes, or none."""
        block = self.arena.take(nbytes) if nbytes else None
        return TaskMemory(self.view, Placed(block.offset, block.size) if block else None, BufferPool())

    def crossed(self, result: Any, memory: TaskMemory) -> Any:
        """Return what arrives of `result`; None if it needs a RESULT frame."""
        frame = packed(result, memory)
        if frame is None:
            return None
        self.places = frame[1]
        memory = [self.view.bytes[place.offset :][: place.size] for place in frame[1]]
        return Frame(Kind.ARRAYS, 0, frame[0], memory).arrays()


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    arena = Arena(1 << 30)
    yield Lender(arena)
    arena.close()


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


arrays = st.tuples(
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 40), max_size=3),
    st.integers(0, 9),
    st.sampled_from(["own", "slot"]),
)


@given(st.lists(arrays, max_size=4))
def test_arrays_arrive_as_they_were(lender: Lender, drawn: list[Any]) -> None:
    memory = lender.memory(MB)
    parts = []
    for kind, shape, seed, where in drawn:
        dtype = np.dtype(kind)
        data = np.random.default_rng(seed).integers(0, 2 if kind == "?" else 100, int(np.prod(shape)) * dtype.itemsize)
        values = data.astype(np.uint8)
        if dtype.kind == "U":
            values = np.full(values.size // 4, ord("x"), dtype.str[0] + "u4").view(np.uint8)
        array = memory.empty(tuple(shape), dtype) if where == "slot" else np.empty(tuple(shape), dtype)
        array[...] = values.view(dtype).reshape(shape)
        parts.append(array)
    wanted = [part.copy() for part in parts]
    arrived = lender.crossed(tuple(parts), memory)
    assert type(arrived) is tuple
    assert len(arrived) == len(wanted)
    assert all(map(alike, arrived, wanted))
    for part in arrived:
        assert part.flags.writeable
        part[...] = part.flat[0] if part.size else part


@pytest.mark.parametrize("names", [(0, 1), ("large", "small")])
def test_large_arrays_lie_in_the_slot_and_small_ones_in_the_message(lender: Lender, names: tuple[Any, Any]) -> None:
    memory = lender.memory(MB)
    large, small = memory.empty((1000, 50), np.dtype("f4")), np.arange(5)
    large[...] = 3
    arrived = lender.crossed((large, small) if names[0] == 0 else dict(zip(names, (large, small), strict=True)), memory)
    large[0, 0] = 8  # the same bytes, seen from both sides
    assert arrived[names[0]][0, 0] == 8
    assert arrived[names[1]].tolist() == [0, 1, 2, 3, 4]
    assert [place.size for place in lender.places] == [200_000]


def test_a_part_of_a_slots_array_is_not_copied(lender: Lender) -> None:
    memory = lender.memory(MB)
    whole = memory.empty((100, 1000), np.dtype("u1"))
    whole[...] = np.arange(100)[:, None]
    arrived = lender.crossed((whole, whole[20:30]), memory)
    arrived[0][20, 0] = 77
    assert arrived[1][0, 0] == 77
    assert [place.size for place in lender.places] == [100_032]


def test_what_has_no_room_in_the_slot_goes_with_the_message(lender: Lender) -> None:
    memory = lender.memory(100_000)
    parts = tuple([np.full(90_000, k, np.uint8) for k in range(3)])
    assert packed(parts, memory) is None
    raw = memoryview(parts[2])
    assert memory.place(raw) is raw


def test_without_a_slot_memory_is_the_workers_own(lender: Lender) -> None:
    memory = lender.memory()
    assert packed((np.zeros(MB),), memory) is None
    assert memory.empty((MB,), np.dtype("u1")).nbytes == MB


@pytest.mark.parametrize("result", [
    None, np.arange(3), [np.arange(3)], {1: np.arange(3)}, {"x": 3}, ((np.arange(3),),), (np.arange(3), 1),
    (np.array([{}]),), (np.zeros((0, 3)),), (np.asfortranarray(np.zeros((5, 7))),), (np.arange(9)[::2],),
    (np.ma.zeros(3),), (np.zeros(3, [("a", "i4")]),), (np.zeros(3, np.dtype("i4", metadata={"unit": "m"})),),
])  # fmt: skip
def test_anything_else_is_pickled(lender: Lender, result: Any) -> None:
    assert packed(result, lender.memory(MB)) is None


def test_a_slot_in_which_nothing_of_the_result_lies_is_not_named(lender: Lender) -> None:
    memory = lender.memory(MB)
    memory.empty((5000,), np.dtype("u1"))
    result = packed((np.ones(3),), memory)
    assert result is not None
    assert result[1] == []
    assert memory.written().size == 5056


def test_an_array_that_stands_in_a_tuple_twice_stays_one(lender: Lender) -> None:
    array = np.arange(3)
    assert packed((array, array), lender.memory(MB)) is None
