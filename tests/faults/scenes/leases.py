"""Batches lie in memory that is lent: what is lent out is never written to, whatever is done with it (M5)."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, make_pool, payload_of, stored
from .machines import run

POISON = 0xDD
LENDERS = ("BufferPool", "SlotPool")
"""Classes that keep free blocks by their size, in ``_free``: a dict of deques of what came back, with a ``block``."""

WIDTH = 15_000
"""Bytes a row: batches of 105 kB, which are lent, not allocated."""


def lenders() -> list[Any]:
    """Return all that lends memory in this process."""
    return [thing for thing in gc.get_objects() if type(thing).__name__ in LENDERS]


def poison(found: list[Any]) -> int:
    """Overwrite all memory that is free; return how many blocks that was.

    Each block is taken out of its deque meanwhile, which is atomic, so that nobody can be lent it.
    """
    count = 0
    for lender in found:
        for size, free in list(lender._free.items()):
            for _ in range(len(free)):
                try:
                    returned = free.pop()
                except IndexError:
                    break
                ctypes.memset(returned.block.address, POISON, size)
                free.appendleft(returned)
                count += 1
    return count


class LeaseMachine(RuleBasedStateMachine):
    """What a consumer may do with batches, against a model of what each reference must show."""

    kind = "threads"

    @initialize(workers=st.integers(1, 2), size=st.integers(1, 6))
    def open(self, workers: int, size: int) -> None:
        self.pool = make_pool(self.kind, workers)
        self.lenders = lenders()
        self.parallel = self.pool.parallel_data_source(stored(WIDTH, n=700), size)
        self.iterator = self.parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
        self.held: list[tuple[Any, bytes]] = []
        self.poisoned = 0

    @rule(n=st.integers(1, 4), how=st.sampled_from(["array", "row", "strided", "memoryview", "reinterpreted"]))
    def take(self, n: int, how: str) -> None:
        for _ in range(n):
            batch = next(self.iterator, None)
            if batch is None:
                self.iterator = self.parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
                return
            rows, payload, _ = batch
            assert np.array_equal(payload, payload_of(rows, WIDTH)), "a batch arrived wrong"
        kept = self._reference(payload, how)
        del batch, payload
        self.held.append((kept, content(kept)))

    @staticmethod
    def _reference(payload: np.ndarray, how: str) -> Any:
        if how == "row":
            return payload[2]
        if how == "strided":
            return payload[::2, 5::3]
        if how == "memoryview":
            return memoryview(payload)
        if how == "reinterpreted":
            return payload.reshape(-1).view(np.uint64 if payload.nbytes % 8 == 0 else np.uint8)
        return payload

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), value=st.integers(0, 255))
    def write(self, which: int, value: int) -> None:
        which %= len(self.held)
        kept, _ = self.held[which]
        np.asarray(kept)[...] = value
        self.held[which] = kept, content(kept)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), elsewhere=st.booleans())
    def release(self, which: int, elsewhere: bool) -> None:
        if not elsewhere:
            del self.held[which % len(self.held)]
            return
        thread = threading.Thread(target=self.held.pop, args=(which % len(self.held),))
        thread.start()
        thread.join()

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def let_go_in_a_cycle(self, which: int) -> None:
        cycle: list[Any] = [self.held.pop(which % len(self.held))]
        cycle.append(cycle)

    @rule()
    def collect_and_poison(self) -> None:
        gc.collect()
        self.poisoned += poison(self.lenders)
        self.look()

    @rule(keep=st.booleans())
    def break_off(self, keep: bool) -> None:
        self.iterator.close()
        if not keep:
            self.held.clear()
        self.iterator = self.parallel.batch_iterator(BATCH, shuffle=SHUFFLE)

    def look(self) -> None:
        """Assert that whatever is held shows what it did when it was last written to."""
        for kept, shown in self.held:
            assert content(kept) == shown, "what is held was overwritten"

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.look()
        self.pool.close()
        gc.collect()
        poison(self.lenders)
        self.look()  # also what outlives the pool


def content(kept: Any) -> bytes:
    return np.ascontiguousarray(kept).tobytes()


def lease_machine(kind: str, examples: int, steps: int, seed: int) -> str:
    """M5: run the machine."""

    class Machine(LeaseMachine):
        pass

    Machine.kind = kind
    return run(Machine, examples, steps, seed)


def poisoned_all_the_time(kind: str, batches: int) -> dict[str, int]:
    """M5: while a consumer keeps the last few batches, all free memory is overwritten again and again.

    On a busy machine it may never be free when the other thread looks, so the consumer does it too, now and then.
    """
    over, poisoned = threading.Event(), list[int]()  # each thread adds to a list: of two sums one may be lost

    def keep_poisoning() -> None:
        while not over.is_set():
            poisoned.append(poison(found))
            over.wait(0.0005)

    with make_pool(kind) as pool:
        found = lenders()
        thread = threading.Thread(target=keep_poisoning)
        parallel = pool.parallel_data_source(bu.repeat(stored(WIDTH, n=700), batches // 100), 6)
        thread.start()
        held: list[tuple[np.ndarray, np.ndarray]] = []
        try:
            for number, (rows, payload, _) in enumerate(parallel.batch_iterator(BATCH, shuffle=SHUFFLE)):
                if number % 50 == 49:
                    held.clear()
                    poisoned.append(poison(found))
                held.append((rows, payload))
                assert np.array_equal(payload, payload_of(rows, WIDTH)), "a batch arrived wrong"
                rows, payload = held[0]
                assert np.array_equal(payload, payload_of(rows, WIDTH)), "a batch that is held was overwritten"
                del held[:-5], rows, payload
        finally:
            over.set()
            thread.join()
    return {"poisoned": sum(poisoned), "lenders": len(found)}


# -- arrays of other libraries over a batch ------------------------------------------------------------------------


def by_torch(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


def by_jax(array: np.ndarray) -> Any:
    import jax

    return jax.dlpack.from_dlpack(array)


def by_jax_numpy(array: np.ndarray) -> Any:
    import jax.numpy

    return jax.numpy.asarray(array)


VIEWS = {"torch": by_torch, "jax": by_jax, "jax.numpy": by_jax_numpy}
"""How other libraries are given a batch: without a copy, as a rule."""

HELD = 20
"""Tensors that are held at once, more than batches are ahead."""


def held_by(kind: str, how: str, batches: int) -> dict[str, Any]:
    """M5: a consumer makes tensors of batches, drops the batches, keeps the last tensors for a while.

    All free memory is overwritten at each step. A tensor's memory must not be lent again while it lives, and must be
    free once it is dead.

    Returns:
        How many tensors lay in ``lent`` memory (those that do not are copies) and how many of the blocks of these were
        ``freed`` when they were dropped.
    """
    lent, freed, held = 0, 0, []
    with make_pool(kind) as pool:
        found = lenders()
        parallel = pool.parallel_data_source(bu.repeat(stored(WIDTH, n=700), batches // 100), 6)
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            for rows, payload, _ in iterator:
                address = int(payload.__array_interface__["data"][0])
                held.append((VIEWS[how](payload), rows.copy(), address))
                del rows, payload
                poison(found)
                for tensor, rows, _ in held:
                    assert np.array_equal(np.asarray(tensor), payload_of(rows, WIDTH)), "a tensor was overwritten"
                del tensor, rows
                if len(held) > HELD:
                    (dropped, _, address) = held.pop(0)
                    in_it = int(np.asarray(dropped).__array_interface__["data"][0]) == address
                    assert not (in_it and is_free(found, address)), "memory that a tensor has is free"
                    del dropped
                    lent, freed = lent + in_it, freed + (in_it and is_free(found, address))
        kept = list(held)
    for tensor, rows, _ in kept:
        assert np.array_equal(np.asarray(tensor), payload_of(rows, WIDTH)), "a tensor did not outlive the pool"
    return {"lent": lent, "freed": freed}


def is_free(found: list[Any], address: int) -> bool:
    """Return whether the memory at an address waits for use."""
    return any(
        returned.block.address <= address < returned.block.address + size
        for lender in found
        for size, free in list(lender._free.items())
        for returned in list(free)
    )
