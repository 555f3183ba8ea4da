"""len(source), source[i], source[i:j]: the samples of the epoch in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.testing.sources import assert_same_batch
from tests.data_source.source_helpers import A, stream_of
from tests.messages import raises
from tests.properties.graphs import graphs

X = np.arange(20.0).reshape(10, 2)


def doubled(x: Any) -> Any:
    return (x.repeat(2),)


def test_one_sample_is_nested_like_the_batch() -> None:
    source = bu.ArrayDataSource([X, A])
    x, i = source[3]
    assert x.tolist() == [6.0, 7.0]
    assert i == 3
    nested = bu.zip(source, bu.ArrayDataSource({"label": A}), flatten=False)
    (x, i), named = nested[-1]
    assert (x.tolist(), i, named) == ([18.0, 19.0], 9, {"label": 9})


def test_slices_and_lists_give_batches() -> None:
    source = bu.ArrayDataSource([X, A]).map(lambda x, i: (x + 1, i))
    for which in (slice(2, 5), [1, 2, 3], np.array([4, -1]), slice(None, None, -3), A % 2 == 0, []):
        x, i = source[which]
        np.testing.assert_array_equal(i, A[which] if len(i) else [])
        np.testing.assert_array_equal(x, X[which] + 1 if len(i) else np.zeros((0, 2)))
    source[:][0][:] = 0  # a batch of its own
    assert source[0][0].tolist() == [1.0, 2.0]


@settings(deadline=None, max_examples=40)
@given(graphs(endless=False), st.integers(0, 10**6))
def test_samples_are_those_of_the_epoch_in_order(source: Any, number: int) -> None:
    try:
        n = len(source)
        whole = source[:]
    except (bu.BatchupError, TypeError):
        return  # it has no order of its own, or no number, as it says
    (expected,) = source.batch_iterator(max(n, 1))
    if "'batch'" not in str(source.fingerprint()):  # whose draws are those of the whole batch
        assert_same_batch(source[: n + 1], expected)
        assert_same_batch(whole, expected)
        i = number % n
        assert_same_batch(source[i : i + 1], batches.map_leaves(lambda leaf: leaf[i : i + 1], expected))


def test_draws_of_samples_are_those_of_the_epoch() -> None:
    source = bu.ArrayDataSource([A]).map(lambda i, rng: (i, rng.normal()), rng="sample")
    ((_, noise),) = source.batch_iterator(10)
    assert [source[k][1] for k in range(10)] == noise.tolist()
    assert source[[7, 2, 7]][1].tolist() == noise[[7, 2, 7]].tolist()

    def older(i: Any) -> Any:
        return i, np.random.normal(size=len(i))

    np.random.seed(1)
    before = np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    assert bu.ArrayDataSource([A]).map(older)[3] == bu.ArrayDataSource([A]).map(older)[3]
    assert np.random.get_state()[1].tolist() == before  # type: ignore[union-attr]


def test_a_composite_with_sizes_shows_a_group_as_a_batch() -> None:
    source = bu.CompositeDataSource([bu.ArrayDataSource([A]), bu.ArrayDataSource([A])], batch_size=[1, 3])
    assert [x.tolist() for x in source[1:2]] == [[1], [3, 4, 5]]


def test_lengths() -> None:
    source = bu.ArrayDataSource([A])
    assert len(source) == 10
    assert len(source.repeat(3).take(25)) == 25
    assert len(bu.CallableDataSource(lambda n: iter([]), 7)) == 7
    for unknown, why in ((source.repeat(), "has no end; bound it with take"), (stream_of(3).map(len), ""),
                         (bu.IteratorDataSource(iter([])), "is not known")):  # fmt: skip
        assert unknown
        if why:
            with raises(TypeError):
                len(unknown)
    assert bu.ArrayDataSource([A[:0]])  # a source is true whatever its length


@pytest.mark.parametrize(
    ("look", "error"),
    [
        (lambda: bu.ArrayDataSource([A])[10], IndexError),
        (lambda: bu.ArrayDataSource([A])["x"], TypeError),
        (lambda: stream_of(3)[0], TypeError),
        (lambda: bu.ArrayDataSource([A]).repeat()[0], ValueError),
        (lambda: bu.ArrayDataSource([A], sampler=bu.WeightedSampler(A))[0], TypeError),
        (lambda: bu.ArrayDataSource([A]).map(doubled, resizes=True)[0], ValueError),
        (lambda: bu.CompositeDataSource([bu.ArrayDataSource([A])] * 2, batch_size=[1, 3])[0], ValueError),
        (lambda: list(bu.ArrayDataSource([A])), TypeError),
        (lambda: bu.CompositeDataSource(bu.ArrayDataSource([A])), TypeError),  # type: ignore[arg-type]
        (lambda: bu.ArrayDataSource([bu.ArrayDataSource([A])]), TypeError),
    ],
)
def test_what_cannot_be_looked_at_says_why(look: Any, error: type[Exception]) -> None:
    with raises(error):
        look()


def test_parallel_sources_show_the_samples_of_their_sources() -> None:
    source = bu.ArrayDataSource([X, A])
    with bu.WorkerThreadPool(1) as pool:
        assert len(pool.parallel_data_source(source)) == 10
        assert_same_batch(pool.parallel_data_source(source)[2:5], source[2:5])


def test_torch_loads_a_source_as_a_map_style_data_set() -> None:
    data = pytest.importorskip("torch.utils.data", reason="its DataLoader is what reads")
    loader = data.DataLoader(bu.ArrayDataSource({"x": X, "i": A}), batch_size=4)
    assert [batch["i"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
