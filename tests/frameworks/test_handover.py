"""What users pass to the adapters of all frameworks, held to the contract without a framework."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.distributed import LAUNCHERS
from batchup_ng.data_source.epoch.iterator_views import MappedIterator
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.frameworks.handover import converted, handed_over
from batchup_ng.frameworks.ranks import RankCheck
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns

from .handover_helpers import SOURCE, AsNumPy, ahead, numbers


class TestLoader(AsNumPy):
    """The loader itself."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return loader


class TestConverted(AsNumPy):
    """Batches that are converted in ``next``."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return converted(loader, lambda batch: batch)


class TestWatched(AsNumPy):
    """Batches under watch."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return bu.watch(ahead(loader), lambda wait: None)


def test_a_source_that_a_pool_works_for_and_an_iterator() -> None:
    with bu.WorkerThreadPool(2) as pool:
        source = ahead(pool.parallel_data_source(SOURCE), lambda batch: (batch[0] * 2,))
        assert numbers(source.batch_iterator(10)) == [0, 20, 40, 60]
        for each in source.epochs(2, batch_size=20):
            assert numbers(each) == [0, 40]
        assert numbers(ahead(SOURCE.batch_iterator(20))) == [0, 20]
        assert numbers(ahead(iter([(np.arange(3),)]))) == [0]
    with raises(ArgumentTypeError):
        handed_over(5, iter)


def without_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, rank, world in LAUNCHERS:
        monkeypatch.delenv(rank, raising=False)
        monkeypatch.delenv(world, raising=False)


@pytest.mark.parametrize(("launcher", "rank", "world"), LAUNCHERS)
def test_ranks_of_a_launcher_are_refused_all_of_the_data_before_the_group_begins(
    launcher: str, rank: str, world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_launcher(monkeypatch)
    found: list[tuple[int, int] | None] = [None]
    check = RankCheck("a framework", lambda: found[0])

    def read(batches: Any) -> list[int]:
        return numbers(handed_over(batches, iter, check))

    with bu.Loader(SOURCE, 10, pool="serial") as loader:
        assert read(loader) == [0, 10, 20, 30]
        monkeypatch.setenv(rank, "1")
        monkeypatch.setenv(world, "2")
        with raises(ArgumentError):
            read(loader)
        found[0] = 0, 1  # the framework has a group of one process
        assert read(loader) == [0, 10, 20, 30]
        found[0] = None
        monkeypatch.setenv(rank, "2")  # what shard="auto" refuses is not what started this process
        assert read(loader) == [0, 10, 20, 30]
    monkeypatch.setenv(rank, "1")
    with bu.Loader(SOURCE, 10, pool="serial", shard="auto") as loader:
        assert read(loader) == [10, 30]
    with bu.Loader(SOURCE, 10, pool="serial", shard=None) as loader, warns(UserWarning):
        assert read(loader) == [0, 10, 20, 30]
    fresh = bu.ArrayDataSource([np.arange(40)])  # a source is warned of once
    with warns(UserWarning):
        assert read(fresh.batch_iterator(10)) == [0, 10, 20, 30]


@pytest.mark.parametrize("pool", ["serial", "threads"])
@pytest.mark.parametrize("taken", [1, 4, 9, 10, 13, 20])
def test_the_state_counts_what_the_loop_got_whatever_is_handed_over(pool: str, taken: int) -> None:
    """The adapter's thread is two batches ahead, at the end of an epoch in the next one."""
    forms: list[Callable[[bu.Loader], Any]] = [
        lambda loader: ahead(loader.epochs(2)),
        lambda loader: ahead(loader).epochs(2),
        lambda loader: bu.watch(ahead(loader.epochs(2)), lambda wait: None),
        lambda loader: ahead(loader.map(lambda x: (x,)).epochs(2)),
        lambda loader: converted(loader.epochs(2), lambda batch: batch),
    ]
    for form in forms:
        with bu.Loader(SOURCE, 4, shuffle=1, pool="serial") as loader:
            expected = [(loader.epoch, x.tolist()) for (x,) in loader.epochs(2)]
        got = []
        with bu.Loader(SOURCE, 4, shuffle=1, pool=pool) as loader:
            for (x,) in form(loader):
                time.sleep(0.002)  # the thread of the adapter takes the next ones meanwhile
                got.append((loader.epoch, x.tolist()))
                if len(got) == taken:
                    break
            state = loader.state_dict()
        with bu.Loader(SOURCE, 4, shuffle=1, pool=pool) as loader:
            loader.load_state_dict(state)
            got += [(loader.epoch, x.tolist()) for (x,) in form(loader)] if taken < 20 else []
        assert got == expected


@pytest.mark.parametrize("taken", [1, 9, 10])
def test_the_state_of_an_iterator_counts_what_the_loop_got(taken: int, pools: list[AbstractWorkerPool]) -> None:
    (expected,) = ([x.tolist() for (x,) in SOURCE.batch_iterator(4, shuffle=1)],)
    for source in (SOURCE, *[pool.parallel_data_source(SOURCE) for pool in pools]):
        iterator = source.batch_iterator(4, shuffle=1, epoch=0)
        got = []
        for (x,) in ahead(iterator):
            time.sleep(0.002)
            got.append(x.tolist())
            if len(got) == taken:
                break
        rest = source.batch_iterator(4, shuffle=1, epoch=0, state=iterator.state_dict())
        assert got + [x.tolist() for (x,) in rest] == expected


def rest_of(iterator: Any, named: bool) -> list[list[int]]:
    return [(batch["x"] if named else batch[0]).tolist() for batch in iterator]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 3, 9, 10])
@pytest.mark.parametrize("before", [0, 2])
def test_an_iterator_goes_on_alone_after_its_adapter(taken: int, before: int, named: bool) -> None:
    """No pool is ahead, so the adapter converts in ``next`` and has taken nothing that the loop did not get."""
    rows = np.arange(48)
    data = bu.ArrayDataSource({"x": rows} if named else [rows])
    for source in (data, bu.SerialPool().parallel_data_source(data)):
        iterator = source.batch_iterator(4)
        got = rest_of(itertools.islice(iterator, before), named)
        for last in (taken, 1):  # another adapter after it
            adapter = ahead(iterator, always=False)
            got += rest_of(itertools.islice(adapter, last), named)
            del adapter
        while True:
            state = iterator.state_dict()
            assert got + rest_of(data.batch_iterator(4, state=state), named) == rows.reshape(12, 4).tolist()
            try:
                batch = next(iterator)
            except StopIteration:
                break
            got += rest_of([batch], named)
        assert len(got) == 12


@pytest.mark.parametrize("again", [next, ahead])
@pytest.mark.parametrize("taken", [1, 3, 7])
def test_batches_that_went_with_an_adapter_are_no_gap_in_the_epoch(
    taken: int, again: Callable[[Any], Any], pools: list[AbstractWorkerPool]
) -> None:
    """The thread of the adapter is two batches ahead."""
    rows = np.arange(40)
    data = bu.ArrayDataSource([rows])
    for source in (data, *[pool.parallel_data_source(data) for pool in pools]):
        iterator = source.batch_iterator(4)
        adapter = ahead(iterator)
        got = rest_of(itertools.islice(adapter, taken), named=False)
        state = iterator.state_dict()
        del adapter
        for _ in range(2):
            assert iterator.state_dict() == state
            with raises(bu.PoolClosed):
                again(iterator)
        assert iterator.state_dict() == state
        iterator.load_state_dict(iterator.state_dict())
        got += rest_of(iterator, named=False)
        assert got == rows.reshape(10, 4).tolist()


@pytest.mark.parametrize("pool", ["serial", "threads"])
def test_an_epoch_whose_first_batch_did_not_arrive_comes_again(pool: str) -> None:
    broken = [True]

    def convert(batch: Any) -> Any:
        if broken[0]:
            raise KeyError("not yet")
        return batch

    with bu.Loader(SOURCE, 20, shuffle=1, pool=pool) as loader:
        expected = [(loader.epoch, x.tolist()) for (x,) in loader.epochs(2)]
    for handed in (ahead, converted):
        broken[0] = True
        with bu.Loader(SOURCE, 20, shuffle=1, pool=pool) as loader:
            with pytest.raises(KeyError):
                next(handed(loader, convert).epochs(2))
            assert loader.upcoming_epoch == 0
            broken[0] = False
            assert [(loader.epoch, x.tolist()) for (x,) in handed(loader, convert).epochs(2)] == expected


def test_iterators_of_a_loader_are_refused() -> None:
    with bu.Loader(SOURCE, 4, shuffle=1, pool="serial") as loader:
        for given in (iter(loader), iter(loader.map(lambda x: (x,))), bu.watch(loader.epochs(2), lambda wait: None)):
            with raises(ArgumentTypeError):
                ahead(given if isinstance(given, Iterator) else iter(given))
        begun = loader.epochs(2)
        next(begun)
        with raises(ArgumentError):
            ahead(begun)


class WithNamesOfItsOwn:
    """An iterator of the user's with attributes that have other meanings in the library."""

    progress, mark, ahead, flow_id, errors = 0.5, "x", 3, "y", 7

    def __init__(self) -> None:
        self._batches = iter([(np.arange(3),), (np.arange(2),)])

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self._batches)


def test_an_iterator_of_the_users_may_have_any_attributes() -> None:
    assert [len(batch[0]) for batch in ahead(WithNamesOfItsOwn())] == [3, 2]
    with pytest.raises(ZeroDivisionError):
        list(MappedIterator(WithNamesOfItsOwn(), lambda batch: 1 / 0))


def test_an_epoch_that_cannot_begin_is_not_the_end_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(SOURCE)
        failures, of_view = [OSError("ahead"), OSError("in its turn")], list[OSError]()
        start = source.node.start

        def failing(epoch: Any, *before: Any) -> Any:
            if epoch.options.epoch == 1 and failures:
                raise failures.pop(0)
            return start(epoch, *before)

        def viewed(iterator: Any) -> Any:
            if iterator.epoch == 1 and not of_view:
                of_view.append(OSError("in the view"))
                raise of_view[0]
            return ahead(iterator)

        monkeypatch.setattr(source.node, "start", failing)
        epochs = handed_over(source, viewed).epochs(3, batch_size=20)
        assert numbers(next(epochs)) == [0, 20]
        for message in ("in its turn", "in the view"):
            with pytest.raises(OSError) as caught:  # noqa: PT011
                next(epochs)
            assert message in str(caught.value)
        assert [each.epoch for each in epochs if numbers(each) == [0, 20]] == [1, 2]
