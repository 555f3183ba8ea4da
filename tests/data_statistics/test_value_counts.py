"""Counts of values in bounded memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

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
