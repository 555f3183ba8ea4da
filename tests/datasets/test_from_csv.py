"""`from_csv`: files of every form, cells that are numbers, files that are wrong."""

from __future__ import annotations

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
    path.write_text("path,label\na.png,nan\n")
    with raises(bu.ArgumentError):
        bu.from_csv(path, label="label")
    for content in (b"path\na.png\n\xff.png\n", b"path\na.png\n" + b"x" * 200_000 + b"\n"):
        path.write_bytes(content)
        with raises(bu.ArgumentError):
            bu.from_csv(path)
    with pytest.raises(FileNotFoundError):
        bu.from_csv(tmp_path / "absent.csv")


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
