"""Where we differ from BatchUp on purpose, each with its reason."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchup_ng import data_source, work_pool

from .comparing import Library, assert_same_stream, leaf_lengths, take
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
