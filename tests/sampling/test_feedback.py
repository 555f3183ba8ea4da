"""Rows with a large loss come more often, by the losses of the last epoch but one."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, InOrderNotSupported, StateError
from tests.messages import raises

N, SIZE = 50, 5


def expected_chances(known: dict[int, float], n: int, alpha: float, floor: float) -> np.ndarray:
    """Return the chances by the definition: `known` has the loss of each row that has one."""
    largest = max(known.values(), default=1.0)
    if largest == 0:
        return np.full(n, 1 / n)
    weights = np.array([(known.get(row, largest) / largest) ** alpha for row in range(n)])
    return (1 - floor) * weights / weights.sum() + floor / n


def loss(rows: np.ndarray, epoch: int) -> np.ndarray:
    return (rows * 7 % 11 + epoch) / 3.0


def trained(sampler: bu.FeedbackSampler, loader: bu.Loader, epochs: int, steps: int | None = None) -> list[list[int]]:
    """Loop over some epochs, and report a loss for each row. Return the rows of each batch; end after `steps`."""
    seen: list[list[int]] = []
    for _ in range(epochs):
        for batch in loader:
            rows = batch["index"]
            seen.append(rows.tolist())
            sampler.update(rows, loss(rows, loader.epoch), epoch=loader.epoch)
            if len(seen) == steps:
                return seen
    return seen


def source(sampler: bu.FeedbackSampler, n: int = N) -> Any:
    return bu.ArrayDataSource({"x": np.arange(n)}).with_index().sample(sampler)


def reference(epochs: int, **options: Any) -> list[list[int]]:
    sampler = bu.FeedbackSampler(N, 0.7, **options)
    with bu.Loader(source(sampler), SIZE, shuffle=3, pool="serial", buffer=1) as loader:
        return trained(sampler, loader, epochs)


@given(st.integers(1, 12), st.floats(0, 3), st.floats(0, 1), st.integers(1, 5), st.data())
def test_the_chances_are_those_of_the_losses_before_the_last_epoch(
    n: int, alpha: float, floor: float, epochs: int, data: Any
) -> None:
    sampler, known = bu.FeedbackSampler(n, alpha, floor=floor), [dict[int, float]()]
    for epoch in range(epochs):
        of_epoch: dict[int, float] = {}
        for _ in range(data.draw(st.integers(1, 3))):
            rows = data.draw(st.lists(st.integers(0, n - 1), max_size=6))
            losses = [data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e9])) for _ in rows]
            sampler.update(rows, losses, epoch)
            for row, value in zip(rows, losses, strict=True):
                of_epoch[row] = max(value, of_epoch.get(row, 0.0))
        known.append({**known[-1], **of_epoch})
        for seen in (epoch, epoch + 1):
            before = known[max(seen - 1, 0)]
            np.testing.assert_allclose(sampler.chances(seen), expected_chances(before, n, alpha, floor))
        if epoch + 2 <= epochs + 1:
            with raises(StateError):
                sampler.chances(epoch + 2)


def test_rows_come_in_proportion_to_their_chances(in_full: bool) -> None:
    sampler = bu.FeedbackSampler(4, 1, floor=0.2, num_samples=20_000 if in_full else 4000)
    sampler.update(range(4), [1, 2, 3, 2], 0)
    sampler.update([], [], 1)
    chances = 0.8 * np.array([1, 2, 3, 2]) / 8 + 0.05
    np.testing.assert_allclose(sampler.chances(2), chances)
    for epoch in (0, 2):
        batches = source(sampler, 4).batch_iterator(64, shuffle=1, epoch=epoch)
        rows = np.concatenate([batch["index"] for batch in batches])
        expected = len(rows) * (chances if epoch else np.full(4, 0.25))
        chi_squared = ((np.bincount(rows, minlength=4) - expected) ** 2 / expected).sum()
        assert len(rows) == sampler.num_samples
        assert chi_squared < 30
    weighted = sampler.importance(rows, 2)
    values = np.array([3.0, -1.0, 8.0, 2.0])
    estimate = weighted * values[rows]
    assert abs(estimate.mean() - values.mean()) < 5 * estimate.std() / math.sqrt(len(rows))
    np.testing.assert_allclose(sampler.importance([1, 1], 2, beta=0.5), (4 * chances[[1, 1]]) ** -0.5)
    assert sampler.importance(rows, 2, beta=0).tolist() == [1.0] * len(rows)


@pytest.mark.parametrize("buffer", [1, 3, 8])
def test_the_same_updates_give_the_same_run_in_every_pool(pools: list[Any], buffer: int) -> None:
    expected = reference(4)
    assert len(expected) == 4 * N // SIZE
    assert expected[20:] != reference_without_losses()[20:]
    for pool in (*pools, bu.SerialPool()):
        sampler = bu.FeedbackSampler(N, 0.7)
        with bu.Loader(source(sampler), SIZE, shuffle=3, pool=pool, buffer=buffer) as loader:
            assert trained(sampler, loader, 4) == expected


def reference_without_losses() -> list[list[int]]:
    sampler = bu.FeedbackSampler(N, 0.7)
    with bu.Loader(source(sampler), SIZE, shuffle=3, pool="serial", buffer=1) as loader:
        seen = []
        for _ in range(4):
            for batch in loader:
                seen.append(batch["index"].tolist())
                sampler.update([], [], epoch=loader.epoch)
    return seen


@pytest.mark.parametrize("stop", [1, 9, 10, 11, 19, 20, 21, 25, 30, 31, 39])
def test_a_run_goes_on_where_its_states_were_saved(stop: int, pools: list[Any]) -> None:
    expected = reference(5)
    sampler = bu.FeedbackSampler(N, 0.7)
    with bu.Loader(source(sampler), SIZE, shuffle=3, pool=pools[0], buffer=4) as loader:
        seen = trained(sampler, loader, 5, stop)
        state, of_sampler = loader.state_dict(), pickle.loads(pickle.dumps(sampler.state_dict()))
        trained(sampler, loader, 1)  # nothing of it is in the states
    again = bu.FeedbackSampler(N, 0.7)
    again.load_state_dict(of_sampler)
    with bu.Loader(source(again), SIZE, shuffle=3, pool=pools[1], buffer=2) as loader:
        loader.load_state_dict(state)
        left = len(expected) - stop
        while len(seen) < len(expected):
            seen += trained(again, loader, 1)
    assert len(seen) == len(expected)
    assert left > 0
    assert seen == expected


def test_ranks_agree_and_any_number_of_them_goes_on_from_their_states() -> None:
    """Ranks that take turns in one process, with an exchange of their own."""
    rng = np.random.default_rng(0)
    batches = [[rng.integers(0, N, 8) for _ in range(12)] for _ in range(3)]
    alone = bu.FeedbackSampler(N, 0.5)
    for epoch, of_epoch in enumerate(batches):
        for rows in of_epoch:
            alone.update(rows, loss(rows, epoch), epoch)

    def of_ranks(world: int, samplers: list[bu.FeedbackSampler], epochs: Any) -> None:
        for epoch in epochs:
            for step in range(0, 12, world):
                reports = [list(range(step + rank, 12, 12)) for rank in range(world)]
                own = [copy.deepcopy((sampler._reported, sampler._updates)) for sampler in samplers]
                said = [(told, *joined(updates)) for told, updates in own]
                for rank, sampler in enumerate(samplers):

                    def gather(value: Any, rank: int = rank, said: Any = said) -> Any:
                        names = [value if other == rank else str(other) for other in range(world)]
                        return names if isinstance(value, str) else said

                    sampler._gather = gather
                    for k in reports[rank]:
                        sampler.update(batches[epoch][k], loss(batches[epoch][k], epoch), epoch)

    def joined(updates: Any) -> Any:
        rows = [rows for rows, _ in updates] or [np.zeros(0, int)]
        return np.concatenate(rows), np.concatenate([losses for _, losses in updates] or [np.zeros(0)])

    four = [bu.FeedbackSampler(N, 0.5) for _ in range(4)]
    of_ranks(4, four, [0, 1])
    states = [sampler.state_dict() for sampler in four]
    assert [(state["rank"], state["world"]) for state in states] == [(rank, 4) for rank in range(4)]
    two = [bu.FeedbackSampler(N, 0.5) for _ in range(2)]
    for sampler in two:
        sampler.load_state_dict(states[::-1])
        again = bu.FeedbackSampler(N, 0.5, gather=lambda own: [own])
        again.load_state_dict(states[::-1])
        whole = again.state_dict()
        again.load_state_dict([whole] * 2)  # with no report since, the state of each rank has the reports of all
        assert again.state_dict()["rows"].tolist() == sampler.state_dict()["rows"].tolist()
    of_ranks(2, two, [2])
    for sampler in two:
        for epoch in (1, 2, 3):
            assert sampler.chances(epoch).tolist() == alone.chances(epoch).tolist()
    with raises(StateError):
        two[0].load_state_dict(states[1])
    with raises(StateError):
        two[0].load_state_dict(states[:3])
    with raises(StateError):
        two[0].load_state_dict([])
    with raises(StateError):
        two[0].load_state_dict([{**bu.FeedbackSampler(N, 0.5).state_dict(), "world": 4}, *states[1:]])


def test_what_comes_too_early_or_too_late_is_named() -> None:
    sampler = bu.FeedbackSampler(N, 0.7)
    with raises(StateError):
        next(source(sampler).batch_iterator(SIZE, shuffle=1, epoch=2))
    with raises(ArgumentError):
        sampler.update([1], [1.0], epoch=1)  # epoch 0 was not reported
    sampler.update([1], [1.0], epoch=0)
    with raises(ArgumentError):
        sampler.update([1], [1.0], epoch=2)
    for epoch in range(1, 6):
        sampler.update([1], [1.0], epoch=epoch)
    with raises(ArgumentError):
        sampler.update([1], [1.0], epoch=4)
    sampler.chances(4)
    with raises(StateError):
        sampler.chances(2)
    with bu.Loader(source(bu.FeedbackSampler(N, 0.7)), SIZE, shuffle=3, pool="serial", buffer=30) as loader, raises(
        StateError
    ):
        trained(bu.FeedbackSampler(N, 0.7), loader, 3)  # another sampler is told


def torch_like(error: Exception) -> Any:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise error

    return Tensor()


def test_ranks_that_cannot_exchange_their_losses_are_refused() -> None:
    """Otherwise each rank would draw other rows, and the ranks would no longer share one epoch."""
    alone = bu.FeedbackSampler(N, 0.7)
    for made in (source(alone), bu.take(source(alone), 20), source(alone).map(lambda index, x: {"x": x})):
        with raises(ArgumentError):
            made.batch_iterator(SIZE, shuffle=1, shard=(0, 2))
    told_all = bu.FeedbackSampler(N, 0.7, gather=lambda own: [own])
    parts = [source(told_all).batch_iterator(SIZE, shuffle=1, shard=(rank, 2)) for rank in range(2)]
    whole = source(alone).batch_iterator(SIZE, shuffle=1)
    shared = [batch["index"].tolist() for step in zip(*parts, strict=True) for batch in step]
    assert shared == [batch["index"].tolist() for batch in whole]


def test_a_function_that_does_not_gather_is_refused_and_so_is_a_copy_of_the_sampler() -> None:
    for gather in (lambda own: [], lambda own: [own, own], lambda own: ["other"]):
        with raises(ArgumentError):
            bu.FeedbackSampler(N, 0.7, gather=gather).update([1], [1.0], 0)
    sampler = bu.FeedbackSampler(N, 0.7, gather=lambda own: [own])
    for copied in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        with raises(ArgumentError):
            copied.update([1], [1.0], 0)


def test_what_is_no_report_and_no_sampler_is_refused() -> None:
    sampler = bu.FeedbackSampler(N, 0.7)
    for sources in (
        lambda: source(sampler)[3],
        lambda: bu.subset(source(sampler), [1]),
        lambda: bu.concat(source(sampler), source(sampler)),
        lambda: source(sampler).split([0.5, 0.5], seed=1),
        lambda: bu.mix(source(sampler), source(sampler)),
    ):
        with raises(ArgumentTypeError):
            sources()
    for losses in (["much"], [1j], torch_like(TypeError("no bfloat16")), torch_like(RuntimeError("a gradient"))):
        with raises(ArgumentTypeError):
            sampler.update([1], losses, 0)
    with raises(ArgumentError):
        sampler.update(1, [1.0], 0)
    with raises(StateError):
        sampler.load_state_dict(None)
    for rows, losses in (
        ([N], [1.0]), ([-1], [1.0]), ([1, 2], [1.0]), ([1], [math.nan]), ([1], [-1.0]), ([1, 2], [0.0, math.inf]),
        ([1], [[1.0]]),
    ):  # fmt: skip
        with raises(ArgumentError):
            sampler.update(rows, losses, 0)
    with raises(ArgumentTypeError):
        sampler.update([1.5], [1.0], 0)
    with raises(ArgumentError):
        sampler.update([1], [1.0], -1)
    assert sampler._updates == []
    for options in ({"alpha": -1}, {"alpha": math.nan}, {"floor": 1.5}, {"num_samples": 0}, {"n": 0}):
        with raises(ArgumentError):
            bu.FeedbackSampler(**{"n": 3, "alpha": 1.0, **options})
    for options in ({"alpha": "much"}, {"n": 2.5}, {"gather": 3}):
        with raises(ArgumentTypeError):
            bu.FeedbackSampler(**{"n": 3, "alpha": 1.0, **options})
    with raises(InOrderNotSupported):
        next(source(sampler).batch_iterator(SIZE))
    with raises(ArgumentTypeError):
        next(source(sampler).batch_iterator(SIZE, shuffle=np.random.RandomState(1)))
    with raises(StateError):
        bu.FeedbackSampler(N, 0.5).load_state_dict(sampler.state_dict())
    with raises(ArgumentError):
        sampler.importance([N], 0)
    with raises(ArgumentError):
        bu.ArrayDataSource([np.arange(3)]).sample(sampler)


def test_a_damaged_state_is_refused_and_changes_nothing() -> None:
    sampler = bu.FeedbackSampler(N, 1.0)
    for epoch in range(5):
        sampler.update([epoch, epoch + 1], [1.0, 2.0], epoch)
    good = sampler.state_dict()
    losses = good["losses"]
    damaged: list[dict[str, Any]] = [{name: good[name] for name in good if name != without} for without in good]
    damaged += [{**good, **change} for change in (
        {"epoch": -1}, {"epoch": "4"}, {"epoch": 5}, {"rank": 1.5}, {"world": None}, {"reported": "yes"},
        {"losses": {}}, {"losses": {**losses, "3": losses["3"][1:]}}, {"losses": {**losses, "3": -losses["3"]}},
        {"losses": {**losses, "3": losses["3"] * math.inf}}, {"losses": {**losses, "3": [None] * N}}, {"losses": 3},
        {"rows": [N, 1]}, {"rows": [-1, 1]}, {"rows": [1]}, {"rows": [1.0, 2.0]}, {"row_losses": [1.0, math.inf]},
        {"row_losses": [1.0, -1.0]}, {"row_losses": ["a", "b"]},
    )]  # fmt: skip
    other = bu.FeedbackSampler(N, 1.0)
    for state in damaged:
        with raises(StateError):
            other.load_state_dict(state)
        assert other.state_dict()["epoch"] == 0
    other.load_state_dict(good)
    np.testing.assert_array_equal(other.chances(5), sampler.chances(5))
    np.testing.assert_array_equal(other.state_dict()["rows"], good["rows"])
