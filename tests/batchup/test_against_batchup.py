"""The same sources in both libraries give the same batches, and draw the same from a generator."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from batchup_ng import work_pool

from .comparing import Library, assert_same, assert_same_state, assert_same_stream, take
from .sources import (
    ALL_MAPS,
    ArraySpec,
    CompositeSpec,
    MapSpec,
    SamplerSpec,
    arrays,
    choices_of,
    composites_of,
    keep_half,
    like_trees,
    maps_of,
    shortening_trees,
    trimmed_trees,
)

FIRST = 15
"""How many batches of an endless stream are compared."""

TWO = ArraySpec(SamplerSpec("standard", 2), include_indices=False, by_sampler=False, n_arrays=1)
SHORTENED = CompositeSpec((TWO, MapSpec(TWO, keep_half)), flatten=False, trim=True)
"""A part has fewer samples than were planned, where the rows are as many."""

batch_sizes = st.integers(1, 30)
seeds = st.integers(0, 2**32 - 1)
plain_trees = st.one_of(arrays(), maps_of(arrays(), ALL_MAPS), composites_of(arrays(), st.just(True)))
trimmed_parts = st.one_of(arrays(), maps_of(arrays()), composites_of(arrays(), st.just(True)))
parts_with_choices = st.one_of(arrays(), choices_of(trimmed_parts))
choice_trees = st.one_of(choices_of(plain_trees), maps_of(choices_of(plain_trees), ALL_MAPS))


def limit_of(spec: Any) -> int | None:
    return FIRST if spec.endless else None


def check_in_order(ours: Library, old: Library, spec: Any, batch_size: int) -> None:
    assume(not spec.only_shuffled)
    ours_ds, old_ds = spec.build(ours), spec.build(old)
    assert ours_ds.num_samples() == old_ds.num_samples()
    for shuffle in (None, False):
        assert_same_stream(
            take(ours_ds.batch_iterator(batch_size, shuffle=shuffle), limit_of(spec)),
            take(old_ds.batch_iterator(batch_size, shuffle=shuffle), limit_of(spec)),
        )


def check_shuffled(ours: Library, old: Library, spec: Any, batch_size: int, seed: int) -> None:
    """Two epochs from one generator; the generators end alike where the stream has an end."""
    ours_ds, old_ds = spec.build(ours), spec.build(old)
    ours_rng, old_rng = np.random.RandomState(seed), np.random.RandomState(seed)
    for _ in range(1 if spec.endless else 2):
        assert_same_stream(
            take(ours_ds.batch_iterator(batch_size, shuffle=ours_rng), limit_of(spec)),
            take(old_ds.batch_iterator(batch_size, shuffle=old_rng), limit_of(spec)),
        )
        if not spec.endless:
            assert_same_state(ours_rng, old_rng)


@given(spec=like_trees, batch_size=batch_sizes)
def test_nested_maps_and_composites_in_order(ours: Library, old: Library, spec: Any, batch_size: int) -> None:
    check_in_order(ours, old, spec, batch_size)


@given(spec=like_trees, batch_size=batch_sizes, seed=seeds)
def test_nested_maps_and_composites_shuffled(
    ours: Library, old: Library, spec: Any, batch_size: int, seed: int
) -> None:
    check_shuffled(ours, old, spec, batch_size, seed)


@given(spec=choice_trees, batch_size=batch_sizes)
def test_choices_in_order(ours: Library, old: Library, spec: Any, batch_size: int) -> None:
    check_in_order(ours, old, spec, batch_size)


@given(spec=choice_trees, batch_size=batch_sizes, seed=seeds)
def test_choices_shuffled(ours: Library, old: Library, spec: Any, batch_size: int, seed: int) -> None:
    check_shuffled(ours, old, spec, batch_size, seed)


@given(
    spec=composites_of(parts_with_choices, st.booleans()),
    batch_size=batch_sizes,
    seed=seeds,
)
def test_choices_inside_composites(ours: Library, old: Library, spec: Any, batch_size: int, seed: int) -> None:
    check_shuffled(ours, old, spec, batch_size, seed)


@given(spec=st.one_of(trimmed_trees, choice_trees), batch_size=batch_sizes, seed=seeds)
def test_numpys_own_functions_draw_what_shuffle_true_drew(
    ours: Library, old: Library, spec: Any, batch_size: int, seed: int
) -> None:
    before = np.random.get_state()
    try:
        streams, states = [], []
        for library, shuffle in ((ours, np.random), (old, True)):
            np.random.seed(seed)
            streams.append(take(spec.build(library).batch_iterator(batch_size, shuffle=shuffle), limit_of(spec)))
            states.append(np.random.get_state()[1:3])
    finally:
        np.random.set_state(before)
    assert_same_stream(*streams)
    if not spec.endless:
        assert_same(states[0], states[1])


@given(spec=st.one_of(trimmed_trees, choice_trees), batch_size=batch_sizes, seed=seeds)
def test_index_batches(ours: Library, old: Library, spec: Any, batch_size: int, seed: int) -> None:
    ours_ds, old_ds = spec.build(ours), spec.build(old)
    ours_rng, old_rng = np.random.RandomState(seed), np.random.RandomState(seed)
    ours_rows = take(ours_ds.batch_indices_iterator(batch_size, shuffle=ours_rng), limit_of(spec))
    old_rows = take(old_ds.batch_indices_iterator(batch_size, shuffle=old_rng), limit_of(spec))
    assert_same_stream(ours_rows, old_rows)
    if not spec.endless:
        assert_same_state(ours_rng, old_rng)
    for ours_batch, old_batch in zip(ours_rows, old_rows, strict=True):
        assert_same(ours_ds.samples_by_indices_nomapping(ours_batch), old_ds.samples_by_indices_nomapping(old_batch))


@given(spec=shortening_trees, batch_size=batch_sizes, seed=seeds)
@example(spec=SHORTENED, batch_size=2, seed=0)
def test_maps_that_shorten_inside_a_composite(
    ours: Library, old: Library, spec: Any, batch_size: int, seed: int
) -> None:
    # BatchUp has two answers: its pools trim the rows before the map and the results after it, its plain iteration
    # only the results. Ours is that of its pools, by both routes.
    old_ds = spec.build(old)
    rows = take(old_ds.batch_indices_iterator(batch_size, shuffle=np.random.RandomState(seed)), limit_of(spec))
    batches = spec.build(ours).batch_iterator(batch_size, shuffle=np.random.RandomState(seed))
    assert_same_stream(take(batches, limit_of(spec)), [old_ds.samples_by_indices_nomapping(row) for row in rows])


@given(spec=arrays(kinds=("standard", "subset")), batch_size=batch_sizes)
def test_index_batches_in_order(ours: Library, old: Library, spec: Any, batch_size: int) -> None:
    assert_same_stream(
        take(spec.build(ours).batch_indices_iterator(batch_size), limit_of(spec)),
        take(spec.build(old).batch_indices_iterator(batch_size), limit_of(spec)),
    )


@given(spec=st.one_of(trimmed_trees, choice_trees), batch_size=batch_sizes, seed=seeds)
def test_the_batches_of_a_thread_pool_are_those_of_serial_batchup(
    ours: Library, old: Library, spec: Any, batch_size: int, seed: int
) -> None:
    ours_rng, old_rng = np.random.RandomState(seed), np.random.RandomState(seed)
    with work_pool.WorkerThreadPool(processes=2) as pool:
        par_ds = pool.parallel_data_source(spec.build(ours), batch_buffer_size=3)
        pooled = take(par_ds.batch_iterator(batch_size, shuffle=ours_rng), limit_of(spec))
    assert_same_stream(pooled, take(spec.build(old).batch_iterator(batch_size, shuffle=old_rng), limit_of(spec)))
    if not spec.endless:
        assert_same_state(ours_rng, old_rng)
