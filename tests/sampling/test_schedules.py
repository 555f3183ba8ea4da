"""Mixtures whose weights change: exact counts of each phase, parts that leave, the end of the epoch, orders."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import MixtureSampler
from batchup_ng.sampling.eras import Era, EraSampler
from batchup_ng.sampling.schedules import schedule_of, stairs_of
from batchup_ng.testing.samplers import SamplerContract
from tests.messages import raises


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[list[int], list[Any], dict[str, Any]]:
    """Lengths of parts, points of steps, options of the epoch's end."""
    n = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 12), min_size=n, max_size=n))
    weights = st.lists(st.integers(0, 5), min_size=n, max_size=n).filter(any)
    at, points = 0, [(0, draw(weights))]
    for _ in range(draw(st.integers(0, 3))):
        at += draw(st.integers(1, 25))
        points.append((at, draw(weights)))
    end = draw(st.sampled_from([{"until": "all"}, {"until": "first"}, {"length": -1}, {"length": 60}]))
    repeats = draw(st.none() | st.integers(1, 3) | st.lists(st.integers(1, 3), min_size=n, max_size=n))
    return lengths, points, {**end, "max_repeats": repeats}


def made(lengths: list[int], points: list[Any], options: dict[str, Any]) -> MixtureSampler:
    """Return the sampler, or give the example up if it refuses."""
    try:
        return MixtureSampler(lengths, bu.steps(*points), **options)
    except ArgumentError:
        assume(False)
        raise


def in_order(lengths: list[int], points: list[Any], options: dict[str, Any], n: int) -> list[int]:
    """An oracle: the first rows in order, by counting one by one."""
    repeats, first = options["max_repeats"], options.get("until") == "first"
    each = repeats if isinstance(repeats, list) else [repeats or (1 if first else math.inf)] * len(lengths)
    most = [size * times for size, times in zip(lengths, each, strict=True)]
    given = [0] * len(lengths)
    rows: list[int] = []
    weights, turns = points[0][1], []
    while len(rows) < n:
        for position, those in points:
            if position == len(rows):
                weights, turns = those, []  # a new period begins
        if not turns:
            used = [w if count < limit else 0 for w, count, limit in zip(weights, given, most, strict=True)]
            whole = [w // math.gcd(*used) for w in used]
            turns = sorted(((k + 0.5) / count, i) for i, count in enumerate(whole) for k in range(count))
        _, part = turns.pop(0)
        rows.append(sum(lengths[:part]) + given[part] % lengths[part])
        given[part] += 1
        if given[part] == most[part]:
            turns = []  # it leaves
    return rows


@given(mixture=mixtures())
def test_in_order_the_rows_are_those_of_a_loop_that_counts(mixture: Any) -> None:
    sampler = made(*mixture)
    n = min(200, sampler.num_indices_generated())
    assert sampler.rows_at(np.arange(n), None).tolist() == in_order(*mixture, n)


@given(mixture=mixtures(), seed=st.integers(0, 2**64))
def test_counts_of_each_phase_are_exact_to_one_period_in_every_order(mixture: Any, seed: int) -> None:
    lengths, points, options = mixture
    sampler = made(lengths, points, {**options, "max_repeats": None} if options.get("until") != "first" else options)
    n = int(min(150, sampler.num_indices_generated()))
    owners = np.repeat(np.arange(len(lengths)), lengths)
    ends = [min(position, n) for position, _ in points[1:]] + [n]
    for key in (None, OrderKey(seed, 0)):
        parts = owners[sampler.rows_at(np.arange(n), key)]
        for (start, weights), end in zip(points, ends, strict=True):
            whole = np.array(weights) // math.gcd(*weights)
            if start >= end or options.get("until") == "first":
                continue
            counts = np.bincount(parts[start:end], minlength=len(lengths))
            assert (np.abs(counts - (end - start) * whole / whole.sum()) <= whole).all()
            for at in range(start, end - int(whole.sum()) + 1, int(whole.sum())):
                period = np.bincount(parts[at : at + int(whole.sum())], minlength=len(lengths))
                assert period.tolist() == whole.tolist()
    if all(end == stop for (end, _), stop in zip(points[1:], ends, strict=False)):  # the same in every order
        orders = [owners[sampler.rows_at(np.arange(points[-1][0]), key)] for key in (None, OrderKey(seed, 1))]
        assert len({tuple(np.bincount(parts, minlength=len(lengths))) for parts in orders}) == 1


@given(mixture=mixtures(), seed=st.integers(0, 2**64))
def test_no_row_comes_more_often_than_it_may_and_the_epoch_ends_where_it_says(mixture: Any, seed: int) -> None:
    lengths, points, options = mixture
    sampler = made(*mixture)
    if sampler.num_indices_generated() == math.inf:
        return
    n = int(sampler.num_indices_generated())
    repeats = options["max_repeats"]
    each = repeats if isinstance(repeats, list) else [repeats] * len(lengths)
    for key in (None, OrderKey(seed, 0)):
        seen = np.bincount(sampler.rows_at(np.arange(n), key), minlength=sum(lengths))
        parts = np.split(seen, np.cumsum(lengths)[:-1])
        for own, most in zip(parts, each, strict=True):
            assert most is None or own.max() <= most
        if options.get("until") == "first":
            assert any((own == (most or 1)).all() for own, most in zip(parts, each, strict=True))
            assert all(own.max() <= (most or 1) for own, most in zip(parts, each, strict=True))
        if options.get("until") == "all":
            used = [any(weights[i] for _, weights in points) for i in range(len(lengths))]
            assert all((own >= 1).all() for own, is_used in zip(parts, used, strict=True) if is_used)


@given(mixture=mixtures(), seed=st.integers(0, 2**64), cuts=st.lists(st.integers(1, 80), max_size=3), data=st.data())
def test_weights_that_are_set_later_change_nothing_before_and_lose_and_repeat_nothing(
    mixture: Any, seed: int, cuts: list[int], data: st.DataObject
) -> None:
    lengths, points, _ = mixture
    sampler, n = MixtureSampler(lengths, bu.steps(*points), -1), 500
    weights = st.lists(st.integers(0, 5), min_size=len(lengths), max_size=len(lengths)).filter(any)
    eras = [Era(0)]
    for key in (None, OrderKey(seed, 3)):
        before = sampler.rows_at(np.arange(n), key)
        for cut in sorted(set(cuts)):
            shares = data.draw(weights)
            eras.append(Era(cut, schedule_of(shares, len(lengths))))
            changed = EraSampler(sampler, eras, key)
            rows = changed.rows_at(np.arange(n), key)
            assert rows[:cut].tolist() == before[:cut].tolist()
            assert rows[7:9].tolist() == changed.rows_at(np.arange(7, 9), key).tolist()
            period = sum(shares) // math.gcd(*shares)
            end = cut + (n - cut) // period * period
            seen = np.bincount(rows[:end], minlength=sum(lengths))
            parts = np.bincount(np.repeat(np.arange(len(lengths)), lengths)[rows[cut:end]], minlength=len(lengths))
            assert parts.tolist() == [w * (end - cut) // sum(shares) for w in shares]
            for own, share in zip(np.split(seen, np.cumsum(lengths)[:-1]), shares, strict=True):
                assert own.max() - own.min() <= (1 if share else 2)
            before = rows
        eras = [Era(0)]


def test_a_part_that_leaves_leaves_the_others_their_proportions() -> None:
    sampler = MixtureSampler([100, 100, 10], [6, 3, 1], length=190, max_repeats=[1, 1, 2])
    parts = np.minimum(sampler.rows_at(np.arange(190), OrderKey(1, 0)) // 100, 2)
    assert np.bincount(parts[:160]).tolist() == [96, 48, 16]
    assert np.bincount(parts).tolist() == [100, 70, 20]


def test_stairs_of_a_ramp_are_the_weights_in_their_middle() -> None:
    weights = bu.ramp((0, [1, 0]), (1000, [0, 1]), every=100)
    shares = [counts[1] / counts.sum() for _, counts in stairs_of(weights)]
    np.testing.assert_allclose(shares, [*np.arange(0.05, 1, 0.1), 1.0], rtol=1e-9)
    sampler = MixtureSampler([50, 50], weights, 2000)
    drawn = sampler.rows_at(np.arange(2000), OrderKey(1, 0)) >= 50
    for stair, share in enumerate(shares[:-1]):
        assert abs(drawn[stair * 100 : (stair + 1) * 100].sum() - 100 * share) <= 1
    assert drawn[1000:].all()


def test_a_ramp_between_more_points_goes_through_all() -> None:
    weights = bu.ramp((0, [4, 0]), (200, [2, 2]), (400, [2, 2]), (600, [1, 3]))
    assert weights.every == 6
    shares = {position: counts[1] / counts.sum() for position, counts in stairs_of(weights)}
    assert abs(shares[102] - 0.2625) < 0.1
    assert shares[200] == shares[302] == 0.5
    assert shares[600] == 0.75


@given(
    points=st.lists(st.tuples(st.integers(1, 300), st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any)),
                    min_size=2, max_size=4),
    every=st.none() | st.integers(1, 80),
)  # fmt: skip
def test_counts_along_a_ramp_are_within_two_of_the_integral_of_the_weights(points: Any, every: Any) -> None:
    ends = [0, *np.cumsum([length for length, _ in points[1:]]).tolist()]
    weights = bu.ramp(*[(end, shares) for end, (_, shares) in zip(ends, points, strict=True)], every=every)
    stairs = stairs_of(weights)
    shares = [np.array(own) / sum(own) for _, own in points]
    given_, due = np.zeros(3), np.zeros(3)
    for (position, counts), (stop, _) in itertools.pairwise(stairs):
        assert counts.sum() == stop - position
        assert counts.min() >= 0
        given_ += counts
        piece = max(i for i, end in enumerate(ends[:-1]) if end <= position)
        middle = ((position + stop) / 2 - ends[piece]) / (ends[piece + 1] - ends[piece])
        due += (shares[piece] * (1 - middle) + shares[piece + 1] * middle) * (stop - position)
        assert np.abs(given_ - due).max() < 2


@pytest.mark.in_turn
def test_any_part_may_stand_anywhere_in_a_period_and_epochs_are_independent() -> None:
    sampler = MixtureSampler([6, 4], bu.steps((0, [1, 1]), (7, [3, 2])), length=-1)
    rows = np.stack([sampler.rows_at(np.arange(7, 17), OrderKey(1, epoch)) for epoch in range(8000)])
    seen = np.stack([np.bincount(at, minlength=10) for at in rows.T])
    chi2 = ((seen - 800) ** 2 / 800).sum()
    assert abs(chi2 - 81) < 6 * math.sqrt(2 * 81)
    together = np.zeros((10, 10))
    np.add.at(together, (rows[:-1, 0], rows[1:, 0]), 1)
    chi2 = ((together - 79.99) ** 2 / 79.99).sum()
    assert abs(chi2 - 81) < 6 * math.sqrt(2 * 81)


def test_the_part_of_a_period_before_a_change_is_shuffled_too() -> None:
    sampler = MixtureSampler([50, 50], bu.steps((0, [3, 2]), (7, [1, 1])), length=-1)
    drawn = np.stack([sampler.rows_at(np.arange(5, 7), OrderKey(1, epoch)) for epoch in range(400)]) >= 50
    assert (drawn.sum(axis=1) == 1).all()
    assert 150 < drawn[:, 0].sum() < 250


class TestSteps(SamplerContract):
    def make(self) -> MixtureSampler:
        return MixtureSampler([7, 5, 3], bu.steps((0, [2, 1, 1]), (10, [1, 1, 0]), (23, [1, 2, 3])))


class TestOnceEach(SamplerContract):
    def make(self) -> MixtureSampler:
        return MixtureSampler([17, 5, 3], [2, 1, 1], max_repeats=1)


def test_what_was_handed_out_by_simple_weights_is_handed_out_by_one_step() -> None:
    for weights in ([3, 1], [0.25, 0.75]):
        one, other = MixtureSampler([9, 5], weights, 50), MixtureSampler([9, 5], bu.steps((0, weights)), 50)
        for key in (None, OrderKey(3, 2)):
            assert one.rows_at(np.arange(50), key).tolist() == other.rows_at(np.arange(50), key).tolist()
        assert one.fingerprint() == other.fingerprint()


def test_options_belong_to_the_fingerprint() -> None:
    kinds: list[Any] = [
        {"weights": [1, 2]}, {"weights": bu.steps((0, [1, 2]), (9, [2, 1]))}, {"weights": [1, 2], "max_repeats": 2},
        {"weights": bu.steps((0, [1, 2]), (8, [2, 1]))}, {"weights": [1, 2], "max_repeats": [2, 1]},
        {"weights": bu.ramp((0, [1, 2]), (9, [2, 1]))}, {"weights": bu.ramp((0, [1, 2]), (9, [2, 1]), every=2)},
    ]  # fmt: skip
    found = [str(MixtureSampler([9, 5], length=12, **options).fingerprint()) for options in kinds]
    first = str(MixtureSampler([9, 5], [1, 2], until="first").fingerprint())
    assert len({*found, first}) == len(kinds) + 1


def test_a_schedule_is_displayed_as_it_was_written() -> None:
    assert str(bu.steps((0, [7, 2]), (9, [4, 4]))) == "steps((0, [7, 2]), (9, [4, 4]))"
    assert str(bu.ramp((0, [7, 2]), (9, [4, 4]), every=3)) == "ramp((0, [7, 2]), (9, [4, 4]), every=3)"


REFUSED: list[Any] = [
    (lambda: bu.steps(), ArgumentError),
    (lambda: bu.steps((1, [1, 2])), ArgumentError),
    (lambda: bu.steps((0, [1, 2]), (0, [1, 2])), ArgumentError),
    (lambda: bu.steps((0, [1, 2]), (5, [1])), ArgumentError),
    (lambda: bu.steps((0, [1, 2]), (5, [0, 0])), ArgumentError),
    (lambda: bu.steps((0, [1, -2])), ArgumentError),
    (lambda: bu.steps([1, 2, 3]), ArgumentTypeError),
    (lambda: bu.steps((0.5, [1, 2])), ArgumentTypeError),
    (lambda: bu.ramp((0, [1, 2])), ArgumentError),
    (lambda: bu.ramp((0, [1, 2]), (9, [2, 1]), every=0), ArgumentError),
    (lambda: bu.ramp((0, [1, 2]), (10**9, [2, 1]), every=1), ArgumentError),
    (lambda: MixtureSampler([3, 4], bu.steps((0, [1, 2, 3]))), ArgumentError),
    (lambda: MixtureSampler([3, 0], bu.steps((0, [1, 0]), (5, [1, 1]))), ArgumentError),
    (lambda: MixtureSampler([3, 4], length=9, until="all"), ArgumentError),
    (lambda: MixtureSampler([3, 4], until="last"), ArgumentError),
    (lambda: MixtureSampler([3, 4], max_repeats=0), ArgumentError),
    (lambda: MixtureSampler([3, 4], max_repeats=[1]), ArgumentError),
    (lambda: MixtureSampler([3, 4], max_repeats=1.5), ArgumentTypeError),  # type: ignore[arg-type]
    (lambda: MixtureSampler([3, 4], length=8, max_repeats=1), ArgumentError),
    (lambda: MixtureSampler([3, 4], length=-1, max_repeats=1), ArgumentError),
    (lambda: MixtureSampler([3, 40], bu.steps((0, [1, 1]), (10, [1, 0]))), ArgumentError),
    (lambda: MixtureSampler([3, 4], bu.steps((0, [1, 0]), (9, [0, 1])), max_repeats=1), ArgumentError),
]


@pytest.mark.parametrize(("make", "error"), REFUSED)
def test_what_cannot_be_is_refused(make: Any, error: type) -> None:
    with raises(error):
        make()


def test_a_long_schedule_is_found_at_once() -> None:
    points = [(i * 10**9, [1 + i % 7, 1 + i % 5]) for i in range(2000)]
    sampler = MixtureSampler([10**12, 10**12], bu.steps(*points), -1)
    rows = sampler.rows_at(np.array([1999 * 10**9 + 10**8, 5 * 10**9 - 1]), OrderKey(1, 0))
    assert len(rows) == 2
    counts = sampler.phases.counts_before(2000 * 10**9, OrderKey(1, 0))
    due = [sum(10**9 * w[i] / sum(w) for _, w in points) for i in range(2)]
    assert np.abs(counts - due).max() <= 7 * len(points)
    assert all(a != b for a, b in itertools.pairwise(rows.tolist()))
