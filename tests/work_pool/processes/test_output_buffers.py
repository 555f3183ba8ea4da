"""Tuples of arrays come back as they were, large ones in the slots that the task was lent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.memory_pool import BufferPool
from batchup_ng.work_pool.processes import protocol
from batchup_ng.work_pool.processes.output_buffers import SLOT, TaskMemory
from batchup_ng.work_pool.processes.plain import packed, unpacked
from batchup_ng.work_pool.processes.protocol import Frame, Kind, Placed
from batchup_ng.work_pool.processes.shared_memory import Arena, SharedView

MB = 1 << 20
DTYPES = ["u1", "?", "<i2", ">i4", "<f2", "<f4", ">f8", "<c8", "<c16", "M8[ns]", "m8[s]", "S7", "<U3", ">U2"]


class Lender:
    """A pool's side in short: lends slots of an arena, and loads what is said of them."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.view = SharedView(os.dup(arena.fd))
        self.asked: list[Any] = []
        self.gives = True
        self.places: list[Placed] = []

    def lend(self, nbytes: int) -> Placed:
        return Placed(*self.arena.take(nbytes))

    def memory(self, *sizes: int) -> TaskMemory:
        return TaskMemory(self.view, [self.lend(size) for size in sizes], 7, self.ask, BufferPool())

    def ask(self, payload: tuple[Any, ...]) -> Frame:
        self.asked.append(payload)
        return Frame(Kind.ANSWER, 1, b"", [self.lend(payload[2])] if self.gives else [])

    def crossed(self, result: Any, memory: TaskMemory) -> Any:
        """Return what arrives of `result`; None if it is not for this transport."""
        said = packed(result, memory)
        if said is None:
            return None
        self.places = said[1]
        return unpacked(said[0], [self.arena.array(place) for place in said[1]])  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def lender() -> Iterator[Lender]:
    arena = Arena(1 << 30)
    lender = Lender(arena)
    yield lender
    lender.view.close()
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


def test_large_arrays_lie_in_the_slot_and_small_ones_in_the_message(lender: Lender) -> None:
    memory = lender.memory(MB)
    large, small = memory.empty((1000, 50), np.dtype("f4")), np.arange(5)
    large[...] = 3
    arrived = lender.crossed((large, small), memory)
    large[0, 0] = 8  # the same bytes, seen from both sides
    assert arrived[0][0, 0] == 8
    assert arrived[1].tolist() == [0, 1, 2, 3, 4]
    assert [place.size for place in lender.places] == [200_000]


def test_a_part_of_a_slots_array_is_not_copied(lender: Lender) -> None:
    memory = lender.memory(MB)
    whole = memory.empty((100, 1000), np.dtype("u1"))
    whole[...] = np.arange(100)[:, None]
    arrived = lender.crossed((whole, whole[20:30]), memory)
    arrived[0][20, 0] = 77
    assert arrived[1][0, 0] == 77
    assert [place.size for place in lender.places] == [100_032]


def test_what_lies_elsewhere_is_copied_to_a_slot(lender: Lender) -> None:
    memory = lender.memory(MB)
    (arrived,) = lender.crossed((np.full((300, 300), 5.0),), memory)
    assert (arrived == 5).all()
    assert lender.places[0].size == 720_000


def test_arrays_by_name_go_the_same_way(lender: Lender) -> None:
    memory = lender.memory(MB)
    large = memory.empty((1000, 50), np.dtype("f4"))
    large[...] = 3
    arrived = lender.crossed({"large": large, "small": np.arange(5)}, memory)
    large[0, 0] = 8
    assert list(arrived) == ["large", "small"]
    assert arrived["large"][0, 0] == 8
    assert [place.size for place in lender.places] == [200_000]


def test_more_room_is_asked_for_by_the_number_of_the_task(lender: Lender) -> None:
    lender.asked.clear()
    memory = lender.memory(100_000)
    parts = tuple([np.full(90_000, k, np.uint8) for k in range(3)])
    arrived = lender.crossed(parts, memory)
    assert [part[0] for part in arrived] == [0, 1, 2]
    assert lender.asked == [(SLOT, 7, 90_000)] * 2


def test_without_room_another_road_is_taken(lender: Lender) -> None:
    lender.gives = False
    try:
        memory = lender.memory()
        assert packed((np.zeros(MB),), memory) is None
        assert memory.empty((MB,), np.dtype("u1")).nbytes == MB  # of the worker's own
    finally:
        lender.gives = True


@pytest.mark.parametrize("result", [
    None, np.arange(3), [np.arange(3)], {1: np.arange(3)}, {"x": 3}, ((np.arange(3),),), (np.arange(3), 1),
    (np.array([{}]),), (np.zeros((0, 3)),), (np.asfortranarray(np.zeros((5, 7))),), (np.arange(9)[::2],),
    (np.ma.zeros(3),), (np.zeros(3, [("a", "i4")]),), (np.zeros(3, np.dtype("i4", metadata={"unit": "m"})),),
])  # fmt: skip
def test_what_is_anything_else_takes_another_road(lender: Lender, result: Any) -> None:
    assert packed(result, lender.memory(MB)) is None


def test_what_takes_another_road_is_copied_once(lender: Lender) -> None:
    memory = lender.memory(MB)
    array = np.zeros(MB - 64, np.uint8)
    assert packed((array, {}), memory) is None
    assert memory.written(0).size == 0
    first = memory.place(memoryview(array))
    assert memory.place(memoryview(array)) == first


def test_slots_in_which_nothing_of_the_result_lies_are_not_named(lender: Lender) -> None:
    memory = lender.memory(5000, MB)
    memory.empty((5000,), np.dtype("u1"))
    lender.crossed((np.ones(9000, np.uint8), np.ones(3)), memory)
    assert [place.size for place in lender.places] == [9024]
    assert packed((np.ones(3),), memory) is not None
    assert packed((np.ones(3),), memory)[1] == []  # type: ignore[index]


def test_an_array_that_stands_in_a_tuple_twice_stays_one(lender: Lender) -> None:
    array = np.arange(3)
    assert packed((array, array), lender.memory(MB)) is None


def test_a_frame_of_arrays_is_read_like_any_other() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        protocol.write_frame(theirs, protocol.pieces(Kind.ARRAYS, 3, b"said", [Placed(64, 128), Placed(640, 1)]))
        frame = protocol.FrameReader(ours).next()
    assert frame is not None
    assert (frame.kind, frame.number, bytes(frame.pickled)) == (Kind.ARRAYS, 3, b"said")
    assert frame.placed == [Placed(64, 128), Placed(640, 1)]
