"""Properties of any graph of sources: the same batches from every pool, each position once, sizes right."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.errors import InOrderNotSupported
from batchup_ng.sampling.plans.drawn import ANY_ORDER
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.properties.graphs import graphs, packs, shuffle_of, shuffles

MOST = 15
"""How many batches of an epoch are looked at."""



def epoch(source: Any, size: int, kind: tuple[str, int], number: int, drop_last: bool) -> list[Any]:
    """Return the batches of an epoch, or its beginning."""
    iterator = source.batch_iterator(size, shuffle=shuffle_of(kind), epoch=number, drop_last=drop_last)
    with iterator:
        return list(islice(iterator, MOST))


def reference(source: Any, *options: Any) -> list[Any]:
    """Return the batches of the serial run; an example that has no order in order is not one."""
    try:
        return epoch(source, *options)
    except InOrderNotSupported:
        assume(False)
        raise


options = (st.integers(1, 11), shuffles(), st.integers(0, 3), st.booleans())


@given(graphs(), *options, st.integers(1, 7))
def test_every_pool_gives_the_batches_of_the_serial_run(
    pools: list[AbstractWorkerPool],
    source: Any,
    size: int,
    kind: tuple[str, int],
    number: int,
    drop_last: bool,
    buffer: int,
) -> None:
    expected = reference(source, size, kind, number, drop_last)
    for pool in pools:
        parallel = pool.parallel_data_source(source, buffer)
        assert_same_batches(epoch(parallel, size, kind, number, drop_last), expected)


@given(graphs(), *options)
def test_batches_have_the_size_that_was_asked_for(
    source: Any, size: int, kind: tuple[str, int], number: int, drop_last: bool
) -> None:
    for batch in reference(source, size, kind, number, drop_last):
        lengths = [len(leaf) for leaf in batches.leaves(batch)]
        assert max(lengths) <= size
        assert min(lengths) >= 1
        if drop_last and not packs(source.node):
            assert set(lengths) == {size}


@given(graphs(endless=False), st.integers(1, 11), shuffles())
def test_each_position_is_handed_out_once(source: Any, size: int, kind: tuple[str, int]) -> None:
    # A shuffled epoch of such a source has the rows of the epoch in order; others are made of these.
    assume(source.node.permutes_rows())
    n = int(source.num_samples())
    numbered = bu.zip(source, bu.ArrayDataSource([np.arange(n)]))
    for what in (source, numbered, bu.concat(numbered, numbered), bu.repeat(numbered, 2)):
        in_order, shuffled = (rows_of(what, size, shuffle) for shuffle in (None, shuffle_of(kind)))
        np.testing.assert_array_equal(np.sort(shuffled), np.sort(in_order))
    positions = [batch[-1] for batch in numbered.batch_iterator(size, shuffle=shuffle_of(kind))]
    np.testing.assert_array_equal(np.sort(np.concatenate(positions)), np.arange(n))


def rows_of(source: Any, size: int, shuffle: Any) -> np.ndarray:
    """Return the rows of an epoch, as its plan gives them."""
    return np.concatenate([planned.rows for planned in source.plan(size, shuffle)])


@given(st.lists(graphs(endless=False), min_size=1, max_size=3), st.integers(1, 11), shuffles())
def test_a_stratified_choice_hands_out_every_batch_of_each_part(
    parts: list[Any], size: int, kind: tuple[str, int]
) -> None:
    choice = bu.ChoiceDataSource(parts, stratified=True)
    shuffle = shuffle_of(kind)
    counts = [sum(planned.rows.ds_index == i for planned in choice.plan(size, shuffle)) for i in range(len(parts))]
    known = [part.node.row_plan(size, ANY_ORDER, False).n_in_any_order for part in parts]
    assume(None not in known)
    assert counts == known
