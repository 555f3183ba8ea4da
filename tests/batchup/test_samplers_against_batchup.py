"""The same sampler in both libraries gives the same indices, draw for draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from .comparing import Library, assert_same, assert_same_state, assert_same_stream, take, warnings_are_errors
from .sources import SamplerSpec, samplers

FIRST = 15
batch_sizes = st.integers(1, 60)
seeds = st.integers(0, 2**32 - 1)
classes = st.lists(st.integers(0, 6), min_size=1, max_size=40)


@given(spec=samplers(), batch_size=batch_sizes)
def test_in_order(ours: Library, old: Library, spec: SamplerSpec, batch_size: int) -> None:
    assume(not spec.only_shuffled)
    limit = FIRST if spec.endless else None
    assert_same_stream(
        take(spec.build(ours).in_order_indices_batch_iterator(batch_size), limit),
        take(spec.build(old).in_order_indices_batch_iterator(batch_size), limit),
    )


@given(spec=samplers(), batch_size=batch_sizes, seed=seeds)
def test_shuffled_for_two_epochs(ours: Library, old: Library, spec: SamplerSpec, batch_size: int, seed: int) -> None:
    limit = FIRST if spec.endless else None
    ours_rng, old_rng = np.random.RandomState(seed), np.random.RandomState(seed)
    for _ in range(1 if spec.endless else 2):
        assert_same_stream(
            take(spec.build(ours).shuffled_indices_batch_iterator(batch_size, ours_rng), limit),
            take(spec.build(old).shuffled_indices_batch_iterator(batch_size, old_rng), limit),
        )
        if not spec.endless:
            assert_same_state(ours_rng, old_rng)


@given(spec=samplers())
def test_the_number_of_indices(ours: Library, old: Library, spec: SamplerSpec) -> None:
    assert spec.build(ours).num_indices_generated() == spec.build(old).num_indices_generated()


@given(spec=samplers(), data=st.data())
def test_the_mapping_of_indices(ours: Library, old: Library, spec: SamplerSpec, data: st.DataObject) -> None:
    last = (len(spec.indices) or spec.length) - 1
    wanted = np.array(data.draw(st.lists(st.integers(0, last), min_size=1)))
    assert_same(spec.build(ours).map_indices(wanted), spec.build(old).map_indices(wanted))
    part = slice(0, last, 2)
    assert_same(spec.build(ours).map_indices(part), spec.build(old).map_indices(part))


@given(n=st.integers(0, 1000), batch_size=batch_sizes)
def test_the_number_of_batches(ours: Library, old: Library, n: int, batch_size: int) -> None:
    assert ours.sampling.num_batches(n, batch_size) == old.sampling.num_batches(n, batch_size)


@given(weights=st.lists(st.integers(0, 9), min_size=1, max_size=20).filter(any), seed=seeds)
def test_whole_numbers_are_weights(ours: Library, old: Library, weights: list[int], seed: int) -> None:
    indices = np.arange(len(weights))[::-1] * 3
    for make in (
        lambda library: library.sampling.WeightedSampler(np.array(weights)),
        lambda library: library.sampling.WeightedSubsetSampler(np.array(weights), indices),
    ):
        streams = [
            take(make(library).shuffled_indices_batch_iterator(7, np.random.RandomState(seed)), FIRST)
            for library in (ours, old)
        ]
        assert_same_stream(*streams)


@given(y=classes)
def test_class_balancing_weights(ours: Library, old: Library, y: list[int]) -> None:
    with warnings_are_errors():
        weights = ours.sampling.WeightedSampler.class_balancing_sample_weights(np.array(y))
    with np.errstate(divide="ignore"):
        expected = old.sampling.WeightedSampler.class_balancing_sample_weights(np.array(y))
    assert_same(weights, expected)


@given(y=classes, seed=seeds, data=st.data())
def test_class_balancing_samplers(ours: Library, old: Library, y: list[int], seed: int, data: st.DataObject) -> None:
    indices = np.array(data.draw(st.lists(st.integers(0, len(y) - 1), min_size=1)))

    def draw(library: Library) -> Any:
        sampling = library.sampling
        for sampler in (
            sampling.WeightedSampler.class_balancing_sampler(np.array(y)),
            sampling.WeightedSubsetSampler.class_balancing_sampler(np.array(y), indices),
        ):
            yield from take(sampler.shuffled_indices_batch_iterator(9, np.random.RandomState(seed)), FIRST)

    with np.errstate(divide="ignore"):
        assert_same_stream(list(draw(ours)), list(draw(old)))
