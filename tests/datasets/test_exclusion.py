"""`write_errors` and what reads its file again: `from_folder`, `from_table`, `subset`."""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.data_source.error_list import ERROR_LIST_COLUMNS
from batchup_ng.datasets.exclusion import excluded_paths
from tests.messages import raises


def entries(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8", errors="surrogatepass") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of two classes, with two files that are no pictures."""
    for name in ("a/0.png", "a/1.png", "b/2.png", "b/3,\n\"'.png", "b/4.png"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(path)
    for bad in ("a/1.png", "b/3,\n\"'.png"):
        (tmp_path / "data" / bad).write_bytes(b"no picture")
    return tmp_path / "data"


def failed(source: Any, **options: Any) -> Any:
    """The iterator of an epoch, at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bu.SampleWarning)
        batches = source.batch_iterator(2, on_error="skip", **options)
        list(batches)
    return batches


def test_what_was_written_can_be_given_back(folder: Path, tmp_path: Path) -> None:
    source = bu.from_folder(folder, 2)
    errors, out = failed(source, shuffle=5, epoch=3), tmp_path / "bad.csv"
    assert bu.write_errors(errors, out) == 2
    found = sorted(entries(out), key=lambda entry: int(entry["row"]))
    assert [(entry["row"], os.path.relpath(entry["source"], folder)) for entry in found] == [
        ("1", "a/1.png"),
        ("3", "b/3,\n\"'.png"),
    ]
    assert {entry["error"] for entry in found} == {"SampleReadError"}
    assert {entry["epoch"] for entry in found} == {"3"}
    assert [entry["message"] for entry in entries(out)] == [str(error) for error in errors.errors]
    assert [str(error).count(repr(error.source)) for error in errors.errors] == [1, 1]  # not by the row's name again

    names = [source.data[0].sample_name(row) for row in (0, 2, 4)]
    without = bu.from_folder(folder, 2, exclude=out)
    assert [without.data[0].sample_name(row) for row in range(len(without.data[0]))] == names
    assert without.data[1].tolist() == [0, 1, 1]
    table = {"path": [source.data[0].sample_name(row) for row in range(5)], "row": range(5)}
    assert bu.from_table(table, exclude=out, columns=["row"]).data[1].tolist() == [0, 2, 4]
    for rest in (bu.subset(source, exclude=out), source.subset(exclude=str(out))):
        assert rest.rows.tolist() == [0, 2, 4]
        assert failed(rest).errors == []
    assert source.subset([4, 3, -4, 0, 0], exclude=out).rows.tolist() == [4, 0, 0]


def test_a_list_holds_from_any_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lists", "elsewhere"):
        (tmp_path / name).mkdir()
    out = tmp_path / "lists" / "bad.csv"
    monkeypatch.chdir(tmp_path)
    bu.write_errors(failed(bu.from_folder("data", 2)), out)
    bad = [str(folder / "a/1.png"), str(folder / "b/3,\n\"'.png")]
    assert sorted(entry["source"] for entry in entries(out)) == bad
    for here, root, exclude in [
        (tmp_path, "data", "lists/bad.csv"), (tmp_path / "elsewhere", "../data", "../lists/bad.csv"),
        (folder, ".", out), (tmp_path / "lists", folder, "bad.csv"),
    ]:  # fmt: skip
        monkeypatch.chdir(here)
        source = bu.from_folder(root, 2)
        table = {"path": [source.data[0].sample_name(row) for row in range(5)], "row": range(5)}
        assert bu.from_folder(root, 2, exclude=exclude).num_samples() == 3
        assert bu.from_table(table, exclude=exclude, columns=["row"]).data[1].tolist() == [0, 2, 4]
        assert source.subset(exclude=exclude).rows.tolist() == [0, 2, 4]


def test_the_lists_of_several_loaders_go_together(folder: Path, tmp_path: Path) -> None:
    source = bu.from_folder(folder, 2)
    parts = [source.subset([0, 1]), source.subset([2, 3, 4])]
    lists = [tmp_path / "train.csv", tmp_path / "val.csv"]
    assert [bu.write_errors(failed(part), out) for part, out in zip(parts, lists, strict=True)] == [1, 1]
    assert bu.from_folder(folder, 2, exclude=lists).num_samples() == 3
    assert bu.from_folder(folder, 2, exclude=[*lists, folder / "b/4.png"]).num_samples() == 2
    with raises(OSError):
        bu.from_folder(folder, 2, exclude=[tmp_path / "gone.csv"])


def test_a_relative_path_in_a_list_is_seen_from_the_folder_of_the_list(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = write(folder / "bad.csv", "1,a/1.png,x")
    monkeypatch.chdir(tmp_path)
    for source in (bu.from_folder("data", exclude="data/bad.csv"), bu.from_folder(folder, exclude=out)):
        assert source.report.skipped["excluded"][0].endswith("data/a/1.png")
        assert not source.report.unmatched
    assert bu.from_folder("data").subset(exclude=out).rows.tolist() == [0, 2, 3, 4]
    urls = ["https://a.org/x/1.png", "https://a.org/x/2.png"]
    table = bu.from_table({"path": urls}, missing="ignore", images=bu.MapStyle, exclude=write(out, f"1,{urls[1]},x"))
    assert table.report.skipped["excluded"][:] == urls[1:]


def test_a_file_that_is_missing_is_listed_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    Image.new("L", (2, 2)).save(tmp_path / "data" / "b.png")
    monkeypatch.chdir(tmp_path)
    table = {"path": ["data/a.png", "data/b.png"]}
    bu.write_errors(failed(bu.from_table(table, size=2, missing="ignore")), "data/bad.csv")
    assert entries(tmp_path / "data" / "bad.csv")[0]["source"] == str(tmp_path / "data" / "a.png")
    assert bu.from_table(table, missing="ignore", exclude="data/bad.csv").num_samples() == 1


def test_a_list_of_which_nothing_is_found_is_an_error(folder: Path, tmp_path: Path) -> None:
    out = write(tmp_path / "bad.csv", "0,gone/1.png,x", "1,/gone/2.png,x")
    for exclude in (out, [tmp_path / "gone" / "1.png", "/gone/2.png"]):
        with raises(bu.ArgumentError):
            bu.from_folder(folder, exclude=exclude)
        with raises(bu.ArgumentError):
            bu.from_table({"path": [folder / "b/2.png"]}, exclude=exclude)
    assert bu.from_folder(folder, exclude=write(out)).num_samples() == 5
    assert bu.from_folder(folder, exclude=[]).num_samples() == 5


def test_of_which_iterators_and_errors_there_is_a_list(folder: Path, tmp_path: Path) -> None:
    source, out = bu.from_folder(folder, 2), tmp_path / "bad.csv"
    with bu.Loader(source, 2, pool="serial", on_error="skip") as loader, warnings.catch_warnings():
        warnings.simplefilter("ignore", bu.SampleWarning)
        assert bu.write_errors(loader, out) == 0
        list(loader)
        assert bu.write_errors(loader, out) == 2
    errors = failed(source).errors
    assert bu.write_errors(errors[0], out) == bu.write_errors(iter(errors[:1]), out) == 1
    with pytest.raises(bu.TooManyErrors) as caught:
        list(source.batch_iterator(5, on_error=bu.ErrorPolicy("skip", max_errors=1)))
    assert bu.write_errors(caught.value, out) == 2
    assert bu.write_errors([], out) == 0
    assert out.read_text() == ",".join(ERROR_LIST_COLUMNS) + "\n"
    assert len(bu.from_folder(folder, 2, exclude=out).data[0]) == 5
    with raises(bu.ArgumentTypeError):
        bu.write_errors([ValueError("x")], out)


def test_a_file_that_cannot_be_written_leaves_the_old_one(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "bad.csv"
    out.write_text("old")
    errors = failed(bu.from_folder(folder, 2)).errors
    with pytest.raises(bu.ArgumentTypeError):
        bu.write_errors([*errors, None], out)
    assert out.read_text() == "old"
    bu.write_errors(errors, out)
    with raises(OSError):
        bu.write_errors(errors, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "data"]


anything = st.text(st.characters(exclude_categories=(), exclude_characters="\0"))


@given(message=anything, source=anything.filter(bool), op=anything | st.none())
def test_every_text_survives(tmp_path_factory: pytest.TempPathFactory, message: str, source: str, op: Any) -> None:
    out = tmp_path_factory.mktemp("text") / "bad.csv"
    error = bu.BatchError(message)
    error.row, error.source, error.op, error.error = 7, source, op, KeyError(1)
    bu.write_errors([error], out)
    (entry,) = entries(out)
    assert entry == {
        "row": "7", "source": entry["source"], "error": "KeyError", "message": message, "op": op or "", "epoch": "",
        "batch": "", "position": "",
    }  # fmt: skip
    assert entry["source"] in (source, os.path.abspath(source))
    ((where, names),) = excluded_paths(out).items()
    assert os.path.join(where, *names) == os.path.abspath(os.path.join(out.parent, entry["source"]))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["row,source,message", *lines]) + "\n")
    return path


def test_a_list_of_another_source_is_refused(folder: Path, tmp_path: Path) -> None:
    source, out = bu.from_folder(folder, 2), tmp_path / "bad.csv"
    bu.write_errors(failed(source), out)
    half = source.subset([1, 2, 3])
    with raises(bu.ArgumentError):
        half.subset(exclude=out)
    with raises(bu.ArgumentError):
        half.subset(exclude=write(out, "99,,x"))


def test_what_is_no_exclusion_list(tmp_path: Path) -> None:
    out = tmp_path / "bad.csv"
    with raises(bu.ArgumentError):
        bu.from_table({"path": ["a"]}, missing="ignore", exclude=write(out, "1,,x"))
    with raises(bu.ArgumentTypeError):
        bu.from_table({"path": ["a"]}, missing="ignore", exclude=[3])  # type: ignore[list-item]  # which is wrong
    with raises(bu.ArgumentTypeError):
        bu.from_table({"path": ["a"]}, missing="ignore", exclude=3)  # type: ignore[arg-type]  # which is wrong
