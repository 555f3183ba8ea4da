"""Sources that only stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import AbstractDataSource
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.platforms import system
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.source_helpers import A, draws, flat, ids, stream_of, uniform
from tests.messages import raises

needs_processes = pytest.mark.skipif(not system.HAS_PROCESS_POOLS, reason="no pools of processes here")


def test_streams_go_through_every_kind_of_source() -> None:
    source = bu.CompositeDataSource([stream_of(10), bu.ArrayDataSource([A]).map(uniform, rng="sample")])
    mapped = source.map(lambda i, j, u: (i + j, u))
    got = list(mapped.batch_iterator(4))
    assert [batch[0].tolist() for batch in got] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]
    assert_same_batches(got, list(mapped.batch_iterator(4)))
    assert ids(bu.take(mapped, 5)) == [[0, 2, 4, 6], [8]]
    assert ids(bu.repeat(stream_of(5), 2)) == [[0, 1, 2, 3], [4], [0, 1, 2, 3], [4]]
    assert ids(stream_of(10), drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(stream_of(10).batch_iterator(4)) == 3


def once() -> bu.IteratorDataSource:
    return bu.IteratorDataSource(iter([(A[:6],), (A[6:],)]))


@pytest.mark.parametrize("shuffle", [1, True, np.random.RandomState(1), np.random.default_rng(1)])
def test_an_iterator_cannot_be_shuffled(shuffle: Any) -> None:
    sources = (once(), once().map(lambda x: (x,)), bu.take(once(), 5), bu.CompositeDataSource([once(), once()]))
    for source in sources:
        with raises(ArgumentError):
            source.batch_iterator(4, shuffle=shuffle)
    with bu.WorkerThreadPool(1) as pool, raises(ArgumentError):
        pool.prefetch(once()).batch_iterator(4, shuffle=shuffle)


@pytest.mark.parametrize("shuffle", [None, False])
def test_an_iterator_that_is_not_shuffled_gives_its_batches(shuffle: Any) -> None:
    assert ids(once(), 4, shuffle=shuffle) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]


def test_the_maps_of_an_iterator_take_their_seed_from_shuffle() -> None:
    one, other, again = (draws(once().map(uniform, rng="sample"), 4, shuffle=seed) for seed in (1, 2, 1))
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, again)


def test_what_stands_beside_an_iterator_is_shuffled() -> None:
    both = bu.CompositeDataSource([once(), bu.ArrayDataSource([A])], flatten=True)
    (first, other), *_ = both.batch_iterator(6, shuffle=1)
    assert first.tolist() == [0, 1, 2, 3, 4, 5]
    assert other.tolist() != [0, 1, 2, 3, 4, 5]
    assert len(list(bu.ChoiceDataSource([once(), bu.ArrayDataSource([A])]).batch_iterator(6, shuffle=1))) > 1


def test_a_function_in_place_of_an_iterator_is_told_where_to_go() -> None:
    with raises(ArgumentTypeError):
        bu.IteratorDataSource(once)  # type: ignore[arg-type]  # on purpose
    with raises(ArgumentTypeError):
        bu.IteratorDataSource(3)  # type: ignore[arg-type]  # on purpose
    with raises(ArgumentTypeError):
        bu.CallableDataSource(iter([]))  # type: ignore[arg-type]  # on purpose


def test_randomness_works_in_streams() -> None:
    source = stream_of(30).map(uniform, rng="sample")
    one = draws(source, 7, shuffle=3)
    np.testing.assert_array_equal(one, draws(source, 7, shuffle=3))
    assert len(set(one)) == 30


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_choice_of_streams_gives_their_batches(stratified: bool, shuffle: Any) -> None:
    source = bu.ChoiceDataSource([stream_of(8), bu.ArrayDataSource([A[:8] + 100])], stratified=stratified)
    got = ids(source, 4, shuffle=shuffle)
    assert sorted(flat(got)) == sorted([*range(8), *range(100, 108)])


def tens_of(n: int) -> Iterator[Any]:
    return ((np.arange(10) + 10 * k,) for k in range(n))


@pytest.mark.parametrize("shuffle", [None, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("n_one", "n_other"), [(5, 16), (3, 16), (4, 4), (16, 5), (1, 1)])
def test_a_stratified_choice_of_streams_has_all_batches_of_each(
    n_one: int, n_other: int, drop_last: bool, shuffle: Any
) -> None:
    def whole(source: bu.AbstractDataSource) -> list[list[int]]:
        return sorted(ids(source, 4, shuffle=shuffle, drop_last=drop_last))

    one, other = bu.ArrayDataSource([np.arange(n_one)]), bu.ArrayDataSource([np.arange(100, 100 + n_other)])
    streams = stream_of(n_one), stream_of(n_other).map(lambda number: (number + 100,))
    sizes = [len(batch) for n in (n_one, n_other) for batch in np.split(np.arange(n), range(4, n, 4))]
    sizes = [size for size in sizes if size == 4 or not drop_last]
    with bu.WorkerThreadPool(2) as pool:
        pooled = pool.parallel_data_source(one), pool.parallel_data_source(other)
        for parts in (pooled, (one, pooled[1]), (streams[0], other), streams):
            found = whole(bu.ChoiceDataSource(parts, stratified=True))
            assert sorted(map(len, found)) == sorted(sizes)
            assert len(set(flat(found))) == sum(sizes)


def test_a_stratified_choice_of_streams_goes_on_where_a_count_was_too_low_or_too_high() -> None:
    hundred = bu.ArrayDataSource([np.arange(1000, 1100)])
    for n in (100, 10_000, 1):  # of an iterator with batches of its own, and a number that is its user's
        for place in (0, 1):
            parts: list[bu.AbstractDataSource] = [hundred]
            parts.insert(place, bu.IteratorDataSource(tens_of(10), n))
            found = flat(ids(bu.ChoiceDataSource(parts, stratified=True), 64))
            assert sorted(found) == [*range(100), *range(1000, 1100)]
    twice = bu.ChoiceDataSource([bu.repeat(stream_of(6), 2), bu.ArrayDataSource([A + 100])], stratified=True)
    assert sorted(flat(ids(twice, 4))) == sorted([*range(6), *range(6), *range(100, 110)])


def test_an_iterator_that_was_left_at_its_end_says_so() -> None:
    def left_early(source: bu.IteratorDataSource) -> None:
        assert len(list(itertools.islice(source.batch_iterator(10), 3))) == 3

    def taken(source: bu.IteratorDataSource) -> None:
        assert len(flat(ids(bu.take(source, 30), 10))) == 30

    def beside_a_shorter_one(source: bu.IteratorDataSource) -> None:
        both = bu.CompositeDataSource([bu.ArrayDataSource([np.arange(30)]), source])
        assert len(list(both.batch_iterator(10))) == 3

    for leave in (left_early, taken, beside_a_shorter_one):
        source = bu.IteratorDataSource(tens_of(3))
        leave(source)
        for _ in range(2):
            with raises(ArgumentError):
                ids(source, 10)
    longer = bu.IteratorDataSource(tens_of(4))
    taken(longer)
    assert ids(longer, 10) == [[*range(30, 40)]]  # what is left of it is handed out, as before


def test_an_iterator_that_failed_says_so() -> None:
    def fails() -> Iterator[Any]:
        yield (A,)
        raise OSError("of the file")

    source = bu.IteratorDataSource(fails())
    with raises(OSError):
        ids(source)
    with raises(ArgumentError):
        ids(source)
    assert ids(bu.IteratorDataSource(iter([]))) == []  # one that was empty from the start is an empty epoch


@pytest.mark.parametrize("kind", ["serial", "threads", pytest.param("processes", marks=needs_processes)])
def test_an_iterator_has_one_epoch_in_every_pool(kind: str) -> None:
    with bu.Loader(bu.IteratorDataSource(iter([(A[:6],), (A[6:],)])), 6, pool=kind) as loader:  # it can be pickled
        assert [x.tolist() for (x,) in loader] == [[*range(6)], [*range(6, 10)]]
        with raises(ArgumentError):
            list(loader)


def test_all_batches_of_a_stream_are_mapped_however_many() -> None:
    tens = bu.IteratorDataSource(((np.arange(10) + 10 * k,) for k in range(10)), 100)
    (seen,) = tens.batch_map_concat(lambda x: x, 64) or ()
    assert seen.tolist() == list(range(100))
    choice = bu.ChoiceDataSource([stream_of(10), stream_of(10)], stratified=True)
    assert sum(map(len, ids(choice, 4))) == 20
    with raises(TypeError):
        len(choice.batch_iterator(4))


def test_samples_of_a_stream_have_draws_of_their_own_whatever_its_batches() -> None:
    tens = bu.IteratorDataSource((np.arange(10) + 10 * k,) for k in range(3))
    assert len(set(draws(tens.map(uniform, rng="sample"), 4))) == 30


def halved(*batch: Any) -> Any:
    return tuple(column[::2].copy() for column in batch)


def doubled(*batch: Any) -> Any:
    return tuple(np.repeat(column, 2) for column in batch)


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source,
        lambda source: source.map(halved, resizes=True),
        lambda source: source.map(doubled, resizes=True),
        lambda source: source.filter(lambda x: x % 4 != 3, lazy=True),
        lambda source: source.filter(lambda x: x < 4, lazy=True).map(doubled, resizes=True),
        lambda source: bu.take(source, 7),
        lambda source: bu.CompositeDataSource([source, bu.ArrayDataSource([A[:9]])], flatten=True),
    ],
)
@pytest.mark.parametrize("n", [3, 4, 8, 10])
def test_drop_last_goes_by_the_batches_before_maps_and_filters_as_for_rows(n: int, change: Any) -> None:
    wanted = list(change(bu.ArrayDataSource([np.arange(n)])).batch_iterator(4, drop_last=True))
    assert_same_batches(list(change(stream_of(n)).batch_iterator(4, drop_last=True)), wanted)
    with bu.WorkerThreadPool(1) as pool:
        assert_same_batches(list(pool.prefetch(change(stream_of(n))).batch_iterator(4, drop_last=True)), wanted)
        assert_same_batches(list(change(pool.prefetch(stream_of(n))).batch_iterator(4, drop_last=True)), wanted)


def test_drop_last_leaves_out_the_short_batch_of_each_round_of_a_stream() -> None:
    rounds = bu.repeat(stream_of(6), 2)
    assert ids(rounds, drop_last=True) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert ids(bu.ChoiceDataSource([stream_of(6), stream_of(5)]), drop_last=True) == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("lengths", "left"),
    [([3, 3, 3], 3), ([3, 3, 2], 2), ([3, 5, 3], 2), ([3, 5, 7], 3), ([6, 4], 2), ([6, 3], 1), ([4], 1), ([3], 0)],
)
def test_drop_last_leaves_an_iterator_that_goes_by_another_batch_size_its_whole_batches(
    lengths: list[int], left: int
) -> None:
    source = bu.IteratorDataSource([(np.arange(n),) for n in lengths])
    assert [len(x) for (x,) in source.batch_iterator(4, drop_last=True)] == lengths[:left]


def test_the_length_of_a_stream_heeds_drop_last() -> None:
    iterator = stream_of(10).batch_iterator(4, drop_last=True)
    assert len(iterator) == len(list(iterator)) == 2
    counted = bu.CallableDataSource(lambda batch_size, **more: iter([]), lambda shuffle=None: 10)
    assert len(counted.batch_iterator(4, epoch=1, drop_last=True, shuffle=2)) == 2


def test_misspelt_options_do_not_hide_behind_an_iterator() -> None:
    for source in (bu.IteratorDataSource(iter([(A,)])),
                   bu.CompositeDataSource([bu.IteratorDataSource(iter([(A,)])), bu.ArrayDataSource([A])])):  # fmt: skip
        with raises(ArgumentTypeError):
            source.batch_iterator(2, shufle=3)


def test_options_of_a_function_reach_it() -> None:
    seen: list[Any] = []

    def batches(batch_size: int, **options: Any) -> Iterator[Any]:
        seen.append(options)
        return iter([])

    list(bu.CallableDataSource(batches).map(len).batch_iterator(4, shuffle=3, epoch=1, colour="red", drop_last=True))
    assert seen == [{"shuffle": 3, "epoch": 1, "colour": "red"}]

    def plain(batch_size: int, shuffle: Any) -> Iterator[Any]:
        seen.append(shuffle)
        return iter([])

    list(bu.CallableDataSource(plain).batch_iterator(4, shuffle=3, epoch=1))
    assert seen[-1] == 3


def test_streams_have_no_random_access() -> None:
    source = stream_of(10).map(lambda x: (x,))
    for call in (
        lambda: source.samples_by_indices_nomapping([0]),
        lambda: source.samples_by_indices([0]),
        lambda: source.batch_indices_iterator(4),
        lambda: source.plan(4),
        lambda: stream_of(3).samples_by_indices([0]),
        lambda: bu.CompositeDataSource([source]).samples_by_indices([[0]]),
        lambda: bu.ChoiceDataSource([source]).samples_by_indices([0]),
        lambda: bu.take(source, 3).samples_by_indices([0]),
    ):
        with raises(ArgumentTypeError):
            call()


def test_streams_of_ones_own_are_given_the_newer_options_that_they_take() -> None:
    seen: list[Any] = []

    class Old(AbstractDataSource):
        """Written for BatchUp, which had no epochs."""

        def num_samples(self, **kwargs: Any) -> int:
            return 4

        def batch_iterator(self, batch_size: int, shuffle: Any = None) -> Any:
            yield from ((np.arange(2),), (np.arange(2),))

    class New(Old):
        def batch_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
            seen.append(options)
            return super().batch_iterator(batch_size, shuffle)

    def plain(batch_size: int, shuffle: Any = None) -> Any:
        yield from ((np.arange(2),), (np.arange(2),))

    options: dict[str, Any] = {"shuffle": 3, "epoch": 1, "drop_last": True}
    for source in (Old(), New(), bu.CallableDataSource(plain, lambda shuffle: 4)):
        for whole in (
            source.map(lambda x: (x,)),
            bu.CompositeDataSource([source, bu.ArrayDataSource([A])]),
            bu.ChoiceDataSource([source, bu.ArrayDataSource([A])]),
            bu.ChoiceDataSource([source, bu.ArrayDataSource([A])], stratified=True),
        ):
            assert len(list(whole.batch_iterator(2, **options))) >= 2
    assert seen == [{"epoch": 1, "drop_last": True}] * 4


@pytest.mark.parametrize("n", [-1, True, 2.0, 2.5, "4", np.arange(3), float("nan"), -np.inf])
def test_what_is_no_number_of_samples_is_refused(n: Any) -> None:
    with raises(ArgumentTypeError):
        bu.IteratorDataSource(iter([]), n)
    with raises(ArgumentTypeError):
        bu.CallableDataSource(lambda batch_size: iter([]), n)
    for good in (None, 0, np.int32(3), np.inf, np.float32(np.inf)):
        assert bu.IteratorDataSource(iter([]), good).num_samples() == good


@pytest.mark.parametrize("width", [1, 1 << 13])
@pytest.mark.parametrize("how", ["views", "buffer", "named", "nested"])
def test_a_map_that_writes_to_its_batch_does_not_write_to_what_a_generator_holds(
    pools: list[AbstractWorkerPool], how: str, width: int
) -> None:
    data = np.arange(6.0).repeat(width).reshape(6, width)

    def batches(batch_size: int, shuffle: Any = None) -> Iterator[Any]:
        buffer = np.zeros((batch_size, width))
        for start in range(0, 6, batch_size):
            buffer[:] = data[start : start + batch_size]
            view = data[start : start + batch_size]
            yield {"views": (view,), "buffer": (buffer,), "named": {"x": view}, "nested": ((view,),)}[how]

    def adds_a_thousand(x: Any) -> Any:
        x = x[0] if isinstance(x, tuple) else x
        x += 1000
        return (x,)

    first = how == "views"  # each epoch that is prefetched by processes starts one, which has a copy of the generator
    for source in (bu.CallableDataSource(batches, 6), *[bu.IteratorDataSource([(data,)])] * first):
        for pool in (None, *pools[: 1 + first]):
            writing = source.map(adds_a_thousand)
            for _ in range(2 - (pool is pools[1])):
                stream = writing if pool is None else pool.prefetch(writing)
                assert [row[0] for (x,) in stream.batch_iterator(2) for row in x] == [1000 + n for n in range(6)]
    assert data[:, 0].tolist() == list(range(6))
