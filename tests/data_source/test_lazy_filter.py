"""Filters that leave samples out of each batch as it is made."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as nests
from batchup_ng.data_source.epoch import accounting
from batchup_ng.errors import ArgumentError, StallWarning
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.source_helpers import flat
from tests.messages import raises, warns

WAYS = ["direct", "serial", "threads", "processes"]


@pytest.fixture(params=WAYS)
def over(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Callable[[Any], Any]:
    """Return what gives a source to each pool in turn, and to none."""
    if request.param == "direct":
        return lambda source: source
    pool = {"serial": bu.SerialPool(), "threads": pools[0], "processes": pools[1]}[request.param]
    return pool.parallel_data_source


class Among:
    """A predicate that keeps some numbers."""

    def __init__(self, *kept: int) -> None:
        self.kept = kept

    def __call__(self, x: Any, *others: Any, **named: Any) -> bool:
        return int(x) in self.kept


def numbers(n: int) -> Any:
    return bu.ArrayDataSource([np.arange(n)])


def drawn(x: Any, rng: bu.SampleRng) -> Any:
    assert len(x), "a map is never called without samples"
    return x, rng.random()


def whole(batches: Any) -> list[np.ndarray]:
    """Return the columns of all batches, joined."""
    return [np.concatenate(column) for column in zip(*batches, strict=True)]


class TestLazilyFiltered(SourceContract):
    def make(self) -> Any:
        return numbers(64).map(drawn, rng="sample").filter(lambda x, u: x % 8 != 1, lazy=True).map(lambda *parts: parts)

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        for kind in self.shuffles:
            batches = self.epoch(kind, drop_last=True)
            assert len(batches) == 16
            assert sum(map(nests.length, batches)) == 56


# -- which samples are left ------------------------------------------------------------------------------------------


def as_nest(x: Any) -> Any:
    return x, ([str(row) for row in x], {"square": np.outer(x, x % 3), "of": 7, "name": "numbers"})


def as_names(x: Any) -> Any:
    return {"x": x, "texts": [str(row) for row in x], "part": (x * 2.0, np.array(3))}


SHAPES: dict[str, tuple[Any, Any]] = {"nest": (as_nest, 0), "names": (as_names, "x"), "one": (lambda x: (x,), None)}


def cut(batch: Any, kept: np.ndarray) -> Any:
    """Return some samples of a batch, by plain NumPy: the oracle."""

    def of_leaf(leaf: Any) -> Any:
        if isinstance(leaf, list):
            return [one for one, keep in zip(leaf, kept, strict=True) if keep]
        return leaf[kept] if np.ndim(leaf) else leaf

    return nests.map_leaves(of_leaf, batch)


@pytest.mark.parametrize("shape", SHAPES)
@given(
    n=st.integers(1, 40), size=st.integers(1, 12), share=st.sampled_from([0, 10, 50, 90, 100]),
    shuffle=st.sampled_from([None, 3]), drop_last=st.booleans(),
)  # fmt: skip
def test_batches_are_the_planned_ones_without_the_refused_samples(
    over: Any, shape: str, n: int, size: int, share: int, shuffle: Any, drop_last: bool
) -> None:
    form, columns = SHAPES[shape]
    kept = np.random.default_rng(n).permutation(100)[:n] < share
    source = numbers(n).map(form)
    planned = source.batch_iterator(size, shuffle=shuffle, drop_last=drop_last)
    rows = [x for (x,) in numbers(n).batch_iterator(size, shuffle=shuffle, epoch=0, drop_last=drop_last)]
    expected = [cut(batch, kept[x]) for batch, x in zip(planned, rows, strict=True) if kept[x].any()]
    lazy = over(source.filter(Among(*np.flatnonzero(kept).tolist()), columns, lazy=True))
    iterator = lazy.batch_iterator(size, shuffle=shuffle, epoch=0, drop_last=drop_last)
    assert_same_batches(list(iterator), expected)
    stats = iterator.stats()
    assert stats["batches"] == len(expected) == sum(stats["transport"].values())
    assert stats["samples"] == sum(kept[x].sum() for x in rows)
    assert len(lazy) == n


def test_all_batches_may_be_left_out(over: Any) -> None:
    iterator = over(numbers(20).filter(Among(), lazy=True).map(drawn, rng="sample")).batch_iterator(4)
    assert len(iterator) == 5
    assert list(iterator) == []


def test_a_filter_that_keeps_nothing_for_long_is_warned_of_once(
    over: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "NOTHING_LEFT_SECONDS", -1.0)
    batches = over(numbers(9).repeat(-1).filter(Among(0), lazy=True)).batch_iterator(1)
    assert next(batches)[0].tolist() == [0]
    with warns(StallWarning) as told:
        assert [next(batches)[0].tolist() for _ in range(3)] == [[0]] * 3
    assert [(each.category, each.filename) for each in told] == [(StallWarning, __file__)]


def test_a_filter_that_keeps_some_is_not_warned_of(over: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "NOTHING_LEFT_SECONDS", -1.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert len(list(over(numbers(8).filter(Among(0, 2, 4, 6), lazy=True)).batch_iterator(1))) == 4
    assert not told


def test_large_batches_keep_their_bytes(over: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 64, 64), np.uint8)
    source = bu.ArrayDataSource([np.arange(60), images]).filter(lambda x: x % 4 != 2, 0, lazy=True)
    for x, image in over(source).batch_iterator(20, shuffle=5):
        np.testing.assert_array_equal(image, images[x])
        assert len(x) < 20


def test_filters_stand_one_above_the_other(over: Any) -> None:
    source = numbers(60).filter(lambda x: x % 2 == 0, lazy=True).map(drawn, rng="sample")
    both = source.filter(lambda x, u: x % 3 == 0, lazy=True).map(lambda x, u, rng: (x, u, rng.random()), rng="sample")
    x, u, w = whole(over(both).batch_iterator(7))
    assert x.tolist() == list(range(0, 60, 6))
    alone = numbers(60).map(lambda x, rng: (x, rng.random()), rng="sample")
    np.testing.assert_array_equal(w, whole(alone.batch_iterator(7))[1][x])
    below = numbers(60).map(drawn, rng="sample").map(lambda *parts: parts).map(lambda *parts: parts)
    np.testing.assert_array_equal(u, whole(below.batch_iterator(5))[1][x])


def test_maps_after_a_filter_draw_as_if_all_samples_were_there(over: Any) -> None:
    for after in (lambda source: source.map(drawn, rng="sample"), lambda source: source.map_samples(one, rng="sample")):
        every = whole(after(numbers(50)).batch_iterator(9, shuffle=4))
        order = np.argsort(every[0])
        for size in (1, 8, 50):
            lazy = after(numbers(50).filter(lambda x: x % 3 > 0, lazy=True))
            x, u = whole(over(lazy).batch_iterator(size, shuffle=4))
            assert sorted(x.tolist()) == [row for row in range(50) if row % 3]
            np.testing.assert_array_equal(u, every[1][order][x])


def one(x: Any, rng: np.random.Generator) -> Any:
    return x, rng.random()


def test_a_sample_that_fails_after_a_filter_is_named_and_skipped(over: Any) -> None:
    def refuses_nine(x: Any, rng: bu.SampleRng) -> Any:
        if 9 in x:
            raise ValueError("nine")
        return x, rng.random()

    source = numbers(30).filter(lambda x: x % 3 == 0, lazy=True)
    iterator = over(source.map(refuses_nine, rng="sample")).batch_iterator(8)
    with raises(bu.BatchError) as caught:
        list(iterator)
    assert (caught.value.row, caught.value.position, caught.value.batch) == (9, 9, 1)
    with pytest.warns(bu.SampleWarning):
        x, u = whole(over(source.map(refuses_nine, rng="sample")).batch_iterator(8, on_error="skip"))
    assert x.tolist() == [row for row in range(0, 30, 3) if row != 9]
    np.testing.assert_array_equal(u, whole(numbers(30).map(drawn, rng="sample").batch_iterator(8))[1][x])


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_what_a_predicate_raises_is_a_samples_fault(over: Any) -> None:
    def picky(x: Any) -> bool:
        if x == 9:
            raise KeyError("nine")
        return bool(x < 9)

    iterator = over(numbers(20).filter(picky, lazy=True)).batch_iterator(8, on_error="skip")
    assert [x.tolist() for (x,) in iterator] == [list(range(8)), [8]]
    (error,) = iterator.errors
    assert (error.row, error.op.rpartition(".")[2]) == (9, "picky")
    stats = iterator.stats()
    assert (stats["failed"], stats["samples"], stats["batches"]) == (1, 9, 2)


@pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
def test_a_batch_whose_good_samples_are_all_refused_is_left_out(over: Any) -> None:
    def refuses_one(x: Any) -> Any:
        if 5 in x:
            raise ValueError("five")
        return (x,)

    source = over(numbers(12).map(refuses_one).filter(lambda x: x < 4 or x > 7, lazy=True).map(drawn, rng="sample"))
    iterator = source.batch_iterator(4, on_error="skip")
    assert [x.tolist() for x, _ in iterator] == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert [error.row for error in iterator.errors] == [5]
    shared = [source.batch_iterator(4, on_error="skip", shard=(rank, 2)) for rank in (0, 1)]
    assert [[len(x) > 0 for x, _ in rank] for rank in shared] == [[True, True], [True, True]]


# -- ranks, numbers, states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_hand_out_equally_many_batches_none_of_them_empty(over: Any, world: int) -> None:
    kept = (3, 4, 40, 41, 60)
    source = over(numbers(61).filter(Among(*kept), lazy=True).map(drawn, rng="sample"))
    ranks = [list(source.batch_iterator(5, shuffle=2, shard=(rank, world), epoch=0)) for rank in range(world)]
    assert {len(rank) for rank in ranks} == {-(-61 // (5 * world))}
    found = [x.tolist() for rank in ranks for x, _ in rank]
    assert all(found)
    assert set(flat(found)) == set(kept)
    again = list(source.batch_iterator(5, shuffle=2, shard=(0, world), epoch=0))
    assert_same_batches(again, ranks[0])


def test_ranks_have_the_same_batches_in_every_pool(pools: list[AbstractWorkerPool]) -> None:
    source = numbers(61).filter(Among(3, 4, 40), lazy=True).map(drawn, rng="sample")
    expected = list(source.batch_iterator(5, shard=(1, 2)))
    for pool in (bu.SerialPool(), *pools):
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(5, shard=(1, 2))), expected)


def test_a_batch_of_which_no_other_rows_are_kept_is_an_error_of_ranks(over: Any) -> None:
    iterator = over(numbers(9).filter(Among(), lazy=True)).batch_iterator(9, shard=(0, 2))
    with raises(bu.ArgumentError):
        next(iterator)


def test_a_batch_that_is_asked_for_by_its_number_has_samples() -> None:
    source = numbers(12).filter(Among(0, 1, 9), lazy=True)
    with bu.Loader(source, 4, pool="threads", workers=1) as loader:
        assert [x.tolist() for (x,) in loader] == [[0, 1], [9]]
        made = [x.tolist() for (x,) in loader.batches(range(3), epoch=0)]
        assert (made[0], made[2]) == ([0, 1], [9])
        assert made[1]
        assert set(made[1]) <= {0, 1, 9}
        assert [loader.batch(1, epoch=0)[0].tolist() for _ in range(2)] == [made[1]] * 2
        assert loader.batches_per_epoch == 3


@pytest.mark.parametrize("size", [4, 6])
def test_an_epoch_goes_on_after_each_batch(over: Any, size: int) -> None:
    source = over(numbers(40).filter(lambda x: x % 10 > 5, lazy=True).map(drawn, rng="sample"))
    expected = list(source.batch_iterator(4, shuffle=None, epoch=0))
    assert len(expected) < 10
    iterator = source.batch_iterator(4, epoch=0)
    for done in range(len(expected)):
        state = json.loads(json.dumps(iterator.state_dict()))
        rest = list(source.batch_iterator(size, state=state))
        got, want = whole(rest), whole(expected[done:])
        for left, right in zip(got, want, strict=True):
            np.testing.assert_array_equal(left, right)
        next(iterator)


# -- streams ---------------------------------------------------------------------------------------------------------


class Counted(Iterator[Any]):
    """An iterator of batches that can be saved."""

    def __init__(self, end: int) -> None:
        self.at, self.end = 0, end

    def __next__(self) -> Any:
        if self.at == self.end:
            raise StopIteration
        self.at += 4
        return (np.arange(self.at - 4, self.at),)

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def streamed(batch_size: int) -> Any:
    return Counted(40)


def test_streams_are_filtered_batch_by_batch(pools: list[AbstractWorkerPool]) -> None:
    source = bu.CallableDataSource(streamed)
    lazy = source.filter(lambda x: x > 20 and x % 2 == 0, lazy=True)
    ways = [lazy, *[pool.prefetch(lazy) for pool in (bu.SerialPool(), *pools)]]
    ways.append(pools[0].prefetch(source).filter(lambda x: x > 20 and x % 2 == 0, lazy=True))
    ways = [each.map(lambda x: (x,)) for each in ways]
    ways += [lazy.map_samples(lambda x: (x,)), lazy.collate(np.array), pools[0].prefetch(lazy).collate(np.array)]
    for each in ways:  # that of the pool of processes starts one for the epoch
        found = [np.asarray(batch).reshape(-1).tolist() for batch in each.batch_iterator(4)]
        assert found == [[22], [24, 26], [28, 30], [32, 34], [36, 38]]
    iterator = lazy.batch_iterator(4)
    with pytest.raises(TypeError):
        len(iterator)
    assert flat([x.tolist() for (x,) in lazy.take(3).batch_iterator(4)]) == [22, 24, 26]


def test_a_stream_goes_on_with_the_numbers_that_it_would_have_drawn() -> None:
    def source() -> Any:
        made = bu.IteratorDataSource(Counted(40)).map(lambda x, rng: (x, rng.random(len(x))), rng="batch")
        return made.filter(lambda x, u: x > 10, lazy=True).map(lambda x, u, rng: (x, u, rng.random()), rng="sample")

    expected = list(source().batch_iterator(4))
    iterator = source().batch_iterator(4)
    for done in range(1, len(expected)):
        next(iterator)
        rest = source().batch_iterator(4, state=iterator.state_dict())
        assert_same_batches(list(rest), expected[done:])


# -- composing -------------------------------------------------------------------------------------------------------


def test_choices_take_filtered_parts_and_composites_do_not(over: Any) -> None:
    lazy = numbers(24).filter(lambda x: x > 7, lazy=True).map(drawn, rng="sample")
    choice = bu.ChoiceDataSource([lazy, numbers(8).map(lambda x: (x + 100, x / 2))], stratified=True)
    found = flat([x.tolist() for x, _ in over(choice.map(lambda *parts: parts)).batch_iterator(4)])
    assert sorted(found) == [*range(8, 24), *range(100, 108)]
    with raises(ArgumentError):
        bu.CompositeDataSource([lazy, numbers(24)])
    pair = bu.CompositeDataSource([numbers(24), numbers(24)]).filter(lambda x, y: x > 7, lazy=True)
    assert flat([x.tolist() for x, _ in over(pair).batch_iterator(6)]) == [*range(8, 24)]


def test_later_methods_see_what_is_left(over: Any) -> None:
    named = bu.ArrayDataSource({"x": np.arange(20), "y": np.arange(20) * 2.0})
    lazy = named.filter(lambda x: x > 8, "x", lazy=True)
    chain = lazy.rename({"y": "double"}).map(lambda x: -x, on="x").with_column("sum", lambda x, double: x + double)
    batches = list(over(chain.select("sum", "x")).batch_iterator(6))
    assert [batch["sum"].tolist() for batch in batches] == [[9, 10, 11], [*range(12, 18)], [18, 19]]
    assert list(batches[0]) == ["sum", "x"]
    cut_short = over(lazy.repeat(2).take(35)).batch_iterator(10)  # the first 35 planned samples
    assert [batch["x"].tolist() for batch in cut_short] == [[9], [*range(10, 20)], [9], [*range(10, 15)]]
    collated = over(lazy.map_samples(lambda x, y: (x,)).collate(np.array)).batch_iterator(6)
    assert [batch.reshape(-1).tolist() for batch in collated] == [[9, 10, 11], [*range(12, 18)], [18, 19]]


def test_a_filter_after_a_pool_runs_in_the_consumers_next(pools: list[AbstractWorkerPool]) -> None:
    for pool in pools:
        source = pool.parallel_data_source(numbers(40))
        lazy = source.filter(lambda x: x % 10 == 3, lazy=True).map(lambda x, rng: (x, rng.random()), rng="batch")
        assert [x.tolist() for x, _ in lazy.batch_iterator(5)] == [[3], [13], [23], [33]]
        shared = [x.tolist() for x, _ in lazy.batch_iterator(5, shard=(1, 2), epoch=0)]
        assert len(shared) == 4
        assert all(shared)
        assert set(flat(shared)) <= {3, 13, 23, 33}
        for after in (lazy, pool.parallel_data_source(numbers(40).filter(bool, lazy=True))):
            with raises(bu.ArgumentError):
                after.map(drawn, rng="sample")


def test_what_needs_numbered_samples_comes_before() -> None:
    lazy = numbers(9).filter(bool, lazy=True).map(lambda x: (x,))
    for use in (
        lambda: lazy[0], lambda: lazy.subset([1]), lambda: lazy.split((0.5, 0.5), 1), lambda: lazy.concat(lazy),
        lambda: lazy.zip(lazy), lambda: lazy.filter(bool), lambda: bu.mix(lazy, lazy, weights=[1, 1]),
        lazy.with_index, lambda: lazy.with_column(1, np.arange(9)), lambda: lazy.sample(weights=np.ones(9)),
    ):  # fmt: skip
        with raises(bu.ArgumentTypeError):
            use()
    before = numbers(9).with_index().filter(lambda i, x: x > 6, lazy=True)
    assert [i.tolist() for i, x in before.batch_iterator(4)] == [[7], [8]]


def test_what_a_lazy_filter_refuses(tmp_path: Path) -> None:
    named = bu.ArrayDataSource({"x": np.arange(4)})
    for make, error in (
        (lambda: numbers(4).filter(3, lazy=True), TypeError), (lambda: numbers(4).filter(bool, lazy=1), TypeError),
        (lambda: numbers(4).filter(bool, lazy=True, cache=tmp_path / "x"), ValueError),
        (lambda: named.filter(bool, "y", lazy=True), ValueError),
        (lambda: numbers(4).filter(bool, lazy=True).batch_iterator(2, shard=(0, 2), pad_mask=True), ValueError),
        (lambda: numbers(4).filter(Among(), lazy=True).samples_by_indices(np.array([1])), ValueError),
        (lambda: bu.convert(numbers(4).filter(bool, lazy=True), tmp_path / "x.npy", pool="serial"), ValueError),
    ):  # fmt: skip
        with raises(error):
            make()  # type: ignore[no-untyped-call]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("predicate", "error"),
    [
        (lambda x: None, bu.MapResultError),
        (lambda x: np.array([True]), bu.MapResultError),
        (lambda x, y: True, bu.MapCallError),
    ],
)
def test_a_wrong_predicate_is_raised_by_every_policy(over: Any, predicate: Any, error: type[Exception]) -> None:
    iterator = over(numbers(8).filter(predicate, lazy=True)).batch_iterator(4, on_error="skip")
    with raises(error):
        next(iterator)
    assert iterator.errors == []


def test_batches_of_unequal_columns_cannot_be_filtered() -> None:
    uneven = bu.CompositeDataSource([numbers(7), numbers(5)], trim=False).filter(lambda x: x > 0, 0, lazy=True)
    iterator = uneven.batch_iterator(4)
    assert len(next(iterator)[0]) == 3
    with raises(bu.MapResultError):
        next(iterator)


def test_a_filtered_source_is_reproducible() -> None:
    source = numbers(60).map(drawn, rng="sample").filter(lambda x, u: 7 < x < 50 and x % 5 > 0, lazy=True)
    last = source.map(lambda x, u, rng: (x, u, rng.random()), rng="sample")
    assert_reproducible(last, batch_size=6, pools=("serial",))


def test_a_filter_shows_what_it_is() -> None:
    lazy = numbers(9).filter(Among(3), on=0, lazy=True)
    assert repr(lazy).startswith("<FilterDataSource: at most 9 samples, predicate=Among, on=0, of <ArrayData")


def test_a_predicate_that_writes_changes_no_sample(over: Any) -> None:
    source = bu.ArrayDataSource([np.zeros((6, 2))]).filter(lambda x: x.__iadd__(1) is not None, lazy=True)
    for (x,) in over(source).batch_iterator(4):
        assert not x.any()
