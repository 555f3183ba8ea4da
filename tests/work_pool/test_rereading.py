"""What is read again when a worker ended: decisions, tested without a pool; then bad samples with pools."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_source import ChoiceBatch
from batchup_ng.errors import SampleTimeout, WorkerDied
from batchup_ng.faults.isolation import PartialBatch
from batchup_ng.randomness import SampleRng
from batchup_ng.sampling.plans.rows import one_row, put_rows, same_form, take_rows, whole_samples
from batchup_ng.testing.sources import assert_same_batch
from batchup_ng.work_pool.rereading import Read, Rereader, TimeLimits
from tests.messages import raises


@dataclasses.dataclass
class World:
    """A simulated pool: how each row, and each batch, behaves.

    Attributes:
        kills: What ends the worker that reads a row.
        seconds: How long a row takes.
        whole: What ends the worker that reads several rows, if they are these.
        fails: Rows for which an exception is raised, which the worker isolates.
        reads: What was read.
    """

    kills: dict[int, Exception] = dataclasses.field(default_factory=dict)
    seconds: dict[int, float] = dataclasses.field(default_factory=dict)
    whole: Callable[[list[int]], Exception | None] = lambda rows: None
    fails: set[int] = dataclasses.field(default_factory=set)
    reads: list[Read] = dataclasses.field(default_factory=list)

    def read(self, read: Read) -> Any:
        """Return what a read gives in this world."""
        self.reads.append(read)
        rows = [int(row) for row in read.rows]
        if read.timeout is not None and sum(self.seconds.get(row, 0.0) for row in rows) > read.timeout:
            return SampleTimeout("too long")
        for row in rows:
            if row in self.kills:
                return self.kills[row]
        error = self.whole(rows)
        if error is not None:
            return error
        bad: dict[int, BaseException] = {place: FAILED for place, row in enumerate(rows) if row in self.fails}
        kept = [row for row in rows if row not in self.fails]
        return PartialBatch(kept, len(kept), bad) if bad else rows

    def made(
        self,
        rows: list[int],
        action: str = "skip",
        again: int = 0,
        at_once: int = 2,
        timeout: float | None = None,
    ) -> PartialBatch:
        """Return what becomes of a batch of `rows`."""
        error = self.read(Read(np.array(rows), None, False, timeout))
        assert isinstance(error, Exception)

        def run(reads: list[Read]) -> list[Any]:
            assert 1 <= len(reads) <= at_once
            return [self.read(read) for read in reads]

        self.limits = TimeLimits(timeout, timeout)
        rule = bu.ErrorPolicy(action, retries=again)
        made = Rereader(np.array(rows), self.limits, at_once, run).isolated(error, rule)
        return made if isinstance(made, PartialBatch) else PartialBatch(made, len(made))


GONE = WorkerDied("gone")
FAILED = ValueError("failed")


@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5))
def test_exactly_the_rows_that_end_their_worker_are_left_out(bad: set[int], at_once: int) -> None:
    world = World(kills=dict.fromkeys(bad, GONE))
    made = world.made(list(range(12)), at_once=at_once)
    assert set(made.failures) == bad
    assert made.kept == 12 - len(bad)
    if made.kept:
        assert made.batch == sorted(set(range(12)) - bad)
        kept = world.reads[-1]
        assert kept.places is not None
        assert kept.places.tolist() == made.batch
    assert all(read.exclusive for read in world.reads[1:13])


@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5))
def test_the_first_that_ends_its_worker_is_the_one_that_is_raised(bad: set[int], at_once: int) -> None:
    world = World(kills={row: WorkerDied(f"row {row}") for row in bad})
    made = world.made(list(range(12)), "raise", at_once=at_once)
    assert min(made.failures) == min(bad)
    assert not made.kept
    assert len(world.reads) <= 1 + min(bad) + at_once


def test_exceptions_are_left_to_the_worker_that_makes_the_rest() -> None:
    world = World(kills={2: GONE}, fails={4, 7})
    made = world.made(list(range(10)))
    assert made.batch == [0, 1, 3, 5, 6, 8, 9]
    assert made.failures == {2: GONE, 4: FAILED, 7: FAILED}
    replaced = world.made(list(range(10)), "replace")
    assert (replaced.kept, replaced.failures) == (0, {2: GONE})


def test_a_row_that_begins_to_kill_is_found_in_the_next_round() -> None:
    world = World(kills={2: GONE})

    def begins(rows: list[int]) -> Exception | None:
        if len(rows) == 4:
            world.kills[4] = WorkerDied("from now on")
        return world.kills.get(4) if 4 in rows else None

    world.whole = begins
    made = world.made([1, 2, 3, 4, 5])
    assert (made.batch, made.failures) == ([1, 3, 5], {1: GONE, 3: world.kills[4]})


# -- time limits ---------------------------------------------------------------------------------------------------


def test_one_row_that_hangs_is_known_after_a_short_time() -> None:
    world = World(seconds={7: 1e9})
    made = world.made(list(range(10)), "raise", timeout=5.0)
    assert list(made.failures) == [7]
    assert "timeout=5 s" in str(made.failures[7])
    assert {read.timeout for read in world.reads[1:]} == {0.5}


def test_several_slow_rows_get_the_full_time() -> None:
    world = World(seconds={2: 3.0, 5: 4.0, 7: 1e9})
    made = world.made(list(range(10)), timeout=5.0)
    assert list(made.failures) == [7]
    assert world.reads[-1].rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_a_slow_batch_of_quick_rows_is_made_with_the_time_of_all() -> None:
    world = World(seconds=dict.fromkeys(range(10), 0.4))
    made = world.made(list(range(10)), "raise", timeout=1.0)
    assert (made.batch, made.failures, made.retried) == (list(range(10)), {}, None)
    assert world.limits.batch == 10.0
    assert world.reads[-1].timeout == 10.0


def test_a_batch_has_at_most_the_time_of_all_its_rows() -> None:
    def never(rows: list[int]) -> Exception | None:
        return SampleTimeout("too long") if len(rows) > 1 else None

    made = World(whole=never).made(list(range(10)), timeout=1.0)
    assert (made.kept, made.failures) == (0, {})
    assert isinstance(made.error, SampleTimeout)


@pytest.mark.parametrize("again", [0, 1])
@pytest.mark.parametrize("action", ["raise", "skip", "replace"])
def test_a_sample_that_hung_for_a_moment_is_reported(action: str, again: int) -> None:
    moments = iter([SampleTimeout("too long")])
    made = World(whole=lambda rows: next(moments, None)).made([4, 5, 6], action, again, timeout=5.0)
    assert (made.batch, made.failures) == ([4, 5, 6], {})
    assert isinstance(made.retried, SampleTimeout)


# -- rows ----------------------------------------------------------------------------------------------------------

NEST = (np.array([1, 2, 3]), (ChoiceBatch(np.array([4, 5, 6]), 1), np.array([7, 8])))


def test_rows_are_taken_from_a_nest() -> None:
    taken = take_rows(NEST, np.array([1, 2]))
    assert taken[0].tolist() == [2, 3]
    assert taken[1][0].sample_indices.tolist() == [5, 6]
    assert taken[1][1].tolist() == [8]
    assert one_row(take_rows(NEST, np.array([1]))) == (2, (ChoiceBatch(5, 1), 8))
    assert one_row(take_rows(NEST, np.array([2]))) == (3, (ChoiceBatch(6, 1), None))
    assert whole_samples(NEST) == (2, 3)


def test_a_row_is_put_into_a_nest() -> None:
    other = take_rows(NEST, np.array([0]))
    put = put_rows(NEST, 1, other)
    assert one_row(take_rows(put, np.array([1]))) == (1, (ChoiceBatch(4, 1), 7))
    assert NEST[0].tolist() == [1, 2, 3]
    assert same_form(NEST, other)
    assert not same_form(NEST, (np.array([1]), (ChoiceBatch(np.array([4]), 0), np.array([7]))))


# -- with pools ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fails:
    """A map that refuses some rows, and adds draws of each sample's own."""

    bad: frozenset[int]

    def __call__(self, x: np.ndarray, *, rng: SampleRng) -> Any:
        for row in x.tolist():
            if row in self.bad:
                raise LookupError(f"row {row} is bad")
        return x, rng.uniform()


unhurried = settings(suppress_health_check=list(HealthCheck))


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@unhurried
@given(st.integers(1, 40), st.integers(1, 12), st.sets(st.integers(0, 39)), st.sampled_from([None, 3, "state"]))
def test_good_samples_are_those_of_the_run_without_faults(
    pool: Any, n: int, size: int, bad: set[int], shuffle: Any
) -> None:
    def order() -> Any:
        return np.random.RandomState(4) if shuffle == "state" else shuffle

    source = bu.ArrayDataSource([np.arange(n)])
    faultless = list(source.map(Fails(frozenset()), rng="sample").batch_iterator(size, shuffle=order()))
    failing = pool.parallel_data_source(source.map(Fails(frozenset(bad)), rng="sample"), 4, on_error="skip")
    expected = [(x[keep], u[keep]) for x, u in faultless for keep in [~np.isin(x, list(bad))] if keep.any()]
    iterator = failing.batch_iterator(size, shuffle=order())
    got: list[Any] = []
    if expected:
        got.extend(iterator)
    else:
        with raises(bu.TooManyErrors) as caught:
            got.extend(iterator)
        assert f"all {n} samples" in str(caught.value)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert_same_batch(mine, theirs)
    rows = np.concatenate([x for x, _ in faultless])
    assert [(error.row, error.position) for error in iterator.errors] == [
        (int(row), k) for k, row in enumerate(rows) if row in bad
    ]
    if expected:  # otherwise the epoch was broken off, and its counts are those of the state before
        assert iterator.stats()["samples"] + iterator.stats()["failed"] == n


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@unhurried
@given(st.integers(2, 40), st.integers(1, 12), st.sets(st.integers(0, 39), max_size=9), st.sampled_from([None, 3]))
def test_replacements_are_the_same_whoever_makes_them(
    pool: Any, n: int, size: int, bad: set[int], shuffle: Any
) -> None:
    source = bu.ArrayDataSource([np.arange(n)]).map(Fails(frozenset(bad)), rng="sample")
    faultless = bu.ArrayDataSource([np.arange(n)]).map(Fails(frozenset()), rng="sample")
    if len(bad & set(range(n))) > n // 2:
        return
    with bu.SerialPool() as serial:
        reference = list(serial.parallel_data_source(source, on_error="replace").batch_iterator(size, shuffle=shuffle))
    iterator = pool.parallel_data_source(source, 4, on_error="replace").batch_iterator(size, shuffle=shuffle)
    got = list(iterator)
    planned = list(faultless.batch_iterator(size, shuffle=shuffle))
    assert len(got) == len(planned)
    for mine, same, (x, u) in zip(got, reference, planned, strict=True):
        assert_same_batch(mine, same)
        good = ~np.isin(x, list(bad))
        np.testing.assert_array_equal(mine[0][good], x[good])
        np.testing.assert_array_equal(mine[1], u)
        assert not np.isin(mine[0], list(bad)).any()
    assert iterator.stats()["replaced"] == len(iterator.errors) == len(bad & set(range(n)))
    assert iterator.stats()["samples"] == n


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_with_a_generator_only_rows_that_were_drawn_take_the_place_of_others(pool: Any) -> None:
    source = bu.ArrayDataSource([np.arange(30)]).map(Fails(frozenset({3, 11, 28})), rng="sample")
    got = [
        list(maker.parallel_data_source(source, 9, on_error="replace").batch_iterator(4, np.random.RandomState(2)))
        for maker in (pool, bu.SerialPool())
    ]
    assert_same_batch(got[0], got[1])
    order = np.random.RandomState(2).permutation(30)
    rows = np.concatenate([x for x, _ in got[0]])
    for k in np.flatnonzero(rows != order):
        assert order[k] in (3, 11, 28)
        assert rows[k] in order[: (k // 4 + 1) * 4]


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_nests_lose_whole_samples(pool: Any, on_error: str) -> None:
    def fails(x: Any, y: Any) -> Any:
        if np.isin(x, [5, 6]).any() or (y == 104).any():
            raise ValueError("no")
        return x, y

    parts = [bu.ArrayDataSource([np.arange(20)]), bu.ArrayDataSource([np.arange(100, 120)])]
    composite = bu.CompositeDataSource(parts).map(fails)
    choice = bu.ChoiceDataSource([composite, bu.zip(*parts).map(fails)])
    for source in (composite, choice):
        iterator = pool.parallel_data_source(source, on_error=on_error).batch_iterator(6, shuffle=2)
        batches = list(iterator)
        x, y = (np.concatenate(column) for column in zip(*batches, strict=True))
        assert not np.isin(x, [5, 6]).any()
        assert not (y == 104).any()
        stats = iterator.stats()
        planned = sum(whole_samples(planned.rows)[1] for planned in source.plan(6, shuffle=2))
        assert len(x) + stats["failed"] == planned
        assert stats["failed"] + stats["replaced"] == len(iterator.errors) > 1


def test_a_batch_of_uneven_parts_is_raised_as_a_whole(pool: Any) -> None:
    def fails(x: Any, y: Any) -> Any:
        if len(x) != len(y):
            raise ValueError("uneven")
        return x, y

    parts = [bu.ArrayDataSource([np.arange(9)]), bu.ArrayDataSource([np.arange(6)])]
    source = bu.CompositeDataSource(parts, trim=False).map(fails)
    iterator = pool.parallel_data_source(source, on_error="skip").batch_iterator(5)
    assert len(next(iterator)[0]) == 5
    with raises(ValueError) as caught:
        next(iterator)
    assert caught.value.row is None
    assert (caught.value.batch, caught.value.epoch) == (1, 0)
