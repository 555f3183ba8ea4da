"""Rows that storage keeps in chunks: each chunk is decoded once for each pass over its window, whoever needs it."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import chunk_cache, chunks
from batchup_ng.accessors.storage.chunks import EvenChunks
from batchup_ng.testing.accessors import Made
from tests.extent import quick
from tests.messages import warns

from .stored_contract import StoredContract


class Chunked(EvenChunks):
    """A file of numpy.save in chunks of `chunk_rows`; each decoding is appended to the file ``log`` beside it."""

    chunk_rows = 0

    def __init__(self, path: Any, chunk_rows: int = 3, cache: int | str = "1MB") -> None:
        super().__init__([path])
        self._set_cache(cache)
        self.chunk_rows = chunk_rows
        self._shape, self._dtype = self._handle().shape, self._handle().dtype

    def _open(self, path: str) -> Any:
        return np.load(path)

    def _read_chunk(self, handle: np.ndarray, number: int, out: np.ndarray) -> None:
        with open(f"{self.paths[0]}.log", "ab", buffering=0) as log:
            log.write(number.to_bytes(8, "little"))
        out[...] = handle[number * self.chunk_rows :][: len(out)]

    def decoded(self) -> Counter[int]:
        """Return how often each chunk was decoded since the last call."""
        log = Path(f"{self.paths[0]}.log")
        if not log.exists():
            return Counter()
        numbers = np.frombuffer(log.read_bytes(), np.int64)
        log.unlink()
        return Counter(numbers.tolist())


class Patient(Chunked):
    """As `Chunked`, in worker processes that wait for each other for as long as a busy machine keeps one waiting."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        chunk_cache.CHUNK_WAIT_SECONDS = 3600.0


def saved(folder: Path, n: int, row: tuple[int, ...] = (2,)) -> tuple[Path, np.ndarray]:
    """Return a file, and the array that is in it."""
    array = np.arange(n * int(np.prod(row)), dtype=np.int32).reshape(n, *row)
    np.save(folder / "x.npy", array)
    return folder / "x.npy", array


class TestEvenChunks(StoredContract):
    """Chunks of three rows, two in the last."""

    def make(self, tmp_path: Path) -> Made:
        path, array = saved(tmp_path, 8, (2, 3))
        return Chunked(path), list(array)


def test_rows_without_bytes_are_read(tmp_path: Path) -> None:
    path, array = saved(tmp_path, 4, (0,))
    assert Chunked(path)[[3, 1]].shape == array[[3, 1]].shape
    assert Chunked(path).natural_window >= 1


def test_a_whole_chunk_in_order_goes_straight_into_the_batch(tmp_path: Path) -> None:
    path, array = saved(tmp_path, 8)
    rows = Chunked(path, cache=0)
    for chosen in ([0, 1, 2], [7, 3, 4, 5, 0], range(8), [5, 3, 4], [3, 4, 5, 3]):
        np.testing.assert_array_equal(rows[list(chosen)], array[list(chosen)])
        rows.decoded()
    kept = Chunked(path)
    kept[1:6]
    assert kept.decoded() == {0: 1, 1: 1}
    kept[[4, 2]]
    assert kept.decoded() == {1: 1}, "what went straight into a batch was not kept"
    kept[1:5]
    assert kept.decoded() == {}, "and what is kept is not decoded again"


def test_small_data_in_one_chunk_are_decoded_once(tmp_path: Path) -> None:
    path, array = saved(tmp_path, 8)
    rows = Chunked(path, 8)
    for chosen in ([5, 2, 2], range(8), [7]):
        np.testing.assert_array_equal(rows[list(chosen)], array[list(chosen)])
    assert rows.decoded() == {0: 1}
    assert len(pickle.dumps(rows)) < 2000, "and not pickled"
    rows.close()
    rows[1]
    assert rows.decoded() == {0: 1}
    rows = Chunked(path, 8, cache=0)
    rows[1], rows[2]
    assert rows.decoded() == {0: 2}


@pytest.mark.parametrize("workers", quick([2], [3, 4]))
def test_a_pass_in_blocks_decodes_each_chunk_once_whichever_worker_needs_it(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ORDER_CACHE_BYTES", 16 * 128)
    monkeypatch.setattr(chunk_cache, "CHUNK_WAIT_SECONDS", 3600.0)  # here, as `Patient` sets it in the workers
    path, array = saved(tmp_path, 16 * 20 + 5)
    rows = Patient(path, 16, cache=16 * 128)
    assert rows.natural_window == 8
    source = bu.ArrayDataSource([rows], include_indices=True)
    with bu.WorkerProcessPool(workers) as pool:
        parallel = pool.parallel_data_source(source, batch_buffer_size=8)
        for epoch in range(2):
            seen = []
            for numbers, values in parallel.batch_iterator(8, shuffle="blocks", epoch=epoch):
                np.testing.assert_array_equal(values, array[numbers])
                seen += numbers.tolist()
            assert sorted(seen) == list(range(len(array)))
            decoded = rows.decoded()
            assert set(decoded.values()) == {1}
            assert epoch == 1 or len(decoded) == 21, "later epochs begin with what is kept"


def test_the_order_by_blocks_does_not_depend_on_the_room_for_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "ORDER_CACHE_BYTES", 8 * 128)
    path, _ = saved(tmp_path, 16 * 20 + 5)

    def opened(cache: int, state: Any = None) -> Any:
        source = bu.ArrayDataSource([Chunked(path, 16, cache)], include_indices=True)
        return source.batch_iterator(7, shuffle=("blocks", 3), state=state)

    whole = [rows.tolist() for rows, _ in opened(1 << 20)]
    first = opened(1 << 20)
    done = [next(first)[0].tolist() for _ in range(9)]
    state = first.state_dict()
    for cache in (1 << 20, 8 * 128, 4 * 128):
        assert [rows.tolist() for rows, _ in opened(cache)] == whole
        assert done + [rows.tolist() for rows, _ in opened(cache, state)] == whole
    with warns(bu.CacheWarning):
        opened(3 * 128)
    monkeypatch.setattr(chunks.ChunkCache, "room", lambda _: 3 * 128)  # so little memory is free
    with warns(bu.CacheWarning):
        opened(1 << 20)


def test_a_pickle_of_what_each_process_keeps_needs_no_shared_chunks(tmp_path: Path) -> None:
    path, array = saved(tmp_path, 10)
    rows, before = Chunked(path, 16), len(os.listdir("/proc/self/fd"))
    other = pickle.loads(pickle.dumps(rows))
    assert len(os.listdir("/proc/self/fd")) == before
    np.testing.assert_array_equal(other[[3, 1]], array[[3, 1]])
    large = Chunked(path, 5)
    pickle.dumps(large)
    assert len(os.listdir("/proc/self/fd")) > before
    large.close()
