"""The guide's examples that gather results, and those of the other kinds of source, under the new name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from batchup_ng import data_source

from .guide_program import Array


@pytest.fixture(scope="module")
def test_x() -> Array:
    return np.random.RandomState(5).normal(size=(300, 4))


def count_large(batch_x: Array, batch_y: Array) -> tuple[float, int]:
    """Two sums over the batch: of the rows, and how many have class 1."""
    return float(batch_x.sum()), int((batch_y == 1).sum())


def test_tqdm_is_a_progress_function(test_x: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm", reason="tqdm is an extra")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # else it leaves a thread of its own that watches its bars
    test_ds = data_source.ArrayDataSource([test_x])
    (pred_y,) = test_ds.batch_map_concat(lambda x: x[:, 0], batch_size=64, progress_iter_func=tqdm.tqdm)
    np.testing.assert_array_equal(pred_y, test_x[:, 0])


def test_means_of_sums_come_in_one_line(test_x: Array) -> None:
    val_y = np.arange(300) % 3
    val_ds = data_source.ArrayDataSource([test_x, val_y])
    mean_x, mean_err = val_ds.batch_map_mean(count_large, batch_size=64)
    np.testing.assert_allclose(mean_x, test_x.sum(axis=1).mean())
    np.testing.assert_allclose(mean_err, 1 / 3)


def test_the_functions_work_on_an_iterator_a_few_batches_at_a_time(test_x: Array) -> None:
    batches = data_source.ArrayDataSource([test_x]).batch_iterator(batch_size=5)
    for start in range(0, 300, 10):
        if start % 20 == 0:
            (part,) = data_source.batch_map_concat(lambda x: x[:, 0], batches, n_batches=2)
            np.testing.assert_array_equal(part, test_x[start : start + 10, 0])
        else:
            (mean,) = data_source.batch_map_mean(lambda x: x[:, 0].sum(), batches, n_batches=2)
            np.testing.assert_allclose(mean, test_x[start : start + 10, 0].mean())


def test_a_callable_makes_the_iterator(test_x: Array) -> None:
    def make_batches(batch_size: int) -> Iterator[list[Array]]:
        for start in range(0, len(test_x), batch_size):
            yield [test_x[start : start + batch_size]]

    ds = data_source.CallableDataSource(make_batches)
    assert ds.num_samples() is None
    assert not ds.is_random_access
    np.testing.assert_array_equal(np.concatenate([x for (x,) in ds.batch_iterator(64)]), test_x)
    assert data_source.CallableDataSource(make_batches, 300).num_samples() == 300
    assert data_source.CallableDataSource(make_batches, lambda: 300).num_samples() == 300


def test_a_callable_is_handed_the_options_of_the_iterator(test_x: Array) -> None:
    def make_batches(batch_size: int, shuffle: Any = None, start: int = 0) -> Iterator[tuple[Array]]:
        rows = np.arange(start, len(test_x)) if shuffle is None else shuffle.permutation(len(test_x))
        for first in range(0, len(rows), batch_size):
            yield (test_x[rows[first : first + batch_size]],)

    ds = data_source.CallableDataSource(make_batches).map(lambda x: (x[:, 0],))
    late = np.concatenate([x for (x,) in ds.batch_iterator(64, start=100)])
    np.testing.assert_array_equal(late, test_x[100:, 0])
    mixed = np.concatenate([x for (x,) in ds.batch_iterator(64, shuffle=np.random.RandomState(3))])
    np.testing.assert_array_equal(mixed, test_x[np.random.RandomState(3).permutation(300), 0])


def test_an_iterator_keeps_its_own_batch_size(test_x: Array) -> None:
    batches = ((test_x[start : start + 50],) for start in range(0, 300, 50))
    ds = data_source.IteratorDataSource(batches, 300)
    assert ds.num_samples() == 300
    assert [len(x) for (x,) in ds.batch_iterator(7)] == [50] * 6


def test_a_choice_takes_each_batch_from_one_source() -> None:
    sources = [data_source.ArrayDataSource([np.full(n, n)], repeats=-1) for n in (10, 15, 20)]
    ds = data_source.ChoiceDataSource(sources)
    batches = itertools.islice(ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(1)), 30)
    kinds = [set(x.tolist()) for (x,) in batches]
    assert all(len(kind) == 1 for kind in kinds)
    assert sorted(itertools.chain.from_iterable(kinds)) == [10] * 10 + [15] * 10 + [20] * 10
