"""Where we differ from BatchUp on purpose, each with its reason."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchup_ng import data_source, sampling, work_pool

from .comparing import Library, assert_same_stream, leaf_lengths, take, warnings_are_errors
from .sources import mixed_trees


@given(spec=mixed_trees, batch_size=st.integers(1, 30), seed=st.integers(0, 2**32 - 1))
def test_untrimmed_composites_give_the_same_by_a_pool(ours: Library, spec: Any, batch_size: int, seed: int) -> None:
    # BatchUp trims index batches whatever `trim` says, so that its pools end with shorter batches than plain iteration.
    limit = 10 if spec.endless else None
    serial = take(spec.build(ours).batch_iterator(batch_size, shuffle=np.random.RandomState(seed)), limit)
    with work_pool.WorkerThreadPool(processes=2) as pool:
        par_ds = pool.parallel_data_source(spec.build(ours))
        pooled = take(par_ds.batch_iterator(batch_size, shuffle=np.random.RandomState(seed)), limit)
    assert_same_stream(pooled, serial)


def test_an_untrimmed_composite_ends_ragged_by_every_route(pool: work_pool.AbstractWorkerPool) -> None:
    parts = [data_source.ArrayDataSource([np.arange(n)]) for n in (13, 11)]
    ds = data_source.CompositeDataSource(parts, trim=False)
    by_indices = [ds.samples_by_indices_nomapping(rows) for rows in ds.batch_indices_iterator(5)]
    by_pool = list(pool.parallel_data_source(ds).batch_iterator(5))
    for batches in (list(ds.batch_iterator(5)), by_indices, by_pool):
        assert [leaf_lengths(batch) for batch in batches] == [[5, 5], [5, 5], [3, 1]]


def test_a_choice_inside_a_composite_is_trimmed_in_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    # BatchUp cuts through the pair that names the chosen source, so that its pools fail with a TypeError.
    choice = data_source.ChoiceDataSource([data_source.ArrayDataSource([np.arange(n)]) for n in (13, 11)])
    ds = data_source.CompositeDataSource([choice, data_source.ArrayDataSource([np.arange(100, 118)])])
    assert_same_stream(list(pool.parallel_data_source(ds).batch_iterator(5)), list(ds.batch_iterator(5)))


def stratified(lengths: list[int]) -> data_source.ChoiceDataSource:
    """Sources whose samples are all different, chosen from by turns."""
    starts = np.cumsum([0, *lengths])
    parts = [data_source.ArrayDataSource([np.arange(a, b)]) for a, b in itertools.pairwise(starts)]
    return data_source.ChoiceDataSource(parts, stratified=True)


@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    batch_size=st.integers(1, 12),
    shuffle=st.booleans(),
)
def test_no_sample_of_a_stratified_choice_is_lost(lengths: list[int], batch_size: int, shuffle: bool) -> None:
    # BatchUp stops after ceil(samples / batch size) batches. Each part ends with a short batch of its own, so
    # that there are more than those, and the last ones are never seen.
    rng = np.random.RandomState(1) if shuffle else None
    (seen,) = stratified(lengths).batch_map_concat(lambda x: x, batch_size, shuffle=rng)
    assert sorted(seen) == list(range(sum(lengths)))
    (mean,) = stratified(lengths).batch_map_mean(lambda x: float(x.sum()), batch_size, shuffle=rng)
    np.testing.assert_allclose(mean, np.arange(sum(lengths)).mean())


def test_a_plain_choice_gathers_all_the_batches_it_gives() -> None:
    parts = [data_source.ArrayDataSource([np.arange(start, start + 3)]) for start in (0, 3)]
    (seen,) = data_source.ChoiceDataSource(parts).batch_map_concat(lambda x: x, 2)
    np.testing.assert_array_equal(seen, [0, 1, 3, 4, 2, 5])


@given(spec=mixed_trees, batch_size=st.integers(1, 30))
def test_the_length_of_an_iterator_is_known_or_refused(ours: Library, spec: Any, batch_size: int) -> None:
    # BatchUp's iterators are generators, which tell nothing of their length.
    assume(not spec.only_shuffled)
    with spec.build(ours).batch_iterator(batch_size) as batches:
        if spec.endless:
            with pytest.raises(TypeError):
                len(batches)
        else:
            length = len(batches)
            assert len(list(batches)) == length


BAD_WEIGHTS = {
    "nan": [1.0, np.nan, 2.0],
    "infinite": [1.0, np.inf, 2.0],
    "negative": [1.0, -1.0, 2.0],
    "all zero": [0.0, 0.0, 0.0],
    "none": [],
}


@pytest.mark.parametrize("weights", BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_weights_that_are_no_weights_are_refused_when_given(weights: list[float]) -> None:
    # BatchUp takes most of them, and fails inside NumPy at the first batch, or warns and goes on.
    with warnings_are_errors():
        with pytest.raises(ValueError, match="weights"):
            sampling.WeightedSampler(np.array(weights))
        with pytest.raises(ValueError, match="weights"):
            sampling.WeightedSubsetSampler(np.array(weights), np.arange(len(weights)))


def test_a_sample_of_weight_zero_is_never_drawn() -> None:
    sampler = sampling.WeightedSampler(np.array([0.0, 1.0, 0.0, 2.0, 0.0]))
    for rows in itertools.islice(sampler.shuffled_indices_batch_iterator(100, np.random.RandomState(1)), 20):
        assert set(rows.tolist()) == {1, 3}


def test_classes_without_samples_weigh_nothing_and_warn_of_nothing() -> None:
    # BatchUp divides by the count of each class, 0 for one that is absent, and NumPy warns.
    y = np.array([0, 0, 0, 4, 2, 2])
    with warnings_are_errors():
        weights = sampling.WeightedSampler.class_balancing_sample_weights(y)
        sampler = sampling.WeightedSampler.class_balancing_sampler(y)
        subset = sampling.WeightedSubsetSampler.class_balancing_sampler(y, np.array([0, 3, 4]))
    np.testing.assert_allclose([weights[y == kind].sum() for kind in (0, 2, 4)], 1 / 3)
    for made in (sampler, subset):
        rows = next(iter(made.shuffled_indices_batch_iterator(3000, np.random.RandomState(1))))
        shares = np.bincount(y[rows], minlength=5) / 3000
        np.testing.assert_allclose(shares, [1 / 3, 0, 1 / 3, 0, 1 / 3], atol=0.04)


def test_more_classes_than_were_seen_may_be_named() -> None:
    y = np.array([0, 0, 0, 2])
    with warnings_are_errors():
        weights = sampling.WeightedSampler.class_balancing_sample_weights(y, n_classes=10)
    np.testing.assert_allclose(weights / weights.sum(), [1 / 6, 1 / 6, 1 / 6, 1 / 2])


def test_misspelt_options_are_refused() -> None:
    # BatchUp's sources swallow every option that they do not know.
    ds = data_source.ArrayDataSource([np.arange(10)])
    with pytest.raises(TypeError, match="shufle"):
        ds.batch_iterator(5, shufle=True)


def test_a_task_may_be_a_function_alone_or_have_named_arguments(pool: work_pool.AbstractWorkerPool) -> None:
    # BatchUp's guide promises these, and its `work_stream` fails on them.
    tasks: list[tuple[Any, ...]] = [
        (dict,),
        (max, ([1, 5, 2],)),
        (dict, (), {"a": 1}),
        (sorted, ([1, 3],), {"reverse": True}),
    ]
    assert list(pool.work_stream(iter(tasks)).retrieve_iter()) == [{}, 5, {"a": 1}, [3, 1]]
