"""Arrays in files of safetensors, written by the real library."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, SampleReadError
from batchup_ng.testing.accessors import Made
from tests.messages import raises

from .damaged import damaged
from .stored_contract import StoredContract

safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")

ROWS = np.arange(7 * 6, dtype=np.int32).reshape(7, 3, 2)


class TestSafetensors(StoredContract):
    """One array of two."""

    def make(self, tmp_path: Path) -> Made:
        safetensors.save_file({"x": ROWS, "y": np.arange(7.0)}, tmp_path / "x.safetensors", {"made by": "a test"})
        return bu.SafetensorsRows(tmp_path / "x.safetensors", "x"), list(ROWS)

    def opened(self, like: Any) -> Any:
        return bu.SafetensorsRows(like.paths[0], like.name)


def file_of(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """Write a file with a header of one's own."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


class TestUnaligned(TestSafetensors):
    """Numbers that begin anywhere, as the writers of the first versions had them."""

    def make(self, tmp_path: Path) -> Made:
        header = {"x": {"dtype": "I32", "shape": [7, 3, 2], "data_offsets": [1, 169]}}
        path = file_of(tmp_path / "x.safetensors", json.dumps(header).encode().ljust(80), b"?" + ROWS.tobytes())
        return bu.SafetensorsRows(path, "x"), list(ROWS)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_the_dtypes_of_numpy_are_read(tmp_path: Path, dtype: str) -> None:
    array = (np.arange(12).reshape(4, 3) % 2).astype(dtype)
    safetensors.save_file({"only": array}, tmp_path / "x")
    np.testing.assert_array_equal(bu.SafetensorsRows(tmp_path / "x")[:], array, strict=True)


def test_bfloat16_is_refused_with_what_to_do(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    safetensors.save_file({"x": np.zeros(3, ml_dtypes.bfloat16), "y": np.ones(3)}, tmp_path / "x")
    with raises(SampleReadError):
        bu.SafetensorsRows(tmp_path / "x", "x")
    assert bu.SafetensorsRows(tmp_path / "x", "y")[:].tolist() == [1, 1, 1]


def test_columns_are_all_arrays_or_those_that_are_named(tmp_path: Path) -> None:
    safetensors.save_file({"x": ROWS, "y": np.arange(7.0), "mean": np.zeros(3)}, tmp_path / "x")
    columns = bu.SafetensorsRows.columns(tmp_path / "x", ["y", "x"])
    batch = next(bu.ArrayDataSource(columns).batch_iterator(3))
    assert {name: part.shape for name, part in batch.items()} == {"y": (3,), "x": (3, 3, 2)}
    with raises(ArgumentError):
        bu.SafetensorsRows.columns(tmp_path / "x")
    with raises(ArgumentError):
        bu.SafetensorsRows.columns(tmp_path / "x", ["z"])


def test_no_rows_are_read(tmp_path: Path) -> None:
    safetensors.save_file({"none": np.zeros((0, 3))}, tmp_path / "x")
    assert bu.SafetensorsRows(tmp_path / "x")[:].shape == (0, 3)


def entry(**changed: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F64", "shape": [4], "data_offsets": [0, 32], **changed}}


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (entry(shape=[1 << 40], data_offsets=[0, 1 << 43]), None),
        (entry(shape=[1 << 40] * 3), None),
        (entry(shape=[-4], data_offsets=[32, 0]), None),
        (entry(shape=[-2, -2]), None),
        (entry(shape=[4.0]), None),
        (entry(shape=[True, 4]), None),
        (entry(shape=4), None),
        (entry(data_offsets=[8, 40]), None),
        (entry(data_offsets=[-8, 24]), None),
        (entry(data_offsets=[0]), None),
        (entry(dtype=["F64"]), None),
        ({"x": 3}, None),
        ([], None),
        (entry(), 1 << 62),
        (entry(), 99_000_000),
        (b"[" * 200_000, None),
        (b'{"x": 1' + b"0" * 9000 + b"}", None),
        (json.dumps(entry()).encode("utf-16"), None),
    ],
)
def test_s4_a_header_that_claims_too_much_or_is_none_is_refused(tmp_path: Path, header: Any, length: Any) -> None:
    path = file_of(tmp_path / "x", header, bytes(32), length)
    tracemalloc.start()
    with pytest.raises(SampleReadError):
        bu.SafetensorsRows(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 64 << 20


def test_s10_whatever_a_file_holds_is_rows_or_our_error(tmp_path: Path, in_full: bool) -> None:
    (tmp_path / "whole").mkdir()
    safetensors.save_file({"x": ROWS[:2]}, tmp_path / "whole" / "x")
    tries = 1000 if in_full else 20
    assert damaged(tmp_path, tries, "numpy", "some_rows(bu.SafetensorsRows(path))") == (tries, [])
