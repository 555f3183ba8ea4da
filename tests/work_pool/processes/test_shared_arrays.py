"""Copies of arrays for workers: how many there are, for how long; where none is made."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, PoolClosed, SerializationError, SharedMemoryWarning
from batchup_ng.memory.budget import BUDGET
from batchup_ng.work_pool.processes import shared_arrays
from tests.extent import methods
from tests.messages import raises, warns
from tests.threads import in_threads
from tests.work_pool.processes.serialization_helpers import MB, crossing, one, same, wait_until


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_there_is_one_copy_however_many_workers(workers: int) -> None:
    array = np.arange(1_000_000)
    with bu.WorkerProcessPool(workers) as pool:
        constant = pool.shared_constant({"source": bu.ArrayDataSource([array]), "again": [array]})
        for _ in range(4 * workers):
            assert one(pool, lambda c: int(c["again"][0].sum()), constant) == array.sum()
        assert array.nbytes <= pool._dispatcher.copies.arena.taken < array.nbytes + 3 * MB


def test_sources_over_one_array_share_a_copy_while_one_of_them_lives() -> None:
    array = np.arange(200_000)
    with crossing() as both:
        first = both.share(bu.ArrayDataSource([array], indices=np.arange(100)))
        taken = both.arena.taken
        second = both.share(bu.ArrayDataSource([array.reshape(-1, 2)[:]]))
        assert both.arena.taken == taken
        del first
        both.copies.sweep()
        assert both.arena.taken == taken
        assert both.arrived(second).data[0][7].tolist() == [14, 15]
        del second
        both.copies.sweep()
        assert both.arena.taken == 0


def test_an_array_that_was_written_to_is_copied_anew() -> None:
    array = np.arange(200_000)
    with crossing() as both:
        before = both.share([array])
        taken = both.arena.taken
        array[-1] = 0
        after = both.share([array])
        assert both.arena.taken == 2 * taken
        assert both.arrived(before)[0][-1] == 199_999
        assert both.arrived(after)[0][-1] == 0


@pytest.mark.parametrize("size", [8, 1 << 13, (1 << 16) - 8, 1 << 16])
def test_an_array_that_is_written_to_later_stays_what_it_was_in_every_worker(size: int) -> None:
    def seen(batches: Iterator[Any]) -> list[Any]:
        return [[np.asarray(column).tolist() for column in batch] for batch in batches]

    array = np.arange(size // 8)
    backwards = array.astype(">i8")[::-1]
    source = bu.ArrayDataSource([array, backwards, bu.Ragged(array, np.arange(len(array) + 1))]).take(2)
    expected = seen(source.batch_iterator(1))
    with bu.WorkerProcessPool(2) as pool:
        parallel = pool.parallel_data_source(source)
        array += 1000
        backwards += 1000
        for _ in range(2):
            assert seen(parallel.batch_iterator(1, epoch=0)) == expected
            os.kill(one(pool, os.getpid), signal.SIGKILL)  # the worker in its place gets the same


def test_a_pool_gives_the_memory_of_forgotten_constants_back() -> None:
    with bu.WorkerProcessPool(1) as pool:
        arena = pool._dispatcher.copies.arena
        for i in range(5):
            constant = pool.shared_constant(np.full(100_000, i))
            assert one(pool, lambda a: int(a[0] + a[-1]), constant) == 2 * i
            del constant
        wait_until(lambda: not arena.taken)


def test_copies_come_and_go_on_many_threads(in_full: bool) -> None:
    arrays = [np.full(30_000, i) for i in range(4)]
    with crossing() as both:
        wrong: list[int] = []

        def work(seed: int) -> None:
            for i in np.random.default_rng(seed).integers(0, 4, 200 if in_full else 25).tolist():
                constant = both.share([arrays[i]])
                if not np.array_equal(both.arrived(constant)[0], arrays[i]):
                    wrong.append(i)

        in_threads([partial(work, seed) for seed in range(4)])
        both.copies.sweep()
        assert (wrong, both.arena.taken) == ([], 0)


def test_a_pool_that_is_closed_meanwhile_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_arrays, "BYTES_COPIED_AT_ONCE", 4096)
    with crossing() as both:
        pieces = both.copies._pieces

        def closed_meanwhile(memory: Any) -> Iterator[Any]:
            for piece in pieces(memory):
                yield piece
                both.copies.close()

        monkeypatch.setattr(both.copies, "_pieces", closed_meanwhile)
        for _ in range(2):
            with raises(PoolClosed):
                both.share([np.arange(100_000)])
        assert both.arena.taken == 0


def test_many_arrays_need_few_descriptors() -> None:
    arrays = [np.full(10_000 + i, i) for i in range(200)]
    with crossing() as both:
        constant = both.share(arrays)
        before = len(os.listdir("/proc/self/fd"))
        arrived = both.arrived(constant)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
        assert all(same(a, b) for a, b in zip(arrays, arrived, strict=True))


def test_a_constant_of_one_pool_works_in_another() -> None:
    with crossing() as one_pool, crossing() as other:
        constant = one_pool.share([np.arange(100_000)])
        assert other.arrived(constant)[0][-1] == 99_999
        assert other.arena.taken == 0


def test_the_private_memory_of_a_worker_does_not_grow_with_what_is_shared() -> None:
    def private() -> int:
        return int(psutil.Process().memory_full_info().uss)

    array = np.ones(60 * MB, np.uint8)
    with bu.WorkerProcessPool(1) as pool:
        idle = one(pool, private)
        constant = pool.shared_constant(bu.ArrayDataSource([array]))
        assert one(pool, lambda s: int(s.data[0].sum()), constant) == array.size
        assert one(pool, private) - idle <= 20 * MB


# -- where memory does not suffice -----------------------------------------------------------------------------------


def test_a_copy_that_memory_has_no_room_for_lies_in_a_file(tmp_path: Path) -> None:
    array = np.arange(1_000_000)
    with crossing(4 * MB, str(tmp_path)) as both:
        with warns(SharedMemoryWarning):
            constant = both.share(bu.ArrayDataSource([array, np.arange(1_000_000, dtype=np.uint8)]))
        assert constant.arrays == "spilled"
        assert MB > both.arena.taken - 1_000_000 >= 0, "the small one lies in memory"
        assert list(tmp_path.iterdir()) == [], "the file has no name"
        arrived = both.arrived(constant).data[0]
        assert same(arrived, array)
        arrived[0] = 7
        assert both.arrived(constant).data[0][0] == 0, "what a worker writes no other sees"
        files = open_files(tmp_path)
        assert len(files) == 1 + 2 + 1, "the copy's descriptor, one for the map of each side, their memory"
        with pytest.warns(SharedMemoryWarning):
            again = both.share([array])
        assert open_files(tmp_path) == files, "one copy for both"
        del constant, again, arrived
        assert open_files(tmp_path) == []


def test_a_copy_whose_descriptor_another_file_has_taken_is_not_read(tmp_path: Path) -> None:
    with crossing(4 * MB, str(tmp_path)) as both, (tmp_path / "log").open("wb+") as log:
        with pytest.warns(SharedMemoryWarning):
            constant = both.share(np.arange(1_000_000))
        file = constant.copies[0].file
        assert file is not None
        fd = os.dup(file.fd)
        os.dup2(log.fileno(), file.fd)  # as after a daemon has closed all descriptors
        with raises(OSError):
            both.arrived(constant)
        os.dup2(fd, file.fd)
        os.close(fd)
        assert both.arrived(constant)[7] == 7


def open_files(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open or mapped, without those that it has not."""
    links = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    maps = [line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()]
    return sorted(link for link in [*links, *set(maps)] if link.startswith(str(folder)))


@pytest.mark.filterwarnings("ignore::batchup_ng.BufferWarning")
@pytest.mark.parametrize("method", methods("forkserver"))
def test_batches_of_a_spilled_array_are_those_of_the_source(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.random.default_rng(0).random((2000, 100))
    monkeypatch.setattr(BUDGET, "free", lambda: 1_000_000)
    with bu.WorkerProcessPool(2, start_method=method, spill=tmp_path) as pool:
        with pytest.warns(SharedMemoryWarning) as told:
            parallel = pool.parallel_data_source(bu.ArrayDataSource([array, np.arange(2000)]))
        assert repr(str(tmp_path)) in str(told[0].message)
        with parallel.batch_iterator(64, shuffle=3) as batches:
            rows = [row for x, y in batches if (x == array[y]).all() for row in y]
            assert batches.stats()["arrays"] == "spilled"
        assert sorted(rows) == list(range(2000))
        pids = pool._dispatcher.pids()
        os.kill(pids[0], signal.SIGKILL)  # the one in its place maps the file as well
        with parallel.batch_iterator(64, shuffle=4) as batches:
            assert all((x == array[y]).all() for x, y in batches)


def test_without_room_in_memory_or_on_a_disk_the_error_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = np.ones(100_000, np.uint8)
    source = bu.ArrayDataSource([np.arange(10)]).map(lambda x: (x, table))

    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(BUDGET, "free", lambda: 120_000)
    monkeypatch.setattr(shared_arrays, "_lies_in_memory", lambda folder: True)
    with crossing() as both, raises(SerializationError):
        both.share(source)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with crossing(spill=str(tmp_path)) as both:
        with raises(SerializationError):
            both.share(source)
        assert open_files(tmp_path) == []


def test_the_folder_for_copies_is_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(shared_arrays, "_lies_in_memory", lambda folder: folder == str(tmp_path))
    assert shared_arrays.temporary_folder() == "/var/tmp"
    assert shared_arrays.checked_folder(tmp_path.parent) == str(tmp_path.parent)
    with raises(ArgumentError):
        bu.WorkerProcessPool(1, spill=tmp_path)
    with raises(ArgumentError):
        bu.WorkerProcessPool(1, spill=tmp_path / "none")
    with raises(ArgumentTypeError):
        bu.WorkerProcessPool(1, spill=7)  # type: ignore[arg-type]


def test_a_file_system_in_memory_is_known(tmp_path: Path) -> None:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, folder, kind, *_ in mounts:
        if kind in ("tmpfs", "ext4", "xfs", "overlay") and os.path.isdir(folder) and mounts[-1][1] != folder:
            top = [mount[2] for mount in mounts if mount[1] == folder][-1]  # the latest hides the others
            assert shared_arrays._lies_in_memory(folder) == (top == "tmpfs"), folder
