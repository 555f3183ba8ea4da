"""The public check of a source finds sources that do not heed their options: those of ranks, of states."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import planned
from batchup_ng.data_source.epoch import opening
from batchup_ng.data_source.epoch_options import EpochOptions
from batchup_ng.errors import NotReproducible
from batchup_ng.sampling.plans.epoch import ALONE, START
from batchup_ng.testing import assert_reproducible
from tests.messages import raises


class RanksThatHaveEverything(bu.ArrayDataSource):
    @staticmethod
    def plan_by(plan: Any, options: EpochOptions) -> Any:
        return plan(dataclasses.replace(options, shard=ALONE))


class BeginsAgain(bu.ArrayDataSource):
    @staticmethod
    def plan_by(plan: Any, options: EpochOptions) -> Any:
        return plan(dataclasses.replace(options, reached=START))


class UnequalRanks(bu.ArrayDataSource):
    @staticmethod
    def plan_by(plan: Any, options: EpochOptions) -> Any:
        made = plan(options)
        made.n_batches -= options.shard.rank
        return made


class Shrinks(bu.ArrayDataSource):
    """A source of which each epoch has fewer batches."""

    left = 12

    @classmethod
    def plan_by(cls, plan: Any, options: EpochOptions) -> Any:
        cls.left -= 1
        made = plan(options)
        made.n_batches = min(made.n_batches, cls.left)
        return made


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (RanksThatHaveEverything, "is made by 2 ranks"),
        (BeginsAgain, "is resumed after 2 batches"),
        (UnequalRanks, "is made by 2 ranks"),
        (Shrinks, "is read again"),
    ],
)
def test_it_is_found(kind: Any, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = opening.epoch_plan

    def careless(node: Any, options: EpochOptions, blocks: Any = None) -> Any:
        return kind.plan_by(functools.partial(right, node), options)

    for module in (opening, planned):
        monkeypatch.setattr(module, "epoch_plan", careless)
    n = 64 if kind is UnequalRanks else 200
    with raises(NotReproducible) as raised:
        assert_reproducible(kind([np.arange(n)]), pools=())
    assert raised.value.setting == setting
