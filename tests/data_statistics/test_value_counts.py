"""Counts of values in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_statistics.value_counts import ValueCounts, keys_of, values_of

FLOATS = st.lists(st.floats(allow_nan=False), min_size=1, max_size=60)


@given(FLOATS)
def test_keys_have_the_order_of_values(numbers: list[float]) -> None:
    values = np.sort(np.array(numbers))
    keys = keys_of(values)
    assert (np.diff(keys.astype(object)) >= 0).all()
    assert values_of(keys, values.dtype).tolist() == values.tolist()


@given(FLOATS, st.integers(1, 9), st.integers(8, 20), st.randoms())
def test_the_result_depends_on_the_values_alone(numbers: list[float], parts: int, room: int, random: object) -> None:
    keys = keys_of(np.array(numbers))
    whole, merged = ValueCounts(room), ValueCounts(room)
    whole.add(keys)
    shuffled = keys.tolist()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for part in np.array_split(np.array(shuffled, np.int64), parts):
        one = ValueCounts(room)
        one.add(part)
        one.table()
        merged.merge(one)
    kept, counts = whole.table()
    again, again_counts = merged.table()
    assert whole.level == merged.level
    assert len(kept) <= room
    assert kept.tolist() == again.tolist()
    assert counts.tolist() == again_counts.tolist()
    assert counts.sum() == len(numbers)
    assert (whole.lowest, whole.highest) == (keys.min(), keys.max())
    assert (whole.level == 0) == (len(np.unique(keys)) <= room), "no bit is left out without need"


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("order", "<>")
def test_values_of_any_byte_order_are_counted(dtype: str, order: str) -> None:
    kind: np.dtype[np.generic] = np.dtype(order + dtype)
    ends = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    middle = int(ends.max) // 2 if kind.kind != "f" else 0  # of uint64: 2**63 - 1, and 2**63 beside it
    values = np.array([100, ends.max, ends.min, middle, middle + 1, middle + 1], kind)
    expected = np.sort(values.astype(kind.newbyteorder("=")))
    assert values_of(np.sort(keys_of(values)), kind).tolist() == expected.tolist()
    found = bu.statistics([values])[0]
    assert (found.min, found.max) == (expected[0], expected[-1])
    assert found.quantile(0.5) == pytest.approx(np.median(expected.astype(np.float64)), rel=1e-15)
