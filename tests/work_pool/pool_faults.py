"""The part of the contract of a pool that is about samples that cannot be made: every pool inherits it."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from batchup_ng.data_source import AbstractDataSource, ArrayDataSource
from batchup_ng.errors import BatchError, PoolClosed, SampleTimeout, SampleWarning, TooManyErrors
from batchup_ng.faults.policy import ErrorPolicy
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool.base import AbstractWorkerPool
from batchup_ng.work_pool.serial import SerialPool
from tests.messages import raises, warns

from .pool_tasks import ENDS_PROGRAMS, MAKERS, Fails, FailsAtFirst, Hangs, N, Named, Unpicklable
from .time_limits import only_what_hangs_is_late


class PoolFaultsContract(ABC):
    """What every pool must do about samples that cannot be made.

    Attributes:
        limits_time: Whether the pool can end what takes too long.
        own_thread: Whether tasks run on the consumer's thread, where an interrupt is what it is.
    """

    limits_time: ClassVar[bool] = True
    own_thread: ClassVar[bool] = False

    @abstractmethod
    def make(self) -> AbstractWorkerPool:
        """Return a new pool."""

    def make_to_end(self) -> AbstractWorkerPool:
        """Return a new pool, of few workers, for a test that ends it or one of them."""
        return self.make()

    def numbers(self, fn: Any) -> AbstractDataSource:
        """Return a source of the numbers below :data:`N` after the map `fn`."""
        return ArrayDataSource([np.arange(N)]).map(fn)

    def good(self, *bad: int) -> list[int]:
        """Return the numbers but the bad ones."""
        return [row for row in range(N) if row not in bad]

    # -- what is raised ----------------------------------------------------------------------------------------

    def test_an_error_names_its_sample(self, pool: AbstractWorkerPool) -> None:
        source = ArrayDataSource([Named()]).map(Fails(LookupError, 17, 18)).map(lambda x: (x,))
        iterator = pool.parallel_data_source(source).batch_iterator(7, shuffle=4, epoch=2)
        order = np.concatenate([x for (x,) in ArrayDataSource([np.arange(N)]).batch_iterator(7, shuffle=4, epoch=2)])
        position = min(int(np.flatnonzero(order == row)[0]) for row in (17, 18))
        given: list[Any] = []
        with raises(BatchError) as caught:
            given.extend(iterator)
        assert len(given) == position // 7, "the batches before it"
        error, row = caught.value, int(order[position])
        assert isinstance(error, LookupError)
        assert (error.row, error.position, error.epoch, error.batch) == (row, position, 2, position // 7)
        assert error.source == f"shard/{row:03}.png"
        assert error.op is not None
        assert "Fails" in error.op
        assert "in __call__" in error.traceback
        told = str(error)
        assert told.startswith("bad sample (")
        for part in (f"row {row}", repr(error.source), f"epoch 2, batch {position // 7}"):
            assert part in told
        assert str(pickle.loads(pickle.dumps(error))) == told
        with raises(PoolClosed):
            next(iterator)

    @pytest.mark.parametrize("kind", [*MAKERS, *ENDS_PROGRAMS])
    def test_any_exception_becomes_an_error_and_costs_one_sample(self, pool: AbstractWorkerPool, kind: str) -> None:
        source = self.numbers(Fails({**MAKERS, **ENDS_PROGRAMS}[kind], 17))
        if self.own_thread and kind in ENDS_PROGRAMS:
            with pytest.raises(ENDS_PROGRAMS[kind]):
                list(pool.parallel_data_source(source, on_error="skip").batch_iterator(7))
            return
        with pytest.raises(BatchError) as caught:
            list(pool.parallel_data_source(source).batch_iterator(7))
        assert (caught.value.row, caught.value.batch) == (17, 2)
        assert "row 17" in str(caught.value)
        assert len(str(caught.value).encode()) <= 65 << 10
        assert isinstance(caught.value, Exception)
        assert not isinstance(caught.value, StopIteration)
        iterator = pool.parallel_data_source(source, on_error="skip").batch_iterator(7)
        with warns(SampleWarning):
            rows = np.concatenate([x for (x,) in iterator])
        assert rows.tolist() == self.good(17)

    # -- what is let pass --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("bad", [(0,), (39,), (3, 4, 5), tuple(range(7, 14)), (1, 8, 15, 22, 29, 36)])
    def test_exactly_the_bad_samples_are_left_out(self, pool: AbstractWorkerPool, bad: tuple[int, ...]) -> None:
        iterator = pool.parallel_data_source(self.numbers(Fails(ValueError, *bad)), on_error="skip").batch_iterator(7)
        with pytest.warns(SampleWarning) as warned:
            batches = [x.tolist() for (x,) in iterator]
        expected = [[row for row in range(k, min(k + 7, N)) if row not in bad] for k in range(0, N, 7)]
        assert batches == [rows for rows in expected if rows]
        assert sum(each.category is SampleWarning for each in warned) == 1  # the collector may warn of others' files
        assert [(error.row, error.position, error.batch, error.epoch) for error in iterator.errors] == [
            (row, row, row // 7, 0) for row in bad
        ]
        assert all(isinstance(error.error, ValueError) for error in iterator.errors)
        stats = iterator.stats()
        assert (stats["failed"], stats["replaced"], stats["samples"]) == (len(bad), 0, N - len(bad))
        assert sum(stats["transport"].values()) == stats["batches"] == len(batches)
        assert len(iterator) == 0

    def test_bad_samples_are_replaced_as_in_the_serial_pool(self, pool: AbstractWorkerPool) -> None:
        source = self.numbers(Fails(ValueError, 3, 4, 30))
        with SerialPool() as serial:
            reference = serial.parallel_data_source(source, on_error="replace").batch_iterator(7, shuffle=3)
            with pytest.warns(SampleWarning):
                expected = list(reference)
        iterator = pool.parallel_data_source(source, on_error="replace").batch_iterator(7, shuffle=3)
        with warns(SampleWarning):
            assert_same_batches(list(iterator), expected)
        assert sum(len(x) for (x,) in expected) == N
        assert [error.row for error in iterator.errors] == [error.row for error in reference.errors]
        assert sorted(error.row for error in iterator.errors) == [3, 4, 30]
        assert (iterator.stats()["failed"], iterator.stats()["replaced"]) == (0, 3)

    def test_beyond_the_limit_there_are_too_many(self, pool: AbstractWorkerPool) -> None:
        source = self.numbers(Fails(ValueError, 2, 11, 12, 30))
        for policy in (ErrorPolicy("skip", max_errors=2), ErrorPolicy("skip", max_rate=0.06)):
            iterator = pool.parallel_data_source(source, on_error=policy).batch_iterator(7)
            with pytest.warns(SampleWarning), raises(TooManyErrors) as caught:
                list(iterator)
            assert [error.row for error in caught.value.errors] == [2, 11, 12]
            with raises(PoolClosed):
                next(iterator)
        enough = pool.parallel_data_source(source, on_error=ErrorPolicy("skip", max_errors=4, max_rate=0.1))
        with pytest.warns(SampleWarning):
            assert sum(len(x) for (x,) in enough.batch_iterator(7)) == N - 4

    def test_an_epoch_without_any_sample_is_an_error(self, pool: AbstractWorkerPool) -> None:
        source = self.numbers(Fails(ValueError, *range(N)))
        iterator = pool.parallel_data_source(source, on_error="skip").batch_iterator(7)
        with pytest.warns(SampleWarning), raises(TooManyErrors) as caught:
            next(iterator)
        assert len(caught.value.errors) == N

    def test_a_batch_is_tried_again_as_often_as_was_asked_for(self, pool: AbstractWorkerPool, tmp_path: Path) -> None:
        source = self.numbers(FailsAtFirst(17, 3, tmp_path))
        parallel = pool.parallel_data_source(source, on_error=ErrorPolicy("raise", retries=3))
        iterator = parallel.batch_iterator(7)
        with warns(SampleWarning):
            assert np.concatenate([x for (x,) in iterator]).tolist() == self.good()
        (error,) = iterator.errors
        assert (error.row, error.batch, error.rows.tolist()) == (None, 2, list(range(14, 21)))
        stats = iterator.stats()
        assert (stats["batches"], stats["retried"], stats["failed"], stats["replaced"]) == (6, 1, 0, 0)

    def test_types_say_whose_fault_an_exception_is(self, pool: AbstractWorkerPool) -> None:
        class Local(Exception):
            """A class that no worker can import."""

        for make, types in ((Unpicklable, Unpicklable), (Local, (OSError, Local)), (NameError, [NameError])):
            policy = ErrorPolicy("skip", types=types)
            iterator = pool.parallel_data_source(self.numbers(Fails(make, 17)), on_error=policy).batch_iterator(7)
            with warns(SampleWarning):
                assert np.concatenate([x for (x,) in iterator]).tolist() == self.good(17)
            iterator = pool.parallel_data_source(self.numbers(Fails(KeyError, 17)), on_error=policy).batch_iterator(7)
            with raises(KeyError):
                list(iterator)
            assert iterator.errors == []

    # -- time --------------------------------------------------------------------------------------------------

    def test_a_sample_that_hangs_is_named_and_the_rest_delivered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not self.limits_time:
            pytest.skip("this pool cannot end what takes too long")
        opened = tmp_path / "opened"
        only_what_hangs_is_late(monkeypatch, opened)
        source = self.numbers(Hangs((17,), opened))
        with self.make_to_end() as pool:  # not one whose workers other tests use
            try:
                iterator = pool.parallel_data_source(source, timeout=0.5, on_error="skip").batch_iterator(7)
                with warns(SampleWarning):
                    assert np.concatenate([x for (x,) in iterator]).tolist() == self.good(17)
                (failed,) = iterator.errors
                assert failed.row == 17
                assert isinstance(failed.error, SampleTimeout)
                assert "timeout=0.5 s" in str(failed.error)
            finally:
                opened.touch()
