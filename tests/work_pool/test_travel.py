"""What travels to workers: arrays of every kind, once, and functions from everywhere."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, CannotTravel, PoolClosed, SampleReadError
from batchup_ng.work_pool.processes import constants, copies, launch
from batchup_ng.work_pool.processes.travel import SMALLEST_APART, pack

from .travel_helpers import MB, crossing, same

METHODS = launch.START_METHODS


def one(pool: Any, fn: Any, *args: Any) -> Any:
    """Return the result of one task."""
    with pool.work_stream(iter([(fn, args)])) as stream:
        return next(stream)


# -- arrays of every kind ----------------------------------------------------------------------------------------

DTYPES = [
    "u1", "?", "<i2", ">i4", "<f2", "<f4", ">f8", "<c8", "<c16", "M8[ns]", "m8[s]", "S7", "<U3", ">U2", "V5",
    [("a", "<i2"), ("b", ">f8", (2,))],
]  # fmt: skip
VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:-1],
    "steps": lambda a: a[:, ::3],
    "backwards": lambda a: a[::-1, ::-2],
    "columns first": np.asfortranarray,
    "turned": lambda a: a.T,
    "turned and cut": lambda a: a[1:, ::2].T,
    "repeated": lambda a: np.broadcast_to(a[None], (3, *a.shape)),
    "windows": lambda a: np.lib.stride_tricks.sliding_window_view(a, 5, axis=0),
    "one": lambda a: a[:1, :1],
    "none": lambda a: a[:0],
    "scalar": lambda a: a[0, 0, ...],
    "fixed": lambda a: _fixed(a),
}


def _fixed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(range(len(DTYPES))), st.sampled_from(sorted(VIEWS)), st.integers(5, 40), st.booleans(),
    st.integers(0, 9),
)  # fmt: skip
def test_arrays_arrive_as_they_were(kind: int, view: str, rows: int, room: bool, seed: int) -> None:
    dtype = np.dtype(DTYPES[kind])
    columns = max(4, 2 * SMALLEST_APART // dtype.itemsize // rows)
    rng = np.random.default_rng(seed)
    if dtype.kind == "U":
        base = rng.integers(0, 99999, (rows, columns)).astype(dtype)
    else:
        base = np.frombuffer(rng.bytes(rows * columns * dtype.itemsize), dtype).reshape(rows, columns).copy()
        if dtype.kind == "?":
            base = base.view("u1") > 100
    array = VIEWS[view](base)
    with crossing(256 * MB if room else 2 * MB) as both:
        constant = both.share({"x": [array, (array,)], "small": np.arange(3)})
        arrived = both.arrived(constant)
        assert arrived["x"][0] is arrived["x"][1][0]
        assert same(arrived["x"][0], array)
        assert arrived["x"][0].flags.writeable == array.flags.writeable
        if array.nbytes >= SMALLEST_APART:
            assert arrived["x"][0].flags.f_contiguous == array.flags.f_contiguous
        assert arrived["small"].tolist() == [0, 1, 2]
        del arrived, constant


def test_repeated_rows_and_windows_travel_without_being_written_out() -> None:
    base = np.arange(50_000.0)
    with crossing() as both:
        for array in (np.broadcast_to(base, (1000, 50_000)), np.lib.stride_tricks.sliding_window_view(base, 1000)):
            constant = both.share([array])
            assert both.arena.taken < 2 * base.nbytes
            arrived = both.arrived(constant)[0]
            assert (arrived.shape, arrived.strides) == (array.shape, array.strides)
            assert arrived[7, 3] == array[7, 3]


@pytest.mark.parametrize("make", [
    lambda: np.array([None, {"a": 1}] * 40_000, dtype=object),
    lambda: np.ma.masked_array(np.arange(40_000.0), np.arange(40_000) % 3 == 0),
    lambda: np.arange(40_000.0).view(np.recarray),
    lambda: np.rec.fromarrays([np.arange(40_000), np.ones(40_000)], names="a,b"),
])  # fmt: skip
def test_other_kinds_of_arrays_arrive_as_they_were(make: Any) -> None:
    array = make()
    with crossing() as both:
        arrived = both.arrived(both.share([array]))[0]
        assert type(arrived) is type(array)
        assert arrived.dtype == array.dtype
        assert (arrived == array).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arrays", ["shared", "served"])
def test_batches_from_workers_are_those_of_the_source(method: str, arrays: str) -> None:
    images = np.random.default_rng(1).integers(0, 255, (900, 12, 11, 3), dtype=np.uint8)
    weights = np.asfortranarray(np.random.default_rng(2).random((900, 40)))
    offsets = np.arange(30_000.0)
    source = bu.ArrayDataSource([images, weights, np.arange(900)]).map(lambda x, w, i: (x, w, offsets[i]))
    with bu.WorkerProcessPool(2, start_method=method) as pool:
        constant = pool.shared_constant(source, arrays=arrays)
        rows = np.random.default_rng(3).permutation(900)
        tasks = [(lambda s, r: s.samples_by_indices(r), (constant, rows[i : i + 100])) for i in range(0, 900, 100)]
        made = list(pool.work_stream(iter(tasks)).retrieve_iter())
        assert constant.arrays == arrays
    for i, batch in enumerate(made):
        for got, expected in zip(batch, source.samples_by_indices(rows[i * 100 :][:100]), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_there_is_one_copy_however_many_workers(workers: int) -> None:
    array = np.arange(1_000_000)
    with bu.WorkerProcessPool(workers) as pool:
        constant = pool.shared_constant({"source": bu.ArrayDataSource([array]), "again": [array]})
        for _ in range(4 * workers):
            assert one(pool, lambda c: int(c["again"][0].sum()), constant) == array.sum()
        assert array.nbytes <= pool._dispatcher.copies.arena.taken < array.nbytes + 3 * MB


def test_what_a_worker_writes_to_an_array_nobody_else_sees() -> None:
    def scribble(array: np.ndarray) -> tuple[int, int]:
        before = int(array[5])
        array[5] += 1
        return os.getpid(), before

    array = np.zeros(100_000, int)
    with bu.WorkerProcessPool(2) as pool:
        constant = pool.shared_constant(array)
        seen: dict[int, list[int]] = {}
        for _ in range(30):
            pid, before = one(pool, scribble, constant)
            seen.setdefault(pid, []).append(before)
    assert all(counts == list(range(len(counts))) for counts in seen.values())
    assert not array.any()


# -- copies: how many, for how long ------------------------------------------------------------------------------


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


def test_a_pool_gives_the_memory_of_forgotten_constants_back() -> None:
    with bu.WorkerProcessPool(1) as pool:
        arena = pool._dispatcher.copies.arena
        for i in range(5):
            constant = pool.shared_constant(np.full(1_000_000, i))
            assert one(pool, lambda a: int(a[0] + a[-1]), constant) == 2 * i
            del constant
        deadline = time.monotonic() + 20
        while arena.taken:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_copies_come_and_go_on_many_threads() -> None:
    arrays = [np.full(30_000, i) for i in range(4)]
    with crossing() as both:
        wrong: list[int] = []

        def work(seed: int) -> None:
            for i in np.random.default_rng(seed).integers(0, 4, 60).tolist():
                constant = both.share([arrays[i]])
                if both.arrived(constant)[0].tolist() != arrays[i].tolist():
                    wrong.append(i)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        both.copies.sweep()
        assert (wrong, both.arena.taken) == ([], 0)


def test_a_pool_that_is_closed_copies_nothing_any_more() -> None:
    array = np.arange(100_000)
    with crossing() as both:
        both.share([array])
        both.copies.close()
        with pytest.raises(PoolClosed, match="the pool was closed before the arrays of a source were copied"):
            both.share([array])


def test_a_copy_that_is_being_made_ends_with_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PIECE", 4096)
    with crossing() as both:
        written = both.arena._write

        def write(piece: Any, at: int) -> int:
            both.copies._closed = True
            return written(piece, at)

        monkeypatch.setattr(both.arena, "_write", write)
        with pytest.raises(PoolClosed):
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


def test_without_room_in_the_shared_memory_each_worker_gets_a_copy() -> None:
    array = np.arange(1_000_000)
    with crossing(4 * MB) as both:
        constant = both.share([array], "shared")
        assert constant.arrays == "sent"
        assert both.arena.taken == 0
        assert same(both.arrived(constant)[0], array)


def test_a_constant_of_one_pool_works_in_another() -> None:
    with crossing() as one_pool, crossing() as other:
        constant = one_pool.share([np.arange(100_000)])
        assert other.arrived(constant)[0][-1] == 99_999
        assert other.arena.taken == 0


def test_the_private_memory_of_a_worker_does_not_grow_with_what_is_shared() -> None:
    def private() -> int:
        return int(psutil.Process().memory_full_info().uss)

    array = np.ones(200 * MB, np.uint8)
    with bu.WorkerProcessPool(1) as pool:
        idle = one(pool, private)
        constant = pool.shared_constant(bu.ArrayDataSource([array]))
        assert one(pool, lambda s: int(s.data[0].sum()), constant) == array.size
        assert one(pool, private) - idle <= 40 * MB


# -- which road --------------------------------------------------------------------------------------------------


def test_what_fits_once_but_not_twice_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    images, table = np.ones((1000, 1000), np.uint8), np.ones(100_000, np.uint8)
    small = bu.ArrayDataSource([images])
    with crossing() as both:
        for free, road in ((2_000_000, "shared"), (1_000_000, "served")):
            monkeypatch.setattr(constants, "available", lambda free=free: free)
            assert both.share(small).arrays == road
        both.copies.sweep()
        assert both.share(small, "shared").arrays == "shared"
        assert both.share(small, "served").arrays == "served"
        both.copies.sweep()
        monkeypatch.setattr(constants, "available", lambda: 130_000)
        assert both.share(small.map(lambda x: (x, table))).arrays == "served"
        both.copies.sweep()
        monkeypatch.setattr(constants, "available", lambda: 120_000)
        message = r"map fn '<lambda>' closes over table, an array of 100000 bytes, cannot .* 100000 bytes are needed"
        with pytest.raises(CannotTravel, match=message):
            both.share(small.map(lambda x: (x, table)))


def test_a_road_that_does_not_exist_is_refused() -> None:
    with crossing() as both, pytest.raises(ArgumentError, match=r"arrays must be one of .* did you mean 'served'"):
        both.share([1], "serve")


# -- arrays over files -------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.npy"
    np.save(path, np.arange(400_000, dtype=">i4").reshape(1000, 400))
    return path


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
        with pytest.raises(SampleReadError, match=r"data.npy' has 1000 bytes, and 1600128 are needed") as caught:
            both.arrived(constant)
        assert caught.value.source == str(file)
        with pytest.raises(CannotTravel, match=r"data.npy' has 1000 bytes, and the array over it needs 1600128"):
            both.share([array])
        file.unlink()
        with pytest.raises(SampleReadError, match=r"data.npy' cannot be opened in a worker process: .*No such file"):
            both.arrived(constant)
        file.write_bytes(bytes(2_000_000))
        file.with_name("new").write_bytes(bytes(2_000_000))
        file.with_name("new").replace(file)
        with pytest.raises(SampleReadError, match=r"data.npy' is another file than when .* it was replaced"):
            both.arrived(constant)


def test_many_arrays_over_a_file_open_it_once(file: Path) -> None:
    array = np.load(file, mmap_mode="r")
    with crossing() as both:
        constant = both.share([array[i : i + 50] for i in range(900)])
        before = len(os.listdir("/proc/self/fd"))
        arrived = both.arrived(constant)
        assert len(os.listdir("/proc/self/fd")) <= before + 1
        assert arrived[899][49, 399] == array[948, 399]


@pytest.mark.parametrize("method", METHODS)
def test_files_are_found_though_the_program_goes_elsewhere(
    method: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    for i in range(3):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(file.parent / f"{i}.png")
    monkeypatch.chdir(file.parent)
    with bu.WorkerProcessPool(1, start_method=method) as pool:
        arrays = [np.load("data.npy", mmap_mode="r")[:3], bu.ImageFiles([f"{i}.png" for i in range(3)], size=4)]
        memmap = pool.shared_constant([np.load("data.npy", mmap_mode="r")])
        monkeypatch.chdir("/")
        source = bu.ArrayDataSource([arrays[0][:], arrays[1]])
        assert memmap.arrays == "mapped"
        assert one(pool, lambda a: int(a[0][2, 1]), memmap) == 801
        ((_, images),) = pool.parallel_data_source(source).batch_iterator(3)
        assert images[:, 0, 0, 0].tolist() == [0, 1, 2]


# -- functions from everywhere -----------------------------------------------------------------------------------


def functions() -> dict[str, Any]:
    """Return functions that add the length of a row to it, each of another kind."""
    offset = 3

    def closure(x: np.ndarray) -> Any:
        return (x + offset,)

    class Nested:
        def __init__(self) -> None:
            self.offset = np.full(20_000, 3)

        def method(self, x: np.ndarray) -> Any:
            return (x + self.offset[: len(x)],)

        def __call__(self, x: np.ndarray) -> Any:
            return self.method(x)

    made_by_hand = types.ModuleType("made_by_hand")
    exec("OFFSET = 3\ndef add(x):\n    return (x + OFFSET,)", made_by_hand.__dict__)
    sys.modules["made_by_hand"] = made_by_hand
    return {
        "lambda": lambda x: (x + offset,),
        "closure": closure,
        "bound method": Nested().method,
        "callable object": Nested(),
        "partial": functools.partial(closure),
        "module that cannot be imported": made_by_hand.__dict__["add"],
    }


@pytest.mark.parametrize("method", METHODS)
def test_functions_of_all_kinds_travel(method: str) -> None:
    try:
        with bu.WorkerProcessPool(1, start_method=method) as pool:
            for name, function in functions().items():
                source = bu.ArrayDataSource([np.arange(3)]).map(function)
                ((got,),) = pool.parallel_data_source(source).batch_iterator(3)
                assert got.tolist() == [3, 4, 5], name
    finally:
        del sys.modules["made_by_hand"]


NOTEBOOK = """
import sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
cells = [
    "import numpy as np, batchup_ng as bu",
    "SCALE = 2\\ndef helper(x): return x * SCALE\\nclass Holder:\\n    def __init__(self, x): self.x = x",
    "def cell(x): return helper(x), [Holder(int(v)) for v in x]",
    '''with bu.WorkerProcessPool(1, start_method={method!r}) as pool:
        source = bu.ArrayDataSource([np.arange(3)]).map(cell)
        for x, holders in pool.parallel_data_source(source).batch_iterator(3):
            print(x.tolist(), type(holders[0]) is Holder, holders[2].x)''',
    "SCALE = 5\\ndef helper(x): return x - SCALE",
    '''with bu.WorkerProcessPool(1, start_method={method!r}) as pool:
        for x, _ in pool.parallel_data_source(source).batch_iterator(3): print(x.tolist())''',
]
for i, cell in enumerate(cells):
    exec(compile(cell, f"<ipython-input-{{i}}>", "exec"), main.__dict__)
"""


@pytest.mark.parametrize("method", METHODS)
def test_functions_of_notebook_cells_travel_as_they_are_now(method: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK.format(method=method)], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[0, 2, 4] True 2\n[-5, -4, -3]\n", "")


# -- refusals ----------------------------------------------------------------------------------------------------


class Reader:
    """Holds what a test gives it."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def read(self, x: Any) -> Any:
        return (x,)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: Any) -> Any:
        return i


class Slotted:
    """Holds something where there is no ``__dict__``."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def blamed() -> dict[str, Any]:
    """Return sources that cannot travel, by what the refusal says."""
    base = bu.ArrayDataSource([np.arange(3)])
    lock, state = threading.Lock(), {"inner": [1, threading.Lock()]}
    array = np.zeros((4000, 2500))

    def augment(x: Any) -> Any:
        return (x, array) if lock else ()

    def deeper(x: Any) -> Any:
        return augment(x), state

    def plain(held: Any, x: Any) -> Any:
        return (x,)

    def default(x: Any, guard: Any = lock) -> Any:
        return (x,)

    exec("def in_main(x):\n    return (x, GUARD)", namespace := {"GUARD": lock, "__name__": "__main__"})
    return {
        "map fn 'augment' closes over a _thread.lock (lock), which": base.map(augment),
        "map fn 'deeper' closes over augment, which closes over a _thread.lock (lock), which": base.map(deeper),
        "map fn '<lambda>' closes over state['inner'][1], a _thread.lock,": base.map(lambda x: (x, state)),
        "map fn 'in_main' refers to a _thread.lock (GUARD), which": base.map(namespace["in_main"]),
        "map fn 'default' has as default a _thread.lock (0), which": base.map(default),
        "map fn 'read'.__self__.held, a _thread.lock,": base.map(Reader(lock).read).map(lambda x: (x,)),
        "map fn 'plain', argument 0, a _thread.lock,": base.map(functools.partial(plain, lock)),
        "data[1].held, a _thread.lock,": bu.ArrayDataSource([np.arange(3), Reader(lock)]),
        "data[0].held.held, a _thread.lock,": bu.ArrayDataSource([Reader(Slotted(lock))]),
        "data[0].dataset.held, a generator,": bu.ArrayDataSource([bu.MapStyle(Reader(i for i in range(3)))]),
    }


def test_a_refusal_names_the_innermost_part() -> None:
    for message, source in blamed().items():
        with pytest.raises(CannotTravel) as caught:
            pack(source)
        assert str(caught.value).startswith(f"{message} cannot be sent to a worker process: "), str(caught.value)
        assert "use WorkerThreadPool, or let the worker open such things itself" in str(caught.value)


def test_a_refusal_copies_nothing_and_starts_nothing() -> None:
    lock = threading.Lock()
    source = bu.ArrayDataSource([np.zeros((4000, 2500))]).map(lambda x: (x, lock))
    with bu.WorkerProcessPool(1) as pool:
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        with pytest.raises(CannotTravel, match="closes over a"):
            pool.parallel_data_source(source)
        assert {process.pid for process in psutil.Process().children(recursive=True)} <= before
        assert pool._dispatcher.copies.arena.taken == 0


def test_looking_for_the_name_ends_however_much_there_is() -> None:
    lock = threading.Lock()
    nest: Any = lock
    for i in range(50):
        nest = {"a": nest, "others": [Reader(k) for k in range(2000)], i: nest}
    with pytest.raises(CannotTravel, match=r"^the dict.* cannot be sent"):
        pack(nest)
    cycle: list[Any] = [lock]
    cycle.insert(0, cycle)
    with pytest.raises(CannotTravel, match="cannot be sent"):
        pack(cycle)
