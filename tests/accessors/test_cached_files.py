"""A file of rows is believed where it says the truth, and a row of it where it is whole."""

import errno
import gc
import inspect
import itertools
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
import zlib
from collections import UserList
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors import shared_rows
from batchup_ng.accessors.shared_rows import HEADER_BYTES
from tests.messages import raises, warns

from .counting import Counting
from .image_helpers import colours, save

ROW = 24
"""Bytes of a row of `Counting`."""
START = 2 * HEADER_BYTES
"""Where the first row of a file of few lies."""


@pytest.fixture
def slow(tmp_path):
    return Counting(tmp_path / "log")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def full(slow, folder):
    """The path of a file that has all rows, which no program has open."""
    bu.Cached(slow, folder)[:]
    slow.read()
    return only_file(folder)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def read_in_full(slow, folder):
    """Read all rows of a new cache; return which were read from the accessor."""
    rows = bu.Cached(slow, folder)
    for _ in range(2):
        np.testing.assert_array_equal(rows[:], slow.expected(range(12)), strict=True)
    return slow.read()


# What the next program finds


def test_the_next_program_reads_nothing_from_the_accessor(slow, full, folder):
    rows = bu.Cached(slow, folder)
    assert repr(rows) == f"Cached(Counting, 12 of 12 rows kept in {str(full)!r})"
    assert read_in_full(slow, folder) == []


def test_the_next_program_goes_on_with_what_is_there(slow, folder):
    bu.Cached(slow, folder)[[4, 2]]
    assert slow.read() == [2, 4]
    assert read_in_full(slow, folder) == sorted({*range(12)} - {2, 4})


def test_another_limit_has_the_same_file(slow, folder):
    with warns(bu.CacheWarning):
        bu.Cached(slow, folder, limit=2 * ROW)[:]
    slow.read()
    assert read_in_full(slow, folder) == [*range(2, 12)]
    assert only_file(folder).stat().st_size == START + 12 * ROW + 1
    with warns(bu.CacheWarning):
        rows = bu.Cached(slow, folder, limit=3 * ROW)
    np.testing.assert_array_equal(rows[::-1], slow.expected(range(12))[::-1])
    assert slow.read() == [*range(3, 12)]


def test_a_row_whose_checksum_is_zero_is_found_again(folder):
    class Zero(Counting):
        def expected(self, rows):
            return np.full(len(rows), int.from_bytes(b"\x9d\x0a\xd9\x6d", "little"), np.uint32).astype(np.int32)

    slow = Zero(folder.parent / "log", row=())
    assert zlib.crc32(slow.expected([0]).tobytes()) == 0
    assert read_in_full(slow, folder) == [*range(12)]
    assert read_in_full(slow, folder) == []


def test_a_file_takes_the_space_of_the_rows_in_it(tmp_path, folder):
    slow = Counting(tmp_path / "log", 1000, (1 << 16,))
    bu.Cached(slow, folder)[[999, 3]]
    taken = only_file(folder).stat()
    assert taken.st_size > 1000 << 18
    assert taken.st_blocks * 512 < 8 << 18


# What is not believed


def test_another_fingerprint_shape_or_dtype_has_another_file(tmp_path, slow, full, folder):
    as_float = Counting(tmp_path / "log")
    as_float.dtype = np.dtype(">i4")
    as_float.expected = lambda rows: Counting.expected(as_float, rows).astype(">i4")
    others = [Counting(tmp_path / "log", version=2), Counting(tmp_path / "log", row=(2, 3)), as_float]
    for number, other in enumerate(others, 2):
        assert read_in_full(other, folder) == [*range(12)]
        assert len(list(folder.iterdir())) == number
    assert read_in_full(slow, folder) == []


@pytest.mark.parametrize("at", [0, 100, HEADER_BYTES - 1])
def test_a_damaged_header_has_the_file_replaced(slow, full, folder, at):
    held = bu.Cached(slow, folder)  # by another program, say
    held[:]
    content = bytearray(full.read_bytes())
    content[at] ^= 1
    full.write_bytes(content)
    bu.Cached(slow, folder)
    np.testing.assert_array_equal(held[:], slow.expected(range(12)))
    assert read_in_full(slow, folder) == [*range(12)]
    assert read_in_full(slow, folder) == []


@pytest.mark.parametrize("size", [1, HEADER_BYTES, START, START + 11 * ROW, START + 12 * ROW, START + 12 * ROW + 2])
def test_a_file_of_another_length_is_replaced(slow, full, folder, size):
    os.truncate(full, size)
    assert read_in_full(slow, folder) == [*range(12)]
    assert full.stat().st_size == START + 12 * ROW + 1


def test_an_empty_file_is_begun(slow, full, folder):
    os.truncate(full, 0)  # a program was killed as it made it
    assert read_in_full(slow, folder) == [*range(12)]


@given(row=st.integers(0, 11), at=st.integers(0, ROW - 1), bit=st.integers(0, 7), of_sum=st.booleans())
def test_a_row_that_is_not_as_it_was_written_is_read_anew(tmp_path, row, at, bit, of_sum):
    slow = Counting(tmp_path / "log")
    folder = tmp_path / "cache"
    folder.mkdir(exist_ok=True)
    read_in_full(slow, folder)
    place = HEADER_BYTES + 4 * row + at % 4 if of_sum else START + ROW * row + at
    with open(only_file(folder), "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))
    assert read_in_full(slow, folder) == [row]
    assert read_in_full(slow, folder) == []


def test_rows_that_did_not_reach_the_disk_are_read_anew(slow, full, folder):
    with open(full, "r+b") as file:  # their checksums did, before the power was cut
        file.seek(START)
        file.write(bytes(12 * ROW))
    assert read_in_full(slow, folder) == [*range(12)]


# The fingerprint of pictures


@pytest.fixture
def paths(tmp_path):
    return [save(tmp_path / f"{i}.png", colours(seed=i)) for i in range(3)]


OTHER = {
    "size": (6, 7), "mode": "L", "dtype": np.float32, "resize": "box", "crop": "center", "decoder": "pillow",
    "max_pixels": 10**6, "truncated": "fill",
}  # fmt: skip


@pytest.mark.parametrize("name", list(inspect.signature(bu.ImageFiles).parameters))
def test_every_option_is_part_of_the_fingerprint(paths, name):
    options = {"paths": paths, "size": 6}
    other = {**options, name: paths[::-1] if name == "paths" else OTHER[name]}
    assert bu.ImageFiles(**options).fingerprint() == bu.ImageFiles(**options).fingerprint()
    assert bu.ImageFiles(**options).fingerprint() != bu.ImageFiles(**other).fingerprint()


def test_encoded_pictures_are_part_of_it(paths, folder):
    encoded = [Path(path).read_bytes() for path in paths]
    one, same, other = (bu.ImageBytes(list(some), 8) for some in (encoded, encoded, [*encoded[:2], encoded[0]]))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    kept = bu.ImageArrayUInt8ToFloat32(one)
    np.testing.assert_array_equal(bu.Cached(kept, folder)[:], kept[:])
    assert "3 of 3 rows" in repr(bu.Cached(bu.ImageArrayUInt8ToFloat32(same), folder))
    assert "0 of 3 rows" in repr(bu.Cached(bu.ImageArrayUInt8ToFloat32(same, -1), folder))
    assert bu.ImageBytes(np.array(encoded, object), 8).fingerprint() == one.fingerprint()
    with raises(bu.ArgumentTypeError):
        bu.Cached(bu.ImageBytes(UserList(encoded), 8), folder)


def test_a_changed_picture_is_decoded_anew(paths, folder):
    files = bu.ImageFiles(paths, 8)
    bu.Cached(files, folder)[:]
    save(Path(paths[1]), colours(seed=9))
    np.testing.assert_array_equal(bu.Cached(files, folder)[:], files[:])
    assert len(list(folder.iterdir())) == 2


def test_size_time_and_place_of_each_file_are_part_of_it(paths, tmp_path, monkeypatch):
    files = bu.ImageFiles([*paths, "gone.png"], 8)
    seen = [files.fingerprint()]
    os.utime(paths[2], ns=(0, 1))
    seen.append(files.fingerprint())
    with open(paths[2], "ab") as file:
        file.write(b"x")
    os.utime(paths[2], ns=(0, 1))
    seen.append(files.fingerprint())
    os.remove(paths[2])
    seen.append(files.fingerprint())
    monkeypatch.chdir(tmp_path)
    seen.append(bu.ImageFiles([*paths, "gone.png"], 8).fingerprint())
    assert all(one != other for one, other in itertools.combinations(seen, 2))


# Writers that are killed, disks that are full


@pytest.mark.parametrize("when", ["before", "half-way", "after"])
@pytest.mark.parametrize(("in_folder", "step"), [(False, 0), (False, 1), (True, 0), (True, 1), (True, 2)])
def test_a_writer_that_is_killed_costs_its_row_at_most(slow, folder, in_folder, step, when):
    rows = bu.Cached(slow, folder if in_folder else None)
    rows[2]
    pid = forked(lambda: (die_at(step, when), rows[[7, 8]]))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert slow.read() == [2, 7, 8]
    # Of row 7 the bytes are written first; then, in a folder, the checksum, which is enough to find it by.
    is_there = step == 2 or (step == 1 and when == "after")
    np.testing.assert_array_equal(rows[:], slow.expected(range(12)))
    assert slow.read() == sorted({*range(12)} - {2} - ({7} if is_there else set()))
    np.testing.assert_array_equal(rows[:], slow.expected(range(12)))
    assert slow.read() == []
    if in_folder:
        del rows
        assert read_in_full(slow, folder) == []


def forked(work):
    """Do some work in another process; return its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: other threads hold no lock of ours
        pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


@pytest.mark.parametrize("in_folder", [False, True])
def test_writers_that_are_killed_at_any_time_cost_no_other_row(tmp_path, folder, in_folder, in_full):
    slow = Counting(tmp_path / "log", 12, (1 << 16,))  # in several pages, between which a write is cut short
    rng = random.Random(1)
    for row in [*range(12)] * (9 if in_full else 1):
        slow.version += 1
        rows = bu.Cached(slow, folder if in_folder else None)
        Path(slow.log).touch()
        pid = forked(lambda rows=rows: [rows[row] for row in range(12)])
        while os.path.getsize(slow.log) <= 8 * row:
            time.sleep(0.0001)
        time.sleep(rng.random() * 0.0005)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        read = slow.read()
        np.testing.assert_array_equal(rows[:], slow.expected(range(12)))
        assert len(read) + len(slow.read()) in (12, 13), "a row was lost that had been published"


def die_at(step, when):
    """Have this process killed in the write of that number."""
    write, calls = os.pwrite, itertools.count()

    def pwrite(fd, data, offset):
        if next(calls) != step:
            return write(fd, data, offset)
        part = memoryview(data).cast("B")
        write(fd, part[: {"before": 0, "half-way": len(part) // 2, "after": len(part)}[when]], offset)
        os.kill(os.getpid(), signal.SIGKILL)

    os.pwrite = pwrite


@pytest.mark.parametrize("in_folder", [False, True])
def test_rows_for_which_the_disk_has_no_room_are_not_kept(tmp_path, folder, in_folder):
    slow = Counting(tmp_path / "log", row=(64,))
    rows = bu.Cached(slow, folder if in_folder else None)
    room = START * in_folder + 3 * 256 + 5  # the fourth row is cut short, the others are refused
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        with warns(bu.CacheWarning) as told:
            batches = [rows[:], rows[:]]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(told) == 1
    for batch in batches:
        np.testing.assert_array_equal(batch, slow.expected(range(12)))
    assert slow.read() == sorted([*range(12), *range(3, 12)])


PROGRAM = """
import sys
import numpy as np
import batchup_ng as bu
from tests.accessors.counting import Counting
folder, log, seed = sys.argv[1:]
rows = bu.Cached(Counting(log, 300), folder)
print("ready", flush=True)
input()
for row in np.random.default_rng(int(seed)).permutation(300):
    assert (rows[row] == rows.accessor.expected(row)).all()
"""


@pytest.mark.in_turn
def test_two_programs_may_fill_a_file_at_once(tmp_path, folder):
    logs = [tmp_path / "one", tmp_path / "two"]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, folder, log, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for seed, log in enumerate(logs)
    ]
    for program in programs:
        assert program.stdout.readline() == b"ready\n"
    for program in programs:
        program.stdin.write(b"\n")
        program.stdin.flush()
    for program in programs:
        program.communicate(timeout=600)
        assert program.returncode == 0
    slow = Counting(tmp_path / "three", 300)
    np.testing.assert_array_equal(bu.Cached(slow, folder)[:], slow.expected(range(300)))
    assert slow.read() == []


def test_a_file_that_was_deleted_serves_until_the_program_ends(slow, folder):
    rows = bu.Cached(slow, folder)
    rows[:]
    os.remove(only_file(folder))
    slow.read()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows))[:], slow.expected(range(12)))
    assert slow.read() == []
    assert list(folder.iterdir()) == []


def test_a_pickle_of_a_program_that_ended_has_the_file(slow, folder):
    rows = bu.Cached(slow, folder)
    rows[:]
    pickled = pickle.dumps(rows)
    del rows
    gc.collect()
    slow.read()
    np.testing.assert_array_equal(pickle.loads(pickled)[:], slow.expected(range(12)))
    assert slow.read() == []


# Files that are cut short while they are used, disks in memory that are full


@pytest.mark.parametrize("rewritten", [False, True])
@pytest.mark.parametrize("size", [0, HEADER_BYTES, START + 1, -1])
@pytest.mark.parametrize("width", [3, 3000])
def test_a_file_that_is_cut_short_while_it_is_used_costs_speed_and_no_row(
    tmp_path, folder, pools, size, width, rewritten
):
    slow = Counting(tmp_path / "log", 40, row=(width,))
    source = bu.ArrayDataSource([bu.Cached(slow, folder)])
    made = [source, *[pool.parallel_data_source(source) for pool in pools]]
    for each in made:
        np.testing.assert_array_equal(next(each.batch_iterator(40))[0], slow.expected(range(40)))
    slow.read()
    os.truncate(only_file(folder), size if size >= 0 else START + 20 * 4 * width)
    if rewritten:  # by the next program
        held = bu.Cached(slow, folder)
        assert f"0 of 40 rows kept in '{only_file(folder)}'" in repr(held)
    fresh = [pool.parallel_data_source(bu.ArrayDataSource([source.data[0]])) for pool in pools]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for each in [*made, *fresh, source]:
            np.testing.assert_array_equal(next(each.batch_iterator(40))[0], slow.expected(range(40)))
    assert any("its file was cut short by another program; delete it, and begin" in str(each.message) for each in told)
    if rewritten:
        np.testing.assert_array_equal(held[:], slow.expected(range(40)))
        np.testing.assert_array_equal(bu.Cached(slow, folder)[:], slow.expected(range(40)))
    else:
        assert only_file(folder).stat().st_size < START + 40 * 4 * width  # nothing was written to it


@pytest.mark.parametrize("size", [0, START + 5, START + 4096])
@pytest.mark.parametrize("moment", ["before", "after", "before, and no such call", "between rows"])
def test_a_file_that_is_cut_short_while_rows_are_copied_costs_no_row(tmp_path, folder, monkeypatch, moment, size):
    slow = Counting(tmp_path / "log", 40, row=(3000,))
    rows = bu.Cached(slow, folder)
    rows[:]

    def cut(array, wanted, out, copy=shared_rows.copy_rows):
        """Cut the file where a copy begins, is in the midst of its rows, or is done."""
        first = 0 if moment.startswith("before") else len(wanted) // 2 if moment == "between rows" else len(wanted)
        done = copy(array, wanted[:first], out[:first])
        os.truncate(only_file(folder), size)
        if "no such call" in moment:
            return False
        return copy(array, wanted[first:], out[first:]) and done

    monkeypatch.setattr(shared_rows, "copy_rows", cut)
    with warns(bu.CacheWarning):
        np.testing.assert_array_equal(rows[:], slow.expected(range(40)))


@pytest.mark.parametrize("row", [(), (3,), (3000,)])
def test_rows_are_the_same_where_the_system_copies_none(tmp_path, folder, monkeypatch, row):
    slow = Counting(tmp_path / "log", 2500, row=row)
    rows, some = bu.Cached(slow, folder), np.random.default_rng(0).integers(0, 2500, 2100)
    for _ in range(2):
        np.testing.assert_array_equal(rows[some], slow.expected(some))
    assert set(slow.read()) == set(some.tolist())
    monkeypatch.setattr(shared_rows, "copy_rows", lambda *_: False)  # as in a container that forbids it
    np.testing.assert_array_equal(rows[some], slow.expected(some))


def test_the_rows_of_a_batch_that_are_there_are_copied_at_once(slow, folder, monkeypatch):
    calls = []

    def counted(array, rows, out, copy=shared_rows.copy_rows):
        calls.append(len(rows))
        return copy(array, rows, out)

    rows = bu.Cached(slow, folder)
    rows[::2]
    monkeypatch.setattr(shared_rows, "copy_rows", counted)
    np.testing.assert_array_equal(rows[:], slow.expected(range(12)))
    assert calls == [6]


@pytest.mark.parametrize("in_folder", [False, True])
def test_rows_may_be_read_into_any_part_of_an_array(tmp_path, folder, in_folder):
    slow = Counting(tmp_path / "log", 12, row=(5, 7))
    rows, wanted = bu.Cached(slow, folder if in_folder else None), np.arange(12)[::-1].copy()
    rows[:6]
    for _ in range(2):  # some of them are there, then all
        for part in (np.s_[:, ::2], np.s_[::-1, :5], np.s_[:, 2:7]):
            around = np.full((12, 10, 7), -1, slow.dtype)
            out = around[part]
            rows.read_into(wanted, out)
            np.testing.assert_array_equal(out, slow.expected(wanted))
            out[...] = -1
            assert (around == -1).all()  # nothing beside it was written to


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("at_once", [1, 7, 10**6])
def test_writes_that_are_short_or_fail_at_any_byte_cost_no_row(tmp_path, folder, monkeypatch, in_folder, at_once):
    slow = Counting(tmp_path / "log", 20)
    for room in [*range(0, 20 * ROW, 61), 10**9]:
        left = room

        def pwrite(fd, data, offset, own=os.pwrite):
            nonlocal left
            if not left:
                raise OSError(errno.ENOSPC, "no room")
            done = own(fd, memoryview(data)[: min(at_once, left)], offset)
            left -= done
            return done

        rows = bu.Cached(slow, folder if in_folder else None)
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(os, "pwrite", pwrite)
            for _ in range(2):
                np.testing.assert_array_equal(rows[:], slow.expected(range(20)))
        np.testing.assert_array_equal(rows[:], slow.expected(range(20)))
        np.testing.assert_array_equal(bu.Cached(slow, folder)[:], slow.expected(range(20)))
        os.unlink(only_file(folder))
    assert left > 0


ON_A_FULL_DISK = """
import os, sys, warnings
from pathlib import Path
import numpy as np
import batchup_ng as bu
from tests.accessors.counting import Counting
from tests.small_disk import own_mounts, small_disk
folder = Path(sys.argv[1]) / "cache"
try:
    own_mounts()
except OSError as error:
    sys.exit(str(error))
warnings.simplefilter("ignore")
made = 0
for pages in range(1, 14):
    with small_disk(folder, 4096 * pages):
        slow = Counting(folder.parent / "log", 5000, row=(2,))  # whose checksums fill five pages
        try:
            rows = bu.Cached(slow, folder)
        except bu.ArgumentError as error:
            assert "no cache can be made in" in str(error), error
            continue
        made += 1
        with open(folder / "fill", "wb", buffering=0) as file:
            while pages % 2:
                try:
                    file.write(bytes(4096))
                except OSError:
                    break
        for _ in range(2):
            for start in range(0, 5000, 500):
                np.testing.assert_array_equal(rows[start : start + 500], slow.expected(range(start, start + 500)))
            repr(rows)
        rows = bu.Cached(slow, folder)  # the next program
        np.testing.assert_array_equal(rows[:], slow.expected(range(5000)))
assert made > 5, made
"""


def test_a_full_disk_in_memory_costs_speed_and_no_row(folder):
    done = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, folder.parent], capture_output=True, text=True, timeout=800, check=False
    )
    if "can be mounted" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


# What is refused


def test_folders_and_fingerprints_that_will_not_do_are_refused(slow, tmp_path):
    with raises(bu.ArgumentTypeError):
        bu.Cached(slow, 7)
    with raises(bu.ArgumentError):
        bu.Cached(slow, tmp_path / "none")
    with raises(bu.ArgumentTypeError):
        bu.Cached(np.arange(3), tmp_path)
    slow.version = object()
    with raises(bu.ArgumentTypeError):
        bu.Cached(slow, tmp_path)


def test_a_file_for_which_there_is_no_room_is_told(slow, folder):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (START, limits[1]))
        with raises(bu.ArgumentError):
            bu.Cached(slow, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
