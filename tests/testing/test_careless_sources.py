"""The public check of a source finds sources that do not heed their options: those of ranks, of states."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch_options import EpochOptions
from batchup_ng.errors import NotReproducible
from batchup_ng.sampling.plans.sharding import ALONE, START
from batchup_ng.testing import assert_reproducible


class Careless(bu.ArrayDataSource):
    """A source that does other than it is asked to."""

    instead: ClassVar[dict[str, Any]]

    def plan_of(self, options: EpochOptions) -> Any:
        return super().plan_of(dataclasses.replace(options, **self.instead))


class RanksThatHaveEverything(Careless):
    instead: ClassVar[dict[str, Any]] = {"shard": ALONE}


class BeginsAgain(Careless):
    instead: ClassVar[dict[str, Any]] = {"reached": START}


class UnequalRanks(bu.ArrayDataSource):
    def plan_of(self, options: EpochOptions) -> Any:
        plan: Any = super().plan_of(options)
        plan.n_batches -= options.shard.rank
        return plan


class Shrinks(bu.ArrayDataSource):
    """A source of which each epoch has fewer batches."""

    left = 12

    def plan_of(self, options: EpochOptions) -> Any:
        type(self).left -= 1
        plan: Any = super().plan_of(options)
        plan.n_batches = min(plan.n_batches, type(self).left)
        return plan


@pytest.mark.parametrize(
    ("kind", "setting", "says"),
    [
        (RanksThatHaveEverything, "is made by 2 ranks", "batch 1 of epoch 0 .* its row numbers differ: row 0 of"),
        (BeginsAgain, "is resumed after 2 batches", "batch 2 of epoch 0 .* its row numbers differ: row 0 of"),
        (UnequalRanks, "is made by 2 ranks", r"its ranks have \[4, 3\] batches, not equally many"),
        (Shrinks, "is read again", "epoch 1 is not the same .* it has 8 batches, and here 7.*the order that Shrinks"),
    ],
)
def test_it_is_found(kind: type[bu.ArrayDataSource], setting: str, says: str) -> None:
    n = 64 if kind is UnequalRanks else 200
    with pytest.raises(NotReproducible, match=says) as raised:
        assert_reproducible(kind([np.arange(n)]), pools=())
    assert raised.value.setting == setting
