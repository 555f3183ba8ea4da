"""Error policies: what may be asked for, what it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.faults.policy import error_policy
from tests.messages import raises


def test_a_word_stands_for_a_policy() -> None:
    assert error_policy("skip") == bu.ErrorPolicy("skip")
    policy = bu.ErrorPolicy("replace", max_errors=3, retries=2)
    assert error_policy(policy) is policy
    assert bu.ErrorPolicy("skip", types=[OSError]) == bu.ErrorPolicy("skip", types=OSError)
    assert bu.ErrorPolicy() == bu.ErrorPolicy("raise", max_errors=None, max_rate=None, retries=0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"action": "skipp"}, ValueError),
        ({"action": None}, TypeError),
        ({"action": "skip", "max_errors": -1}, ValueError),
        ({"action": "skip", "max_errors": 1.5}, TypeError),
        ({"action": "skip", "max_errors": True}, TypeError),
        ({"action": "skip", "max_rate": 0}, ValueError),
        ({"action": "skip", "max_rate": 1.01}, ValueError),
        ({"action": "skip", "max_rate": float("nan")}, ValueError),
        ({"action": "skip", "max_rate": "half"}, TypeError),
        ({"retries": None}, TypeError),
        ({"retries": -2}, ValueError),
        ({"max_errors": 3}, ValueError),
        ({"max_rate": 0.5}, ValueError),
        ({"action": "skip", "max": 3}, TypeError),
        ({"types": OSError}, ValueError),
        ({"action": "skip", "types": ()}, ValueError),
        ({"action": "skip", "types": (OSError, "ValueError")}, TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: type) -> None:
    with raises(error):
        bu.ErrorPolicy(**options)


def test_limits_are_keyword_only_and_policies_do_not_change() -> None:
    positional: Any = bu.ErrorPolicy
    with pytest.raises(TypeError):
        positional("skip", 3)
    frozen: Any = bu.ErrorPolicy("skip")
    with pytest.raises(AttributeError):
        frozen.action = "raise"


def test_the_lower_of_two_limits_counts() -> None:
    policy = bu.ErrorPolicy("skip", max_errors=5, max_rate=0.01)
    assert policy.limit(1000, 0) == (5, "max_errors=5")
    assert policy.limit(400, 0) == (4, "max_rate=0.01 of 400 samples")
    assert policy.limit(None, 7)[0] == 1
    assert policy.limit(None, 300)[0] == 3
    assert bu.ErrorPolicy("skip").limit(None, 0)[0] > 10**15


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_error": "ignore"}, ValueError),
        ({"on_error": None}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1.0}, ValueError),
        ({"timeout": float("inf")}, ValueError),
        ({"timeout": "2s"}, TypeError),
        ({"timeout": True}, TypeError),
        ({"buffer_bytes": 0}, ValueError),
        ({"buffer_bytes": 1e9}, TypeError),
        ({"time_out": 3}, TypeError),
    ],
)
def test_options_of_a_parallel_source_are_checked(options: dict[str, Any], error: type) -> None:
    with bu.SerialPool() as pool, raises(error):
        pool.parallel_data_source(bu.ArrayDataSource([np.arange(4)]), **options)


def test_a_parallel_source_says_what_it_was_asked_for() -> None:
    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(
            bu.ArrayDataSource([np.arange(4)]), buffer_bytes=1 << 20, on_error="skip", timeout=np.float32(2)
        )
        assert (source.buffer_bytes, source.on_error, source.timeout) == (1 << 20, bu.ErrorPolicy("skip"), 2.0)


def refusing(lost: set[int]) -> bu.PlannedDataSource:
    """A source of 100 rows, some of which cannot be made."""

    def fails(x: np.ndarray) -> Any:
        if lost & set(x.tolist()):
            raise ValueError("one of these cannot be made")
        return (x,)

    return bu.ArrayDataSource([np.arange(100)]).map(fails)


def delivered(iterator: Any, into: list[int]) -> None:
    """Put the rows that an iterator gives into a list, until it raises."""
    for (x,) in iterator:
        into.extend(x.tolist())


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_the_rate_of_a_rank_is_that_of_its_own_share() -> None:
    lost = {3, 4, 23, 24, 43, 44}  # all of them the first rank's, which has 50 samples
    policy = bu.ErrorPolicy("skip", max_rate=0.1)
    with bu.WorkerThreadPool(2) as pool:
        for rank, world in ((0, 1), (1, 2)):
            made = pool.parallel_data_source(refusing(lost), on_error=policy)
            delivered(made.batch_iterator(10, shard=(rank, world)), [])
        with raises(bu.TooManyErrors):
            delivered(made.batch_iterator(10, shard=(0, 2)), [])
        made = pool.parallel_data_source(refusing(lost - {44}), on_error=policy)
        delivered(made.batch_iterator(10, shard=(0, 2)), [])


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_a_rate_that_was_kept_is_kept_when_the_epoch_is_shared_out_later() -> None:
    with bu.WorkerThreadPool(2) as pool:
        policy = bu.ErrorPolicy("skip", max_rate=0.1)
        made = pool.parallel_data_source(refusing({3, 13, 23, 33, 43, 53, 81}), on_error=policy)
        iterator = made.batch_iterator(10)
        for _ in range(8):
            next(iterator)
        rows: list[int] = []
        delivered(made.batch_iterator(10, shard=(0, 2), state=iterator.state_dict()), rows)
        assert rows == [80, *range(82, 90)]


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize("limit", [{"max_errors": 2}, {"max_rate": 0.02}])
def test_an_epoch_with_too_many_errors_goes_on_with_the_batch_that_was_not_handed_out(limit: dict[str, Any]) -> None:
    source, rows = refusing({3, 15, 27}), list[int]()
    with bu.WorkerThreadPool(2) as pool:
        strict = pool.parallel_data_source(source, on_error=bu.ErrorPolicy("skip", **limit))
        iterator = strict.batch_iterator(10)
        with raises(bu.TooManyErrors):
            delivered(iterator, rows)
        lenient = pool.parallel_data_source(source, on_error="skip")
        rest = lenient.batch_iterator(10, state=iterator.state_dict())
        delivered(rest, rows)
        assert rows == [x for x in range(100) if x not in (3, 15, 27)]
        assert rest.stats()["failed"] == 3


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_samples_that_pad_keep_their_draws_where_one_fails() -> None:
    def draw(x: np.ndarray, rng: Any) -> Any:
        return x, rng.random()

    def nineteen(source: bu.PlannedDataSource) -> Any:
        return bu.take(source.map(draw, rng="sample"), 19)

    ((_, draws),) = nineteen(refusing(set())).batch_iterator(100)
    with bu.WorkerThreadPool(2) as pool:
        made = pool.parallel_data_source(nineteen(refusing({17, 1})), on_error="skip")
        iterator = made.batch_iterator(8, shard=(2, 3), pad_mask=True)  # rows 14 to 18, then 0 and 1, which pad
        ((x, drawn, real),) = iterator
    assert x.tolist() == [14, 15, 16, 18, 0]
    assert real.tolist() == [True, True, True, True, False]
    np.testing.assert_array_equal(drawn, draws[x])
    assert [(error.row, error.position) for error in iterator.errors] == [(17, 17), (1, 1)]
