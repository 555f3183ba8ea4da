"""Maps behind a pool: they run in the consumer's process, and the source keeps all that it has."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError, BatchError, StateError
from batchup_ng.work_pool import AbstractWorkerPool, ParallelDataSource
from tests.messages import raises

N, SIZE = 23, 4


@pytest.fixture(scope="module")
def every(pools: list[AbstractWorkerPool]) -> list[AbstractWorkerPool]:
    return [bu.SerialPool(), *pools]


def numbers() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(N), np.arange(N) * 10])


def noisy(x: Any, y: Any, rng: Any) -> Any:
    return x, y + rng.random()


def alike(one: Any, other: Any) -> bool:
    one, other = list(one), list(other)
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for x, y in pairs for a, b in zip(x, y, strict=True)) and len(one) == len(other)


def test_a_map_behind_a_pool_runs_in_the_consumers_next(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        where: list[Any] = []

        def here(x: Any, y: Any, where: list[Any] = where) -> Any:
            where.append((os.getpid(), threading.get_ident()))
            return x, y

        source = pool.parallel_data_source(numbers()).map(here)
        assert isinstance(source, ParallelDataSource)
        iterator = source.batch_iterator(SIZE)
        assert where == []
        next(iterator)
        assert where == [(os.getpid(), threading.get_ident())]
        iterator.close()


def test_what_it_returns_is_handed_out_as_it_is(every: list[AbstractWorkerPool]) -> None:
    kept: list[Any] = []

    def keep(*batch: Any) -> Any:
        kept.append([batch[0][::-1], {"y": batch[1]}])
        return kept[-1]

    for pool in every:
        for number, got in enumerate(pool.parallel_data_source(numbers()).map(keep).batch_iterator(SIZE)):
            assert got is kept[number]
        kept.clear()


def test_chains_are_called_with_what_the_one_before_returned(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        plain = pool.parallel_data_source(numbers())
        source = plain.map(lambda x, y: [x, y]).map(lambda x, y: {"x": x, "y": y})
        source = source.map(lambda x, y: y).map(lambda y: y + 1)
        assert next(source.batch_iterator(SIZE)).tolist() == [1, 11, 21, 31]
        assert next(plain.batch_iterator(SIZE))[1].tolist() == [0, 10, 20, 30], "the source itself is as it was"


@pytest.mark.parametrize("rng", ["batch", "sample"])
@pytest.mark.parametrize("options", [{}, {"shuffle": 7, "epoch": 2}, {"shuffle": 7, "shard": (1, 2), "pad_mask": True}])
def test_random_numbers_are_those_of_the_same_map_in_the_source(
    every: list[AbstractWorkerPool], rng: str, options: Any
) -> None:
    inside = numbers().map(noisy, rng="batch").map(noisy, rng=rng)
    for pool in every:
        for outside in (
            pool.parallel_data_source(numbers()).map(noisy, rng="batch").map(noisy, rng=rng),
            pool.parallel_data_source(numbers().map(noisy, rng="batch")).map(noisy, rng=rng),
        ):
            assert alike(outside.batch_iterator(SIZE, **options), inside.batch_iterator(SIZE, **options))


def test_maps_of_samples_and_collate_work_behind_a_pool(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        source = pool.parallel_data_source(numbers())
        doubled = source.map_samples(lambda x, y, rng: (x * 2, rng.random()), rng="sample")
        inside = numbers().map_samples(lambda x, y, rng: (x * 2, rng.random()), rng="sample")
        assert alike(doubled.batch_iterator(SIZE, 7), inside.batch_iterator(SIZE, 7))
        got = next(source.collate(lambda samples: [x + y for x, y in samples]).batch_iterator(SIZE))
        assert got == [0, 11, 22, 33]


def test_length_state_shards_epochs_and_counts_stay(every: list[AbstractWorkerPool]) -> None:
    inside = numbers().map(noisy, rng="sample")
    for pool in every:
        outside = pool.parallel_data_source(numbers()).map(noisy, rng="sample")
        iterator = outside.batch_iterator(SIZE, 7, shard=(0, 2), epoch=1)
        assert len(iterator) == 3
        head = [next(iterator) for _ in range(2)]
        state = iterator.state_dict()
        assert iterator.stats()["samples"] == 8
        whole = list(inside.batch_iterator(SIZE, 7, shard=(0, 2), epoch=1))
        assert alike([*head, *outside.batch_iterator(SIZE, 7, shard=(0, 2), state=state)], whole)
        assert alike([*head, *inside.batch_iterator(SIZE, 7, shard=(0, 2), state=state)], whole), "one state for both"
        iterator.load_state_dict(state)
        assert alike([*head, *iterator], whole)
        assert [batches.epoch for batches in outside.epochs(3, SIZE, 7) if list(batches)] == [0, 1, 2]
        with raises(StateError):
            pool.parallel_data_source(numbers()).batch_iterator(SIZE, 7, state=state)


def by_row(batches: Any) -> dict[int, float]:
    return {int(x): float(y) for xs, ys in batches for x, y in zip(xs, ys, strict=True)}


def refuse_two(x: Any, y: Any) -> Any:
    if 5 in x or 14 in x:
        raise ValueError("no such sample")
    return x, y


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_errors_in_the_pool_leave_the_others_their_random_numbers(
    every: list[AbstractWorkerPool], on_error: str
) -> None:
    expected = by_row(numbers().map(noisy, rng="sample").batch_iterator(SIZE))
    for pool in every:
        source = pool.parallel_data_source(numbers().map(refuse_two), on_error=on_error).map(noisy, rng="sample")
        iterator = source.batch_iterator(SIZE)
        with pytest.warns(bu.SampleWarning):
            got = by_row(iterator)
        assert [error.row for error in iterator.errors] == [5, 14]
        assert iterator.stats()["samples"] == (N - 2 if on_error == "skip" else N)
        if on_error == "skip":
            assert got == {row: y for row, y in expected.items() if row not in (5, 14)}


def breaks(x: Any, y: Any) -> Any:
    if 9 in x:
        raise KeyError("nine")
    return x, y


def stops(x: Any, y: Any) -> Any:
    raise StopIteration


def test_an_exception_names_the_map_and_the_batch_which_is_not_lost(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        source = pool.parallel_data_source(numbers(), on_error="skip").map(breaks).map(lambda x, y: x)
        iterator = source.batch_iterator(SIZE, epoch=3)
        head = [next(iterator), next(iterator)]
        with raises(KeyError) as told:
            next(iterator)
        assert isinstance(told.value, BatchError)
        assert (told.value.op, told.value.epoch, told.value.batch) == ("breaks", 3, 2)
        state = iterator.state_dict()
        assert (state["samples"], len(head)) == (8, 2), "a state that is saved now begins with it"
        with raises(bu.PoolClosed):
            next(iterator)
        with raises(RuntimeError):
            next(pool.parallel_data_source(numbers()).map(stops).batch_iterator(SIZE))
        with raises(TypeError):
            next(pool.parallel_data_source(numbers()).map(lambda x, y: None).batch_iterator(SIZE))


def test_arguments_are_checked_as_for_any_map(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        for source in (pool.parallel_data_source(numbers()), pool.prefetch(numbers())):
            with raises(ArgumentTypeError):
                source.map(3)  # type: ignore[arg-type]
            with raises(ValueError):
                source.map_samples(noisy, rng="batch")


def test_torch_tensors_are_handed_over_without_a_copy(every: list[AbstractWorkerPool]) -> None:
    torch = pytest.importorskip("torch", reason="hands batches over to torch")
    for pool in every:
        source = pool.parallel_data_source(bu.ArrayDataSource([np.ones((N, 3, 5), np.float32)]))
        turned = source.map(lambda x: (torch.from_numpy(x).permute(0, 2, 1),))
        for (x,) in turned.batch_iterator(SIZE, shuffle=7):
            assert tuple(x.shape)[1:] == (5, 3)
            assert not x.is_contiguous()


def test_samples_are_looked_at_behind_the_maps() -> None:
    inside = numbers().map(noisy, rng="sample").map(noisy, rng="sample")
    with bu.SerialPool() as pool:
        for make in (pool.parallel_data_source, pool.prefetch):
            source = make(numbers().map(noisy, rng="sample")).map(noisy, rng="sample")
            for which in (slice(3, 7), [5, 2]):
                assert alike([source[which]], [inside[which]])
            assert source[-2] == inside[-2]
            assert make(numbers()).map(lambda x, y: [x, y])[3] == (3, 30)
            assert make(numbers()).map(lambda x, y: x)[3] == 3
            assert make(numbers()).collate(lambda samples: {"n": len(samples)})[:5] == {"n": 5}


def test_what_arranges_samples_belongs_before_the_pool() -> None:
    with bu.SerialPool() as pool:
        for source in (pool.parallel_data_source(numbers()), pool.prefetch(numbers())):
            for name, arguments in [("concat", [numbers()]), ("zip", [numbers()]), ("subset", [[1]]),
                                    ("split", [(0.5, 0.5), 1]), ("filter", [bool]), ("with_index", [])]:  # fmt: skip
                with raises(ArgumentTypeError) as caught:
                    getattr(source, name)(*arguments)
                assert name in str(caught.value)
                assert ("handed to a pool" in str(caught.value)) == (name in ("filter", "with_index"))


def test_maps_behind_a_pool_are_told_once() -> None:
    with bu.SerialPool() as pool:
        told = repr(pool.parallel_data_source(numbers()).map(noisy, rng="batch").map(breaks))
    assert told.startswith("<ParallelDataSource: 23 samples, ")
    assert "by <SerialPool: open>, then fn=noisy, rng='batch', then fn=breaks, of <ArrayDataSource: 23 samp" in told
    assert told.count("SerialPool") == 1
    assert "resizes" not in told


# -- prefetch ------------------------------------------------------------------------------------------------------


class Counting:
    """An iterator of batches of other lengths that can be saved."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> Any:
        if self.at == 6:
            raise StopIteration
        self.at += 1
        return (np.arange(self.at) + 10 * self.at,)

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def jitter(x: Any, rng: Any) -> Any:
    return (x + rng.random(),)


def test_prefetch_keeps_what_it_has_behind_a_map(every: list[AbstractWorkerPool]) -> None:
    whole = list(bu.IteratorDataSource(Counting()).map(jitter, rng="sample").batch_iterator(1, shuffle=7))
    for pool in every:
        source = pool.prefetch(bu.IteratorDataSource(Counting(), 21)).map(jitter, rng="sample")
        iterator = source.batch_iterator(1, shuffle=7)
        head = [next(iterator) for _ in range(2)]
        state = iterator.state_dict()
        assert iterator.stats()["samples"] == 3
        iterator.close()
        again = pool.prefetch(bu.IteratorDataSource(Counting(), 21)).map(jitter, rng="sample")
        assert alike([*head, *again.batch_iterator(1, shuffle=7, state=state)], whole)


def test_an_exception_behind_prefetch_names_the_map_and_the_batch(every: list[AbstractWorkerPool]) -> None:
    for pool in every:
        stream = bu.CallableDataSource(lambda batch_size: iter([(np.arange(8), np.arange(8)), (np.arange(12),) * 2]))
        iterator = pool.prefetch(stream).map(breaks).batch_iterator(1)
        next(iterator)
        with raises(KeyError):
            next(iterator)
