"""Bins of at most so many tokens: every row once, nearly full, of equal cost in a step."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import StateError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling.plans import packed
from batchup_ng.testing.sources import assert_same_batches
from tests.messages import raises
from tests.sampling.plans.test_bins import plain_best_fit

MOST, N = 2048, 70_000
KEY = OrderKey(3, 1)
RNG = np.random.default_rng(4)
LENGTHS = {
    "lognormal": np.clip(RNG.lognormal(5.5, 0.8, N), 1, MOST).astype(int),
    "uniform": RNG.integers(1, MOST // 2 + 1, N),
    "texts": np.clip(RNG.permutation(RNG.lognormal(np.repeat([4, 6], N // 2), 0.8)), 1, MOST).astype(int),
}


def epoch(sampler: bu.PackSampler, key: OrderKey | None = KEY, batch_size: int | None = None) -> list[np.ndarray]:
    plan = sampler.row_plan(batch_size or sampler.batch_size, key, False)
    return [plan.rows(number) for number in range(plan.n_batches)]


@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=120),
    spare=st.integers(0, 60),
    window=st.sampled_from([1, 3, 10, 2048]),
    balance=st.sampled_from(["tokens", "squares"]),
    batch_size=st.sampled_from([1, 4, 1000]),
    seed=st.none() | st.integers(0, 2**60),
)
def test_each_row_comes_once_within_bounds_and_any_bin_is_the_same_on_its_own(
    lengths: list[int], spare: int, window: int, balance: str, batch_size: int, seed: int | None
) -> None:
    most = max(1, *lengths) + spare
    sampler = bu.PackSampler(lengths, most, window=window, balance=balance)
    key = None if seed is None else OrderKey(seed, 0)
    bins = epoch(sampler, key, batch_size)
    assert sorted(np.concatenate(bins).tolist()) == list(range(len(lengths)))
    found = np.array(lengths)
    for rows in bins:
        assert 1 <= len(rows) <= batch_size
        assert found[rows].sum() <= most
    for number in (len(bins) - 1, len(bins) // 2):
        plan = bu.PackSampler(lengths, most, window=window, balance=balance).row_plan(batch_size, key, False)
        assert plan.rows(number).tolist() == bins[number].tolist()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=120), st.integers(30, 90), st.integers(1, 2**60))
def test_there_are_no_more_bins_than_plain_best_fit_makes(lengths: list[int], most: int, seed: int) -> None:
    expected = max(plain_best_fit(sorted(lengths, reverse=True), most, 1000)) + 1
    assert len(epoch(bu.PackSampler(lengths, most), OrderKey(seed, 0))) <= expected


@pytest.mark.parametrize("name", LENGTHS)
def test_bins_are_full_and_the_ranks_of_a_step_have_equally_many_tokens(name: str) -> None:
    lengths = LENGTHS[name]
    bins = epoch(bu.PackSampler(lengths, MOST))
    tokens = np.array([lengths[rows].sum() for rows in bins])
    assert tokens.max() <= MOST
    assert tokens.sum() / (MOST * len(bins)) >= 0.995
    for world in (2, 3, 8, 64):
        steps = tokens[: len(tokens) // world * world].reshape(-1, world)
        assert (steps.max(axis=1) / steps.mean(axis=1)).max() <= 1.01


def test_squares_are_balanced_and_do_not_depend_on_the_time() -> None:
    lengths = LENGTHS["lognormal"]
    uneven = {}
    for balance in ("tokens", "squares"):
        cost = np.array([(lengths[rows] ** 2).sum() for rows in epoch(bu.PackSampler(lengths, MOST, balance=balance))])
        steps = cost[: len(cost) // 8 * 8].reshape(-1, 8)
        uneven[balance] = np.median(steps.max(axis=1) / steps.mean(axis=1))
        runs = cost[: len(cost) // 192 * 192].reshape(-1, 192).mean(axis=1)
        assert abs(np.corrcoef(runs, np.arange(len(runs)))[0, 1]) < 0.3
    assert uneven["tokens"] > 1.3
    assert uneven["squares"] < 1.01


def test_bins_are_others_each_epoch_and_those_of_an_order_come_from_one_group() -> None:
    sampler = bu.PackSampler(LENGTHS["uniform"], MOST)
    one, two = ({tuple(sorted(rows.tolist())) for rows in epoch(sampler, OrderKey(3, number))} for number in (0, 1))
    assert len(one & two) < 0.01 * len(one)
    in_order = epoch(sampler, None)
    half = [int(rows.min()) < N // 2 for rows in in_order]  # two groups, of 35,000 rows each
    assert all((int(rows.max()) < N // 2) == first for rows, first in zip(in_order, half, strict=True))
    assert half == sorted(half, reverse=True)


def test_samples_are_counted_without_making_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "KEPT_GROUPS", 1)
    sampler = bu.PackSampler(LENGTHS["uniform"][:66_000] % 50, 200, window=3)
    bins = epoch(sampler)
    before = np.cumsum([0, *map(len, bins)])
    for number in (0, 1, len(bins) // 2, len(bins) - 1, len(bins)):
        plan = sampler.row_plan(200, KEY, False)
        assert plan.samples_before(number) == before[number]
    assert sampler.row_plan(200, KEY, False).batches_until(50_000) == int(np.searchsorted(before, 50_000))
    plan = sampler.row_plan(200, KEY, False)
    for n in (0, 1, 32_999, 33_000, 33_001, 65_999, 66_000, 70_000):
        assert plan.batches_until(n) == min(int(np.searchsorted(before, n)), len(bins))
    assert len(plan._kept) == 1


def test_the_first_batch_needs_no_more_than_the_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    packed_groups: list[int] = []
    pack = packed.PackPlan._pack

    def counted(plan: packed.PackPlan, group: int) -> packed.Packed:
        packed_groups.append(group)
        return pack(plan, group)

    monkeypatch.setattr(packed.PackPlan, "_pack", counted)
    source = bu.ArrayDataSource([np.arange(N)]).sample(bu.PackSampler(LENGTHS["uniform"], MOST))
    iterator = source.batch_iterator(MOST, shuffle=1)
    next(iterator)
    assert packed_groups == [0]
    assert len(iterator) > 17_000
    assert packed_groups == [0, 1]


def test_no_rows_and_rows_that_are_cut() -> None:
    assert epoch(bu.PackSampler([], 8)) == []
    cut = bu.PackSampler([3, 20, 5], 8, longer="cut")
    assert sorted(sorted(rows.tolist()) for rows in epoch(cut)) == [[0, 2], [1]]
    some = bu.PackSampler([3, 20, 5], 8, indices=[2, 0])
    assert [sorted(rows.tolist()) for rows in epoch(some)] == [[0, 2]]


@pytest.mark.parametrize("world", [2, 3])
def test_an_epoch_is_shared_by_ranks_and_goes_on_in_another_world(world: int) -> None:
    lengths = LENGTHS["lognormal"][:900]
    source = bu.ArrayDataSource([np.arange(900)], sampler=bu.PackSampler(lengths, MOST, window=256))
    alone = list(source.batch_iterator(MOST, shuffle=7))
    n = len(alone) // 6 * 6
    ranks = [source.batch_iterator(MOST, shuffle=7, shard=(rank, world), uneven="drop") for rank in range(world)]
    steps = [next(ranks[k % world]) for k in range(n // 2)]
    assert_same_batches(steps, alone[: n // 2])
    state = json.loads(json.dumps(ranks[0].state_dict()))
    assert len(json.dumps(state)) <= 4096
    assert_same_batches(list(islice(source.batch_iterator(MOST, shuffle=7, state=state), n // 2)), alone[n // 2 : n])
    other = bu.ArrayDataSource([np.arange(900)], sampler=bu.PackSampler(lengths, MOST, window=255))
    with raises(StateError):
        other.batch_iterator(MOST, shuffle=7, state=state)


def test_a_loader_needs_no_batch_size_and_maps_see_samples() -> None:
    lengths = LENGTHS["lognormal"][:300]
    texts = bu.Ragged(np.arange(lengths.sum()), np.cumsum([0, *lengths]))
    source = bu.ArrayDataSource({"ids": texts}).sample(bu.PackSampler(texts.lengths, MOST))
    seen: list[Any] = []
    source = source.map(lambda ids: (seen.append(len(ids)), {"ids": ids})[1])
    with bu.Loader(source, shuffle=1, pool="serial") as loader:
        assert sum(len(batch["ids"]) for batch in loader) == 300
    assert len(set(seen)) > 1


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"lengths": [1, -2]}, bu.ArgumentError),
        ({"lengths": [1.5]}, bu.ArgumentTypeError),
        ({"lengths": [9]}, bu.ArgumentError),
        ({"max_tokens": 0}, bu.ArgumentError),
        ({"max_tokens": 1 << 53}, bu.ArgumentError),
        ({"window": 0}, bu.ArgumentError),
        ({"window": 16385}, bu.ArgumentError),
        ({"balance": "square"}, bu.ArgumentError),
        ({"longer": "split"}, bu.ArgumentError),
        ({"longer": "cute"}, bu.ArgumentError),
        ({"indices": [3]}, bu.ArgumentError),
    ],
)
def test_what_cannot_be_packed_is_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    with raises(kind):
        bu.PackSampler(**{"lengths": [1, 2, 3], "max_tokens": 8, **options})
