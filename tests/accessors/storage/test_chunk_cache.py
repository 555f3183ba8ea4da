"""Decoded chunks that threads and processes share, whoever of them is killed or stopped when."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.accessors.storage import chunk_cache
from batchup_ng.accessors.storage.chunk_cache import TABLE_BYTES, ChunkCache
from batchup_ng.memory.budget import BUDGET, Living, Step
from batchup_ng.memory.shared_file import Place
from batchup_ng.platforms import system
from tests.extent import thorough
from tests.messages import raises

NBYTES = 300

FOREVER = 1e6

LONGEST = 7200
"""Seconds after which a child ends by itself: the limit of a test at full length, at the end of which it is killed."""


def decode(number: int, memory: np.ndarray) -> None:
    memory[...] = number % 251


def rows_of(
    cache: ChunkCache, numbers: list[int], decode: Any = decode, ahead: Sequence[int] = ()
) -> dict[int, np.ndarray]:
    """Return what is copied of chunks."""
    found: dict[int, np.ndarray] = {}

    def use(numbers: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
        found.update(zip(numbers.tolist(), memory[slots], strict=True))

    cache.fetch(np.array(numbers), NBYTES, decode, use, ahead)
    return found


def missing(cache: ChunkCache, numbers: list[int]) -> list[int]:
    """Return which of some chunks are not kept."""
    left: list[int] = cache.copy(np.array(numbers), NBYTES, lambda *_: None).tolist()
    return left


def check(cache: ChunkCache, numbers: list[int], decode: Any = decode) -> None:
    """Assert that chunks are fetched right."""
    found = rows_of(cache, numbers, decode)
    assert sorted(found) == sorted(numbers)
    assert all((found[number] == number % 251).all() for number in numbers)


def no_decoding(number: int, memory: np.ndarray) -> None:
    raise AssertionError(f"chunk {number} is decoded, and should be there")


def another(cache: ChunkCache) -> ChunkCache:
    """Return the cache as another process would get it."""
    made: ChunkCache = pickle.loads(pickle.dumps(cache))
    return made


@contextlib.contextmanager
def forked(act: Callable[[], Any]) -> Iterator[int]:
    """Run a function in a process of its own, which is killed and waited for at the end."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(LONGEST)
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def ended(pid: int) -> bool:
    """Wait for a process, and return whether it ended well."""
    return os.waitpid(pid, 0)[1] == 0


def test_a_chunk_is_decoded_once_for_all() -> None:
    cache = ChunkCache(4 * NBYTES)
    others = [another(cache) for _ in range(3)]
    check(cache, [3, 1])
    for other in others:
        check(other, [1, 3], no_decoding)
    check(others[0], [7, 8])
    check(cache, [1, 3, 7, 8], no_decoding)


def test_the_chunk_that_was_decoded_first_goes_first() -> None:
    cache = ChunkCache(3 * NBYTES)
    for number in (1, 2, 3, 1, 4):
        check(cache, [number])
    assert missing(cache, [1, 2, 3, 4]) == [1]


def test_a_chunk_that_is_there_twice_is_copied_once() -> None:
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])
    share: Any = cache._share()
    assert share._made(1, NBYTES, decode, lambda *_: None, late=True)
    used: list[int] = []
    assert not len(cache.copy(np.array([1]), NBYTES, lambda numbers, slots, memory: used.extend(numbers)))
    assert used == [1], "or the second copy, taken as its slot is written to, would count as the first, which was whole"


def test_what_cannot_be_decoded_is_not_there() -> None:
    cache = ChunkCache(4 * NBYTES)

    def broken(number: int, memory: np.ndarray) -> None:
        memory[...] = 255
        raise OSError("broken")

    with raises(OSError):
        rows_of(cache, [1], broken)
    check(another(cache), [1])


def test_nothing_is_taken_before_the_first_use() -> None:
    gc.collect()  # of what other tests left, which would go meanwhile
    before = len(os.listdir("/proc/self/fd"))
    cache = ChunkCache(1 << 30)
    assert len(os.listdir("/proc/self/fd")) == before
    pickle.dumps(cache)
    file = cache._share().file
    assert file is not None
    assert os.fstat(file.fd).st_blocks * 512 == TABLE_BYTES
    check(cache, [1])
    assert TABLE_BYTES < os.fstat(file.fd).st_blocks * 512 < 1 << 20
    del file
    cache.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("slots", [0, 1, 2])
def test_with_hardly_any_room_all_is_right(slots: int) -> None:
    cache = ChunkCache(slots * NBYTES)
    for worker in (cache, another(cache)):
        check(worker, [5, 1, 2])


def test_memory_that_is_not_free_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUDGET, "free", lambda: 4.0 * NBYTES)
    monkeypatch.setattr(chunk_cache, "_caches", Living())
    cache = ChunkCache(100 * NBYTES)
    check(cache, list(range(10)))
    assert len(missing(cache, list(range(10)))) == 8

    def none_left(*_: int) -> None:
        raise OSError("no room")

    cache = ChunkCache(100 * NBYTES)
    cache._share()
    monkeypatch.setattr(os, "posix_fallocate", none_left)
    check(cache, [11])
    assert missing(cache, [11]) == [11]


def test_out_of_reach_each_has_its_own() -> None:
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])
    place: Place = cache.__reduce__()[1][1]
    for other in (place._replace(inode=place.inode + 1), place._replace(pid=1 << 22)):
        own = ChunkCache(4 * NBYTES, other)
        decoded: list[int] = []
        check(own, [1], lambda number, memory, to=decoded: (to.append(number), decode(number, memory)))
        assert decoded == [1]
        check(own, [1], no_decoding)


def test_a_system_without_files_in_memory_has_a_cache_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "HAS_SHARED_FILES", False)
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])
    check(cache, [1], no_decoding)
    check(another(cache), [1])
    with forked(lambda: check(cache, [2, 1])) as pid:
        assert ended(pid)


def test_where_files_may_not_be_large_each_process_has_a_cache_of_its_own() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        cache = ChunkCache(10 * NBYTES)
        check(cache, [3, 4])
        assert missing(cache, [3, 4, 5]) == [5]
        check(another(cache), [3, 5])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_fork_shares_what_there_is() -> None:
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])
    with forked(lambda: (check(cache, [1], no_decoding), check(cache, [2]))) as pid:
        assert ended(pid)
    check(cache, [2], no_decoding)


def test_threads_and_other_copies_never_mix_chunks_up() -> None:
    cache = ChunkCache(3 * NBYTES)
    workers = [cache, cache, another(cache), another(cache)]

    def work(worker: ChunkCache, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            check(worker, rng.sample(range(8), 4))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, workers, range(4)))


class World:
    """Several workers, whose requests fall into one another at any point: as one decodes, as one copies."""

    def __init__(self, data: Any, slots: int) -> None:
        self.data = data
        first = ChunkCache(slots * NBYTES)
        self.workers = [first, another(first), another(first)]
        self.depth = 0

    def anything(self) -> None:
        """Let others do something, or nothing."""
        if self.depth >= 3 or not self.data.draw(st.booleans()):
            return
        self.depth += 1
        what = self.data.draw(st.integers(0, 7))
        if what <= 1:
            self.killed_between_claim_and_publication(self.data.draw(st.integers(0, 6)))
        elif what == 2:
            self.workers[0].give_back(Step.CHUNKS, NBYTES)
        else:
            self.request()
        self.depth -= 1

    def request(self) -> None:
        worker = self.data.draw(st.sampled_from(self.workers))
        numbers = self.data.draw(st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=4))
        found: dict[int, np.ndarray] = {}

        def decoding(number: int, memory: np.ndarray) -> None:
            half = len(memory) // 2
            memory[:half] = number
            self.anything()
            memory[half:] = number

        def using(numbers: np.ndarray, slots: np.ndarray, memory: np.ndarray) -> None:
            copied = memory[slots]
            self.anything()
            copied[:, NBYTES // 2 :] = memory[slots, NBYTES // 2 :]
            found.update(zip(numbers.tolist(), copied, strict=True))

        worker.fetch(np.array(numbers), NBYTES, decoding, using)
        assert {number: set(bytes(found[number])) for number in numbers} == {number: {number} for number in numbers}

    def killed_between_claim_and_publication(self, number: int) -> None:
        dying: Any = another(self.workers[0])._share()
        dying._me = DEAD
        slot = dying._claimed(number, NBYTES, late=False)
        if slot >= 0:
            dying._memory(NBYTES)[slot] = 255


DEAD = 1 << 30 << 22 | 1
"""What no living process is: number 1 as if it had been started long after the machine."""


@given(st.data(), st.integers(0, 4))
def test_whatever_falls_into_what_all_rows_are_right(data: Any, slots: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", 0.0)  # who decodes here waits for who is called from there
        world = World(data, slots)
        for _ in range(data.draw(st.integers(1, 12))):
            world.request()


def stuck_in_decoding(cache: ChunkCache, number: int, told: int) -> Callable[[], None]:
    """Return what claims a chunk, spoils its memory, says so, and goes on no further."""

    def spoil(number: int, memory: np.ndarray) -> None:
        memory[...] = 255
        os.write(told, b".")
        time.sleep(FOREVER)

    return lambda: check(cache, [number], spoil)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_what_a_killed_process_had_begun_is_decoded_at_once(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", FOREVER)  # a wait would end by the limit of the test alone
    for slots in (1, 4):
        cache = ChunkCache(slots * NBYTES)
        check(cache, [1])
        with forked(stuck_in_decoding(cache, 2, pipe[1])) as pid:
            os.read(pipe[0], 1)
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
            check(cache, [2, 1])
        check(cache, [2, 3])


def test_a_process_that_hangs_as_it_decodes_is_waited_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", 0.02)
    for slots in (1, 4):
        cache = ChunkCache(slots * NBYTES)
        with forked(stuck_in_decoding(cache, 2, pipe[1])):
            os.read(pipe[0], 1)
            for _ in range(2):
                check(cache, [2, 1])
        check(cache, [2, 3])


def test_what_another_process_is_decoding_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", FOREVER)  # the other may not get a CPU for seconds
    cache = ChunkCache(4 * NBYTES)
    go_on, told = os.pipe()

    def slowly(number: int, memory: np.ndarray) -> None:
        os.write(pipe[1], b".")
        os.read(go_on, 1)
        decode(number, memory)

    def only_the_other(number: int, memory: np.ndarray) -> None:
        assert number == 1, "chunk 2 is being decoded by another process"
        decode(number, memory)
        threading.Timer(0.02, os.write, (told, b".")).start()

    def the_next(number: int, memory: np.ndarray) -> None:
        if number == 3:
            raise OSError("broken, of which only who wants it is told")
        only_the_other(number - 3, memory)
        memory += 3

    pickle.dumps(cache)
    with forked(lambda: check(cache, [2], slowly)) as pid:
        os.read(pipe[0], 1)
        check(cache, [2, 1], only_the_other)
        assert ended(pid)
    cache = ChunkCache(9 * NBYTES)
    pickle.dumps(cache)
    with forked(lambda: check(cache, [2], slowly)) as pid:
        os.read(pipe[0], 1)
        assert (rows_of(cache, [2], the_next, ahead=[3, 4])[2] == 2).all()
        assert ended(pid)
    assert missing(cache, [2, 3, 4, 5]) == [3, 5]
    check(cache, [4], no_decoding)
    for end in (go_on, told):
        os.close(end)


def test_a_process_that_hangs_with_the_lock_costs_the_others_the_sharing(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", 0.02)
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])

    def hold() -> None:
        share: Any = cache._share()
        with share._locked():
            os.write(pipe[1], b".")
            time.sleep(FOREVER)

    with forked(hold):
        os.read(pipe[0], 1)
        check(cache, [1, 2])
        check(cache, [1, 2], no_decoding)


def test_a_killed_process_lets_go_of_the_lock(monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]) -> None:
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", FOREVER)
    cache = ChunkCache(4 * NBYTES)
    check(cache, [1])

    def killed() -> None:
        share: Any = cache._share()
        with share._locked():
            os.kill(os.getpid(), signal.SIGKILL)

    with forked(killed) as pid:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        check(cache, [1], no_decoding)


@pytest.mark.parametrize("kills", [6, thorough(300)])
def test_kills_at_any_moment_leave_a_cache_that_works(kills: int) -> None:
    cache = ChunkCache(5 * NBYTES)
    pickle.dumps(cache)

    def work() -> None:
        rng = random.Random(os.getpid())
        while True:
            check(cache, rng.sample(range(12), 6))

    rng = random.Random(5)
    with forked(work), forked(work) as other:
        for _ in range(kills):
            with forked(work) as pid:
                time.sleep(rng.random() * 0.03)
                for _ in range(5):
                    check(cache, rng.sample(range(12), 6))
                os.kill(pid, signal.SIGKILL)
                for _ in range(5):
                    check(cache, rng.sample(range(12), 6))
        assert os.waitpid(other, os.WNOHANG) == (0, 0), "it goes on"
