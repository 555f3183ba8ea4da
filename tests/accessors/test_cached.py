"""Cached keeps the accessor contract, reads each row once, keeps the rows for which there is room."""

import gc
import os
import pickle
import resource
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors import shared_rows
from batchup_ng.memory import shared_file
from batchup_ng.memory.limits import entries
from batchup_ng.testing.accessors import AccessorContract
from batchup_ng.validation import size_in_bytes
from tests.messages import raises, warns

from .counting import Counting
from .image_helpers import by_pillow, paths_of_all_kinds, save

ROW = Counting("").dtype.itemsize * 6
"""Bytes of a row of `Counting`."""


class TestInMemory(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return bu.Cached(bu.ImageFiles(paths, (6, 8))), [by_pillow(path, (6, 8)) for path in paths]


class TestInAFolder(AccessorContract):
    def make(self, tmp_path):
        paths = paths_of_all_kinds(tmp_path)
        return bu.Cached(bu.ImageFiles(paths, (6, 8), "L"), tmp_path), [by_pillow(path, (6, 8), "L") for path in paths]


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
class TestWithRoomForSome(AccessorContract):
    def make(self, tmp_path):
        slow = Counting(tmp_path / "log", 6)
        return bu.Cached(slow, limit=3 * ROW), list(slow.expected(range(6)))


class TestWholeRowsAreNumbers(AccessorContract):
    def make(self, tmp_path):
        slow = Counting(tmp_path / "log", 6, ())
        return bu.Cached(slow), list(slow.expected(range(6)))


@pytest.fixture(params=["memory", "folder"])
def where(request, tmp_path):
    return tmp_path if request.param == "folder" else None


# What is read, what is kept


def test_each_row_is_read_once(tmp_path, where):
    slow = Counting(tmp_path / "log")
    rows = bu.Cached(slow, where)
    for chosen in ([3, 1], [1, 3], [5, 1, 0, 3], range(12), range(12)):
        np.testing.assert_array_equal(rows[list(chosen)], slow.expected(chosen), strict=True)
    assert slow.read() == list(range(12))


def test_all_rows_that_are_missing_are_read_at_once(tmp_path):
    class Asked(Counting):
        asked = ()

        def read_into(self, rows, out):
            self.asked = (*self.asked, rows.tolist())
            out[...] = self.expected(rows)

    slow = Asked(tmp_path / "log")
    rows = bu.Cached(slow)
    rows[[7, 2]]
    np.testing.assert_array_equal(rows[[2, 5, 7, 7, 1, 2, 9]], slow.expected([2, 5, 7, 7, 1, 2, 9]))
    assert slow.asked == ([7, 2], [5, 1, 9])


@given(batches=st.lists(st.lists(st.integers(-9, 8), max_size=12), max_size=12), room=st.integers(0, 9), data=st.data())
def test_any_sequence_of_batches_has_the_rows(tmp_path, where, batches, room, data):
    slow = Counting(tmp_path / "log", 9, (2,))
    slow.version = data.draw(st.integers(0, 10**6))  # another file each time
    slow.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bu.CacheWarning)
        rows = bu.Cached(slow, where, limit=room * 8)
    others = [rows, pickle.loads(pickle.dumps(rows))]
    kept, reads = set(), []
    for number, batch in enumerate(batches):
        out = np.full((len(batch), 2), 77, np.int32)
        others[number % 2].read_into(np.array(batch, np.int64), out)
        np.testing.assert_array_equal(out, slow.expected(np.arange(9)[batch]).reshape(-1, 2))
        reads += [row % 9 for row in batch if row % 9 not in kept]
        kept.update(row % 9 for row in batch if row % 9 < room)
    assert slow.read() == sorted(reads)
    assert f", {len(kept)} of 9 rows kept in " in repr(rows)


def test_a_row_that_cannot_be_read_costs_no_other(tmp_path):
    paths = [save(tmp_path / f"{i}.png") for i in range(3)]
    (tmp_path / "1.png").write_bytes(b"no picture")
    rows = bu.Cached(bu.ImageFiles(paths, 8))
    with raises(bu.SampleReadError):
        rows[:]
    assert rows.sample_name(1) == paths[1]
    rows[0], rows[2]
    os.remove(paths[0])
    np.testing.assert_array_equal(rows[0], by_pillow(paths[2], (8, 8)))  # both are the same picture
    with pytest.raises(bu.SampleReadError):
        rows[1]


# Room


def test_the_rows_for_which_there_is_room_are_kept_which_is_told(tmp_path, where):
    slow = Counting(tmp_path / "log")
    with warns(bu.CacheWarning) as warned:
        rows = bu.Cached(slow, where, limit=6 * ROW - 1)
    assert f"{5 * ROW} of {12 * ROW} bytes" in str(warned[0].message)
    for _ in range(3):
        np.testing.assert_array_equal(rows[:], slow.expected(range(12)))
    assert slow.read() == sorted([*range(12), *range(5, 12), *range(5, 12)])
    assert "5 of 12 rows kept" in repr(rows)
    assert repr(rows).endswith("room for 5)")


def test_memory_that_is_not_free_is_not_counted_on(tmp_path):
    slow = Counting(tmp_path / "log", 64, (1 << 18,))  # of 1 MiB each
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    free = 40 << 20
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (entries(Path("/proc/self/status"))["VmData"] + free, limits[1]))
        with warns(bu.CacheWarning):
            rows = bu.Cached(slow)
        with warns(bu.CacheWarning):
            (column,) = bu.ArrayDataSource([slow]).cache().data
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    first, second = (int(repr(each).rpartition(" ")[2].rstrip(")")) for each in (rows, column))
    assert 16 <= first <= 32
    assert second <= (40 - first) * 0.8, "what the first was promised is not promised again"


def test_memory_is_taken_as_rows_come(tmp_path):
    n = 64
    slow = Counting(tmp_path / "log", n, (1 << 18,))  # of 1 MiB each
    rows = bu.Cached(slow)
    before = shared_memory()
    rows[:8]
    grown = shared_memory() - before
    assert 8 << 20 <= grown < 12 << 20


def shared_memory():
    """Return the bytes of the nameless files in memory that this process has open."""
    sizes = {}
    for path in Path("/proc/self/fd").iterdir():
        if path.is_symlink() and os.readlink(path).startswith("/memfd:batchup_ng"):
            found = path.stat()
            sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def test_the_memory_goes_with_the_last_reference(tmp_path):
    gc.collect()  # of what other tests left, which would go meanwhile
    before = shared_memory(), len(os.listdir("/proc/self/fd"))
    rows = bu.Cached(Counting(tmp_path / "log", 64, (1 << 12,)))
    rows[:]
    copied = pickle.loads(pickle.dumps(rows))
    del rows
    assert shared_memory() > before[0]
    del copied
    gc.collect()
    assert (shared_memory(), len(os.listdir("/proc/self/fd"))) == before


def test_a_pickle_of_rows_that_are_gone_starts_without_any(tmp_path):
    slow = Counting(tmp_path / "log")
    pickled = pickle.dumps(bu.Cached(slow))
    other = bu.Cached(Counting(tmp_path / "log", version=2))  # with the same descriptors
    other[:]
    rows = pickle.loads(pickled)
    assert "0 of 12 rows kept in memory" in repr(rows)
    np.testing.assert_array_equal(rows[:], slow.expected(range(12)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("17", 17), ("3 B", 3), ("2kB", 2000), ("1.5 MB", 1_500_000), ("8GB", 8 * 10**9), ("1tib", 1 << 40)],
)
def test_sizes_in_words(text, expected):
    assert size_in_bytes("limit", text) == expected


# What is refused


@pytest.mark.parametrize("limit", ["", "much", "8 XB", "-1GB", "GB"])
def test_a_limit_that_is_no_size_is_refused(limit):
    with raises(bu.ArgumentError):
        bu.Cached(Counting("unread"), limit=limit)


def test_accessors_whose_rows_cannot_be_kept_are_refused(picture, tmp_path):
    with raises(bu.ArgumentTypeError):
        bu.Cached(7)
    with raises(bu.ArgumentError):
        bu.Cached(bu.ImageFiles([picture]))
    with raises(bu.ArgumentError):
        bu.Cached(bu.MapStyle([(1, 2)]))
    with raises(bu.ArgumentError):
        bu.Cached(np.array([None, "x"]))
    with raises(bu.ArgumentError):
        bu.Cached(Counting("unread", 0))


def test_random_rows_are_refused(picture):
    files = bu.ImageFiles([picture], 8, crop="random")
    for accessor in (files, bu.ImageArrayUInt8ToFloat32(files)):
        with raises(bu.ArgumentError):
            bu.Cached(accessor)
    with raises(bu.ArgumentError):
        bu.ArrayDataSource([files]).cache()
    assert bu.Cached(bu.ImageFiles([picture], 8, crop="center"))[0].shape == (8, 8, 3)


def test_an_accessor_that_belies_its_shape_is_told(tmp_path):
    slow = Counting(tmp_path / "log")
    slow.dtype = np.dtype(np.float32)
    with raises(bu.ArgumentError):
        bu.Cached(slow)[:2]


def test_memory_of_another_shape_is_refused(tmp_path):
    rows = bu.Cached(Counting(tmp_path / "log"))
    with raises(bu.ArgumentError):
        rows.read_into(np.arange(2), np.empty((2, 3), np.int32))


def test_rows_may_go_when_the_names_of_their_module_have_gone(monkeypatch, tmp_path):
    """As when Python ends and something else, as torch does, keeps the module until then."""
    unraisable = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    kept = bu.Cached(Counting(tmp_path / "log"))
    for module in (shared_rows, shared_file):
        for name in ("os", "mmap"):
            monkeypatch.setattr(module, name, None)
    del kept
    assert unraisable == []
