"""The contract of an accessor as a pytest suite to inherit.

    class TestMine(AccessorContract):
        def make(self, tmp_path):
            ...
            return accessor, [row_0, row_1, ...]

Give at least four rows, all different: otherwise an error in their order could hide. Rows may differ in shape.
"""

from __future__ import annotations

import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

Made: TypeAlias = "tuple[Any, list[np.ndarray]]"


def assert_same_rows(got: Any, expected: Iterable[np.ndarray]) -> None:
    """Assert that `got` holds the `expected` rows: values, shapes, dtypes, number, order."""
    expected = list(expected)
    assert len(got) == len(expected), f"{len(got)} rows where {len(expected)} were asked for"
    for place, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        one, other = np.asarray(mine), np.asarray(theirs)
        assert one.dtype == other.dtype, f"dtype of row {place} of what was asked for"
        if one.shape == other.shape and one.tobytes() == other.tobytes():
            continue  # ten times faster than the comparison below
        np.testing.assert_array_equal(mine, theirs, err_msg=f"row {place} of what was asked for", strict=True)


class AccessorContract(ABC):
    """The tests that every accessor must pass. A subclass makes the accessor."""

    @abstractmethod
    def make(self, tmp_path: Path) -> Made:
        """Return an accessor and the list of its rows: at least four arrays, all different."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Made:
        """An accessor with its rows, at least four."""
        accessor, expected = self.make(tmp_path)
        assert len(expected) >= 4, "this suite needs at least four rows"
        return accessor, expected

    def test_length_shape_and_dtype_are_those_of_the_rows(self, made: Made) -> None:
        accessor, expected = made
        assert len(accessor) == len(expected)
        if hasattr(accessor, "shape"):
            assert accessor.shape == (len(expected), *np.shape(expected[0]))
            assert np.dtype(accessor.dtype) == np.asarray(expected[0]).dtype

    def test_an_int_gives_one_row(self, made: Made) -> None:
        accessor, expected = made
        n = len(expected)
        assert_same_rows([accessor[i] for i in range(n)], expected)
        assert_same_rows([accessor[np.int64(1)], accessor[np.uint8(2)]], expected[1:3])
        assert_same_rows([accessor[-1], accessor[-n]], [expected[-1], expected[0]])

    def test_a_slice_gives_its_rows(self, made: Made) -> None:
        accessor, expected = made
        for bounds in [(None, None), (1, 3), (1, 1), (-2, None), (0, 10**6)]:
            for step in [None, 2, 3, -1, -2]:
                assert_same_rows(accessor[slice(*bounds, step)], expected[slice(*bounds, step)])

    def test_an_index_array_gives_its_rows_in_its_order(self, made: Made) -> None:
        accessor, expected = made
        for rows in [(2, 0, 3), (1, 1, 0, 1)]:  # any order, repeated
            for dtype in [np.int64, np.int32, np.uint16]:
                assert_same_rows(accessor[np.array(rows, dtype)], [expected[row] for row in rows])
        for dtype in [np.int64, np.int32]:
            assert_same_rows(accessor[np.array([-1, 1], dtype)], [expected[-1], expected[1]])

    def test_an_empty_index_array_gives_no_rows(self, made: Made) -> None:
        accessor, _ = made
        nothing = accessor[np.array([], dtype=np.int64)]
        assert len(nothing) == 0
        if hasattr(accessor, "shape"):
            assert nothing.shape == (0, *accessor.shape[1:])
            assert nothing.dtype == accessor.dtype

    def test_a_row_out_of_range_is_an_index_error(self, made: Made) -> None:
        accessor, expected = made
        n = len(expected)
        for rows in (n, -n - 1, np.array([0, n]), np.array([-n - 1])):
            with pytest.raises(IndexError):
                accessor[rows]

    def test_read_into_equals_getitem(self, made: Made) -> None:
        accessor, expected = made
        if not (hasattr(accessor, "read_into") and hasattr(accessor, "shape")):
            pytest.skip("this accessor offers no read_into")
        for rows in ([2, 0, 3, 2], [-1], []):
            numbers = np.array(rows, dtype=np.int64)
            out = np.full((len(rows), *accessor.shape[1:]), 77, accessor.dtype)
            accessor.read_into(numbers, out)
            assert_same_rows(out, [expected[row] for row in rows])
            assert_same_rows(accessor[numbers], out)

    def test_pickling_keeps_the_rows(self, made: Made) -> None:
        accessor, expected = made
        assert_same_rows(pickle.loads(pickle.dumps(accessor))[:], expected)
        assert_same_rows(accessor[:], expected)

    def test_several_threads_may_read_at_once(self, made: Made) -> None:
        accessor, expected = made
        start = threading.Barrier(4, timeout=600)
        orders = [np.roll(np.arange(len(expected)), turn) for turn in range(8)]

        def read(thread: int) -> list[Any]:
            start.wait()
            return [accessor[np.roll(order, thread)] for order in orders]

        with ThreadPoolExecutor(4) as threads:
            for thread, batches in enumerate(threads.map(read, range(4))):
                for order, batch in zip(orders, batches, strict=True):
                    assert_same_rows(batch, [expected[row] for row in np.roll(order, thread)])

    def test_rows_are_the_same_when_read_twice(self, made: Made) -> None:
        accessor, expected = made
        rows = np.arange(len(expected))
        first = accessor[rows]
        for row in first:
            if isinstance(row, np.ndarray) and row.flags.writeable:
                row[...] = 0  # the caller owns the result: the next reading must not show the change
        assert_same_rows(accessor[rows], expected)
