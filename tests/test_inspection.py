"""``python -m batchup_ng inspect PATH`` of pictures: what is printed, and the exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import batchup_ng as bu
from batchup_ng import cli
from batchup_ng.inspection.pictures import ONLY_HEADERS


@pytest.fixture(autouse=True)
def no_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm would leave a thread of its own that watches its bars."""
    monkeypatch.setitem(sys.modules, "tqdm", None)


def write_pictures(folder: Path) -> None:
    for label, width in (("a", 20), ("b", 30)):
        (folder / label).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (width + number, 10)).save(folder / label / f"{number}.{('png', 'jpg')[number]}")


def inspect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str]]:
    code = cli.main(["inspect", *map(str, words)])
    return code, capsys.readouterr().out.splitlines()


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path)
    assert inspect(capsys, tmp_path) == (
        0,
        [
            f"{tmp_path}: 4 files in 2 classes", "  a  2", "  b  2", f"headers read: 4 of 4 {ONLY_HEADERS}",
            "2 PNG RGB, 2 JPEG RGB",
            "width 20 to 31, height 10 to 10",
        ],
    )  # fmt: skip


def test_broken_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path)
    (tmp_path / "a" / "empty.jpg").touch()
    (tmp_path / "b" / "text.png").write_text("hello")
    code, lines = inspect(capsys, tmp_path)
    assert (code, lines[-3]) == (1, "broken: 2")
    assert lines[-2] == f"  '{tmp_path}/a/empty.jpg': the file is empty"
    assert lines[-1] == f"  '{tmp_path}/b/text.png': cannot identify image file"
    assert inspect(capsys, tmp_path, "--sample", 0)[1][-1] == f"headers read: 0 of 6 {ONLY_HEADERS}"
    assert inspect(capsys, tmp_path, "--sample", 2)[1][3] == f"headers read: 2 of 6 {ONLY_HEADERS}"


def test_decoding_finds_what_headers_do_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path)
    out = tmp_path / "bad.csv"
    cut, text = tmp_path / "a" / "cut.png", tmp_path / "b" / "text.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 50, 3), np.uint8)).save(cut)
    os.truncate(cut, 4000)
    assert inspect(capsys, tmp_path)[0] == 0
    text.write_text("hello")
    code, lines = inspect(capsys, tmp_path, "--decode", "--write", out)
    assert (code, lines[-4:-2]) == (1, ["decoded: 4 of 6", "broken: 2"])
    assert lines[-2].startswith(f"  picture 2, '{cut}', cannot be decoded")
    assert lines[-1].startswith(f"  picture 5, '{text}', cannot be decoded")
    assert bu.from_folder(tmp_path, exclude=out).num_samples() == 4
    for path in (cut, text):
        path.unlink()
    code, lines = inspect(capsys, tmp_path, "--decode", "--write", out)
    assert (code, lines[-1]) == (0, "decoded: 4 of 4")
    assert len(out.read_text().splitlines()) == 1


def test_all_may_be_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(30):
        (tmp_path / f"{number}.png").touch()
    code, lines = inspect(capsys, tmp_path, "--decode", "--write", tmp_path / "bad.csv")
    assert (code, lines[1:3], len(lines)) == (1, ["decoded: 0 of 30", "broken: 30"], 23)
    assert len((tmp_path / "bad.csv").read_text().splitlines()) == 31


def test_a_csv_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path)
    table = tmp_path / "t.tsv"
    table.write_text("file\ttags\na/0.png\tx y\nb/1.jpg\ty\nb/1.jpg\ty\nb/9.jpg\tx\n")
    code, lines = inspect(capsys, table, "--image", "file", "--label", "tags", "--separator", " ")
    assert code == 1
    assert lines[:5] == [
        f"{table}: 3 files in 2 classes", "  x  1", "  y  3", f"missing: 1 ('{tmp_path}/b/9.jpg')",
        f"named again: 1 ('{tmp_path}/b/1.jpg')",
    ]  # fmt: skip


def test_a_table_that_names_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "t.csv").write_text("path,l\x1b[31m\npipe.jpg,x\n")
    code, lines = inspect(capsys, tmp_path / "t.csv")
    assert code == 1
    assert lines[1] == "columns: path, 'l\\x1b[31m' (--label COLUMN)"
    assert lines[-1] == f"  '{tmp_path}/pipe.jpg': [Errno 22] not a regular file"


def test_a_csv_file_without_a_label_tells_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pictures(tmp_path)
    (tmp_path / "t.csv").write_text("path,kind,split\na/0.png,x,train\n")
    _, lines = inspect(capsys, tmp_path / "t.csv")
    assert lines[:2] == [f"{tmp_path}/t.csv: 1 file", "columns: path, kind, split (--label COLUMN)"]
    assert inspect(capsys, tmp_path / "t.csv", "--label", "kind")[1][1] == "  x  1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["absent"], "'absent' does not exist"),
        (["file.dat"], "'file.dat' must be a folder or a CSV file"),
        (["t.csv"], "image must be one of 'image', not 'path'"),
        (["t.csv", "--image", "image", "--label", "x"], "label must be one of 'image'"),
        (["t.csv", "--sample", "-1"], "--sample must not be negative"),
        (["empty"], "root must hold pictures"),
        (["empty", "--write", "x.csv"], "--write needs --decode"),
        (["empty", "--batch-size", "8"], "--batch-size must be left out, as 'empty' is not a file of rows"),
        (["empty", "--decode", "--write", "absent/x.csv"], "--write must be a file in a folder that exists"),
    ],
)
def test_what_cannot_be_inspected(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.dat").touch()
    (tmp_path / "t.csv").write_text("image\na.jpg\n")
    with pytest.raises(SystemExit) as caught:
        cli.main(["inspect", *words])
    assert caught.value.code == 2
    assert told in " ".join(capsys.readouterr().err.split())
