"""What users pass to the adapters of all frameworks, held to the contract without a framework."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.iterator_views import MappedIterator
from batchup_ng.errors import ArgumentTypeError
from batchup_ng.frameworks.handover import converted, handed_over
from tests.messages import raises

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
