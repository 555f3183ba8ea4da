"""Warnings of a pool, where the program turns warnings into errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu


def refuse_seven(x: np.ndarray) -> Any:
    if 7 in x:
        raise ValueError("seven")
    return (x,)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_epoch_goes_on_though_warnings_are_errors(pools: Any, on_error: str) -> None:
    source = bu.ArrayDataSource([np.arange(12)]).map(refuse_seven)
    for pool in pools:
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("error")
            batches = pool.parallel_data_source(source, on_error=on_error).batch_iterator(4)
            n = sum(len(x) for (x,) in batches)
        assert n == (11 if on_error == "skip" else 12)
        assert [error.row for error in batches.errors] == [7]
        assert [(each.category, each.filename) for each in shown] == [(bu.SampleWarning, __file__)]
        assert "row 7" in str(shown[0].message)


def test_the_first_bad_sample_of_a_source_is_warned_of_not_that_of_each_epoch(pools: Any) -> None:
    for pool in (None, *pools):
        source = bu.ArrayDataSource([np.arange(12)]).map(refuse_seven)
        made = source if pool is None else pool.parallel_data_source(source)
        for epoch in range(3):
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                batches = made.batch_iterator(4, shuffle=1, epoch=epoch, on_error="skip")
                list(batches)
            assert [each.category for each in shown] == [bu.SampleWarning] * (epoch == 0)
            assert [error.row for error in batches.errors] == [7]
