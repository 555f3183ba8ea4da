"""What is read again when a batch fails: decisions, tested without a pool; then the same with pools."""

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
from batchup_ng.randomness import SampleRng
from batchup_ng.sampling.plans.rows import one_row, put_rows, same_form, take_rows, whole_samples
from batchup_ng.testing.sources import assert_same_batch
from batchup_ng.work_pool.repair import Allowance, Case, Outcome, Read, Verdict, repair


@dataclasses.dataclass
class World:
    """A simulated pool: how each row, and each batch, behaves.

    Attributes:
        bad: What reading a row raises.
        seconds: How long a row takes.
        whole: What reading several rows raises, if they are these.
        reads: What was read.
    """

    bad: dict[int, Exception] = dataclasses.field(default_factory=dict)
    seconds: dict[int, float] = dataclasses.field(default_factory=dict)
    whole: Callable[[list[int]], Exception | None] = lambda rows: None
    reads: list[Read] = dataclasses.field(default_factory=list)

    def read(self, read: Read) -> Outcome:
        """Return what a read gives in this world."""
        self.reads.append(read)
        rows = [int(row) for row in read.rows]
        if read.timeout is not None and sum(self.seconds.get(row, 0.0) for row in rows) > read.timeout:
            return Outcome(error=SampleTimeout("too long"))
        for row in rows:
            if row in self.bad:
                return Outcome(error=self.bad[row])
        error = self.whole(rows)
        return Outcome(batch=rows) if error is None else Outcome(error=error)

    def repaired(
        self,
        rows: list[int],
        action: str = "skip",
        retries: int = 0,
        at_once: int = 2,
        timeout: float | None = None,
        others: list[int] | None = None,
    ) -> Verdict:
        """Return what becomes of a batch of `rows`."""
        first = Read(np.array(rows), None, False, timeout)
        failed = self.read(first)
        assert failed.error is not None

        def another(place: int, attempt: int) -> Any:
            return np.array([others[attempt]]) if others and attempt < len(others) else None

        self.allowance = Allowance(timeout, timeout)
        case = Case(np.array(rows), failed.error, action, retries, at_once, self.allowance, timeout, another)
        steps = repair(case)
        try:
            wanted = next(steps)
            while True:
                assert 1 <= len(wanted) <= at_once
                wanted = steps.send([self.read(read) for read in wanted])
        except StopIteration as end:
            verdict: Verdict = end.value
            return verdict


BAD = ValueError("bad")


@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5))
def test_exactly_the_bad_rows_are_left_out(bad: set[int], at_once: int) -> None:
    world = World(bad=dict.fromkeys(bad, BAD))
    verdict = world.repaired(list(range(12)), at_once=at_once)
    assert set(verdict.bad) == bad
    assert verdict.kept == 12 - len(bad)
    assert verdict.made == (len(bad) < 12)
    if verdict.made:
        assert verdict.batch == sorted(set(range(12)) - bad)
        kept = world.reads[-1]
        assert kept.offsets is not None
        assert kept.offsets.tolist() == verdict.batch
    assert all(read.exclusive == (read.offsets is not None and len(read.rows) == 1) for read in world.reads[1:13])


@given(st.sets(st.integers(0, 11), min_size=1), st.integers(1, 5))
def test_the_first_bad_row_is_the_one_that_is_raised(bad: set[int], at_once: int) -> None:
    world = World(bad={row: ValueError(f"row {row}") for row in bad})
    verdict = world.repaired(list(range(12)), "raise", at_once=at_once)
    assert min(verdict.bad) == min(bad)
    assert not verdict.made
    if len(bad) < 12:
        assert len(world.reads) <= 2 + max(min(bad), min(set(range(12)) - bad)) + at_once


@given(st.sets(st.integers(0, 5), min_size=1), st.integers(0, 6))
def test_bad_rows_are_replaced_by_the_first_that_can_be_read(bad: set[int], n_bad_others: int) -> None:
    others = list(range(100, 100 + n_bad_others + 1))
    world = World(bad={**dict.fromkeys(bad, BAD), **dict.fromkeys(others[:-1], BAD)})
    verdict = world.repaired(list(range(6)), "replace", others=others)
    assert verdict.made
    assert verdict.batch == [others[-1] if row in bad else row for row in range(6)]
    assert set(verdict.bad) == bad
    assert verdict.kept == 6


def test_a_row_without_any_that_could_replace_it_is_raised() -> None:
    verdict = World(bad={1: BAD, 50: BAD}).repaired([0, 1], "replace", others=[50])
    assert (verdict.made, verdict.error, list(verdict.bad)) == (False, BAD, [1])


@pytest.mark.parametrize("action", ["raise", "skip", "replace"])
def test_a_batch_that_failed_for_a_moment_is_made_again(action: str) -> None:
    moments = iter([BAD])
    world = World(whole=lambda rows: next(moments, None))
    verdict = world.repaired([4, 5, 6], action)
    assert (verdict.made, verdict.batch, verdict.bad) == (True, [4, 5, 6], {})


@pytest.mark.parametrize("action", ["raise", "skip", "replace"])
def test_a_batch_that_fails_only_as_a_whole_is_raised_without_a_row(action: str) -> None:
    world = World(whole=lambda rows: BAD if len(rows) > 1 else None)
    verdict = world.repaired([4, 5, 6], action)
    assert (verdict.made, verdict.error, verdict.bad) == (False, BAD, {})
    assert len(world.reads) == 5


def test_retries_come_before_rows_are_looked_at() -> None:
    moments = iter([BAD] * 3)
    world = World(whole=lambda rows: next(moments, None))
    assert world.repaired([4, 5, 6], retries=3).batch == [4, 5, 6]
    assert [len(read.rows) for read in world.reads] == [3] * 4


@pytest.mark.parametrize("action", ["raise", "skip"])
def test_a_map_that_needs_whole_batches_does_not_make_all_rows_bad(action: str) -> None:
    def needs_three(rows: list[int]) -> Exception | None:
        return BAD if len(rows) != 3 or 5 in rows else None

    verdict = World(whole=needs_three).repaired([4, 5, 6], action)
    assert (verdict.made, list(verdict.bad)) == (False, [1])
    replaced = World(whole=needs_three).repaired([4, 5, 6], "replace", others=[5, 9])
    assert replaced.batch == [4, 9, 6]


def test_the_good_rows_are_read_again_if_they_fail_for_a_moment() -> None:
    moments = iter([BAD])
    world = World(bad={2: BAD}, whole=lambda rows: next(moments, None) if len(rows) == 4 else None)
    verdict = world.repaired([1, 2, 3, 4, 5])
    assert (verdict.made, verdict.batch, list(verdict.bad)) == (True, [1, 3, 4, 5], [1])


def test_a_row_that_begins_to_fail_is_found_in_the_next_round() -> None:
    world = World(bad={2: BAD})

    def begins(rows: list[int]) -> Exception | None:
        if len(rows) == 4:
            world.bad[4] = KeyError("from now on")
        return world.bad.get(4) if 4 in rows else None

    world.whole = begins
    verdict = world.repaired([1, 2, 3, 4, 5])
    assert (verdict.made, verdict.batch, verdict.bad) == (True, [1, 3, 5], {1: BAD, 3: world.bad[4]})


def test_rows_that_kill_their_worker_are_not_tried_as_copies() -> None:
    world = World(bad=dict.fromkeys(range(4), WorkerDied("gone")))
    assert set(world.repaired([0, 1, 2, 3]).bad) == {0, 1, 2, 3}
    assert max(len(read.rows) for read in world.reads[1:]) == 1


# -- time limits ---------------------------------------------------------------------------------------------------


def test_one_row_that_hangs_is_known_after_a_short_time() -> None:
    world = World(seconds={7: 1e9})
    verdict = world.repaired(list(range(10)), "raise", timeout=5.0)
    assert list(verdict.bad) == [7]
    assert "timeout=5 s" in str(verdict.bad[7])
    assert {read.timeout for read in world.reads[1:]} == {0.5}


def test_several_slow_rows_get_the_full_time() -> None:
    world = World(seconds={2: 3.0, 5: 4.0, 7: 1e9})
    verdict = world.repaired(list(range(10)), timeout=5.0)
    assert list(verdict.bad) == [7]
    assert verdict.batch == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_a_slow_batch_of_quick_rows_is_made_with_more_time() -> None:
    world = World(seconds=dict.fromkeys(range(10), 0.4))
    verdict = world.repaired(list(range(10)), "raise", timeout=1.0)
    assert (verdict.made, verdict.batch, verdict.bad) == (True, list(range(10)), {})
    assert world.allowance.batch == 4.0
    assert [read.timeout for read in world.reads[-2:]] == [2.0, 4.0]


def test_a_batch_has_at_most_the_time_of_all_its_rows() -> None:
    def never(rows: list[int]) -> Exception | None:
        return SampleTimeout("too long") if len(rows) > 1 else None

    world = World(whole=never)
    verdict = world.repaired(list(range(10)), timeout=1.0)
    assert (verdict.made, verdict.bad) == (False, {})
    assert isinstance(verdict.error, SampleTimeout)
    assert world.allowance.batch == 10.0


def test_a_batch_that_was_given_less_than_others_now_are_is_made_again_first() -> None:
    world = World(seconds=dict.fromkeys(range(4), 0.4))
    allowance = Allowance(1.0, 2.0)
    case = Case(np.arange(4), SampleTimeout("x"), "raise", 0, 2, allowance, 1.0, lambda place, attempt: None)
    steps = repair(case)
    (read,) = next(steps)
    assert (read.rows.tolist(), read.timeout) == ([0, 1, 2, 3], 2.0)
    with pytest.raises(StopIteration) as end:
        steps.send([world.read(read)])
    assert end.value.value.made


def test_the_short_time_follows_the_usual_time_of_a_batch() -> None:
    allowance = Allowance(100.0, 100.0)
    assert allowance.short() == 0.5
    allowance.times.extend([0.1, 0.2, 3.0])
    assert allowance.short() == 4.0
    assert Allowance(0.3, 0.3).short() == 0.3
    assert Allowance(None, None).short() is None


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
        with pytest.raises(bu.TooManyErrors, match=f"all {n} samples of this epoch failed"):
            got.extend(iterator)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert_same_batch(mine, theirs)
    rows = np.concatenate([x for x, _ in faultless])
    assert [(error.row, error.position) for error in iterator.errors] == [
        (int(row), k) for k, row in enumerate(rows) if row in bad
    ]
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
    with pytest.raises(ValueError, match=r"uneven \(in the whole batch, .* \(\[5, 6, 7, 8\], \[5\]\), map") as caught:
        next(iterator)
    assert caught.value.row is None
    assert (caught.value.batch, caught.value.epoch) == (1, 0)
