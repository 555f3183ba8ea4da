"""Maps that make more samples of a batch than were planned, or fewer: what is drawn for them, what is marked."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 24
POOLS = {"serial": bu.SerialPool, "threads": bu.WorkerThreadPool}


def twice(x: np.ndarray) -> Any:
    """Two views of each sample, one batch after the other, as contrastive learning has them."""
    return (np.concatenate([x, x + 100]),)


def beside(x: np.ndarray) -> Any:
    return (np.repeat(x, 2),)


def two_and_a_half(x: np.ndarray) -> Any:
    return (np.concatenate([x, x, x[: len(x) // 2]]),)


def evens(x: np.ndarray) -> Any:
    return (x[x % 2 == 0],)


def drawing(x: np.ndarray, rng: bu.SampleRng) -> Any:
    return x, rng.random(), [g.integers(1 << 62) for g in rng.generators()]


def drawing_one(x: int, rng: np.random.Generator) -> Any:
    return x, rng.random()


def views(make: Any = twice, n: int = N) -> bu.MapDataSource:
    return bu.ArrayDataSource([np.arange(n)]).map(make, resizes=True).map(drawing, rng="sample")


def drawn(batches: Any) -> dict[int, float]:
    """Return the draw of each sample by what it is."""
    return {int(i): float(u) for x, u, _ in batches for i, u in zip(x, u, strict=True)}


@pytest.mark.parametrize("make", [twice, beside, two_and_a_half, evens])
@pytest.mark.parametrize("size", [1, 4, 5])
def test_no_two_rows_share_a_draw(make: Any, size: int) -> None:
    batches = list(views(make).batch_iterator(size, shuffle=3))
    for column in (1, 2):
        draws = np.concatenate([batch[column] for batch in batches])
        assert len(np.unique(draws)) == len(draws)
        assert len(draws) == sum(len(batch[0]) for batch in batches)


def test_samples_of_a_mapped_batch_share_no_draw_either() -> None:
    source = bu.ArrayDataSource([np.arange(N)]).map(twice, resizes=True).map_samples(drawing_one, rng="sample")
    draws = np.concatenate([u for _, u in source.batch_iterator(5)])
    assert len(np.unique(draws)) == 2 * N


def test_views_that_stand_one_after_the_other_do_not_depend_on_the_batch_size() -> None:
    expected = drawn(views().batch_iterator(4, shuffle=3))
    assert len(expected) == 2 * N
    for size in (1, 5, 7, N):
        assert drawn(views().batch_iterator(size, shuffle=3)) == expected
    plain = bu.ArrayDataSource([np.arange(N)]).map(lambda x: (x,)).map(drawing, rng="sample")
    alone = drawn(plain.batch_iterator(6, shuffle=3))
    assert alone.items() <= expected.items()  # the first view draws as the sample itself


@pytest.mark.parametrize("at", [1, 3])
def test_views_are_the_same_in_any_pool_and_resumed(pools: list[AbstractWorkerPool], at: int) -> None:
    expected = list(views().batch_iterator(5, shuffle=3))
    for pool in (bu.SerialPool(), *pools):
        source = pool.parallel_data_source(views())
        before = source.batch_iterator(5, shuffle=3)
        got = [next(before) for _ in range(at)]
        got += list(source.batch_iterator(5, shuffle=3, state=before.state_dict()))
        assert_same_batches(got, expected)


def test_views_on_ranks_that_pad_have_draws_of_their_own() -> None:
    expected = drawn(views(n=10).batch_iterator(4, shuffle=3))
    ranks = [list(views(n=10).batch_iterator(4, shuffle=3, shard=(rank, 2))) for rank in range(2)]
    for x, u, _ in ranks[0] + ranks[1]:
        assert len(x) == len(u) == len(np.unique(u))
        assert {int(i): float(v) for i, v in zip(x, u, strict=True)}.items() <= expected.items()


def fails_at_six(x: np.ndarray) -> Any:
    if 6 in x:
        raise ValueError("no 6")
    return (x,)


def test_views_of_what_is_left_of_a_batch_keep_their_draws() -> None:
    def source() -> bu.ArrayDataSource:
        return bu.ArrayDataSource([np.arange(N)])

    expected = drawn(source().map(twice, resizes=True).map(drawing, rng="sample").batch_iterator(4))
    skipping = source().map(fails_at_six).map(twice, resizes=True).map(drawing, rng="sample")
    with bu.SerialPool() as pool, pytest.warns(bu.SampleWarning):
        got = drawn(pool.parallel_data_source(skipping, on_error="skip").batch_iterator(4))
    assert got == {i: u for i, u in expected.items() if i not in (6, 106)}


def test_samples_out_of_nothing_are_refused() -> None:
    with raises(ArgumentError):
        bu.randomness.BatchKey().sample_rng(3, 0)


# -- masks ---------------------------------------------------------------------------------------------------------


def counted(samples: list[Any]) -> dict[str, np.ndarray]:
    return {"n": np.array([len(samples)])}


def joined(samples: list[Any]) -> Any:
    return (np.concatenate([np.repeat(i, 2) for (i,) in samples]),)


@pytest.mark.parametrize("collate", [counted, joined])
@pytest.mark.parametrize("pool", [None, "serial", "threads"])
def test_a_mask_is_of_the_samples_that_were_planned(collate: Any, pool: str | None) -> None:
    source: Any = bu.ArrayDataSource([np.arange(10)]).collate(collate)
    masks = []
    for rank in range(3):
        with POOLS[pool or "serial"]() as workers:
            over = source if pool is None else workers.parallel_data_source(source)
            batches = over.batch_iterator(4, shard=(rank, 3), pad_mask=True)
            masks += [batch["pad_mask"] if isinstance(batch, dict) else batch[-1] for batch in batches]
    assert sum(int(mask.sum()) for mask in masks) == 10
    assert [len(mask) for mask in masks] == [4, 4, 4]
    assert [mask.all() for mask in masks] == [True, True, False]


def test_a_mask_is_of_the_samples_that_are_left() -> None:
    source = bu.ArrayDataSource([np.arange(10)]).map(fails_at_six).collate(joined)
    got = []
    with bu.WorkerThreadPool(2) as pool:
        skipping = pool.parallel_data_source(source, on_error="skip")
        for rank in range(2):
            ranks = skipping.batch_iterator(4, shard=(rank, 2), pad_mask=True)
            with pytest.warns(bu.SampleWarning) if rank == 1 else contextlib.nullcontext():
                got += list(ranks)
    assert [(x[::2].tolist(), mask.tolist()) for x, mask in got] == [
        ([0, 1, 2, 3], [True] * 4),
        ([8], [True]),
        ([4, 5, 7], [True] * 3),
        ([9], [True]),
    ]
