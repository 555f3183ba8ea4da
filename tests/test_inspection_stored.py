"""``python -m batchup_ng inspect FILE`` of a file of rows: its columns, and what shuffling will cost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import cli
from batchup_ng.datasets.from_file import COLUMNS_BY_ENDING
from batchup_ng.inspection import reading_cost
from batchup_ng.inspection.reading_cost import Costs, advice, seconds_a_batch

ROWS, X, Y = 100, np.arange(1200, dtype=np.float32).reshape(100, 4, 3), np.arange(100)
NEEDS = {".h5": "h5py", ".zarr": "zarr", ".parquet": "pyarrow", ".lmdb": "lmdb"}
TIMED = r"  +\d[\d.,]* ms +[\d.,]+ x"


@pytest.fixture(autouse=True)
def at_once_without_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no longer than a test needs; tqdm would leave a thread of its own that watches its bars."""
    monkeypatch.setattr(reading_cost, "TIMED_SECONDS", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm", None)


def inspect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str], str]:
    code = cli.main(["inspect", *map(str, words)])
    told = capsys.readouterr()
    return code, told.out.splitlines(), told.err


@pytest.mark.parametrize("world", [1, 4])
def test_what_a_rank_reads(world: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4000, 64), np.int64))
    code, lines, _ = inspect(capsys, tmp_path / "x.npy", "--batch-size", 10, "--world", world)
    assert code == 0
    told = [line for line in lines if "4 ranks" in line or "4 x 10" in line or "and mixes" in line]
    if world == 1:
        assert not told
        return
    assert told[0] == 'with shard= and shuffle=("blocks", 7) each of 4 ranks reads 2 blocks, about 2.54 x its part,'
    assert told[1] == "  and mixes 1 block of 2,048 rows at a time: all its rows, 512 kB"
    assert re.fullmatch(r"  a step of 4 x 10 rows is mixed \d\.\d\d x as well as fully shuffled", told[2])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("d.npy", "  x  float32 (4, 3)  NpyRows  blocks of 100 rows, 4.8 kB"),
        ("d.h5", "  x  float32 (4, 3)  Hdf5Rows  blocks of 100 rows, 4.8 kB"),
        ("d.zarr", "  x  float32 (4, 3)  ZarrRows  blocks of 64 rows, 3.07 kB"),
        ("d.parquet", "  x  float32 (4, 3)  ParquetRows  blocks of 100 rows, 4.8 kB"),
        ("d.lmdb", "  x  float32 (4, 3)  LmdbArray  blocks of 100 rows, 4.8 kB"),
        ("d.tar", "  npy  values: float32 (4, 3)  TarShards  blocks of 100 rows"),
    ],
)
def test_each_format(name: str, column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ending = os.path.splitext(name)[1]
    if ending in NEEDS:
        pytest.importorskip(NEEDS[ending])
    one = ending == ".npy"
    bu.convert([X] if one else {"x": X, "y": Y}, tmp_path / name, pool="serial", progress=False)
    code, lines, _ = inspect(capsys, tmp_path / name, "--batch-size", 32)
    assert code == 0
    n_columns = "1 column" if one else "2 columns"
    assert re.fullmatch(rf".*/{name}: 100 rows, {n_columns}, [\d.]+ [kM]B( in \d+ files)?", lines[0])
    assert column in [re.sub(r"(?<=\S) {2,}", "  ", line) for line in lines]
    place = 2 if one else 3
    assert re.match(r'shuffle="blocks" mixes \d blocks? of \d+ rows at a time: all rows', lines[place])
    assert lines[place + 1].startswith("a batch of 32 rows, on one thread (what the page cache lacked")
    for line, order in zip(lines[place + 2 :], ["in order", 'shuffle="blocks"', "shuffle=True"], strict=False):
        assert re.fullmatch(f"  {re.escape(order)}{TIMED}", line), line
    assert "shuffle=" in lines[-1]
    assert len(lines) == place + 6


@pytest.mark.parametrize("ending", [".npz", ".txt", ".jsonl", ".safetensors", ".arrow", ".mdb"])
def test_formats_that_convert_does_not_write(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending in COLUMNS_BY_ENDING
    path = tmp_path / f"d{ending}"
    if ending == ".npz":
        np.savez(path, x=X, y=Y)
    elif ending == ".txt":
        path.write_text("some words\n" * ROWS)
    elif ending == ".jsonl":
        path.write_text('{"x": 1}\n' * ROWS)
    elif ending == ".safetensors":
        pytest.importorskip("safetensors.numpy").save_file({"x": X, "y": Y}, path)
    elif ending == ".arrow":
        feather = pytest.importorskip("pyarrow.feather")
        feather.write_feather(feather.Table.from_pydict({"x": ["a"] * ROWS, "y": Y}), path)
    else:
        lmdb = pytest.importorskip("lmdb")
        with lmdb.open(str(path), subdir=False, map_size=1 << 22) as file, file.begin(write=True) as transaction:
            for row in range(ROWS):
                transaction.put(b"%04d" % row, X[row].tobytes())
    holds = {".txt": "values: str", ".jsonl": "values: dict", ".arrow": "values: str", ".mdb": "values: bytes"}
    code, lines, _ = inspect(capsys, path)
    assert code == 0
    assert any(line.startswith(f"  x  {holds.get(ending, 'float32 (4, 3)')}") for line in lines)


def test_chunks_are_those_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("h5py")
    bu.convert({"x": X}, tmp_path / "d.h5", chunk_rows=16, compression="gzip", progress=False)
    _, lines, _ = inspect(capsys, tmp_path / "d.h5")
    assert lines[1:3] == [
        "  x  float32 (4, 3)  Hdf5Rows  blocks of 16 rows, 768 bytes",
        'shuffle="blocks" mixes 7 blocks of 16 rows at a time: all rows, 4.8 kB',
    ]


def test_what_a_file_says_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d\x1b[2J.npz"
    np.savez(path, **{"x\x1b[2J": np.zeros(3, [(f"field\x1b{k}", "f4") for k in range(50)])})
    _, lines, _ = inspect(capsys, path)
    assert lines[0].startswith(f"{str(path)!r}: 3 rows, 1 column")
    assert lines[1].startswith(r"  'x\x1b[2J'  [('field\x1b0', '<f4'), ")
    assert len(lines[1]) < 200


def test_several_files_and_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bu.convert({"y": Y}, str(tmp_path / "d-{:02d}.tar"), shard_rows=40, progress=False)
    _, lines, _ = inspect(capsys, tmp_path / "d-{00..02}.tar")
    assert re.fullmatch(r".*: 100 rows, 1 column, [\d.]+ kB in 3 files", lines[0])
    _, listed, _ = inspect(capsys, *sorted(tmp_path.glob("*.tar")))  # as a shell replaces d-*.tar
    assert re.sub(r".*: ", "", listed[0]) == re.sub(r".*: ", "", lines[0])
    np.save(tmp_path / "none.npy", X[:0])
    assert inspect(capsys, tmp_path / "none.npy")[1] == [
        f"{tmp_path}/none.npy: 0 rows, 1 column, 128 bytes",
        "  x  float32 (4, 3)  NpyRows  blocks of 0 rows, 0 bytes",
    ]


def test_a_file_at_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsspec = pytest.importorskip("fsspec", reason="files at URLs need fsspec")
    np.save(tmp_path / "x.npy", np.zeros((90, 3), np.uint8))
    fsspec.filesystem("memory").pipe("inspected/x.npy", (tmp_path / "x.npy").read_bytes())
    code, lines, _ = inspect(capsys, "memory://inspected/x.npy")
    assert code == 0
    assert lines[0] == "memory://inspected/x.npy: 90 rows, 1 column, 398 bytes"
    assert "(over the network, one batch after the other)" in lines[3]


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, told = inspect(capsys, tmp_path / "absent.npy")
    assert (code, lines) == (1, [])
    assert "absent.npy' cannot be opened (FileNotFoundError" in told
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY")
    code, _, told = inspect(capsys, tmp_path / "cut.npy")
    assert code == 1
    assert "cut.npy'" in told
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{"x": \n')
    code, lines, _ = inspect(capsys, tmp_path / "bad.jsonl")
    assert code == 1
    assert lines[1].startswith("  x  values: dict")
    assert lines[2].startswith("what shuffling costs is not known: row 1 of")


def test_nulls_of_a_column_do_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"k": [1, None], "y": [1, 2]}), tmp_path / "d.parquet")
    code, lines, _ = inspect(capsys, tmp_path / "d.parquet")
    assert code == 1
    assert [line.split()[0] for line in lines[1:3]] == ["k", "y"]
    code, lines, _ = inspect(capsys, tmp_path / "d.parquet", "--columns", "y")
    assert (code, lines[1].split()[0], "shuffle=" in lines[-1]) == (0, "y", True)
    assert cli.main(["convert", str(tmp_path / "d.parquet"), str(tmp_path / "y.npy"), "--columns", "y"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [1, 2]
    _, lines, _ = inspect(capsys, tmp_path / "d.parquet")
    assert re.search(r"row 1 of column 'k', of .*, is null, .*; pass fill= .* \(read by ParquetRows\)", lines[-1])


def test_a_missing_library_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "d.h5").touch()
    code, _, told = inspect(capsys, tmp_path / "d.h5")
    assert code == 1
    assert "pip install 'batchup_ng[hdf5]'" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inspect", "d.npy", "--decode"], "--decode must be left out, as 'd.npy' is a file of rows"),
        (["inspect", "d.npy", "--sample", "5"], "--sample must be left out, as 'd.npy' is a file of rows"),
        (["inspect", "d.npy", "--batch-size", "0"], "--batch-size must be at least 1, not 0"),
        (["convert", "photos", "d.tar", "--columns", "y"], "--columns must be left out, as 'photos' is not a file"),
        (["inspect", "photos", "d.npy"], "PATH must be one folder or table of pictures, not 2"),
        (["convert", "d.npy", "e.h5", "--shard-rows", "5"], "shard_rows= is an option of .tar"),
        (["convert", "d.npy", "e.tar", "--label", "y"], "--label must be left out, as 'd.npy' is a file of rows"),
    ],
)
def test_wrong_options(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", X)
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split()).replace(f"{tmp_path}/", "")


def test_the_command_line_converts_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    assert cli.main(["convert", str(tmp_path / "d.npz"), str(tmp_path / "d.tar"), "--pool", "serial"]) == 0
    assert "100 rows written" in capsys.readouterr().out
    (batch,) = bu.from_file(tmp_path / "d.tar").batch_iterator(ROWS)
    np.testing.assert_array_equal(np.stack(batch["npy"]), X)


@pytest.mark.parametrize(
    ("in_order", "in_blocks", "at_random", "told"),
    [
        (2.0, 2.0, 2.9, "rows are as cheap at random as in order: pass shuffle=True"),
        (2e-5, 3e-5, 9e-4, "shuffle=True costs 45 x reading in order, and yet hardly anything: pass shuffle=True"),
        (2.0, 2.5, 9, 'shuffle="blocks" costs 1.2 x reading in order, shuffle=True 4.5 x: pass shuffle="blocks"'),
        (2.0, 60.0, 80.0, 'shuffle=True costs 40 x reading in order, shuffle="blocks" 30 x: pass shuffle=True, or'),
    ],
)
def test_advice(in_order: float, in_blocks: float, at_random: float, told: str) -> None:
    assert advice(Costs(in_order, in_blocks, at_random), ".npy").startswith(told)


@pytest.mark.parametrize(
    ("seconds", "every", "read"),
    [
        ([0.3] * 100, 1, 4),  # the first beyond a second
        ([0.1] * 5, 1, 5),  # all there are
        ([0.9, 0.1, 0.1, 0.1] * 3, 4, 4),  # a whole number of blocks
        ([9.0, 0.0, 0.0], 3, 1),  # but not at any price
    ],
)
def test_a_batch_is_the_mean_of_whole_blocks(
    seconds: list[float], every: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_cost, "TIMED_SECONDS", 1.0)
    now, done = 0.0, 0

    def batches() -> Iterator[None]:
        nonlocal now, done
        for taken in seconds:
            now, done = now + taken, done + 1
            yield

    assert seconds_a_batch(batches(), every, clock=lambda: now) == pytest.approx(sum(seconds[:read]) / read)
    assert done == read


def test_each_order_reads_whole_blocks_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[list[int]] = []
    groups: list[int] = []

    def read(batches: Any, every: int) -> float:
        orders.append([row for batch in batches for row in batch["x"].tolist()])
        groups.append(every)
        return 1.0  # so that a second reads one batch of 10 rows in order

    monkeypatch.setattr(reading_cost, "TIMED_SECONDS", 6.0)
    monkeypatch.setattr(reading_cost, "seconds_a_batch", read)
    np.save(tmp_path / "x.npy", Y)
    reading_cost.measure_costs(bu.ArrayDataSource({"x": bu.NpyRows(tmp_path / "x.npy")}), 10, 20, 5)
    assert groups == [2, 6, 1], "a block of 20 rows, a window of 3 blocks, for which there is time, a batch"
    assert orders[0] == list(range(ROWS))
    assert sorted(orders[1]) == sorted(orders[2]) == orders[0]
    assert len({row // 20 for row in orders[1][:40]}) <= 3 < len({row // 20 for row in orders[2][:40]})


def test_a_reader_that_is_gone_costs_no_traceback(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    reads, writes = os.pipe()
    os.close(reads)
    environment = {**os.environ, "PYTHONPATH": str(Path(bu.__file__).parents[1])}
    command = [sys.executable, "-m", "batchup_ng", "inspect", "rows.npy"]
    try:
        options: Any = {"cwd": tmp_path, "env": environment, "stdout": writes, "stderr": subprocess.PIPE}
        ended = subprocess.run(command, check=False, **options)
    finally:
        os.close(writes)
    assert (ended.returncode, ended.stderr) == (cli.OUTPUT_CLOSED, b"")
