"""``source.batched``: batches of similar length of any source whose samples have numbers."""

from __future__ import annotations

import collections
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from tests.messages import raises

LENGTHS = (np.arange(60) * 7) % 13 + 1
IDS = [[row] * int(n) for row, n in enumerate(LENGTHS)]


def columns(rows: Any = range(60)) -> dict[str, Any]:
    return {"ids": [IDS[row] for row in rows], "length": LENGTHS[list(rows)], "row": np.array(rows)}


def whole() -> bu.ArrayDataSource:
    return bu.ArrayDataSource(columns())


SOURCES: dict[str, Any] = {
    "array": whole,
    "split": lambda: whole().split([0.7], seed=3)[0],
    "subset": lambda: whole().subset(np.arange(50, 5, -2)),
    "concat": lambda: bu.ArrayDataSource(columns(range(20))).concat(bu.ArrayDataSource(columns(range(20, 60)))),
    "zip": lambda: whole().select("ids", "length").zip(whole().select("row")),
    "take": lambda: whole().take(37),
    "take of repeat": lambda: whole().repeat(2).take(100),
    "map": lambda: whole().map(lambda row: row, on="row"),
    "filter": lambda: whole().filter(lambda length: length % 2 == 1, on="length"),
    "interleaved": lambda: bu.mix(bu.ArrayDataSource(columns(range(40))), bu.ArrayDataSource(columns(range(40, 60)))),
}


def rows_of(batches: Any) -> list[list[int]]:
    return [batch["row"].tolist() for batch in batches]


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("by", ["ids", "length"])
@pytest.mark.parametrize("ranks", [None, 2, "balanced"])
def test_a_source_of_any_making_has_the_batches_of_an_array_of_its_rows(kind: str, by: str, ranks: Any) -> None:
    source = SOURCES[kind]()
    order = np.concatenate(rows_of(source.batch_iterator(8)))
    made = source.batched(by, max_tokens=40, num_buckets=3, ranks=ranks)
    found = rows_of(made.batch_iterator(100, shuffle=5))
    assert collections.Counter(itertools.chain(*found)) == collections.Counter(order.tolist())
    assert max(len(rows) * LENGTHS[rows].max() for rows in found) <= 40
    alone = bu.ArrayDataSource(columns(order)).batched(LENGTHS[order], max_tokens=40, num_buckets=3, ranks=ranks)
    assert found == rows_of(alone.batch_iterator(100, shuffle=5))
    for batch in made.pad("ids").batch_iterator(100, shuffle=5):
        assert batch["ids"].shape == (len(batch["row"]), batch["length"].max())
        assert batch["ids"][:, 0].tolist() == batch["row"].tolist()


def test_the_same_batches_come_by_pools_of_loaders_and_after_a_resume(pools: list[Any]) -> None:
    source = SOURCES["split"]().batched("ids", max_tokens=40, num_buckets=3, ranks="balanced").pad("ids")
    expected = rows_of(source.batch_iterator(100, shuffle=5))
    for pool in (*pools, bu.SerialPool()):
        with bu.Loader(source, shuffle=5, pool=pool) as loader:
            iterator = iter(loader)
            got = [next(iterator)["row"].tolist() for _ in range(3)]
            state = loader.state_dict()
        with bu.Loader(source, shuffle=5, pool="serial") as resumed:
            resumed.load_state_dict(state)
            assert got + rows_of(resumed) == expected


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=120), st.sampled_from([1, 2, 3, 8, "balanced"]),
    st.integers(1, 6), st.integers(0, 99),
)  # fmt: skip
def test_each_row_comes_once_whatever_stays_together(lengths: list[int], ranks: Any, buckets: int, seed: int) -> None:
    source = bu.ArrayDataSource({"row": np.arange(len(lengths))})
    made = source.batched(lengths, max_tokens=60, num_buckets=buckets, ranks=ranks)
    batches = rows_of(made.batch_iterator(7, shuffle=seed))
    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    iterator = made.batch_iterator(7, shuffle=seed)
    counts = [len(rows) for rows in batches]
    assert len(iterator) == len(batches)
    for _ in range(len(batches) // 2):
        next(iterator)
    again = made.batch_iterator(7, shuffle=seed, state=iterator.state_dict())
    assert [len(rows) for rows in rows_of(again)] == counts[len(batches) // 2 :]


def test_the_ranks_of_a_step_have_about_as_many_tokens() -> None:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4, 0.8, 30_000), 1, 512).astype(int)
    source = bu.ArrayDataSource({"row": np.arange(len(lengths))})

    def excess(ranks: Any, world: int) -> float:
        """Return the tokens of the fullest rank of a step as a multiple of the mean, after padding: the mean."""
        made = source.batched(lengths, max_tokens=4096, num_buckets=16, ranks=ranks)
        tokens = [len(rows) * int(lengths[rows].max()) for rows in rows_of(made.batch_iterator(10**6, shuffle=1))]
        steps = np.array(tokens[: len(tokens) // world * world]).reshape(-1, world)
        return float(np.mean(steps.max(1) / steps.mean(1)))

    for world in (2, 4, 8):
        assert excess("balanced", world) - 1 < 0.5 * (excess(None, world) - 1)
        assert excess(8, world) - 1 < 0.5 * (excess(None, world) - 1)


@pytest.mark.in_turn
def test_groups_of_batches_and_what_is_left_come_in_a_random_order() -> None:
    """Each batch comes about as often at each place of a few, whether it fills a group or not."""
    lengths = np.repeat(np.arange(1, 24), 2)  # 23 batches of 2 rows: 5 groups of 4, and 3 left
    made = bu.ArrayDataSource({"row": np.arange(46)}).batched(lengths, boundaries=range(2, 24), ranks=4)
    first, last = collections.Counter[int](), collections.Counter[int]()
    epochs = 600
    for epoch in range(epochs):
        numbers = [lengths[rows].mean() for rows in rows_of(made.batch_iterator(2, shuffle=3, epoch=epoch))]
        assert len(numbers) == 23
        groups = np.reshape(numbers[:20], (5, 4))
        assert (np.diff(groups) > 0).all()
        first[int(np.argsort(np.argsort(groups[:, 0]))[0])] += 1
        last.update(round(n) for n in numbers[20:])
    assert sorted(first) == list(range(5))
    assert max(abs(count - epochs / 5) for count in first.values()) < 5 * np.sqrt(epochs / 5)
    assert len(last) == 23
    expected = 3 * epochs / 23
    assert max(abs(count - expected) for count in last.values()) < 6 * np.sqrt(expected)


def test_what_cannot_be_batched_by_length_is_refused() -> None:
    source = whole()
    with raises(ArgumentError):
        source.batched("nothing")
    with raises(ArgumentError):
        source.batched("ids", max_tokens=5)
    with raises(ArgumentError):
        source.batched([1, 2, 3])
    with raises(ArgumentError):
        source.batched("ids", ranks=0)
    with raises(ArgumentError):
        source.batched("ids", ranks="even")
    with raises(ArgumentTypeError):
        bu.ArrayDataSource({"x": np.zeros(3)}).batched("x")
    with raises(ArgumentTypeError):
        source.batched("ids").split([0.5], seed=1)
