"""Statistics in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_statistics import value_counts
from tests.data_statistics.test_statistics import bits, columns
from tests.messages import raises, warns


def counting(reads: list[int]) -> Any:
    def progress(iterator: Any, **options: Any) -> Any:
        reads.append(1)
        return iterator

    return progress


def test_a_saved_file_holds_all(tmp_path: Path) -> None:
    data = {**columns(), "nan": np.full(60, np.nan)}
    stats, path = bu.statistics(data), tmp_path / "stats.json"
    stats.save(path)
    loaded = bu.Statistics.load(path)
    assert bits(loaded) == bits(stats)
    assert repr(loaded) == repr(stats)
    for name in data:
        for field in ("mean", "std", "min", "max", "count", "missing", "classes", "class_counts"):
            np.testing.assert_array_equal(getattr(loaded[name], field), getattr(stats[name], field))
        if name != "name":
            np.testing.assert_array_equal(loaded[name].quantile(0.3), stats[name].quantile(0.3))


def test_the_file_counts_for_the_same_data_columns_and_axis(tmp_path: Path) -> None:
    data, path, reads = columns(), str(tmp_path / "stats.json"), []
    first = bu.statistics(data, cache=path, progress=counting(reads))
    again = bu.statistics(columns(), cache=path, progress=counting(reads), batch_size=9)
    assert bits(again) == bits(first)
    assert len(reads) == 1
    assert bits(bu.Statistics.load(path)) == bits(first)
    changed = {**data, "far": data["far"] + 1}
    for number, (given, options) in enumerate([(changed, {}), (data, {"columns": ["age"]}), (data, {"axis": "all"})]):
        bu.statistics(given, cache=path, progress=counting(reads), **options)
        assert len(reads) == 2 + number
        bu.statistics(given, cache=path, progress=counting(reads), **options)
        assert len(reads) == 2 + number


def test_a_damaged_file_is_computed_anew(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    expected = bits(bu.statistics(columns(), cache=path))
    content = path.read_bytes()
    for damaged in (content[:-20], content.replace(b'"missing": 9', b'"missing": 8'), content[:29], b"?" + content[1:]):
        path.write_bytes(damaged)
        with raises(bu.ArgumentError):
            bu.Statistics.load(path)
        with warns(bu.CacheWarning):
            assert bits(bu.statistics(columns(), cache=path)) == expected
        assert path.read_bytes() == content


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with raises(bu.ArgumentError):
        bu.statistics(columns(), cache=path)
    assert path.read_text() == "mine"


def test_more_values_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(value_counts, "MOST_KEYS", 1)
    values = np.random.default_rng(2).standard_normal(20_000)
    column = bu.statistics([values], batch_size=777)[0]
    assert bits(bu.statistics([values], batch_size=5000)) == bits(bu.statistics([values], batch_size=777))
    assert 0 < column.quantile_error < 0.01
    q = np.linspace(0, 1, 50)
    np.testing.assert_allclose(column.quantile(q), np.quantile(values, q), rtol=column.quantile_error)
    integers = bu.statistics([np.arange(20_000) * 3])[0]
    assert abs(integers.quantile(0.5) - 29998.5) <= integers.quantile_error < 20
    assert integers.classes is None
