"""The public check of a source finds what is wrong only on some transports: of several ranks, resumed, of a copy."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch_options import EpochOptions
from batchup_ng.errors import NotReproducible
from batchup_ng.sampling.plans.sharding import ALONE, START
from batchup_ng.testing import assert_reproducible


class Careless(bu.ArrayDataSource):
    """A source that does not do as it is asked."""

    def asked(self, options: EpochOptions) -> EpochOptions:
        """Return what it does instead."""
        raise NotImplementedError

    def plan_of(self, options: EpochOptions) -> Any:
        return super().plan_of(self.asked(options))


def caught(source: Any, setting: str, **options: Any) -> NotReproducible:
    """Return the error for a source that is found by `setting`."""
    with pytest.raises(NotReproducible) as raised:
        assert_reproducible(source, **options)
    assert setting in raised.value.setting
    assert setting in str(raised.value)
    return raised.value


def test_ranks_that_all_have_everything() -> None:
    class Alone(Careless):
        def asked(self, options: EpochOptions) -> EpochOptions:
            return dataclasses.replace(options, shard=ALONE)

    error = caught(Alone([np.arange(100)]), "is made by 2 ranks", pools=())
    assert (error.batch, error.row) == (1, 0)


def test_ranks_that_have_everything_in_a_pool() -> None:
    class Later(Careless):
        shared_out: ClassVar[Iterator[int]] = itertools.count(1)

        def asked(self, options: EpochOptions) -> EpochOptions:
            once_more = options.shard.world > 1 and next(self.shared_out) > 2
            return dataclasses.replace(options, shard=ALONE) if once_more else options

    caught(Later([np.arange(100)]), "is made by 2 ranks, each with a SerialPool", pools=("serial",), worlds=(2,))


def test_ranks_that_do_not_have_equally_many_batches() -> None:
    class Short(bu.ArrayDataSource):
        def plan_of(self, options: EpochOptions) -> Any:
            plan: Any = super().plan_of(options)
            plan.n_batches -= options.shard.rank
            return plan

    error = caught(Short([np.arange(64)]), "is made by 2 ranks", pools=())
    assert "the ranks of epoch 0 have [4, 3] batches, not equally many" in str(error)
    assert error.culprit == "Short"


def test_an_epoch_that_begins_anew_when_it_is_resumed() -> None:
    class Anew(Careless):
        def asked(self, options: EpochOptions) -> EpochOptions:
            return dataclasses.replace(options, reached=START)

    error = caught(Anew([np.arange(100)]), "is made by a plain loop, resumed after 2 batches of a plain loop", pools=())
    assert (error.batch, error.row) == (2, 0)


def test_an_epoch_that_begins_anew_when_it_is_resumed_with_another_batch_size() -> None:
    class Anew(Careless):
        def asked(self, options: EpochOptions) -> EpochOptions:
            return options if options.batch_size == 8 else dataclasses.replace(options, reached=START)

    error = caught(Anew([np.arange(100)]), "resumed after 2 batches of a plain loop with batch_size=4", pools=())
    assert (error.batch, error.row) == (2, 0)


def test_another_epoch_than_the_first_in_a_pool() -> None:
    class Late(bu.ArrayDataSource):
        def read(self, rows: Any, key: Any, buffers: Any) -> Any:
            elsewhere = threading.current_thread() is not threading.main_thread()
            return (rows + (key.epoch if elsewhere else 0),)

    error = caught(Late([np.arange(100)]), "is made by a pool of 1 thread", pools=("threads",))
    assert (error.culprit, error.epoch) == ("Late", 1)


class Shift:
    """A map that adds a number, which is lost on the way to wherever a copy is wanted."""

    def __init__(self) -> None:
        self.by = 1.0

    def __getstate__(self) -> dict[str, float]:
        return {"by": 0.0}

    def __call__(self, x: np.ndarray) -> Any:
        return (x + self.by,)


class Reseeded(Shift):
    """A map of which each copy adds another number."""

    copies: ClassVar[Iterator[int]] = itertools.count()

    def __setstate__(self, state: dict[str, float]) -> None:
        self.by = next(self.copies)


@pytest.mark.parametrize(
    ("made", "setting"), [(Shift(), "is read by the source itself"), (Reseeded(), "is read by a copy of the source")]
)
def test_a_map_whose_copies_are_not_the_same(made: Any, setting: str) -> None:
    error = caught(bu.ArrayDataSource([np.arange(100)]).map(made), setting, pools=("threads",))
    assert error.culprit == type(made).__name__
    assert "a copy of it, such as each process gets, is not the same" in str(error)
