"""Functions over whole epochs, what becomes a source, sources of the users."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import AbstractDataSource
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from tests.data_source.source_helpers import A, uniform
from tests.messages import raises


def test_results_are_joined_and_averaged() -> None:
    source = bu.ArrayDataSource([A, A * 2.0])
    joined = source.batch_map_concat(lambda k, x, y: (x + k, y), 4, prepend_args=(100,))
    assert joined is not None
    np.testing.assert_array_equal(joined[0], A + 100)
    mean = source.batch_map_mean(lambda x, y: (float(x.sum()), y), 4, sum_axis=None, n_batches=1)
    assert mean is not None
    mean = source.batch_map_mean(lambda x, y: (x, y), 4, sum_axis=0)
    assert mean == (4.5, 9.0)
    assert source.batch_map_concat(lambda x, y: None, 4) is None
    assert source.batch_map_mean(lambda x, y: None, 4) is None


def test_endless_sources_need_a_number_of_batches() -> None:
    source = bu.ArrayDataSource([A], repeats=-1)
    for method in (source.batch_map_concat, source.batch_map_mean):
        with raises(ArgumentError):
            method(lambda x: x, 4)


@pytest.mark.parametrize("n_batches", [0, -1])
def test_no_batches_are_refused(n_batches: int) -> None:
    source = bu.ArrayDataSource([A])
    for function in (bu.batch_map_concat, bu.batch_map_mean):
        with raises(ArgumentError):
            function(lambda x: x, source.batch_iterator(4), n_batches=n_batches)
    for method in (source.batch_map_concat, source.batch_map_mean):
        with raises(ArgumentError):
            method(lambda x: x, 4, n_batches=n_batches)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1.5), ("int8", 100), ("uint8", 200), ("int32", 2**30), ("uint32", 2**31)]
)
def test_sums_of_results_keep_their_digits(dtype: str, value: float) -> None:
    source = bu.ArrayDataSource([np.full(70_000, value, dtype)])
    for mean in (
        source.batch_map_mean(lambda x: x, 64, sum_axis=0),
        source.take(3000).batch_map_mean(lambda x: x[:1], 1),
        source.take(3000).batch_map_mean(lambda x: x[0], 1),  # numbers of NumPy
    ):
        assert mean == (value,)


def test_results_of_another_kind_are_refused() -> None:
    source = bu.ArrayDataSource([A])
    for method in (source.batch_map_concat, source.batch_map_mean):
        with raises(ArgumentTypeError):
            method(lambda x: "text", 4)


def test_arrays_iterators_and_functions_become_sources() -> None:
    source = bu.ArrayDataSource([A])
    assert bu.coerce_data_source(source) is source
    assert isinstance(bu.coerce_data_source((A, A)), bu.ArrayDataSource)
    assert isinstance(bu.coerce_data_source(iter([])), bu.IteratorDataSource)
    assert isinstance(bu.coerce_data_source(lambda batch_size: iter([])), bu.CallableDataSource)
    for bad, error in ((3, ArgumentTypeError), ([], ArgumentError), ([3], ArgumentTypeError)):
        with raises(error):
            bu.coerce_data_source(bad)


class WrittenForBatchUp(AbstractDataSource):
    """A source of a user's that knows only BatchUp's methods."""

    @property
    def is_random_access(self) -> bool:
        return True

    def num_samples(self, **kwargs: Any) -> int:
        return 11

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        order = np.arange(11) if shuffle is None else shuffle.permutation(11)
        return (order[i : i + batch_size] for i in range(0, 11, batch_size))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices * 2,)

    def batch_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        for rows in self.batch_indices_iterator(batch_size, shuffle):
            yield self.samples_by_indices_nomapping(rows)


@pytest.mark.parametrize("shuffle", [None, 5, "RandomState"])
def test_sources_written_for_batchup_go_anywhere(shuffle: Any) -> None:
    def rng() -> Any:
        return np.random.RandomState(4) if shuffle == "RandomState" else shuffle

    mine = WrittenForBatchUp()
    for source in (mine, mine.map(lambda x: (x + 1,)), bu.CompositeDataSource([mine, bu.ArrayDataSource([A])]),
                   bu.ChoiceDataSource([mine, mine], stratified=True), bu.take(mine, 7)):  # fmt: skip
        with bu.WorkerThreadPool(2) as pool:
            got = list(pool.parallel_data_source(source).batch_iterator(4, shuffle=rng()))
        if source is not mine or shuffle != 5:
            assert_same_batches(got, list(source.batch_iterator(4, shuffle=rng())))
        assert got


def test_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"shuffle": 3}, {"shuffle": np.random.RandomState(1)}):
            list(bu.ArrayDataSource([A], repeats=3).map(uniform, rng="sample").batch_iterator(4, **options))


def test_values_of_single_samples_point_to_sum_axis() -> None:
    source = bu.ArrayDataSource([A * 1.0])
    for batch_size in (4, 9):  # of which a last batch of 1 would be added to each of the others
        with raises(ArgumentError):
            source.batch_map_mean(lambda x: x * 2, batch_size)
        assert source.batch_map_mean(lambda x: x * 2, batch_size, sum_axis=0) == (9.0,)


def test_functions_are_called_by_name() -> None:
    source = bu.ArrayDataSource({"x": A * 1.0, "y": A + 1.0})
    assert source.batch_map_mean(lambda k, x, y: (k * (y - x)).sum(), 4, prepend_args=(3,)) == (3.0,)
    result = source.batch_map_concat(lambda y, x: y, 4)
    assert result is not None
    np.testing.assert_array_equal(result[0], A + 1.0)


def test_a_function_may_return_one_array_again_and_again() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    memory, total = np.empty((8, 3)), np.empty(3)

    def doubled(x: np.ndarray) -> Any:
        return np.multiply(x, 2, out=memory[: len(x)]), np.array([1])

    def summed(x: np.ndarray) -> Any:
        return np.sum(x, axis=0, out=total)

    source = bu.ArrayDataSource([x])
    joined, ones = bu.batch_map_concat(doubled, source.batch_iterator(8)) or ()
    np.testing.assert_array_equal(joined, 2 * x)
    assert ones.tolist() == [1, 1, 1]
    (mean,) = bu.batch_map_mean(summed, source.batch_iterator(8)) or ()
    np.testing.assert_allclose(mean, x.mean(axis=0))
