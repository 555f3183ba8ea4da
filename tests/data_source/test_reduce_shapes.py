"""What a function of a batch gives where the last batch is short, or batches are dicts."""

from __future__ import annotations

import numpy as np
import pytest

import batchup_ng as bu

X = np.arange(10.0)


def test_values_of_single_samples_point_to_sum_axis() -> None:
    source = bu.ArrayDataSource([X])
    for batch_size in (4, 9):  # of which a last batch of 1 would be added to each of the others
        with pytest.raises(bu.ArgumentError, match=r"shapes \[\([49],\)\], then \[\([21],\)\].* pass sum_axis=0"):
            source.batch_map_mean(lambda x: x * 2, batch_size)
        assert source.batch_map_mean(lambda x: x * 2, batch_size, sum_axis=0) == (9.0,)


def test_functions_are_called_by_name() -> None:
    source = bu.ArrayDataSource({"x": X, "y": X + 1})
    assert source.batch_map_mean(lambda k, x, y: (k * (y - x)).sum(), 4, prepend_args=(3,)) == (3.0,)
    result = source.batch_map_concat(lambda y, x: y, 4)
    assert result is not None
    np.testing.assert_array_equal(result[0], X + 1)
