"""Samples that cannot be made, where the consumer makes the batches itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu

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


def test_one_bad_sample_costs_a_read_of_each() -> None:
    reads: list[Any] = []
    source = bu.ArrayDataSource([np.arange(64)]).map(lambda *batch: source_check(reads, *batch))
    with source.batch_iterator(64, on_error="skip") as iterator:
        ((x,),) = list(iterator)
    assert x.tolist() == [row for row in range(64) if row != 40]
    assert sorted(map(len, reads)) == [1] * 64 + [63, 64]  # each alone, the batch without it, the whole batch


def source_check(reads: list[Any], x: np.ndarray) -> Any:
    reads.append(x.tolist())
    if 40 in x:
        raise ValueError("40 is bad")
    return (x,)


def test_a_batch_that_fails_though_each_sample_can_be_made_is_no_samples_fault() -> None:
    def needs_few(x: np.ndarray) -> Any:
        if len(x) > 3:
            raise ValueError("too many at once")
        return (x,)

    for policy in ("raise", "skip", "replace"):
        iterator = bu.ArrayDataSource([np.arange(8)]).map(needs_few).batch_iterator(8, on_error=policy)
        with iterator, pytest.raises(bu.BatchError, match="in the whole batch, since no single row is to blame"):
            next(iterator)


def test_a_batch_that_fails_once_is_made_again_as_often_as_the_policy_says() -> None:
    tries: list[int] = []

    def flaky(x: np.ndarray) -> Any:
        tries.append(len(x))
        if len(tries) < 3:
            raise OSError("the share is away")
        return (x,)

    source = bu.ArrayDataSource([np.arange(4)]).map(flaky)
    with source.batch_iterator(4, on_error=bu.ErrorPolicy("skip", retries=2)) as iterator:
        assert [x.tolist() for (x,) in iterator] == [[0, 1, 2, 3]]
        assert tries == [4, 4, 4]
        assert [(error.row, error.batch) for error in iterator.errors] == [(None, 0)]
        assert (iterator.stats()["retried"], iterator.stats()["failed"]) == (1, 0)


def test_ctrl_c_in_a_map_is_no_failure_of_a_sample() -> None:
    def interrupted(x: np.ndarray) -> Any:
        raise KeyboardInterrupt

    iterator = bu.ArrayDataSource([np.arange(4)]).map(interrupted).batch_iterator(4, on_error="skip")
    with iterator, pytest.raises(KeyboardInterrupt):
        next(iterator)


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
    with pytest.raises(bu.ArgumentError, match="on_error= reads the samples of a failed batch again"):
        bu.CallableDataSource(lambda batch_size: iter([])).batch_iterator(4, on_error="skip")
    with pytest.raises(bu.ArgumentError, match="did you mean 'skip'"):
        source_with(set()).batch_iterator(4, on_error="skp")


def test_on_error_of_an_epoch_goes_before_that_of_the_parallel_source() -> None:
    with bu.SerialPool() as pool:
        background = pool.parallel_data_source(source_with({3}))
        with background.batch_iterator(10, on_error="skip") as iterator:
            assert [len(x) for x, _ in iterator] == [9, 10, 10]
        with background.batch_iterator(10) as iterator, pytest.raises(KeyError, match="row 3"):
            next(iterator)


@pytest.mark.parametrize("policy", [bu.ErrorPolicy(retries=1), "skip", "replace"])
def test_a_fault_that_does_not_come_again_loses_nothing(policy: Any) -> None:
    calls: list[int] = []

    def hiccup(x: np.ndarray) -> Any:
        calls.append(len(x))
        if len(calls) == 2:
            raise OSError("the share was away")
        return (x,)

    with bu.ArrayDataSource([np.arange(8)]).map(hiccup).batch_iterator(2, on_error=policy) as iterator:
        assert [x.tolist() for (x,) in iterator] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        (error,) = iterator.errors
        assert isinstance(error, OSError)
        assert (error.row, error.batch, iterator.stats()["retried"]) == (None, 1, 1)
