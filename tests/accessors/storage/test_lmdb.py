"""Values of LMDB files, with those of the real lmdb and of ml-pyxis."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.base import fingerprint_of, function_told
from batchup_ng.accessors.storage.lmdb_values import Field
from batchup_ng.errors import ArgumentError, ArgumentTypeError, SampleReadError
from batchup_ng.testing.accessors import Made, assert_same_rows
from tests.messages import raises

from .damaged import damaged
from .stored_contract import PATIENCE, StoredContract, replaced

lmdb = pytest.importorskip("lmdb", reason="the extra lmdb is not installed")

ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


def written(path: Path, values: dict[bytes, bytes], database: bytes | None = None, **options: Any) -> Path:
    """Write a file, or a folder where that is asked for, and return its path."""
    with lmdb.open(str(path), **{"subdir": False, "map_size": 1 << 26, "max_dbs": 2, "sync": False, **options}) as env:
        opened = env.open_db(database)
        with env.begin(write=True, db=opened) as transaction:
            for key, value in values.items():
                transaction.put(key, value)
    return path


def numbered(values: Any) -> dict[bytes, bytes]:
    return {b"%08d" % number: bytes(value) for number, value in enumerate(values)}


class LmdbContract(StoredContract):
    """The contract for files that cannot bear to be cut short."""

    library: ClassVar[Any] = ("lmdb", "lmdb")
    change_in_mid_epoch = staticmethod(replaced)


class TestArray(LmdbContract):
    """Values that are the bytes of arrays."""

    def make(self, tmp_path: Path) -> Made:
        written(tmp_path / "x.mdb", numbered(row.tobytes() for row in ROWS))
        return bu.LmdbArray(tmp_path / "x.mdb", np.int32, (3, 2)), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.LmdbArray(like.paths[0], np.int32, (3, 2))


class TestFolder(TestArray):
    """A folder, values in another order of bytes, keys that are hashes, in a database of their own."""

    def make(self, tmp_path: Path) -> Made:
        rows = ROWS.astype(">i4")
        values = {bytes([number * 37 % 256, number]): row.tobytes() for number, row in enumerate(rows)}
        written(tmp_path / "x", values, b"named", subdir=True)
        path, keys = tmp_path / "x", list(values)
        return bu.LmdbArray(path, ">i4", (3, 2), keys=keys, database="named"), list(rows)


class TestBytes(LmdbContract):
    """Values of any length."""

    def make(self, tmp_path: Path) -> Made:
        values: list[Any] = [b"x" * (number * number * 900) for number in range(6)]
        written(tmp_path / "x.mdb", numbered(values))
        return bu.LmdbRows(tmp_path / "x.mdb"), values


class TestPyxis(LmdbContract):
    """An array of samples that ml-pyxis wrote."""

    library: ClassVar[Any] = ("msgpack", "lmdb")

    def make(self, tmp_path: Path) -> Made:
        pyxis = pytest.importorskip("pyxis", reason="ml-pyxis is not installed")
        with pyxis.Writer(dirpath=str(tmp_path / "x"), map_size_limit=10) as writer:
            writer.put_samples("x", ROWS[:4], "y", np.arange(4.0))
            writer.put_samples({"y": np.arange(4.0, 7.0), "x": ROWS[4:]})
        return bu.LmdbRows.columns(tmp_path / "x")["x"], list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.LmdbRows(like.paths[0], "pyxis")


def samples(path: Path) -> Path:
    """Write ten samples by ml-pyxis: a picture, a number and a text each."""
    pyxis = pytest.importorskip("pyxis", reason="ml-pyxis is not installed")
    with pyxis.Writer(dirpath=str(path), map_size_limit=10) as writer:
        writer.put_samples("x", np.arange(10 * 12).reshape(10, 4, 3), "y", np.arange(10, dtype="u1"), "t", TEXTS)
    return path


TEXTS = np.array([f"text {number}" for number in range(10)])


def test_batches_of_columns_of_pyxis_are_dicts(tmp_path: Path) -> None:
    source = bu.ArrayDataSource(bu.LmdbRows.columns(samples(tmp_path / "x")))
    batches = list(source.batch_iterator(4, shuffle=3))
    assert [list(batch) for batch in batches] == [["x", "y", "t"]] * 3
    x, y, t = (np.concatenate([batch[name] for batch in batches]) for name in "xyt")
    assert (x.dtype, y.dtype, sorted(y.tolist())) == (np.int64, np.uint8, list(range(10)))
    np.testing.assert_array_equal(x, np.arange(10 * 12).reshape(10, 4, 3)[y])
    np.testing.assert_array_equal(t, TEXTS[y])


def test_rows_of_pyxis_are_dicts_that_may_be_written_to(tmp_path: Path) -> None:
    rows = bu.LmdbRows(samples(tmp_path / "x"), "pyxis")
    row = rows[7]
    assert {name: part.tolist() for name, part in row.items()} == {
        "x": np.arange(84, 96).reshape(4, 3).tolist(), "y": 7, "t": "text 7"
    }  # fmt: skip
    row["x"][...] = 0
    assert rows[7]["x"].all()
    stacked = bu.MapStyle(rows)[[3, 2]]
    assert stacked["x"].shape == (2, 4, 3)
    assert stacked["y"].tolist() == [3, 2]


def test_columns_whose_rows_differ_are_lists_and_a_seldom_one_is_told(tmp_path: Path) -> None:
    pyxis = pytest.importorskip("pyxis", reason="ml-pyxis is not installed")
    with pyxis.Writer(dirpath=str(tmp_path / "x"), map_size_limit=10) as writer:
        for rows, x, y in ((41, 2, 2), (1, 2, 5), (18, 2, 2), (4, 5, 2)):
            writer.put_samples("x", np.zeros((rows, x)), "y", np.zeros((rows, y)))
    columns = bu.LmdbRows.columns(tmp_path / "x")
    assert [row.shape for row in columns["x"][58:62]] == [(2,), (2,), (5,), (5,)]
    with raises(SampleReadError):
        columns["y"][:]


def test_columns_are_those_that_are_named(tmp_path: Path) -> None:
    path = samples(tmp_path / "x")
    assert list(bu.LmdbRows.columns(path, ["y", "x"])) == ["y", "x"]
    with raises(ArgumentError):
        bu.LmdbRows.columns(path, ["z"])
    with raises(ArgumentTypeError):
        bu.LmdbRows.columns(path, decode=len, database="data_db")
    with raises(SampleReadError):
        bu.LmdbRows.columns(path, decode="datum", database="data_db", keys=[])


def test_columns_of_a_function_are_arrays_or_lists(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"ab", b"cde"]))
    columns = bu.LmdbRows.columns(path, decode=lambda value: {"n": len(value), "text": value.decode()})
    assert (columns["n"][:].tolist(), columns["text"][:]) == ([2, 3], ["ab", "cde"])
    assert bu.ArrayDataSource(columns).node.traits.runs_user_code


def test_the_fingerprint_of_columns_changes_with_the_code_of_their_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"ab", b"cde"]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file of the same second would be read
    told = []
    for number in (1, 2, 2):
        (tmp_path / "their_decode.py").write_text(f"def decode(value):\n    return {{'x': {number}, 'y': {number}}}\n")
        module = importlib.import_module("their_decode")
        columns = bu.LmdbRows.columns(path, decode=module.decode)
        told.append([fingerprint_of(columns[name])[-1] for name in "xy"])
        del sys.modules["their_decode"]
        importlib.invalidate_caches()
    assert told[0][0] != told[0][1]
    assert told[0][0] != told[1][0]
    assert told[1] == told[2]


def test_columns_of_a_file_with_a_broken_row_are_read_but_for_that(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"3", b"no", b"5"]))
    column = bu.LmdbRows.columns(path, decode=lambda value: {"n": int(value)})["n"]
    assert column[[2, 0]].tolist() == [5, 3]
    with raises(SampleReadError):
        column[:]


def test_a_function_decodes_values(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"3", b"no", b"5"]))
    rows = bu.LmdbRows(path, int)
    assert rows[[2, 0]] == [5, 3]
    with raises(SampleReadError):
        rows[:]
    assert bu.LmdbArray(path, np.uint8, 1, lambda value: np.array([len(value)], np.uint8))[:].tolist() == [
        [1],
        [2],
        [1],
    ]
    assert fingerprint_of(rows) != fingerprint_of(bu.LmdbRows(path, float)) != fingerprint_of(bu.LmdbRows(path))
    assert function_told(Field("pyxis", "x")) == function_told(Field("pyxis", "x")) != function_told(Field(int, "x"))
    for wrong in (3, "pixys"):
        with raises((ArgumentTypeError, ArgumentError)):
            bu.LmdbRows(path, wrong)  # type: ignore[arg-type]
    with raises(ArgumentTypeError):
        bu.LmdbArray(path, np.uint8, 1, "pyxis")  # type: ignore[arg-type]


def test_a_row_of_another_length_and_a_key_that_is_missing_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"abcd", b"efgh", b"i"]))
    with raises(SampleReadError):
        bu.LmdbArray(path, np.uint8, 4)[:]
    rows = bu.LmdbRows(path, keys=["00000001", b"\x1b[2J"])
    with raises(SampleReadError) as caught:
        rows[[0, 1]]
    assert caught.value.source == f"{path}[\\x1b[2J]"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (None, [b"img-0", b"img-1", b"img-2", b"length"]),
        (["length", b"img-1"], [b"length", b"img-1"]),
        (np.array(["img-2"]), [b"img-2"]),
        ([], []),
    ],
)
def test_keys_may_be_all_or_a_list(tmp_path: Path, keys: Any, expected: list[bytes]) -> None:
    path = written(tmp_path / "x.mdb", {name: name for name in (b"img-0", b"img-1", b"img-2", b"length")})
    rows = bu.LmdbRows(path, keys=keys)
    assert rows[:] == expected
    assert fingerprint_of(rows) == fingerprint_of(pickle.loads(pickle.dumps(rows)))


def test_keys_that_are_none_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"a"]))
    for keys, error in (
        (3, ArgumentTypeError),
        ("img-{}", ArgumentTypeError),
        ([3], ArgumentTypeError),
        ([b""], ArgumentTypeError),
    ):
        with raises(error):
            bu.LmdbRows(path, keys=keys)
    for dtype, shape in ((object, 1), (np.uint8, -1)):
        with pytest.raises(ArgumentError):
            bu.LmdbArray(path, dtype, shape)


def test_a_file_without_values_has_no_rows(tmp_path: Path) -> None:
    rows = bu.LmdbRows(written(tmp_path / "x.mdb", {}))
    assert (len(rows), rows[:], rows.natural_block) == (0, [], 1)


def test_a_database_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"a"]), b"named")
    with raises(ArgumentError):
        bu.LmdbRows(path, database="other")
    with raises(ArgumentError):
        bu.LmdbRows(path)
    plain = written(tmp_path / "y.mdb", numbered([b"a"]))
    for name in ("00000000", "data_db"):
        with raises(ArgumentError):
            bu.LmdbRows(plain, database=name)
    with lmdb.open(str(tmp_path / "z.mdb"), subdir=False, max_dbs=1) as env:
        env.open_db(b"twice", dupsort=True)
    with raises(ArgumentError):
        bu.LmdbRows(tmp_path / "z.mdb", database="twice")


def test_accessors_share_a_file_which_is_free_when_the_last_lets_go(tmp_path: Path) -> None:
    path = written(tmp_path / "x", numbered([b"a", b"b"]), subdir=True)
    (tmp_path / "link").symlink_to(path / "data.mdb")
    accessors = [bu.LmdbRows(path), bu.LmdbRows(path / "data.mdb"), bu.LmdbRows(tmp_path / "link")]
    assert [rows[1] for rows in accessors] == [b"b"] * 3
    reading = accessors[0]._each({0: accessors[0]._handle()}, np.array([0, 1]))
    value = next(reading)
    for rows in accessors:
        rows.close()
    del rows
    accessors.clear()
    assert bytes(value) == b"a", "it was unmapped while a thread read from it"
    del value, reading
    with lmdb.open(str(path)) as environment:
        assert environment.stat()["entries"] == 2


def test_a_file_that_the_program_has_open_itself_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"a"]))
    with lmdb.open(str(path), subdir=False):
        try:
            lmdb.open(str(path), subdir=False)
        except lmdb.Error:
            with raises(SampleReadError):
                bu.LmdbRows(path)
        else:
            pytest.skip("this version of lmdb lets a process open a file twice")
    assert bu.LmdbRows(path)[0] == b"a"


def test_what_another_program_writes_is_noticed_also_in_mid_batch(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"a", b"b"]))
    program = (
        f"import lmdb\nwith lmdb.open({str(path)!r}, subdir=False) as e, e.begin(write=True) as t: t.put(b'2', b'c')"
    )
    written_to = functools.partial(subprocess.run, [sys.executable, "-c", program], check=True, timeout=PATIENCE)
    rows = bu.LmdbRows(path, lambda value: written_to())
    with raises(SampleReadError):
        rows[[0]]
    assert bu.LmdbRows(path)[:] == [b"a", b"b", b"c"], "an accessor that is made anew reads the file as it is now"
    with raises(SampleReadError):
        rows[0]


def test_a_child_forked_while_threads_read_reads_on(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered(ROWS))
    rows, other, stop = bu.LmdbArray(path, np.int32, (3, 2)), bu.LmdbRows(path), threading.Event()

    def read() -> None:
        while not stop.is_set():
            other[:]

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                signal.alarm(PATIENCE)
                try:
                    assert_same_rows(rows[:], ROWS)
                    assert_same_rows(bu.LmdbArray(path, np.int32, (3, 2))[:], ROWS)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_file_cut_short_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x.mdb", numbered([b"x" * 9000] * 10))
    os.truncate(path, path.stat().st_size - 4096)
    with raises(SampleReadError):
        bu.LmdbRows(path)


READ = """
rows = bu.LmdbRows(path)
for row in range(min(len(rows), 99)):
    tried(lambda: rows[row])
"""


@pytest.mark.parametrize("turns", [20, pytest.param(3000, marks=pytest.mark.thorough)])
def test_s10_whatever_lmdb_says_of_a_damaged_file_is_our_error(tmp_path: Path, turns: int) -> None:
    (tmp_path / "whole").mkdir()
    written(tmp_path / "whole" / "x", {b"key %d" % number: b"x" * (number % 7 * 900) for number in range(60)})
    read, crashed = damaged(tmp_path, turns, "lmdb", READ)
    assert signal.SIGALRM not in crashed, "it was stuck"
    # LMDB trusts the pages of a file, as our docstring says: some damage ends the process.
    assert read >= 0.8 * turns
