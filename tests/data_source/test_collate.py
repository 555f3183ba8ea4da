"""The collate hook: a function makes batches of lists of samples, in any pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import PlannedDataSource
from batchup_ng.errors import ArgumentTypeError, StateError
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

A = np.arange(23)


def base() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([A, A[:, None] * np.array([1.0, 0.5])])


def stacked(samples: list[Any]) -> Any:
    """A function as one has it for PyTorch."""
    numbers, rows = zip(*samples, strict=True)
    return np.array(numbers), np.stack(rows).astype(np.float32)


def named(samples: list[Any]) -> dict[str, np.ndarray]:
    return {"number": np.array([i for i, _ in samples]), "row": np.stack([x for _, x in samples])}


class TestCollate(SourceContract):
    def make(self) -> PlannedDataSource:
        return base().collate(stacked)


class TestCollateOfAGraph(SourceContract):
    def make(self) -> PlannedDataSource:
        return bu.concat(base(), base()).collate(stacked).map(lambda i, x: (i, x * 2))


def test_it_is_handed_a_list_of_tuples() -> None:
    seen: list[Any] = []

    def look(samples: list[Any]) -> Any:
        seen.append(samples)
        return np.zeros(len(samples)), np.ones(len(samples))

    list(base().collate(look).batch_iterator(10))
    assert [len(samples) for samples in seen] == [10, 10, 3]
    assert all(type(samples) is list and type(sample) is tuple for samples in seen for sample in samples)
    number, row = seen[2][1]
    assert number == 21
    assert row.tolist() == [21.0, 10.5]


def test_samples_of_nested_batches_are_nested() -> None:
    seen: list[Any] = []
    both = bu.CompositeDataSource([base(), bu.ArrayDataSource([A])], flatten=False)
    list(both.collate(lambda samples: seen.append(samples[0]) or (A,)).batch_iterator(23))
    ((number, row), (other,)) = seen[0]
    assert (number, row.tolist(), other) == (0, [0.0, 0.0], 0)


def test_what_it_returns_is_handed_out_as_it_is() -> None:
    (batch,) = base().collate(lambda samples: list(stacked(samples))).batch_iterator(23)
    assert type(batch) is list
    source = base().collate(named)
    for batch in source.batch_iterator(10):
        assert sorted(batch) == ["number", "row"]
    mapped = source.map(lambda number, row: (number, row + 1))
    assert_same_batches(list(mapped.batch_iterator(10)), [(i, x + 1) for i, x in base().batch_iterator(10)])
    again = source.map_samples(lambda number, row: (number,)).map(lambda i, rng: (i,), rng="sample")
    assert_same_batches(list(again.batch_iterator(10)), [(i,) for i, _ in base().batch_iterator(10)])
    twice = source.collate(lambda samples: (np.array([sample["number"] for sample in samples]),))
    assert_same_batches(list(twice.batch_iterator(10)), [(i,) for i, _ in base().batch_iterator(10)])


def test_padding_is_marked_in_a_dict() -> None:
    ranks = [list(base().collate(named).batch_iterator(4, shard=(rank, 2), pad_mask=True)) for rank in range(2)]
    assert sum(int(batch["pad_mask"].sum()) for rank in ranks for batch in rank) == 23
    assert all(len(batch["row"]) == len(batch["pad_mask"]) for rank in ranks for batch in rank)


def test_arrays_of_different_lengths_are_collated() -> None:
    def padded(samples: list[Any]) -> Any:
        x, lengths = bu.pad_batch([x for x, _ in samples], return_lengths=True)
        return x, lengths, np.array([i for _, i in samples])

    source = bu.ArrayDataSource([A]).map_samples(lambda i: (np.ones(i % 5), i)).collate(padded)
    for x, lengths, i in source.batch_iterator(6, shuffle=3):
        assert (lengths == i % 5).all()
        assert (x.sum(axis=1) == lengths).all()


def test_torchs_own_function_works_in_any_pool(pools: list[AbstractWorkerPool]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = base().collate(torch.utils.data.default_collate)
    expected = list(base().batch_iterator(5, shuffle=2))
    for pool in (bu.SerialPool(), *pools):
        got = list(pool.parallel_data_source(source).batch_iterator(5, shuffle=2))
        assert all(type(part) is torch.Tensor for batch in got for part in batch)
        assert_same_batches([tuple(part.numpy() for part in batch) for batch in got], expected)
        assert got[0][1].dtype == torch.float64


@pytest.mark.parametrize("processes", [False, True])
def test_an_error_names_the_function_and_the_sample(pools: list[AbstractWorkerPool], processes: bool) -> None:
    def choosy(samples: list[Any]) -> Any:
        if any(i == 17 for i, _ in samples):
            raise ValueError("no 17")
        return stacked(samples)

    pool = pools[processes]
    with raises(bu.BatchError) as caught:
        list(pool.parallel_data_source(base().collate(choosy)).batch_iterator(5))
    assert caught.value.op == "choosy"
    skipping = pool.parallel_data_source(base().collate(choosy), on_error="skip").batch_iterator(5)
    with pytest.warns(bu.SampleWarning):
        left = np.concatenate([i for i, _ in skipping])
    assert left.tolist() == [i for i in range(23) if i != 17]


def test_a_stream_is_collated() -> None:
    stream = bu.IteratorDataSource(iter([(A[:3], A[:3] * 2), (A[3:5], A[3:5] * 2)]))
    got = list(stream.collate(lambda samples: (np.array(samples),)).batch_iterator(3))
    assert [x.tolist() for (x,) in got] == [[[0, 0], [1, 2], [2, 4]], [[3, 6], [4, 8]]]


def test_it_is_told_from_a_map_when_resumed() -> None:
    state = base().collate(stacked).batch_iterator(5).state_dict()
    assert len(list(base().collate(named).batch_iterator(5, state=state))) == 5
    with raises(StateError):
        base().map(lambda *batch: batch).batch_iterator(5, state=state)


def test_what_is_no_function_and_what_returns_nothing_is_refused() -> None:
    with raises(ArgumentTypeError):
        base().collate(3)  # type: ignore[arg-type]  # on purpose
    with raises(ArgumentTypeError):
        next(base().collate(lambda samples: None).batch_iterator(5))
    with raises(TypeError):
        base().collate(stacked, rng="batch")  # type: ignore[call-arg]  # on purpose


@pytest.mark.parametrize("mapped", [lambda s: s.map_samples(lambda x, y: (x,)), lambda s: s.collate(lambda b: (b,))])
def test_a_batch_with_unequal_columns_is_not_taken_apart(mapped: Any) -> None:
    for lengths in ((2, 1), (1, 2)):
        parts = [bu.ArrayDataSource([np.arange(n)]) for n in lengths]
        with raises(bu.ArgumentError):
            list(mapped(bu.CompositeDataSource(parts, trim=False)).batch_iterator(4))
        assert len(list(mapped(bu.CompositeDataSource(parts)).batch_iterator(4))) == 1


@pytest.mark.parametrize("column", [A, bu.MapStyle([(i,) for i in range(23)])])
def test_row_numbers_are_part_of_the_samples(column: Any) -> None:
    seen: list[Any] = []
    indexed = bu.ArrayDataSource([column]).subset(range(5, 9)).with_index()
    list(indexed.collate(lambda samples: seen.extend(samples) or (A[:2],)).batch_iterator(2))
    assert seen == [(0, 5), (1, 6), (2, 7), (3, 8)]
    pair = bu.CompositeDataSource([base(), bu.ArrayDataSource([A])]).with_index()
    list(pair.collate(lambda samples: seen.append(samples[1][:2]) or (A,)).batch_iterator(23))
    assert seen[-1] == (1, 1)


def test_row_numbers_leave_the_samples_beside_them_as_they_are() -> None:
    given = [("text", i, [i]) for i in range(4)]
    numbered = bu.ArrayDataSource([bu.MapStyle(given)], include_indices=True)
    for source in (numbered, bu.ArrayDataSource([bu.MapStyle(given)]).with_index()):
        samples = next(source.collate(lambda samples: samples).batch_iterator(4))
        assert samples == [(i, *sample) for i, sample in enumerate(given)]
        assert [type(part) for part in samples[0][1:]] == [str, int, list]


def test_samples_of_a_data_set_are_handed_on_as_they_are() -> None:
    wrapped = [({"x": i},) for i in range(4)]
    seen: list[Any] = []
    for source in (
        bu.ArrayDataSource([bu.MapStyle(wrapped)]),
        bu.ArrayDataSource([np.arange(4)]).map_samples(lambda i: ({"x": i},)),
    ):
        list(source.collate(lambda samples: seen.append(samples) or (A,)).batch_iterator(4))
        assert seen[-1] == wrapped
    bare = bu.ArrayDataSource([bu.MapStyle([{"x": i} for i in range(4)])])
    for source in (bare, bare.map(lambda x: ({"x": x},))):
        list(source.collate(lambda samples: seen.append(samples) or (A,)).batch_iterator(4))
        assert seen[-1] == [{"x": i} for i in range(4)]


def test_dicts_side_by_side_are_collated_as_one() -> None:
    dicts, pairs = ({"x": i} for i in range(4)), [(i, {"x": i}) for i in range(4)]
    whole, named = bu.ArrayDataSource([bu.MapStyle(list(dicts))]), bu.ArrayDataSource({"y": A[:4]})
    numbers = bu.ArrayDataSource([A[:4]])
    for source, expected in (
        (whole.zip(whole, flatten=False), [({"x": i}, {"x": i}) for i in range(4)]),
        (whole.zip(named), [{"x": i, "y": i} for i in range(4)]),
        (named.zip(bu.ArrayDataSource({"z": A[:4]})), [{"y": i, "z": i} for i in range(4)]),
        (numbers.zip(whole), pairs),
        (whole.with_index(), [{"index": i, "x": i} for i in range(4)]),
        (bu.ArrayDataSource(whole.data, include_indices=True), [{"index": i, "x": i} for i in range(4)]),
        (bu.ArrayDataSource({"y": whole.data[0]}), [{"y": {"x": i}} for i in range(4)]),
        (bu.CompositeDataSource([numbers, whole], flatten=False), [((i,), {"x": i}) for i in range(4)]),
    ):
        assert next(source.collate(lambda samples: samples).batch_iterator(4)) == expected


def test_lists_side_by_side_stay_lists() -> None:
    lists = bu.ArrayDataSource([bu.MapStyle([[i, i] for i in range(4)])])
    numbers = bu.ArrayDataSource([A[:4]])
    for source in (lists.zip(numbers), bu.CompositeDataSource([lists, numbers])):
        assert next(source.collate(lambda samples: samples).batch_iterator(4)) == [([i, i], i) for i in range(4)]
    longer = base().map(lambda number, row: (np.repeat(number, 2), np.repeat(row, 2, 0)), resizes=True)
    with raises(bu.ArgumentError):
        next(base().zip(longer).collate(stacked).batch_iterator(4))


def test_padding_is_marked_behind_the_arrays_of_a_list() -> None:
    source = base().collate(lambda samples: list(stacked(samples)))
    for number, row, mask in source.batch_iterator(4, shard=(1, 2), pad_mask=True):
        assert len(number) == len(row) == len(mask)
    with bu.SerialPool() as pool:
        behind = pool.parallel_data_source(base()).collate(lambda samples: list(stacked(samples)))
        assert [len(batch) for batch in behind.batch_iterator(12, pad_mask=True, shard=(0, 2))] == [3]
