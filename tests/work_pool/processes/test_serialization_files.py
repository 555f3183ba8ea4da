"""Arrays over files travel by the name of the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import SampleReadError, SerializationError
from tests.extent import methods
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import crossing, one, same

METHODS = methods("forkserver")
FILE_VIEWS = {
    "whole": lambda m: m,
    "slice": lambda m: m[100:700],
    "slice of slice": lambda m: m[100:][50:, ::2],
    "backwards": lambda m: m[::-1],
    "array": np.asarray,
    "slice of array": lambda m: np.asarray(m)[30:],
    "turned": lambda m: m.T,
    "bytes": lambda m: np.asarray(m[3:]).view("u1"),
    "windows": lambda m: np.lib.stride_tricks.sliding_window_view(m, 3, axis=0),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(400_000, dtype=">i4").reshape(1000, 400))
    return path


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("view", sorted(FILE_VIEWS))
def test_arrays_over_files_travel_by_name(file: Path, view: str, mode: Any) -> None:
    array = FILE_VIEWS[view](np.load(file, mmap_mode=mode))
    with crossing() as both:
        constant = both.share(bu.ArrayDataSource([array]))
        assert (constant.arrays, both.arena.taken) == ("mapped", 0)
        assert sum(piece.nbytes for piece in constant.frame(both.copies)) < 10_000
        arrived = both.arrived(constant).data[0]
        assert same(arrived, array)
        assert arrived.strides == array.strides
        assert arrived.flags.writeable == array.flags.writeable
        if arrived.flags.writeable:
            arrived[...] = 0
    np.testing.assert_array_equal(np.load(file), np.arange(400_000).reshape(1000, 400))


def test_a_file_that_is_written_by_way_of_its_map_arrives_as_written(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "new", np.float32, "w+", offset=12, shape=(300, 300))
    array[:] = np.arange(300)
    with crossing() as both:
        constant = both.share([array])
        assert constant.arrays == "mapped"
        assert same(both.arrived(constant)[0], array)


def test_maps_that_their_file_does_not_tell_travel_as_data(file: Path) -> None:
    import mmap

    changed = np.load(file, mmap_mode="c")
    changed[0, 0] = 77
    nameless = np.frombuffer(mmap.mmap(-1, 400_000), np.uint8)
    results = np.load(file, mmap_mode="r") + 1
    lost = np.load(file, mmap_mode="r")
    other = file.with_name("other")
    other.write_bytes(b"x" * file.stat().st_size)
    other.replace(file)
    with crossing() as both:
        for array in (changed, nameless, results, lost):
            constant = both.share([array])
            assert constant.arrays == "shared"
            assert same(both.arrived(constant)[0], array)


def test_a_file_that_is_another_or_shorter_in_the_worker_is_named(file: Path) -> None:
    array = np.load(file, mmap_mode="r")
    with crossing() as both:
        constant = both.share([array])
        with open(file, "r+b") as opened:
            opened.truncate(1000)
        with raises(SampleReadError) as caught:
            both.arrived(constant)
        assert caught.value.source == str(file)
        with raises(SerializationError):
            both.share([array])
        file.unlink()
        with raises(SampleReadError):
            both.arrived(constant)
        file.write_bytes(bytes(2_000_000))
        file.with_name("new").write_bytes(bytes(2_000_000))
        file.with_name("new").replace(file)
        with raises(SampleReadError):
            both.arrived(constant)


def test_f26_a_file_that_is_cut_short_in_mid_epoch_is_named(file: Path) -> None:
    source = bu.ArrayDataSource([np.load(file, mmap_mode="r")])
    with bu.WorkerProcessPool(1) as pool:
        parallel = pool.parallel_data_source(source, batch_buffer_size=2)
        batches = parallel.batch_iterator(50)
        next(batches)
        os.truncate(file, 800_000)  # a map of what is gone kills who reads it, by SIGBUS
        with raises(SampleReadError) as caught:
            list(batches)
        assert caught.value.source == str(file)
        file.unlink()
        assert next(pool.work_stream(iter([(len, ("abc",))]))) == 3


def test_many_arrays_over_a_file_open_it_once(file: Path) -> None:
    array = np.load(file, mmap_mode="r")
    with crossing() as both:
        constant = both.share([array[i : i + 50] for i in range(200)])
        before = len(os.listdir("/proc/self/fd"))
        arrived = both.arrived(constant)
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert arrived[199][49, 399] == array[248, 399]


@pytest.mark.parametrize("method", METHODS)
def test_files_are_found_though_the_program_goes_elsewhere(
    method: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for i in range(3):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(file.parent / f"{i}.png")
    with bu.WorkerProcessPool(1, start_method=method) as pool:
        assert one(pool, len, "abc") == 3  # its worker stays where this process is just now
        monkeypatch.chdir(file.parent)
        arrays = [np.load("data.npy", mmap_mode="r")[:3], bu.ImageFiles([f"{i}.png" for i in range(3)], size=4)]
        memmap = pool.shared_constant([np.load("data.npy", mmap_mode="r")])
        monkeypatch.chdir("/")
        source = bu.ArrayDataSource([arrays[0][:], arrays[1]])
        assert memmap.arrays == "mapped"
        assert one(pool, lambda a: int(a[0][2, 1]), memmap) == 801
        ((_, images),) = pool.parallel_data_source(source).batch_iterator(3)
        assert images[:, 0, 0, 0].tolist() == [0, 1, 2]
