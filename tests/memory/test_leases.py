"""Reused memory: never overwritten while it can be seen, used again as soon as it cannot."""

from __future__ import annotations

import gc
import pickle
import random
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.memory.leases import ALIGNMENT, FRESH, SMALLEST_LEASE, BufferPool, size_class
from tests.threads import in_threads

BIG = SMALLEST_LEASE * 2
BYTES = np.dtype(np.uint8)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_when_the_last_reference_is_gone() -> None:
    pool = BufferPool()
    array = pool.empty((BIG,), BYTES)
    first = address(array)
    views: list[Any] = [array[5:].reshape(-1, 1)[::3], memoryview(array), array.view(np.int8)]
    del array
    while views:
        assert address(pool.empty((BIG,), BYTES)) != first
        views.pop()
    gc.collect()
    assert address(pool.empty((BIG,), BYTES)) == first


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4 * SMALLEST_LEASE), st.integers(0, 255)), max_size=60))
def test_what_is_held_is_never_overwritten(steps: list[tuple[bool, int, int]]) -> None:
    pool, held = BufferPool(max_free=3), []
    for give_back, nbytes, value in steps:
        if give_back and held:
            held.pop(value % len(held))
        else:
            array = pool.empty((nbytes,), BYTES)
            array[:] = value
            held.append((array[1:], value))
    assert all((array == value).all() for array, value in held)


@pytest.mark.parametrize(
    "dtype",
    ["u1", "<i8", ">f4", "f2", "c16", "?", "M8[ms]", "U3", "S5", [("x", "<f4"), ("y", "<i2", (3,))], "V7"],
    ids=str,
)
def test_arrays_have_the_shape_dtype_and_alignment_asked_for(dtype: Any) -> None:
    dtype = np.dtype(dtype)
    array = BufferPool().empty((SMALLEST_LEASE, 3), dtype)
    assert array.shape == (SMALLEST_LEASE, 3)
    assert array.dtype == dtype
    assert array.flags.writeable
    assert array.flags.c_contiguous
    assert address(array) % ALIGNMENT == 0
    array[...] = np.zeros((), dtype)


def test_small_arrays_and_objects_are_not_leased() -> None:
    pool = BufferPool()
    assert pool.empty((3,), BYTES).base is None
    assert pool.empty((BIG,), np.dtype(object)).base is None
    assert pool.empty((0, 5), BYTES).shape == (0, 5)
    assert FRESH.empty((2,), BYTES).shape == (2,)


def test_ragged_batches_share_blocks() -> None:
    pool = BufferPool()
    array = pool.empty((1_000_000,), BYTES)
    first = address(array)
    del array
    assert address(pool.empty((990_000,), BYTES)) == first


def test_only_so_many_blocks_wait() -> None:
    pool = BufferPool(max_free=2)
    arrays = [pool.empty((BIG,), BYTES) for _ in range(10)]
    assert pool.free_bytes() == 0
    del arrays
    gc.collect()
    assert BIG * 2 <= pool.free_bytes() <= BIG * 2.3
    pool.clear()
    assert pool.free_bytes() == 0


def test_no_python_code_runs_when_a_lease_ends() -> None:
    # An interrupt that is noticed there would be printed and lost, as any exception of a finalizer is.
    pool = BufferPool()
    held = [pool.empty((BIG,), BYTES), pool.empty((BIG,), BYTES)]
    calls: list[str] = []
    gc.disable()  # of its runs it tells what others have asked for, such as Hypothesis
    try:
        sys.setprofile(
            lambda frame, event, _: calls.append(f"{event} {frame.f_code.co_name}") if event == "call" else None
        )
        held.clear()
        sys.setprofile(None)
    finally:
        gc.enable()
    assert calls == []
    assert pool.free_bytes() == 2 * size_class(BIG)


def test_a_pool_travels_empty() -> None:
    pool = BufferPool(max_free=7)
    pool.empty((BIG,), BYTES)
    assert pickle.loads(pickle.dumps(pool)).free_bytes() == 0


def test_torch_keeps_what_it_sees() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pool = BufferPool()
    tensor = torch.from_numpy(pool.empty((BIG,), BYTES)).fill_(7)[3:]
    for _ in range(5):
        pool.empty((BIG,), BYTES)[:] = 0
    assert bool((tensor == 7).all())


def test_threads_may_lend_and_give_back_at_once() -> None:
    pool = BufferPool(max_free=8)
    damaged: list[int] = []

    def use(seed: int) -> None:
        rng, held = random.Random(seed), []
        for turn in range(2000):
            array = pool.empty((BIG,), BYTES)
            array[:8] = seed
            held.append(array)
            if len(held) > rng.randrange(1, 6):
                old = held.pop(rng.randrange(len(held)))
                if not (old[:8] == seed).all():
                    damaged.append(turn)

    in_threads([partial(use, seed) for seed in range(4)])
    assert not damaged
