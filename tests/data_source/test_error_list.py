"""The file of `write_errors`, and `subset`, which leaves out the rows in it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

import batchup_ng as bu
from tests.messages import raises


def entries(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8", errors="surrogatepass") as file:
        return list(csv.DictReader(file))


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["row,source,message", *lines]) + "\n")
    return path


def test_a_message_may_be_longer_than_the_csv_module_reads(tmp_path: Path) -> None:
    bu.write_errors([bu.BatchError("x" * 200_000)], tmp_path / "bad.csv")
    assert len(entries(tmp_path / "bad.csv")[0]["message"]) < 11_000


def test_rows_of_a_source_that_hands_out_others(tmp_path: Path) -> None:
    source = bu.ArrayDataSource([np.arange(10) * 10], indices=[9, 2, 7, 2])
    out = write(tmp_path / "bad.csv", "2,,x")
    assert bu.subset(source, exclude=out).rows.tolist() == [0, 2]
    assert bu.subset(source, exclude=[0, -1]).rows.tolist() == [1, 2]
    nested = bu.subset(bu.subset(bu.ArrayDataSource([np.arange(10)]), [5, 6, 7]), exclude=write(out, "1,,x"))
    assert next(nested.batch_iterator(9))[0].tolist() == [5, 7]


def test_what_is_no_list_of_errors(tmp_path: Path) -> None:
    source, out = bu.ArrayDataSource([np.arange(5)]), tmp_path / "bad.csv"
    out.write_text("path,label\na.png,3\n")
    with raises(bu.ArgumentError):
        source.subset(exclude=out)
    for line in [",,the whole batch", '"(1, 2)",,x']:
        with raises(bu.ArgumentError):
            source.subset(exclude=write(out, line))
    with raises(bu.ArgumentError):
        source.subset(exclude=[5])
    with raises(bu.ArgumentTypeError):
        bu.CompositeDataSource([source, source]).subset(exclude=write(out, "1,,x"))
    with raises(bu.SampleReadError):
        source.subset(exclude=tmp_path / "absent.csv")
