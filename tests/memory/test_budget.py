"""The memory budget: who holds how much, who gives back first, a limit that is kept and changes no row."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import chunk_cache
from batchup_ng.accessors.storage.chunk_cache import ChunkCache
from batchup_ng.memory import limits
from batchup_ng.memory.budget import KINDS, Claim, Holder, MemoryBudget, MemoryTable, Step
from batchup_ng.memory.leases import BufferPool
from batchup_ng.work_pool.prefetch_buffer import ByteBound
from batchup_ng.work_pool.processes import shared_arrays
from batchup_ng.work_pool.processes.shared_memory import Arena, SlotPool
from tests.extent import quick
from tests.messages import raises, warns
from tests.work_pool.processes.serialization_helpers import crossing

MB = 1 << 20
BYTES = np.dtype(np.uint8)


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(64 * MB)
    yield made
    made.close()


class Giving(Holder):
    """A holder that gives back all that it has in one step, and notes that it did."""

    def __init__(self, step: Step, nbytes: int, asked: list[Step]) -> None:
        self.step, self.nbytes, self.asked = step, nbytes, asked

    def held(self) -> dict[str, int]:
        return {"slots": self.nbytes}

    def give_back(self, step: Step, nbytes: int) -> int:
        if step is not self.step or (not self.nbytes and step is not Step.READ_AHEAD):
            return 0
        self.asked.append(step)
        given, self.nbytes = self.nbytes, 0
        return given


# -- what is free -------------------------------------------------------------------------------------------------


def test_what_is_free_is_the_least_of_the_limit_and_the_system(
    budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "available", lambda: 1000.0)
    assert budget.free() == 1000
    claim = Claim("copies", 300)
    budget.add(claim)
    assert budget.free() == 1000, "the system knows of it"
    budget.set_limit(900)
    assert budget.free() == 600
    claim.nbytes = 950
    assert budget.free() == 0
    del claim
    assert budget.free() == 900


def test_what_was_promised_is_not_free(budget: MemoryBudget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "available", lambda: 100.0 * MB)
    rows = bu.Cached(Rows(60))
    assert budget.table()["cached rows"] == 60 * MB
    assert budget.free() == 40 * MB
    rows[:10]
    assert 49 * MB < budget.free() <= 50 * MB, "the system no longer counts the ten rows as free"
    with warns(bu.CacheWarning):
        other = bu.Cached(Rows(60))
    assert budget.table()["cached rows"] <= 60 * MB + 40 * MB
    del rows, other
    assert budget.table()["cached rows"] == 0


class Rows:
    """Rows of 1 MB."""

    dtype = BYTES

    def __init__(self, n: int) -> None:
        self.shape = n, MB

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.repeat(np.arange(len(self), dtype=np.uint8)[rows][..., None], MB, -1)


@pytest.mark.parametrize(("size", "limit"), [(None, None), (17, 17), ("2MB", 2_000_000), ("1GiB", 1 << 30)])
def test_a_limit_is_a_size(size: Any, limit: Any, budget: MemoryBudget) -> None:
    bu.memory_limit(size)
    assert bu.memory().limit == limit == budget.limit


def test_a_limit_that_is_none_is_refused(budget: MemoryBudget) -> None:
    with raises(bu.ArgumentError):
        bu.memory_limit("much")


def test_the_environment_sets_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, limit in (("3MB", 3_000_000), ("", None)):
        monkeypatch.setenv("BATCHUP_NG_MEMORY", text)
        assert MemoryBudget().limit == limit
    monkeypatch.setenv("BATCHUP_NG_MEMORY", "all")
    with raises(bu.ArgumentError):
        MemoryBudget().free()


# -- the table ----------------------------------------------------------------------------------------------------


def test_the_table_is_a_mapping_that_is_printed_as_a_table(budget: MemoryBudget) -> None:
    claim = Claim("copies", 2_000_000)
    budget.add(claim)
    budget.set_limit("8MB")
    table = bu.memory()
    assert tuple(table) == KINDS
    assert dict(table) == {**dict.fromkeys(KINDS, 0), "copies": 2_000_000}
    assert (table.limit, table.free) == (8_000_000, 6_000_000)
    lines = dict(line.rsplit("  ", 1) for line in repr(table).splitlines())
    found = {name.strip(): text.strip() for name, text in lines.items()}
    assert found == {**dict.fromkeys(KINDS, "0 bytes"), "copies": "2 MB", "total": "2 MB", "limit": "8 MB",
                     "free": "6 MB"}  # fmt: skip
    again = pickle.loads(pickle.dumps(table))
    assert (again, again.limit) == (table, table.limit)
    assert "unknown" in repr(MemoryTable({}, None, float("inf")))


def test_buffers_count_in_use_and_free(budget: MemoryBudget) -> None:
    pool = BufferPool()
    held = [pool.empty((MB,), BYTES) for _ in range(3)]
    assert budget.table()["buffers"] == 3 * MB
    held.pop()
    assert (budget.table()["buffers"], budget.table()["free lists"]) == (2 * MB, MB)
    kept = held[0][5:]
    del pool, held
    gc.collect()
    assert budget.table()["buffers"] == 0, "who keeps a batch beyond its pool holds it"
    del kept


def test_slots_and_copies_count(budget: MemoryBudget, arena: Arena) -> None:
    slots = SlotPool(arena, 32 * MB)
    slot, other = slots.take(MB), slots.take(2 * MB)
    del other
    assert (budget.table()["slots"], budget.table()["free lists"]) == (MB, 2 * MB)
    del slot
    with crossing() as both:
        constant = both.share([np.zeros(3 * MB, np.uint8)])
        assert budget.table()["copies"] == 3 * MB
        del constant
        assert budget.table()["copies"] == 0
    slots.close()


# -- who gives back -----------------------------------------------------------------------------------------------


def test_free_lists_go_first_then_chunks_then_what_is_read_ahead(budget: MemoryBudget) -> None:
    asked: list[Step] = []
    holders = [Giving(step, 100, asked) for step in reversed(Step)]
    for holder in holders:
        budget.add(holder)
    budget.set_limit(300)
    assert budget.within(0)
    assert asked == []
    assert budget.within(100)
    assert asked == [Step.FREE_LISTS]
    assert budget.within(200)
    assert asked == [Step.FREE_LISTS, Step.CHUNKS]
    assert not budget.within(1000)
    assert asked == [Step.FREE_LISTS, Step.CHUNKS, Step.READ_AHEAD]


def test_without_a_limit_nobody_is_asked(budget: MemoryBudget) -> None:
    asked: list[Step] = []
    holder = Giving(Step.FREE_LISTS, 100, asked)
    budget.add(holder)
    assert budget.within(1 << 60)
    assert asked == []


def test_free_buffers_are_given_back_for_others(budget: MemoryBudget, arena: Arena) -> None:
    pool, slots = BufferPool(), SlotPool(arena, 32 * MB)
    pool.empty((4 * MB,), BYTES)
    budget.set_limit(5 * MB)
    assert slots.take(4 * MB) is not None
    assert budget.table()["free lists"] == 4 * MB, "the slot, which nothing refers to"
    held = pool.empty((4 * MB,), BYTES)
    assert budget.table()["slots"] + budget.table()["free lists"] == 0
    assert slots.take(4 * MB) is None
    assert "the limit on memory is 5242880 bytes; held already: buffers 4.19 MB" in slots.refused
    del held
    slots.close()


def test_a_batch_that_is_larger_than_the_limit_has_its_buffer_all_the_same(budget: MemoryBudget) -> None:
    budget.set_limit(MB)
    assert BufferPool().empty((2 * MB,), BYTES).nbytes == 2 * MB


def test_pages_that_the_system_refuses_are_asked_for_again_when_others_gave_back(
    budget: MemoryBudget, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, slots = BufferPool(), SlotPool(arena, 32 * MB)
    pool.empty((4 * MB,), BYTES)

    def refuse_while_it_is_held(fd: int, offset: int, nbytes: int, own: Any = os.posix_fallocate) -> None:
        if pool.free_bytes():
            raise OSError(28, "No space left on device")
        own(fd, offset, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", refuse_while_it_is_held)
    assert slots.take(MB) is not None
    assert not slots.refused
    slots.close()


def test_what_is_read_ahead_goes_down_to_one_batch_a_worker(budget: MemoryBudget) -> None:
    bound, single = ByteBound(20, 1 << 30, 4), ByteBound(20, 1 << 30, 1)
    budget.set_limit(0)
    assert not budget.within(1)
    assert (bound.limit, single.limit) == (3, 1)
    with warns(bu.SharedMemoryWarning):
        bound.saw(np.zeros(10, np.uint8))
    assert bound.limit == 3


# -- chunks -------------------------------------------------------------------------------------------------------


def decode(number: int, memory: np.ndarray) -> None:
    memory[...] = number % 251


def fetched(cache: ChunkCache, numbers: list[int], nbytes: int = MB) -> bool:
    """Fetch chunks, and return whether they are right."""
    found: dict[int, np.ndarray] = {}

    def use(numbers: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
        found.update(zip(numbers.tolist(), memory[slots], strict=True))

    cache.fetch(np.array(numbers), nbytes, decode, use)
    return all((found[number] == number % 251).all() for number in numbers)


@pytest.mark.parametrize("free", [60, 1000])
def test_columns_share_one_room_for_chunks(free: int, budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [ChunkCache(20 * MB) for _ in range(12)]
    monkeypatch.setattr(limits, "available", lambda: free * MB - taken(columns))
    for column in columns:
        assert fetched(column, [1, 2])
    rooms = [column.room() for column in columns]
    assert sum(rooms) <= free * MB / 2
    assert budget.table()["decoded chunks"] == sum(rooms) + len(columns) * chunk_cache.TABLE_BYTES
    assert (max(rooms) - min(rooms) <= MB) if free == 60 else set(rooms) == {20 * MB}
    assert budget.free() >= free * MB / 2 - len(columns) * chunk_cache.TABLE_BYTES


def taken(columns: list[ChunkCache]) -> int:
    """Return the bytes of the pages of some caches."""
    shares: list[Any] = [share for column in columns for share in column._shares.values()]
    return sum(share.file.taken() for share in shares)


def test_a_column_that_is_opened_later_has_an_equal_part(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [ChunkCache(30 * MB)]
    monkeypatch.setattr(limits, "available", lambda: 80 * MB - taken(columns))
    worker: ChunkCache = pickle.loads(pickle.dumps(columns[0]))
    assert fetched(worker, list(range(30)))
    assert columns[0].room() == 30 * MB
    columns.append(ChunkCache(30 * MB))
    assert fetched(columns[1], [1, 2, 3])
    assert abs(columns[0].room() - 20 * MB) < MB
    assert worker.room() == columns[0].room()
    assert sum(column.room() for column in columns) <= 40 * MB
    columns.append(ChunkCache(5 * MB))
    assert fetched(columns[2], [1, 2, 3])
    assert columns[2].room() == 5 * MB
    assert sum(column.room() for column in columns) <= 40 * MB
    assert fetched(worker, list(range(30)))


def test_chunks_are_given_back_and_decoded_again(budget: MemoryBudget) -> None:
    cache = ChunkCache(8 * MB)
    worker: ChunkCache = pickle.loads(pickle.dumps(cache))
    assert fetched(worker, list(range(8)))
    before = taken([cache])
    assert budget.give_back(3 * MB) == 3 * MB
    assert taken([cache]) == before - 3 * MB
    assert cache.room() == worker.room() == 5 * MB
    assert budget.table()["decoded chunks"] == 5 * MB + chunk_cache.TABLE_BYTES
    for _ in range(3):
        assert fetched(worker, list(range(8)))
        assert fetched(cache, list(range(8)))
    assert taken([cache]) == before - 3 * MB
    assert budget.give_back(100 * MB) == 5 * MB
    assert cache.room() == 0
    assert fetched(worker, [1, 2])
    assert fetched(cache, [2, 1])


def test_a_chunk_that_is_being_decoded_is_left_until_it_is_used(budget: MemoryBudget) -> None:
    cache = ChunkCache(2 * MB)
    found: list[int] = []

    def give_back(number: int, memory: np.ndarray) -> None:
        memory[: MB // 2] = 7
        budget.give_back(100 * MB)
        memory[MB // 2 :] = 7

    def use(numbers: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
        found.append(int((memory[slots] == 7).sum()))

    cache.fetch(np.array([1]), MB, give_back, use)
    assert found == [MB]
    assert cache.room() == 0
    assert taken([cache]) == chunk_cache.TABLE_BYTES
    assert cache.copy(np.array([1]), MB, use).tolist() == [1], "its slot is gone"


def test_a_cache_that_is_not_used_yet_gives_back_too(budget: MemoryBudget) -> None:
    cache = ChunkCache(8 * MB)
    pickle.dumps(cache)
    assert budget.give_back(3 * MB) == 3 * MB
    assert fetched(cache, list(range(8)))
    assert cache.room() == 5 * MB


def test_chunks_are_kept_while_another_holds_the_lock(budget: MemoryBudget) -> None:
    cache = ChunkCache(2 * MB)
    assert fetched(cache, [1])
    share: Any = cache._share()
    with share._locked():
        assert budget.give_back(MB) == 0
    assert budget.give_back(MB) == MB


# -- errors -------------------------------------------------------------------------------------------------------


def test_an_error_names_the_largest_holders(budget: MemoryBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [Claim(kind, nbytes) for kind, nbytes in (("buffers", 10), ("cached rows", 9 * 10**6), ("slots", 500))]
    claims.append(Claim("decoded chunks", 2000))
    for claim in claims:
        budget.add(claim)
    budget.set_limit("10MB")
    monkeypatch.setattr(shared_arrays, "_lies_in_memory", lambda folder: True)
    with crossing() as both, raises(bu.SerializationError):
        both.share([np.zeros(4 * MB, np.uint8)])
    assert "held already: nothing" in MemoryBudget().in_words()


# -- whole programs -----------------------------------------------------------------------------------------------


def batches(pool: Any, source: bu.ArrayDataSource) -> list[tuple[np.ndarray, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallel = source if pool is None else pool.parallel_data_source(source)
        return [tuple(map(np.copy, batch)) for batch in parallel.batch_iterator(32, shuffle=3)]


@pytest.mark.parametrize("kind", ["threads", "processes"])
@pytest.mark.parametrize("limit", ["1kB", "3MB"])
def test_a_limit_changes_no_row_and_no_order(budget: MemoryBudget, kind: str, limit: str) -> None:
    data = np.random.default_rng(1).integers(0, 256, (300, 10_000), np.uint8)
    source = bu.ArrayDataSource([data, np.arange(300)])
    expected = batches(None, source)
    bu.memory_limit(limit)
    with bu.WorkerThreadPool(2) if kind == "threads" else bu.WorkerProcessPool(2) as pool:
        for made, right in zip(batches(pool, source), expected, strict=True):
            for one, other in zip(made, right, strict=True):
                np.testing.assert_array_equal(one, other, strict=True)


def test_workers_have_their_part_of_the_limit(budget: MemoryBudget) -> None:
    def own() -> int | None:
        return bu.memory().limit

    bu.memory_limit("80MB")
    with bu.WorkerProcessPool(2) as pool, pool.work_stream(iter([(own,)] * 2)) as stream:
        assert list(stream.retrieve_iter()) == [10_000_000] * 2
        assert bu.memory()["worker processes"] == 20_000_000
    assert bu.memory()["worker processes"] == 0
    bu.memory_limit(None)
    with bu.WorkerProcessPool(1, start_method="spawn") as pool, pool.work_stream(iter([(own,)])) as stream:
        assert next(stream) is None


PROGRAM = """
import os, sys, warnings
import numpy as np, psutil
import batchup_ng as bu
from tests.accessors.storage.test_chunks import Chunked
warnings.simplefilter("ignore")

def pss():
    program = psutil.Process()
    return sum(process.memory_full_info().pss for process in [program, *program.children(recursive=True)])

class Column(Chunked):
    def _open(self, path):
        return np.load(path, mmap_mode="r")

    def _read_chunk(self, handle, number, out):
        out[...] = 16 * number + np.arange(len(out), dtype=np.int32)[:, None]

columns = [Column(sys.argv[1], 16, cache="64MB") for _ in range(6)]
source = bu.ArrayDataSource([*columns, np.arange(len(columns[0]))])
with bu.WorkerProcessPool(2) as pool:
    batches = pool.parallel_data_source(source)
    for _ in batches.batch_iterator(8, shuffle=1):
        break
    before, most, right = pss(), 0, True
    for epoch in range(2):
        for *parts, rows in batches.batch_iterator(8, shuffle=2, epoch=epoch):
            right = right and all((part[:, 0] == rows).all() for part in parts)
            most = max(most, pss())
    print(right, most - before, sum(bu.memory().values()))
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("limit", quick(["BATCHUP_NG_MEMORY"], ["RLIMIT_AS"]))
def test_a_program_stays_within_its_limit(limit: str, tmp_path: Path) -> None:
    """Six columns of 64 MB decoded each, and chunks may take all of them."""
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.int32, (256, 1 << 16)).flush()
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    program = PROGRAM
    if limit == "RLIMIT_AS":
        program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n" + program
    else:
        environment[limit] = "100MB"
    command = [sys.executable, "-c", program, str(tmp_path / "x.npy")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.stderr == ""
    right, most, counted = done.stdout.split()
    assert right == "True"
    if limit != "RLIMIT_AS":
        assert int(counted) <= 100e6
        assert int(most) <= 130e6, "without the limit it is 400 MB"
