"""The shared memory: blocks without overlap, slots that are never overwritten while they can be seen."""

from __future__ import annotations

import errno
import itertools
import os
import resource
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.work_pool.processes.protocol import Placed
from batchup_ng.work_pool.processes.shared_memory import PAGE, Arena, ArenaFull, SharedView, SlotPool
from tests.messages import raises

MB = 1 << 20


@pytest.fixture
def arena() -> Any:
    made = Arena(64 * MB)
    yield made
    made.close()


def test_what_is_written_on_one_side_is_read_on_the_other(arena: Arena) -> None:
    block = arena.take(3 * MB)
    view = SharedView(arena.file)
    view.bytes[block.offset :][:5] = 7
    assert block.keep[:6].tolist() == [7, 7, 7, 7, 7, 0]
    place = Placed(block.offset, block.size)
    private = view.private([place])[place]
    assert private[4] == 7
    private[4] = 9
    assert block.keep[4] == 7


def test_a_block_has_its_pages_when_it_is_taken_and_loses_them_when_it_is_given_back(arena: Arena) -> None:
    block = arena.take(8 * MB)
    assert os.fstat(arena.file.fd).st_blocks * 512 >= 8 * MB
    arena.give_back(block)
    assert os.fstat(arena.file.fd).st_blocks == 0
    assert arena.taken == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5 * MB)), max_size=40))
def test_blocks_never_overlap_and_all_of_the_room_comes_back(steps: list[tuple[bool, int]]) -> None:
    arena, out = Arena(16 * MB), []
    try:
        for give_back, nbytes in steps:
            if give_back and out:
                arena.give_back(out.pop(nbytes % len(out)))
                continue
            try:
                out.append(arena.take(nbytes))
            except ArenaFull:
                assert sum(block.size for block in out) + nbytes > 16 * MB - len(out) * PAGE - 5 * MB
                continue
            assert out[-1].size >= nbytes
            assert out[-1].offset % PAGE == 0
            ends = sorted((block.offset, block.offset + block.size) for block in out)
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
            assert arena.taken == sum(block.size for block in out)
        for block in out:
            arena.give_back(block)
        assert arena.take(16 * MB).offset == 0
    finally:
        arena.close()


def test_memory_that_the_system_does_not_give_is_an_error(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with raises(ArenaFull):
        arena.take(8 * MB)
    assert arena.taken == 0


def test_a_limit_on_file_size_bounds_the_span() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, hard))
    try:
        arena = Arena()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert arena.span == 8 << 20
    arena.close()


def test_slots_are_used_again_and_held_ones_are_left_alone(arena: Arena) -> None:
    slots = SlotPool(arena, 32 * MB)
    slot = slots.take(MB)
    assert slot is not None
    first, view = slot.offset, memoryview(slot.bytes[10:20])
    del slot
    assert getattr(slots.take(MB), "offset", first) != first
    del view
    assert getattr(slots.take(MB), "offset", None) == first
    slots.close()


def test_slots_never_have_more_than_the_budget(arena: Arena) -> None:
    slots = SlotPool(arena, 10 * MB)
    held = [slots.take(3 * MB) for _ in range(3)]
    assert all(held)
    assert slots.take(3 * MB) is None
    held.clear()
    assert slots.take(9 * MB) is not None, "free slots of another size are released"
    assert slots.bytes <= 10 * MB
    assert arena.taken == slots.bytes
    slots.close()


def test_a_batch_that_is_held_outlives_the_arena(arena: Arena) -> None:
    slots = SlotPool(arena, 32 * MB)
    slot = slots.take(MB)
    assert slot is not None
    array = slot.bytes[5:]
    array[:] = 5
    del slot
    slots.close()
    arena.close()
    assert (array == 5).all()
