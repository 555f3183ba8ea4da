"""`from_csv`: files of every form, cells that are numbers, files that are wrong."""

from __future__ import annotations

import ast
import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from tests.datasets.table_helpers import PATHS, TABLE, unchecked, write_pictures
from tests.messages import raises


def write_csv(path: Path, table: dict[str, list[Any]], **options: Any) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerows([table, *zip(*table.values(), strict=True)])
    return str(path)


def test_a_csv_file_gives_what_its_table_does(tmp_path: Path) -> None:
    write_pictures(tmp_path)
    path = write_csv(tmp_path / "train.csv", TABLE)
    for label, options in (("kind", {}), ("id", {}), ("score", {}), ("tags", {"separator": "|"}), ("flag", {})):
        of_table = bu.from_table(TABLE, label=label, root=tmp_path, columns=["id", "score"], **options)
        of_file = bu.from_csv(path, label=label, columns=["id", "score"], **options)
        for one, other in zip(of_file.data[1:], of_table.data[1:], strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert of_file.class_names == of_table.class_names
        assert of_file.data[0].sample_name(1) == str(tmp_path / "b.png")
    assert str(of_file.report).startswith(f"{path}: 4 files in 2 classes")


def test_csv_files_of_other_forms(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes('\ufeffpath\tlabel\r\n"a\t1.png"\t007\r\n\r\n"b\n2.png"\t10\r\n'.encode())
    source = bu.from_csv(path, label="label", delimiter="\t", missing="ignore", root="")
    assert [source.data[0].sample_name(row) for row in range(2)] == ["a\t1.png", "b\n2.png"]
    assert source.class_names == ("007", "10")


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        ("10 9 10", ("9", "10")), ("1 -2 0", ("-2", "0", "1")), ("1 NA 3", ("1", "3", "NA")),
        ("01 1 2", ("01", "1", "2")), ("1_0 2 3", ("1_0", "2", "3")), ("٣ 1 2", ("1", "2", "٣")),
        ("1.5 2 1e3", None), ("1 2 inf", None), ("1 2 1e999", ("1", "1e999", "2")),
        (f"1 2 {'7' * 5000}", ("1", "2", "7" * 5000)),
    ],
)  # fmt: skip
def test_cells_that_are_numbers(cells: str, classes: tuple[str, ...] | None, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", {"path": PATHS[:3], "label": cells.split()})
    source = bu.from_csv(path, label="label", missing="ignore")
    assert source.class_names == (classes or ())
    assert source.data[1].dtype == (np.int64 if classes else np.float32)


numeric = st.one_of(st.integers(-999, 999).map(str), st.floats(-9, 9).map(repr), st.just("nan"))


@given(st.lists(st.one_of(numeric, st.sampled_from(["", "NA", "?"])), min_size=1, max_size=8), st.data())
def test_missing_numbers_are_nan_as_in_pandas(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str], data: st.DataObject
) -> None:
    missing = data.draw(st.lists(st.sampled_from(["", "NA", "?"]), unique=True))
    path = write_csv(tmp_path_factory.mktemp("cells") / "a.csv", {"path": ["a.png"] * len(cells), "n": cells})
    source = bu.from_csv(path, columns=["n"], missing="ignore", na_values=missing)
    column, told = source.data[1], source.report.hint
    odd = [cell for cell in cells if cell in ("", "NA", "?") and cell not in missing]
    if odd:
        assert column[:] == cells
        if len(set(cells) - {"", "NA", "?"}):
            assert told.startswith(f"column 'n' is text, for row {cells.index(odd[0])} holds {odd[0]!r} among ")
            advised = ast.literal_eval(told.partition("na_values=")[2].partition(" makes")[0])
            again = bu.from_csv(path, columns=["n"], missing="ignore", na_values=advised)
            assert (again.data[1].dtype, again.report.hint) == (np.float64, "")
        else:
            assert told == ""
        return
    assert told == ""
    expected = [float("nan") if cell in missing else float(cell) for cell in cells]
    np.testing.assert_array_equal(column, np.array(expected))
    is_whole = all(cell.lstrip("-").isdigit() for cell in cells)
    assert column.dtype == (np.int64 if is_whole else np.float64)


@pytest.mark.parametrize("cells", [["007", "8"], ["a", "b", "c", "d", "1"], ["x1", "2"], ["", "NA"], ["1", "2"]])
def test_no_hint_about_columns_that_are_no_numbers(cells: list[str], tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", {"path": ["a.png"] * len(cells), "n": cells})
    assert bu.from_csv(path, columns=["n"], missing="ignore").report.hint == ""


def test_a_label_must_not_be_missing(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", {"path": PATHS[:3], "label": ["1", "", "3"], "n": ["", "", "2"]})
    with raises(bu.ArgumentError):
        bu.from_csv(path, label="label", missing="ignore", na_values=[""])
    for wrong in ("", b"", [None], 3):
        with raises(bu.ArgumentTypeError):
            bu.from_csv(path, na_values=wrong)  # type: ignore[arg-type]
    for blank, classes in (("", None), (" ", None), ("none", ("1", "3", "none")), ("2", ("1", "2", "3"))):
        path = write_csv(tmp_path / "a.csv", {"path": PATHS[:3], "label": ["1", blank, "3"], "n": ["", "", "2"]})
        if classes is None:
            with raises(bu.ArgumentError):
                bu.from_csv(path, label="label", missing="ignore")
            with raises(bu.ArgumentError):
                bu.from_table({"path": PATHS[:3], "label": ["dog", blank, "cat"]}, label="label", missing="ignore")
            several = bu.from_csv(path, label="label", separator="|", missing="ignore")
            assert several.data[1].tolist() == [[1, 0], [0, 0], [0, 1]]  # text of no class
        else:
            assert bu.from_csv(path, label="label", missing="ignore").class_names == classes
    named = bu.from_csv(path, columns=["n"], missing="ignore")
    assert str(named.report).endswith("row 0 holds '' among 1 number; na_values=[''] makes it numbers, with NaN there")


MOST = 2**53


@pytest.mark.parametrize("other", ["", "0.5"])
@pytest.mark.parametrize("number", [MOST - 1, MOST, MOST + 1, MOST + 2, 10**22, 10**22 + 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_whole_number_is_rounded_beside_missing_ones(
    other: str, number: int, sign: int, tmp_path: Path
) -> None:
    number *= sign
    path = write_csv(tmp_path / "a.csv", {"path": PATHS[:3], "id": ["1", other, str(number)]})

    def read(na_values: list[str]) -> Any:
        return bu.from_csv(path, columns=["id"], missing="ignore", na_values=na_values).data[1]

    if not other and int(np.float64(number)) != number:  # beside 0.5 it is a measurement, rounded as any
        with raises(bu.ArgumentError):
            read([""])
    else:
        np.testing.assert_array_equal(read([""]), np.array([1, float(other or "nan"), number], np.float64))
    if not other:
        assert read([])[:] == ["1", "", str(number)]
        path = write_csv(tmp_path / "a.csv", {"path": PATHS[:3], "id": ["1", "-1", str(number)]})
        assert abs(number) >= 2**63 or read([""]).tolist() == [1, -1, number]


def test_a_stray_quote_takes_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, delimiter in (
        ('path,label\na.png,"cat\nb.png,dog\nc.png,dog\n', ","),
        ('path,label\r\na.png,"cat\r\nb.png,dog\r\nc.png,"dog"\r\n', ","),
        ('path\tlabel\na.png\t"A dog\nb.png\tdog\nc.png\t"so cute" said she\n', "\t"),
        ('path,label\na.png,dog\n\nb.png,"two\nlines"\nc.png,"a', ","),
        ('path,label\na.png,"dog"s\n', ","), ('path,label\na.png,"dog" \n', ","),
    ):  # fmt: skip
        path.write_text(text, newline="")
        with raises(bu.ArgumentError):
            bu.from_csv(path, label="label", delimiter=delimiter, missing="ignore")
    for cell, value in (('a "b" c', 'a "b" c'), ('a"', 'a"'), ('"a ""b"" c"', 'a "b" c'), ('"a\n""b"', 'a\n"b')):
        path.write_text(f"path,label\na.png,{cell}\nb.png,dog\n", newline="")
        assert bu.from_csv(path, label="label", missing="ignore").class_names == tuple(sorted([value, "dog"]))


def test_a_stray_quote_in_a_list_to_exclude_takes_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text('row,source\n1,"a.png\n2,b.png\n')
    with raises(bu.ArgumentError):
        bu.ArrayDataSource([np.arange(3)]).subset(exclude=path)


@pytest.mark.parametrize("length", [131_072, 131_073])
def test_cells_are_as_long_as_the_csv_module_reads_them(length: int, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", {"path": ["a.png"], "text": ['"' + "x" * (length - 1)]})
    if length > 131_072:
        with raises(bu.ArgumentError):
            bu.from_csv(path, columns=["text"], missing="ignore")
    else:
        assert len(bu.from_csv(path, columns=["text"], missing="ignore").data[1][0]) == length


@given(st.lists(st.tuples(*[st.text('ab",\n\r\t \'', max_size=6)] * 2), min_size=1), st.sampled_from(",;\t|"))
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_all_that_csv_writer_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, quoting: int, rows: list[Any], delimiter: str
) -> None:
    table = {"path": ["a.png"] * len(rows), "b": [row[0] for row in rows], "c": [row[1] for row in rows]}
    path = write_csv(tmp_path_factory.mktemp("cells") / "a.csv", table, quoting=quoting, delimiter=delimiter)  # type: ignore[arg-type]
    source = bu.from_csv(path, columns=["b", "c"], delimiter=delimiter, missing="ignore")
    assert [list(column[:]) for column in source.data[1:]] == [table["b"], table["c"]]


def test_csv_files_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("path,label\na.png,1\nb.png,1,2\n")
    with raises(bu.ArgumentError):
        bu.from_csv(path)
    path.write_text("")
    with raises(bu.ArgumentError):
        bu.from_csv(path)
    path.write_text("path,label\n")
    with raises(bu.ArgumentError):
        bu.from_csv(path)
    for mark in (";", "\t", "|"):
        path.write_text(f"path{mark}label\na.png{mark}1\n")
        with raises(bu.ArgumentError):
            bu.from_csv(path, label="label")
        assert len(bu.from_csv(path, label="label", delimiter=mark, missing="ignore")) == 1
    path.write_text("path;label\na.png\n")  # the name of a column
    assert len(bu.from_csv(path, "path;label", missing="ignore")) == 1
    path.write_text("path,label\na.png,nan\n")
    with raises(bu.ArgumentError):
        bu.from_csv(path, label="label")
    for content in (b"path\na.png\n\xff.png\n", b"path\na.png\n" + b"x" * 200_000 + b"\n"):
        path.write_bytes(content)
        with raises(bu.ArgumentError):
            bu.from_csv(path)


def test_a_file_that_cannot_be_opened_is_the_same_error_as_of_other_readers(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.csv")
    for read in (lambda: bu.from_csv(absent), lambda: bu.from_table(TABLE, exclude=absent, missing="ignore")):
        with raises(bu.SampleReadError) as caught:
            read()
        assert caught.value.source == absent
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(bu.SampleReadError) as of_lines:
        bu.TextLines(tmp_path / "absent.txt")
    assert type(of_lines.value.__cause__) is FileNotFoundError


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label,label,more,more\na.png,1,x,2,3\n")
    with raises(bu.ArgumentError):
        bu.from_csv(tmp_path / "a.csv", label="label", missing="ignore")
    assert bu.from_csv(tmp_path / "a.csv", missing="ignore").num_samples() == 1


@pytest.mark.parametrize("delimiter", ["", ";;", None, "\n", '"'])
def test_what_can_be_no_delimiter(delimiter: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label\na.png,1\n")
    with raises(bu.ArgumentError):
        bu.from_csv(tmp_path / "a.csv", delimiter=delimiter)


cells = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=4)


@given(st.lists(st.tuples(cells, cells), min_size=1), st.sampled_from(",;\t|"), st.booleans(), st.booleans())
def test_every_cell_survives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], delimiter: str, dos: bool, mark: bool
) -> None:
    path = tmp_path_factory.mktemp("cells") / "a.csv"
    with open(path, "w", newline="", encoding="utf-8-sig" if mark else "utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\r\n" if dos else "\n")
        writer.writerows([("path", "more"), *((f"{first}.png", f"{second}x") for first, second in rows)])
    source = bu.from_csv(path, columns=["more"], delimiter=delimiter, missing="ignore", root="")
    assert [source.data[0].sample_name(row) for row in range(len(rows))] == [f"{first}.png" for first, _ in rows]
    assert source.data[1][:] == [f"{second}x" for _, second in rows]


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    for read in (
        lambda: bu.from_csv(pipe), lambda: unchecked(TABLE, exclude=pipe), lambda: bu.from_csv(tmp_path),
        lambda: bu.ArrayDataSource([np.arange(3)]).subset(exclude=pipe),
    ):  # fmt: skip
        with raises(bu.ArgumentError):
            read()


def test_labels_that_were_lists_are_told_by_the_report(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame({"path": PATHS, "tags": [["x", "y"], [], ["y", "z"], ["x"]]})
    table.to_csv(tmp_path / "lists.csv", index=False)
    report = bu.from_csv(tmp_path / "lists.csv", label="tags", missing="ignore").report
    assert "4 of 4 labels are lists that were written as text" in str(report)
    remedy = "table[column].str.join('|')"
    assert remedy in report.hint
    table["tags"] = eval(remedy, {"table": table, "column": "tags"})
    table.to_csv(tmp_path / "text.csv", index=False)
    several = bu.from_csv(tmp_path / "text.csv", label="tags", separator="|", missing="ignore")
    assert several.data[1].tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0]]
    assert several.report.hint == ""
