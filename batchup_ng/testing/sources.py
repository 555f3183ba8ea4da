"""The contract of a random-access data source as a pytest suite to inherit.

    class TestMine(SourceContract):
        def make(self):
            return MySource(...)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import islice
from typing import Any, ClassVar

import cloudpickle
import numpy as np
import pytest

from .. import batch as nests
from ..data_source import PlannedDataSource
from ..data_source.epoch.reading import MakeBatch
from ..memory.leases import FRESH
from ..work_pool import WorkerThreadPool
from .comparison import first_difference

TESTED_BATCHES = 30
"""How many batches of an endless epoch are tested."""


def assert_same_batch(got: Any, expected: Any) -> None:
    """Assert that two batches are equal: containers, shapes, dtypes, bytes, strides, flags."""
    assert_same_batches([got], [expected])


def assert_same_batches(got: list[Any], expected: list[Any]) -> None:
    """Assert that two lists of batches are equal."""
    difference = first_difference(expected, got)
    assert difference is None, difference


class SourceContract(ABC):
    """The tests that every random-access source must pass. A subclass makes the source."""

    shuffles: ClassVar[tuple[Any, ...]] = (None, 5, "RandomState", "Generator")

    @abstractmethod
    def make(self) -> PlannedDataSource:
        """Return a source: new, but the same each time."""

    def shuffle(self, kind: Any) -> Any:
        """Return the value for ``shuffle=``. Generators are new each time."""
        if kind == "RandomState":
            return np.random.RandomState(8)
        return np.random.default_rng(8) if kind == "Generator" else kind

    def epoch(self, kind: Any, source: Any = None, **options: Any) -> list[Any]:
        """Return the batches of an epoch, or of its beginning. If no source is given, make a new one."""
        made = self.make() if source is None else source
        iterator = made.batch_iterator(4, shuffle=self.shuffle(kind), **options)
        return list(islice(iterator, TESTED_BATCHES))

    def test_an_epoch_is_the_same_each_time(self) -> None:
        for kind in self.shuffles:
            assert_same_batches(self.epoch(kind), self.epoch(kind))

    def test_the_plan_gives_any_batch_on_its_own(self) -> None:
        for kind in self.shuffles:
            source = self.make()
            expected = self.epoch(kind)
            plan = source.plan(4, self.shuffle(kind))
            for number in reversed(range(len(expected))):
                planned = plan[number]
                assert planned.number == number
                assert_same_batch(MakeBatch().read(source.node, planned.rows, planned.key, FRESH), expected[number])

    def test_the_length_is_the_number_of_batches(self) -> None:
        for kind in self.shuffles:
            plan = self.make().plan(4, self.shuffle(kind))
            if plan.n_batches == math.inf:
                with pytest.raises(TypeError, match="never ends"):
                    len(plan)
                with pytest.raises(TypeError, match="never ends"):
                    len(self.make().batch_iterator(4, shuffle=self.shuffle(kind)))
                continue
            assert len(plan) == len(list(plan)) == len(self.make().batch_iterator(4, shuffle=self.shuffle(kind)))
            with pytest.raises(IndexError, match="out of range"):
                plan[len(plan)]

    def test_dropping_the_last_leaves_whole_batches(self) -> None:
        for kind in self.shuffles:
            for batch in self.epoch(kind, drop_last=True):
                assert nests.length(batch) == 4

    def test_a_pool_gives_the_same_batches(self) -> None:
        with WorkerThreadPool(2) as pool:
            for kind in self.shuffles:
                assert_same_batches(self.epoch(kind, pool.parallel_data_source(self.make(), 3)), self.epoch(kind))

    def test_a_copy_that_travelled_gives_the_same_batches(self) -> None:
        for kind in self.shuffles:
            assert_same_batches(self.epoch(kind, cloudpickle.loads(cloudpickle.dumps(self.make()))), self.epoch(kind))
