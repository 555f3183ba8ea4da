"""Samples that cannot be made, where the consumer makes the batches itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from tests.messages import raises

pytestmark = pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
N = 30


def source_with(bad: set[int], reads: list[Any] | None = None) -> Any:
    """Return a source of random numbers drawn for each sample, in which some rows cannot be made."""

    def refuse(x: np.ndarray, rng: bu.SampleRng) -> Any:
        if reads is not None:
            reads.append(x.tolist())
        for row in x:
            if int(row) in bad:
                raise KeyError(f"row {row} is bad")
        return x, rng.normal()

    return bu.ArrayDataSource([np.arange(N)]).map(refuse, rng="sample")


def played(iterator: Any) -> Any:
    """Return the batches, the samples that failed, and what ended the epoch, if it was an error."""
    batches, error = [], None
    with iterator:
        try:
            batches = [tuple(map(np.ndarray.tolist, batch)) for batch in iterator]
        except bu.BatchupError as raised:
            error = type(raised), str(raised), getattr(raised, "row", None), getattr(raised, "position", None)
        failed = [(failure.row, failure.position, failure.batch) for failure in iterator.errors]
    return batches, failed, error


policies = st.one_of(
    st.sampled_from(["raise", "skip", "replace"]),
    st.builds(bu.ErrorPolicy, st.sampled_from(["skip", "replace"]), max_errors=st.integers(0, 4)),
)


@given(bad=st.sets(st.integers(0, N - 1), max_size=6), policy=policies, size=st.integers(1, 12))
def test_the_direct_loop_does_with_bad_samples_what_a_pool_does(bad: set[int], policy: Any, size: int) -> None:
    source = source_with(bad)
    direct = source.batch_iterator(size, shuffle=3, epoch=1, on_error=policy)
    with bu.SerialPool() as pool:
        pooled = pool.parallel_data_source(source, on_error=policy).batch_iterator(size, shuffle=3, epoch=1)
        assert played(direct) == played(pooled)


def test_a_state_goes_on_after_samples_that_were_left_out() -> None:
    source = source_with({3, 9})
    with source.batch_iterator(4, shuffle=5, on_error="skip") as iterator:
        whole = [x.tolist() for x, _ in iterator]
    with source.batch_iterator(4, shuffle=5, on_error="skip") as iterator:
        next(iterator), next(iterator)
        state = iterator.state_dict()
    with source.batch_iterator(4, shuffle=5, on_error="skip", state=state) as iterator:
        assert [x.tolist() for x, _ in iterator] == whole[2:]


def test_on_error_is_refused_where_it_cannot_be_kept() -> None:
    with raises(bu.ArgumentError):
        bu.CallableDataSource(lambda batch_size: iter([])).batch_iterator(4, on_error="skip")
    with raises(bu.ArgumentError):
        source_with(set()).batch_iterator(4, on_error="skp")


def test_on_error_of_an_epoch_goes_before_that_of_the_parallel_source() -> None:
    with bu.SerialPool() as pool:
        background = pool.parallel_data_source(source_with({3}))
        with background.batch_iterator(10, on_error="skip") as iterator:
            assert [len(x) for x, _ in iterator] == [9, 10, 10]
        with background.batch_iterator(10) as iterator, raises(KeyError):
            next(iterator)
