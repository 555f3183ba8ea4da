"""The contract of samplers as pytest suites to inherit: one for random access, one for samplers that make batches.

    class TestMine(SamplerContract):
        def make(self):
            return MySampler(...)
        in_order = True                  # False if it only draws
        batch_sizes = (1, 3, 7, 1000)    # the sizes that it allows

    class TestMyBatches(BatchSamplerContract):
        def make(self):
            return MyBatchSampler(...)

If the contract holds, any epoch can be resumed and shared out among ranks: both take batches from the same plan.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest

from ..errors import InOrderNotSupported
from ..randomness import OrderKey
from ..sampling.base import BatchSampler, PlannedSampler, RandomAccessSampler

TESTED_ROWS = 50
"""How many rows of an endless sampler are tested."""

TESTED_BATCHES = 30
"""How many batches of an epoch are tested."""

KEY = OrderKey(11, 2, (1, 0))
OTHER_KEYS = [OrderKey(1, 0), OrderKey(2, 0), OrderKey(1, 1), OrderKey(1, 0, (0,))]
"""Keys of other orders: another seed, epoch or node."""


def rows_of(batches: Any) -> list[list[int]]:
    """Return the first of some batches of rows."""
    return [batch.tolist() for batch in islice(batches, TESTED_BATCHES)]


class KeyedContract(ABC):
    """The tests that a sampler must pass if its order is a function of a key."""

    in_order: ClassVar[bool] = True
    batch_sizes: ClassVar[tuple[int, ...]] = (1, 3, 7, 1000)

    @abstractmethod
    def make(self) -> PlannedSampler:
        """Return a sampler: new, but the same each time."""

    def keys(self) -> list[OrderKey | None]:
        """Return the key of a shuffled order; also None, for the order of the rows, if the sampler has that."""
        return [KEY, *[None] * self.in_order]

    def batches(self, key: OrderKey | None, batch_size: int) -> list[np.ndarray]:
        """Return the first batches of an epoch."""
        plan = self.make().row_plan(batch_size, key, False)
        return [plan.rows(number) for number in range(int(min(TESTED_BATCHES, plan.n_batches)))]

    def test_any_batch_is_the_same_on_its_own(self) -> None:
        for size in self.batch_sizes:
            for key in self.keys():
                for number, rows in reversed(list(enumerate(self.batches(key, size)))):
                    assert 1 <= len(rows) <= size
                    assert rows.dtype.kind in "iu"
                    for drop_last in (False, True):
                        plan = self.make().row_plan(size, key, drop_last)
                        if number < plan.n_batches:
                            np.testing.assert_array_equal(plan.rows(number), rows)

    def test_another_seed_epoch_or_node_gives_another_order(self) -> None:
        size = self.batch_sizes[-1]
        assert len({tuple(np.concatenate(self.batches(key, size))) for key in OTHER_KEYS}) == len(OTHER_KEYS)

    def test_several_threads_may_ask_at_once(self) -> None:
        sampler, size = self.make(), self.batch_sizes[-1]
        alone = [self.make().row_plan(size, key, False).rows(0) for key in OTHER_KEYS]
        with ThreadPoolExecutor(4) as threads:
            got = threads.map(lambda key: sampler.row_plan(size, key, False).rows(0), OTHER_KEYS * 5)
            for rows, same in zip(got, alone * 5, strict=True):
                np.testing.assert_array_equal(rows, same)

    def test_in_order_batches_are_those_of_the_plan(self) -> None:
        for size in self.batch_sizes:
            if self.in_order:
                in_order = rows_of(self.make().in_order_indices_batch_iterator(size))
                assert in_order == rows_of(self.batches(None, size))
            else:
                with pytest.raises(InOrderNotSupported, match="shuffle="):
                    self.make().in_order_indices_batch_iterator(size)

    def test_the_same_generator_gives_the_same_batches_and_goes_on(self) -> None:
        size = self.batch_sizes[min(1, len(self.batch_sizes) - 1)]
        for make in (np.random.RandomState, np.random.default_rng):
            rng: Any = make(5)
            first = rows_of(self.make().shuffled_indices_batch_iterator(size, rng))
            assert first == rows_of(self.make().shuffled_indices_batch_iterator(size, make(5)))
            assert first != rows_of(self.make().shuffled_indices_batch_iterator(size, rng))

    def test_its_fingerprint_is_that_of_its_like(self) -> None:
        assert json.dumps(self.make().fingerprint()) == json.dumps(self.make().fingerprint())
        assert self.make().fingerprint()[0] == type(self.make()).__name__


class SamplerContract(KeyedContract):
    """The tests that every random-access sampler must pass. A subclass makes the sampler, of at least a dozen rows."""

    @abstractmethod
    def make(self) -> RandomAccessSampler:
        """Return a sampler: new, but the same each time."""

    def rows(self, key: OrderKey | None) -> np.ndarray:
        """Return the rows of an epoch, or its beginning."""
        n = self.make().num_indices_generated()
        return np.asarray(self.make().rows_at(np.arange(TESTED_ROWS if n == math.inf else n), key))

    def test_batches_are_whole_up_to_the_last(self) -> None:
        total = self.make().num_indices_generated()
        for size in self.batch_sizes:
            drawn = rows_of(self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(3)))
            for batches in [drawn, *[rows_of(self.batches(key, size)) for key in self.keys()]]:
                assert all(len(batch) == size for batch in batches[:-1])
                assert len(batches) == TESTED_BATCHES or sum(map(len, batches)) == total

    def test_any_part_of_an_epoch_is_the_same_on_its_own(self) -> None:
        whole, rng = self.rows(KEY), np.random.default_rng(0)
        for size in (0, *[5] * 20):
            positions = rng.integers(0, len(whole), size)
            np.testing.assert_array_equal(self.make().rows_at(positions, KEY), whole[positions])

    def test_batches_are_cut_from_the_rows_of_each_position(self) -> None:
        for size in self.batch_sizes:
            for key in self.keys():
                cut = np.concatenate(self.batches(key, size))[:TESTED_ROWS]
                np.testing.assert_array_equal(cut, self.rows(key)[: len(cut)])


class BatchSamplerContract(KeyedContract):
    """The tests that a sampler must pass if it hands out each row once per epoch, in its own batches."""

    @abstractmethod
    def make(self) -> BatchSampler:
        """Return a sampler: new, but the same each time."""

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_each_row_comes_once_in_batches_that_are_counted_before(self, batch_size: int) -> None:
        total = self.make().num_indices_generated()
        rows = set()
        for key in (None, KEY):
            for drop_last in (True, False):
                plan = self.make().row_plan(batch_size, key, drop_last)
                counted = self.make().row_plan(batch_size, OrderKey(8, 3), drop_last).n_in_any_order
                assert counted in (None, plan.n_batches)
                epoch = np.concatenate([np.arange(0), *[plan.rows(number) for number in range(int(plan.n_batches))]])
                assert len(np.unique(epoch)) == len(epoch) <= total
            assert len(epoch) == total
            rows.add(tuple(np.sort(epoch)))
        assert len(rows) == 1
