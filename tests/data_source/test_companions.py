"""``map(fn, companions=...)``: each sample with other samples, the same in every setting."""

from __future__ import annotations

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_source.contents import contents_digest
from batchup_ng.errors import ArgumentError, ArgumentTypeError, BatchError, MapCallError, MapResultError, StateError
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import SourceContract, assert_same_batch, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.source_helpers import stream_of
from tests.messages import raises

N = 30
LABELS = np.arange(N) % 4


def beside(*batch: np.ndarray, others: list[Any]) -> Any:
    """Return a batch, and after it the first column of each companion."""
    return (*batch, *[other[0] for other in others])


def beside_sample(x: int, y: int, others: list[Any], rng: np.random.Generator) -> Any:
    return x, y, rng.random(), *[other[0] for other in others]


def noisy(x: np.ndarray, *more: np.ndarray, rng: bu.SampleRng) -> Any:
    return (x, rng.random(), *more)


def apart(x: np.ndarray, noise: np.ndarray, *more: np.ndarray, others: list[Any]) -> Any:
    return (x, noise, *[part for other in others for part in other[:2]])


def numbers(n: int = N) -> Any:
    return bu.ArrayDataSource([np.arange(n), np.arange(n) % 4])


def columns_of(source: Any, size: int = 7, shuffle: Any = 3, **options: Any) -> list[np.ndarray]:
    """Return the columns of an epoch, joined."""
    return [np.concatenate(parts) for parts in zip(*source.batch_iterator(size, shuffle, **options), strict=True)]


class TestMap(SourceContract):
    def make(self) -> Any:
        return numbers(37).map(beside, companions=2)


class TestMapOfSamplesOfAClass(SourceContract):
    def make(self) -> Any:
        return numbers(37).map_samples(beside_sample, rng="sample", companions=bu.same_class(3))


MADE: dict[str, Any] = {
    "numbers": lambda: numbers().map(beside, companions=3),
    "samples": lambda: numbers().map_samples(beside_sample, rng="sample", companions=bu.other_class(2)),
    "random maps below": lambda: numbers().map(noisy, rng="sample").map(apart, companions=2).map(noisy, rng="sample"),
    "nested": lambda: numbers().map(noisy, rng="sample").map(apart, companions=1).map(apart, companions=2),
    "a part of a split": lambda: numbers().map(noisy, rng="sample").split([0.5, 0.5], 1)[0].map(apart, companions=1),
    "joined": lambda: bu.concat(numbers().map(beside, companions=1), numbers(9).map(beside, companions=2).drop(3)),
    "of joined": lambda: numbers().concat(numbers(5)).map(beside, companions=1),
    "zipped": lambda: numbers().zip(numbers()).map(beside, companions=1),
    "repeated": lambda: numbers().repeat(2).map(beside, companions=1).take(40),
    "with repeats": lambda: bu.ArrayDataSource([np.arange(9)], repeats=3).map(beside, companions=1),
    "by weight": lambda: numbers().sample(weights=np.arange(N)).map(beside, companions=bu.same_class(1)),
    "in rounds": lambda: numbers().map(beside, companions=1).repeat(2),
}  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("name", MADE)
def test_all_settings_give_the_same_batches(name: str) -> None:
    assert_reproducible(MADE[name](), 5, max_batches=4)


def epoch_of_ranks(source: Any, world: int, size: int) -> list[np.ndarray]:
    """Return the columns of an epoch that ranks share, in the order of the first column."""
    ranks = [columns_of(source, size, shard=(rank, world), epoch=1) for rank in range(world)]
    columns = [np.concatenate(parts) for parts in zip(*ranks, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return [column[order] for column in columns]


@pytest.mark.parametrize("name", ["numbers", "samples", "random maps below", "nested"])
def test_neither_batch_size_nor_world_nor_a_state_changes_a_sample(name: str) -> None:
    source = MADE[name]()
    whole = epoch_of_ranks(source, 1, 6)
    for world, size in ((1, 1), (1, 30), (2, 5), (3, 2), (5, 3)):
        assert_same_batches([epoch_of_ranks(source, world, size)], [whole])
    for reached in (1, 3):
        begun = source.batch_iterator(5, 3, epoch=1)
        first = [next(begun) for _ in range(reached)]
        state = json.loads(json.dumps(begun.state_dict()))
        rest = list(source.batch_iterator(5, 3, state=state)), list(source.batch_iterator(2, 3, state=state))
        for each in rest:
            got = [np.concatenate(parts) for parts in zip(*first, *each, strict=True)]
            assert_same_batches([got], [columns_of(source, 30, epoch=1)])


def test_every_pool_gives_them(pools: list[AbstractWorkerPool]) -> None:
    for name in ("numbers", "samples", "nested"):
        expected = list(MADE[name]().batch_iterator(4, 3))
        for pool in pools:
            assert_same_batches(list(pool.parallel_data_source(MADE[name]()).batch_iterator(4, 3)), expected)


def test_samples_keep_the_draws_of_maps_below_and_companions_have_their_own() -> None:
    source = numbers().map(noisy, rng="sample")
    nested = source.map(apart, companions=3).map(lambda *batch, others: (*batch, *others[0]), companions=1)
    x, noise, *_ = columns_of(numbers().map(lambda *b: b).map(lambda *b: b).map(noisy, rng="sample"))
    deep = numbers().map(noisy, rng="sample").map(lambda *b: b).map(lambda *b: b)
    assert_same_batches([columns_of(nested)[:2]], [columns_of(deep)[:2]])
    found = columns_of(nested)
    assert [len(column) for column in found] == [N] * 16
    draws = np.concatenate(found[1::2])
    assert len(np.unique(draws)) == len(draws) == 8 * N
    np.testing.assert_array_equal(np.sort(x), np.arange(N))
    assert not set(noise) & set(draws)  # those of another place in the graph


def test_one_read_makes_a_batch_with_its_companions() -> None:
    reads: list[list[int]] = []

    class Counted:
        shape = (N,)

        def __len__(self) -> int:
            return N

        def __getitem__(self, rows: Any) -> np.ndarray:
            reads.append(list(map(int, rows)))
            return np.asarray(rows) * 10

    source = bu.ArrayDataSource([Counted()]).map(beside, companions=2)
    for x, first, second in source.batch_iterator(8, 3):
        assert (np.array([x, first, second]).ravel() // 10).tolist() == reads.pop()
        assert reads == []


def test_forms_of_batches_and_chosen_columns() -> None:
    source = bu.ArrayDataSource({"x": np.arange(N), "y": np.arange(N) * 2, "z": list("ab" * (N // 2))})
    seen: list[Any] = []

    def taken(*placed: Any, others: Any, **named: Any) -> Any:
        seen.append((placed, named, others))
        return named or placed

    source.map(taken, companions=2)[:4]
    ((_, named, others),) = seen
    assert [list(named), *map(list, others)] == [["x", "y", "z"]] * 3
    assert [len(part) for other in others for part in other.values()] == [4] * 6
    for other in others:
        np.testing.assert_array_equal(other["y"], other["x"] * 2)
        assert list(other["z"]) == ["ab"[row % 2] for row in other["x"]]
    seen.clear()
    made = source.map(taken, on=["y", "x"], companions=1)[:4]
    ((placed, _, ((y, x),)),) = seen
    assert_same_batches([placed], [(np.arange(4) * 2, np.arange(4))])
    np.testing.assert_array_equal(y, x * 2)
    assert list(made) == ["x", "y", "z"]
    out = source.map(lambda x, others: others[0][0], on="x", out="other", companions=1)[:4]
    assert list(out) == ["x", "y", "z", "other"]
    assert (out["other"] != out["x"]).all()
    samples = source.map_samples(lambda x, others: x - others[1][0], on="x", companions=2)[:4]
    assert samples["x"].shape == (4,)
    assert list(source.map(taken, companions=2)[0:0]["x"]) == []
    assert list(source.map(taken, companions=2)[7]) == ["x", "y", "z"]


def test_columns_of_samples_of_any_shape() -> None:
    ragged = bu.Ragged(np.arange(100), np.cumsum([0, *(np.arange(N) % 4)]))
    source = bu.ArrayDataSource([np.arange(N), ragged])
    for x, own, other, theirs in source.map(lambda x, y, others: (x, y, *others[0]), companions=1).batch_iterator(7, 3):
        for row, each in zip([*x, *other], [*own, *theirs], strict=True):
            np.testing.assert_array_equal(each, ragged[int(row)], strict=True)


def written_over(x: np.ndarray, y: np.ndarray, others: list[Any]) -> Any:
    result = x + others[0][0]
    for part in (x, y, *others[0]):
        part[...] = -1
    return result, y, others[0][1]


def test_a_function_may_write_to_all_and_results_share_no_memory() -> None:
    data = [np.arange(N), np.arange(N) * 10]
    source = bu.ArrayDataSource(data).map(written_over, companions=1)
    again = source.select(0, 1).map(written_over, companions=1)
    for x, *_ in again.batch_iterator(4, 3):
        assert (x != -1).any()
    for batch in source.batch_iterator(4, 3):
        assert (batch[1] == -1).all()
        assert all(part.base is None or part.base.nbytes == part.nbytes for part in batch)
        assert not np.shares_memory(batch[1], batch[2])
    np.testing.assert_array_equal(data[0], np.arange(N))


# -- which samples ---------------------------------------------------------------------------------------------------


@given(st.integers(4, 30), st.integers(0, 99), st.integers(1, 2))
def test_a_part_draws_from_its_own_samples(n: int, seed: int, count: int) -> None:
    whole = bu.ArrayDataSource([np.arange(100, 100 + n), np.arange(n) % 2])
    for part in (*whole.split([0.5, 0.5], seed), whole.subset(np.arange(n)[::-2]), whole.filter(lambda x, y: y == 0)):
        if len(part) <= count:
            continue
        x, _, *others = columns_of(part.map(beside, companions=count), 3, seed)
        assert set(np.concatenate(others)) <= set(x)
        assert all((other != x).all() for other in others)


def test_a_map_before_a_split_is_refused() -> None:
    source = numbers().map(beside, companions=1)
    for call in (lambda: source.split([0.5, 0.5], 1), lambda: bu.folds(source.take(20), 2, 1)):
        with raises(ArgumentError):
            call()
    assert len(source.subset([1, 2])) == 2


ROWS = np.array([3, 9, 4, 20, 7, 0, 11])


@pytest.mark.parametrize(
    "source",
    [
        bu.ArrayDataSource([np.arange(N), LABELS], indices=ROWS),
        bu.ArrayDataSource([np.arange(N), LABELS], sampler=bu.WeightedSubsetSampler(np.ones(7), ROWS)).take(40),
        bu.ArrayDataSource([np.arange(N), LABELS]).subset(ROWS),
        bu.ArrayDataSource([np.arange(N), LABELS]).sample(weights=np.isin(np.arange(N), ROWS)),
        bu.ArrayDataSource([np.arange(N), LABELS]).sample(bu.StratifiedSampler(LABELS, ROWS)),
        bu.ArrayDataSource([np.arange(N), LABELS], sampler=bu.BucketSampler(LABELS, num_buckets=2, indices=ROWS)),
    ],
    ids=["indices", "weighted rows", "subset", "weights", "stratified", "buckets"],
)
def test_rows_that_are_never_handed_out_are_no_companions(source: Any) -> None:
    for companions, classed in ((2, False), (bu.other_class(2), True)):
        made, seen = source.map(beside, companions=companions), set()
        for epoch in range(6):
            x, y, *others = columns_of(made, 5, epoch=epoch)
            found = np.concatenate(others)
            seen |= set(found)
            assert all((other != x).all() for other in others)
            if classed:
                assert (LABELS[found] != np.concatenate([y, y])).all()
        assert seen == set(ROWS)


CLASSES = np.array(["cat", "dog", "owl"])[np.arange(N) * 7 % 3]


@pytest.mark.parametrize("labels", ["kind", CLASSES, list(CLASSES), None])
def test_the_classes_are_a_column_or_values(labels: Any) -> None:
    name = "label" if labels is None else "kind"
    source = bu.ArrayDataSource({"x": np.arange(N), name: CLASSES})
    for request, same in ((bu.same_class(2, labels), True), (bu.other_class(2, labels), False)):
        for batch in source.map(lambda x, others: np.stack([x, *[o[0] for o in others]], 1), on="x",
                                companions=request).batch_iterator(8, 3):  # fmt: skip
            own, *others = batch["x"].T
            for other in others:
                assert ((CLASSES[other] == CLASSES[own]) == same).all()
                assert (other != own).all()


def test_values_of_the_classes_are_in_the_order_of_the_unshuffled_epoch() -> None:
    source = bu.ArrayDataSource([np.arange(N)], indices=ROWS, repeats=2)
    made = source.map(beside, companions=bu.same_class(1, labels=[0, 1, 1, 0, 1, 0, 0]))
    pairs = {3: 0, 9: 1, 4: 1, 20: 0, 7: 1, 0: 0, 11: 0}
    x, other = columns_of(made)
    assert [pairs[row] for row in x] == [pairs[row] for row in other]


def test_labels_are_read_alone() -> None:
    class Unread:
        shape = (N, 2)

        def __len__(self) -> int:
            return N

        def __getitem__(self, rows: Any) -> Any:
            raise AssertionError

    source = bu.ArrayDataSource({"image": Unread(), "label": LABELS})
    source.map(lambda image, label, others: (image,), companions=bu.same_class(1))
    source.map(lambda image: image, on="image").sample(balanced=True).map(print, companions=bu.same_class(1))


# -- what is refused -------------------------------------------------------------------------------------------------


def refused() -> dict[str, tuple[Any, Any]]:
    plain = numbers()
    return {
        "lazy filter": (lambda: plain.filter(lambda x, y: x > 1, lazy=True).map(beside, companions=1), ArgumentError),
        "resizes": (lambda: plain.map(lambda x, y: (x[:1], y[:1]), resizes=True).map(beside, companions=1),
                    ArgumentError),
        "stream": (lambda: stream_of(9).map(beside, companions=1), ArgumentTypeError),
        "choice": (lambda: bu.ChoiceDataSource([plain, numbers()]).map(beside, companions=1), ArgumentTypeError),
        "composite": (lambda: bu.CompositeDataSource([plain, numbers()]).map(beside, companions=1), ArgumentTypeError),
        "pool": (lambda: bu.SerialPool().parallel_data_source(plain).map(beside, companions=1), ArgumentTypeError),
        "too many": (lambda: numbers(3).map(beside, companions=3), ArgumentError),
        "no samples": (lambda: numbers(0).map(beside, companions=1), ArgumentError),
        "no samples of a class": (lambda: numbers(0).map(beside, companions=bu.same_class(1)), ArgumentError),
        "none": (lambda: plain.map(beside, companions=0), ArgumentError),
        "true": (lambda: plain.map(beside, companions=True), ArgumentTypeError),
        "text": (lambda: plain.map(beside, companions="one"), ArgumentTypeError),
        "no count": (lambda: bu.same_class(0), ArgumentError),
        "small class": (lambda: plain.map(beside, companions=bu.same_class(7)), ArgumentError),
        "one class": (lambda: plain.map(beside, companions=bu.other_class(1, labels=np.zeros(N))), ArgumentError),
        "no labels": (lambda: plain.select(0).map(beside, companions=bu.same_class(1)), ArgumentError),
        "labels of a map": (lambda: plain.map(lambda x, y: (x, y)).map(beside, companions=bu.same_class(1)),
                            ArgumentError),
        "no such column": (lambda: plain.map(beside, companions=bu.same_class(1, "kind")), ArgumentError),
        "few labels": (lambda: plain.map(beside, companions=bu.same_class(1, [0, 1])), ArgumentError),
        "labels by weight": (lambda: plain.sample(weights=1).map(beside, companions=bu.same_class(1, LABELS)),
                             ArgumentTypeError),
        "rows from the end": (
            lambda: bu.ArrayDataSource([np.arange(6)], sampler=bu.SubsetSampler([5, -1, 0])).map(beside, companions=1),
            ArgumentError,
        ),
        "unknown rows": (lambda: bu.ArrayDataSource([np.arange(3)], sampler=Drawing()).map(beside, companions=1),
                         ArgumentTypeError),
    }  # fmt: skip


class Drawing(bu.AbstractSampler):
    """A user's sampler, which does not say its rows."""

    def num_indices_generated(self) -> int:
        return 3


@pytest.mark.parametrize("case", refused())
def test_what_cannot_have_companions_is_refused_with_the_remedy(case: str) -> None:
    call, error = refused()[case]
    with raises(error):
        call()


def test_a_function_that_does_not_take_them_is_named() -> None:
    source = numbers()
    with raises(MapCallError):
        source.map(lambda x, y: (x, y), companions=1)[:2]
    with raises(MapCallError):
        source.map_samples(lambda x, others: (x,), companions=1)[:2]
    with raises(MapCallError):
        source.map(lambda x, y, others, rng: (x, y), companions=1)[:2]
    with raises(MapCallError):
        bu.ArrayDataSource({"x": np.arange(4), "others": np.arange(4)}).map(lambda **b: b, companions=1)[:2]


def test_a_source_that_reads_other_samples_than_rows_is_named() -> None:
    class Short(bu.RandomAccessDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (np.arange(3),)

    with raises(MapResultError):
        Short(9).map(beside, companions=1)[:2]


def test_a_users_source_has_companions() -> None:
    class Squares(bu.RandomAccessDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            return (indices**2,)

    x, other = columns_of(Squares(9).map(beside, companions=1))
    assert sorted(x) == [i**2 for i in range(9)]
    assert set(other) <= set(x)
    assert_same_batch(Squares(9).map(beside, companions=1).samples_by_indices(np.arange(4))[0], np.arange(4) ** 2)


class Listing(bu.RandomAccessDataSource):
    """A user's source that lists its own rows."""

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
        return iter([np.arange(3)])

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices,)


def test_a_users_own_order_has_none() -> None:
    with raises(ArgumentTypeError):
        Listing(9).map(beside, companions=1)


# -- states, errors, digests -----------------------------------------------------------------------------------------


def test_a_state_of_other_companions_is_refused() -> None:
    requests = [None, 1, 2, bu.same_class(1), bu.other_class(1), bu.same_class(1, labels=np.arange(N) % 2)]
    sources = [numbers().map(lambda *b, others=None: b, companions=request) for request in requests]
    states = [source.batch_iterator(4, 3).state_dict() for source in sources]
    for i, source in enumerate(sources):
        for j, state in enumerate(states):
            with contextlib.nullcontext() if i == j else raises(StateError):
                source.batch_iterator(4, 3, state=state)
    assert len({contents_digest(source.node) for source in sources}) == len(sources)


def bad(x: np.ndarray, y: np.ndarray) -> Any:
    if (x == 13).any():
        raise ValueError("row 13 is broken")
    return x, y


def test_a_sample_fails_with_its_companion_and_the_others_stay_as_they_are(pools: list[AbstractWorkerPool]) -> None:
    whole = columns_of(numbers().map(lambda *b: b).map(beside, companions=2))
    fails = np.any([column == 13 for i, column in enumerate(whole) if i != 1], axis=0)
    assert 1 < fails.sum() < N
    source = numbers().map(bad).map(beside, companions=2)
    with raises(BatchError):
        list(source.batch_iterator(7, 3))
    for pool in (bu.SerialPool(), *pools):
        made = pool.parallel_data_source(source, on_error="skip")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bu.SampleWarning)
            assert_same_batches([columns_of(made)], [[column[~fails] for column in whole]])


def test_the_answer_of_a_filter_is_that_of_the_companions(tmp_path: Path) -> None:
    counts = []
    for companions in (1, 2, 1):
        source = numbers().map(lambda *b, others: (*b, sum(o[0] for o in others)), companions=companions)
        kept = source.filter(lambda x, y, s: s > 15, cache=tmp_path / f"{companions}.json", progress=False)
        counts.append(kept.rows.tolist())
    assert counts[0] == counts[2] != counts[1]


def test_orders_that_are_listed_and_streams_have_the_same_companions(pools: list[AbstractWorkerPool]) -> None:
    source = numbers().map(beside, companions=2)
    expected = list(source.batch_iterator(7, np.random.RandomState(3)))
    assert sorted(np.concatenate([batch[0] for batch in expected])) == list(range(N))
    for pool in pools:
        made = pool.parallel_data_source(source).batch_iterator(7, np.random.RandomState(3))
        assert_same_batches(list(made), expected)
    mixed = bu.ChoiceDataSource([source, stream_of(9).map(lambda *b: b)])
    first = next(iter(mixed.batch_iterator(7)))
    assert len(first) == 4
    assert (first[2] != first[0]).all()


def test_what_follows_takes_the_batches_as_they_are() -> None:
    plain = numbers().map_samples(beside_sample, rng="sample", companions=1)
    x = columns_of(plain)
    collated = plain.collate(lambda samples: [np.array(part) for part in zip(*samples, strict=True)])
    deeper = numbers().map_samples(beside_sample, rng="sample", companions=1).map(lambda *batch: batch)
    assert_same_batches([columns_of(collated)], [columns_of(deeper)])
    lazy = numbers().map(beside, companions=1).filter(lambda x, y, other: other % 2 == 0, lazy=True)
    below = columns_of(numbers().map(beside, companions=1).map(lambda *batch: batch))
    assert_same_batches([columns_of(lazy)], [[column[below[2] % 2 == 0] for column in below]])
    assert len(x) == 4
    images = bu.ArrayDataSource({"image": np.zeros((6, 4, 4, 3), np.uint8), "label": np.arange(6) % 2})
    joined = bu.concat(images, images).map(lambda image, label, others: (label, others[0]["label"]),
                                           companions=bu.same_class(5))  # fmt: skip
    for own, other in joined.batch_iterator(5, 3):
        np.testing.assert_array_equal(own, other)


def test_a_replaced_sample_has_companions_too(pools: list[AbstractWorkerPool]) -> None:
    source = numbers().map(bad).map(beside, companions=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bu.SampleWarning)
        expected = list(source.batch_iterator(6, 3, on_error="replace"))
        for pool in pools:
            made = pool.parallel_data_source(source, on_error="replace").batch_iterator(6, 3)
            assert_same_batches(list(made), expected)
    assert [len(batch[0]) for batch in expected] == [6] * 5
    for x, _, other in expected:
        assert (x != other).all()
        assert 13 not in [*x, *other]


class InBlocks:
    """An accessor whose rows are their numbers, in blocks of 5."""

    natural_block, natural_window = 5, 2

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(N)[rows]


def test_orders_by_blocks_and_padded_ranks(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([InBlocks()]).map(beside, companions=2)
    whole = list(source.batch_iterator(4, ("blocks", 3)))
    assert sorted(np.concatenate([batch[0] for batch in whole])) == list(range(N))
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(4, ("blocks", 3))), whole)
    ranks = [list(source.batch_iterator(4, 3, shard=(rank, 4), uneven="pad")) for rank in range(4)]
    found = {tuple(row) for rank in ranks for batch in rank for row in np.stack(batch, 1).tolist()}
    assert found == {tuple(row) for row in np.stack(columns_of(source), 1).tolist()}


def test_looking_at_it() -> None:
    source = numbers().map(beside, companions=bu.same_class(1))
    assert "companions=same_class(1)" in repr(source)
    assert "companions=2" in repr(numbers().map(beside, companions=2))
    assert [column.shape for column in source.columns] == [(N,)] * 3
    bu.MapDataSource(numbers(), beside, companions=1)
    bu.data_source.SampleMapDataSource(numbers(), beside_sample, rng="sample", companions=1)
