"""The lines of a text file."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors.storage import text
from batchup_ng.accessors.storage.open_file import OpenFile
from batchup_ng.errors import ArgumentError, ArgumentTypeError, BatchError, SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .stored_contract import StoredContract


class TestLines(StoredContract):
    """Text."""

    def make(self, tmp_path: Path) -> Made:
        lines = ["first", "", "zwölf", "a\rb", "last"]
        (tmp_path / "x.txt").write_bytes("first\n\nzwölf\r\na\rb\nlast".encode())
        return bu.TextLines(tmp_path / "x.txt"), lines  # type: ignore[return-value]  # rows need be no arrays

    def test_a_file_that_is_none_of_this_format_is_refused(self, made: Made, tmp_path: Path) -> None:
        path = tmp_path / "x.txt"
        path.write_bytes(b"fine\n\xff\xfe\n")
        with raises(SampleReadError) as caught:
            bu.TextLines(path)[:]
        assert caught.value.source == f"{path}:2"
        assert bu.TextLines(path, errors="replace")[1] == "\ufffd\ufffd"
        path.unlink()
        with raises(SampleReadError):
            bu.TextLines(path)


class TestBytes(StoredContract):
    """Lines that are not decoded, with their ends."""

    def make(self, tmp_path: Path) -> Made:
        lines = [b"1\n", b"22\r\n", b"\n", b"333\n", b"4444"]
        (tmp_path / "x.txt").write_bytes(b"".join(lines))
        return bu.TextLines(tmp_path / "x.txt", encoding=None, keep_end=True), lines  # type: ignore[return-value]

    test_a_file_that_is_none_of_this_format_is_refused = None  # type: ignore[assignment]  # all bytes are lines


@given(st.binary(max_size=40) | st.text("ab\r\n", max_size=40).map(str.encode), st.sampled_from([1, 3, 1 << 22]))
def test_lines_are_those_of_an_open_file(tmp_path: Path, content: bytes, at_once: int) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpenFile, "scan_bytes", at_once)
        rows = bu.TextLines(tmp_path / "x", encoding=None, keep_end=True, index=False)
    with open(tmp_path / "x", "rb") as file:
        lines = list(file)
    assert rows[:] == lines
    assert rows[::-1] == lines[::-1]
    bare = bu.TextLines(tmp_path / "x", encoding=None, index=False)[:]
    assert bare == [
        line.removesuffix(b"\r\n") if line.endswith(b"\r\n") else line.removesuffix(b"\n") for line in lines
    ]
    assert os.listdir(tmp_path) == ["x"]


def test_json_lines_are_decoded_and_bad_ones_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": [1, 2], "y": 0}\n{"x": [3, 4], "y": 1}\n{"x": ')
    rows = bu.TextLines(path, decode=json.loads)
    source = bu.ArrayDataSource([bu.MapStyle(rows)])
    assert next(source.take(2).batch_iterator(2))["y"].tolist() == [0, 1]
    with raises(BatchError) as caught:
        list(bu.ArrayDataSource([rows]).batch_iterator(3))
    assert caught.value.source == f"{path}:3"


def test_an_error_of_the_program_in_decode_is_no_bad_line(tmp_path: Path) -> None:
    def misspelt(line: str) -> Any:
        return jsn.loads(line)  # type: ignore[name-defined]  # noqa: F821

    (tmp_path / "x").write_text("1\n2\n")
    rows = bu.TextLines(tmp_path / "x", decode=misspelt)
    with pytest.raises(NameError):
        rows[[0, 1]]
    batches = bu.ArrayDataSource([rows]).batch_iterator(2, on_error="skip")
    with pytest.raises(NameError):
        next(batches)
    assert batches.errors == []


def test_the_fingerprint_changes_with_the_code_of_a_function_not_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1\n")

    def told(code: str) -> Any:
        names: dict[str, Any] = {"__name__": "module"}
        exec(code, names)
        return bu.TextLines(tmp_path / "x", decode=names["f"]).fingerprint()

    code = "def f(line):\n    return sorted(line in {'1', '2', '3'} for _ in [1])"
    assert told(code) == told("\n\n" + code)
    assert len({str(told(code.replace("'3'", other))) for other in ("'3'", "'4'", "str(3)")}) == 3
    assert told(code) != told(code.replace("for _ in [1]", "or 2 for _ in [1]"))
    scaled = "def f(line, by=2, *, off=1):\n    return len(line) * by"
    assert told(scaled) == told("\n" + scaled)
    others = [scaled.replace("* by", "+ by"), scaled.replace("by=2", "by=3"), scaled.replace("off=1", "off=2")]
    assert len({str(told(each)) for each in (scaled, *others)}) == 4
    assert told("K = 1\n" + code.replace("[1]", "[K]")) != told("K = 2\n" + code.replace("[1]", "[K]"))


def test_the_fingerprint_tells_functions_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("1\n")
    functions: list[Any] = [
        None, int, float, json.loads, lambda line: line, lambda line: [line], "a".startswith, "b".startswith,
        functools.partial(int, base=3), functools.partial(int, base=4),
    ]  # fmt: skip
    told = [json.dumps(bu.TextLines(path, decode=each).fingerprint()) for each in functions]
    assert len(set(told)) == len(functions)
    assert told == [json.dumps(bu.TextLines(path, decode=each).fingerprint()) for each in functions]
    program = "import json, batchup_ng, sys; print(batchup_ng.TextLines(sys.argv[1], decode=json.loads).fingerprint())"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert str(bu.TextLines(path, decode=json.loads).fingerprint()) == done.stdout.strip()
    lock = threading.Lock()
    with raises(ArgumentTypeError):
        bu.TextLines(path, decode=lambda line: lock).fingerprint()


def test_where_lines_begin_is_kept_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, index = tmp_path / "x.txt", tmp_path / "x.txt.index"
    path.write_text("a\nbc\n")
    assert bu.TextLines(path)[:] == ["a", "bc"]
    for damaged in (b"", index.read_bytes()[:-1], index.read_bytes()[:-8] + b"\xff" * 8):
        index.write_bytes(damaged)
        assert bu.TextLines(path)[:] == ["a", "bc"]
    monkeypatch.setattr(text, "_index", None)
    assert bu.TextLines(path)[:] == ["a", "bc"]


def test_the_index_is_kept_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name / "x.txt" for name in ("1", "2")]  # of one name
    caches = tmp_path / "caches" / "mine"
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"{path.parent.name}\nbc\n")
        assert bu.TextLines(path, index=caches)[:] == [path.parent.name, "bc"]
        assert [each.name for each in path.parent.iterdir()] == ["x.txt"]
    assert len(list(caches.iterdir())) == 2
    with monkeypatch.context() as patch:
        patch.setattr(text, "_index", None)
        patch.chdir(tmp_path)
        assert [bu.TextLines(each, index="caches/mine")[0] for each in ("1/x.txt", "2/x.txt")] == ["1", "2"]
    paths[0].write_text("longer\n")
    assert bu.TextLines(paths[0], index=caches)[:] == ["longer"]
    assert len(list(caches.iterdir())) == 2  # the old index was replaced
    assert bu.TextLines(paths[1])[:] == ["2", "bc"]
    with monkeypatch.context() as patch:
        patch.setattr(text, "_index", None)
        assert bu.TextLines(paths[1], index=tmp_path / "none")[:] == ["2", "bc"]  # by the index next to the file
    with raises(ArgumentTypeError):
        bu.TextLines(paths[0], index=1)  # type: ignore[arg-type]


def test_a_file_of_the_users_is_no_index_and_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "x.txt", tmp_path / "x.txt.index"
    path.write_text("a\nbc\n")
    other.write_text("my notes")
    assert bu.TextLines(path)[:] == ["a", "bc"]
    assert other.read_text() == "my notes"


@pytest.mark.parametrize(("encoding", "rows"), [("utf-8", []), ("latin-1", ["ï»¿"]), (None, [b"\xef\xbb\xbf"])])
def test_a_file_that_has_only_a_byte_order_mark_has_no_row(encoding: Any, rows: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbf")
    for _ in range(2):  # the second time from the index, which is that of any encoding
        made = bu.TextLines(path, encoding=encoding)
        for lines in (made, pickle.loads(pickle.dumps(made))):
            assert len(lines) == len(rows)
            assert lines[np.arange(len(rows))] == rows
    path.write_bytes(b"\xef\xbb\xbf\n")
    assert len(bu.TextLines(path, encoding=encoding)) == 1
    path.write_bytes(b"abc")
    assert bu.TextLines(path, encoding=encoding)[0] in ("abc", b"abc")


@pytest.mark.parametrize(("encoding", "first"), [("utf-8", "ä"), ("UTF8", "ä"), ("latin-1", "ï»¿Ã¤")])
def test_a_byte_order_mark_is_no_part_of_the_first_line(encoding: str, first: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("\ufeffä\nb\n".encode())
    rows = bu.TextLines(tmp_path / "x.txt", encoding=encoding)
    assert rows[:] == rows[[0, 1]] == [first, "b"]


def test_what_the_system_reads_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_bytes(b"0123456789" * 4)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda number, size, offset: pread(number, min(size, 7), offset))
    assert OpenFile(str(tmp_path / "x.txt")).read(3, 30) == b"345678901234567890123456789012"
    with raises(EOFError):
        OpenFile(str(tmp_path / "x.txt")).read(3, 50)


def test_blocks_are_about_a_megabyte(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"x" * 1023 + b"\n" + b"y" * 1023 + b"\n")
    assert bu.TextLines(tmp_path / "x.txt").natural_block == 1024
    (tmp_path / "x.txt").write_bytes(b"")
    assert bu.TextLines(tmp_path / "x.txt").natural_block == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"encoding": "utf-16"}, ArgumentError),
        ({"encoding": "utf-9"}, ArgumentError),
        ({"decode": "json"}, ArgumentTypeError),
        ({"keep_end": 1}, ArgumentTypeError),
    ],
)  # fmt: skip
def test_options_are_checked(options: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\n")
    with raises(error):
        bu.TextLines(tmp_path / "x.txt", **options)


def test_an_error_keeps_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"good\n\xff\n")
    lines = bu.TextLines(tmp_path / "x.txt")
    gc.disable()
    try:
        with contextlib.suppress(SampleReadError):
            lines[1]
        handle = weakref.ref(next(iter(lines._handles.values())))
        lines.close()
        assert handle() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("library", ["gzip", "bz2", "lzma"])
def test_a_compressed_file_is_refused_with_what_to_do(tmp_path: Path, library: str) -> None:
    with importlib.import_module(library).open(tmp_path / "x.txt.z", "wb") as file:
        file.write(b"one\ntwo\n")
    for encoding in ("utf-8", None):
        with raises(SampleReadError):
            bu.TextLines(tmp_path / "x.txt.z", encoding=encoding)
