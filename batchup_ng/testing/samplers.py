"""The contract of samplers as pytest suites to inherit: of those with random access, of those that make batches.

    class TestMine(SamplerContract):
        def make(self):
            return MySampler(...)
        in_order = True      # False for one that only draws

    class TestMyBatches(BatchSamplerContract):
        def make(self):
            return MyBatchSampler(...)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import islice
from typing import ClassVar

import numpy as np
import pytest

from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from ..randomness import OrderKey
from ..sampling.base import RandomAccessSampler
from ..sampling.batch_sampler import BatchSampler

SOME = 50
"""How many rows of an endless sampler are looked at."""


class SamplerContract(ABC):
    """What every random-access sampler must do; a subclass says how one is made."""

    in_order: ClassVar[bool] = True

    @abstractmethod
    def make(self) -> RandomAccessSampler:
        """Return a sampler: new, but the same each time."""

    def total(self) -> int:
        """Return how many rows to look at."""
        n = self.make().num_indices_generated()
        return SOME if n == math.inf else int(n)

    def rows(self, key: OrderKey | None) -> np.ndarray:
        """Return the rows of an epoch, or its beginning."""
        return self.make().rows_at(np.arange(self.total()), key)

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_in_order_batches_are_the_rows_in_order(self, batch_size: int) -> None:
        if not self.in_order:
            with pytest.raises(InOrderNotSupported, match="shuffle="):
                self.make().in_order_indices_batch_iterator(batch_size)
            return
        n_batches = -(-self.total() // batch_size)
        got = list(islice(self.make().in_order_indices_batch_iterator(batch_size), n_batches))
        assert all(len(batch) == batch_size for batch in got[:-1])
        np.testing.assert_array_equal(np.concatenate(got)[: self.total()], self.rows(None))

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_shuffled_batches_are_whole_up_to_the_last(self, batch_size: int) -> None:
        total = self.make().num_indices_generated()
        batches = list(islice(self.make().shuffled_indices_batch_iterator(batch_size, np.random.RandomState(3)), 60))
        assert all(len(batch) == batch_size for batch in batches[:-1])
        if total != math.inf and len(batches) < 60:
            assert sum(map(len, batches)) == total

    def test_the_same_generator_gives_the_same_order(self) -> None:
        one, two = (
            list(islice(self.make().shuffled_indices_batch_iterator(4, np.random.RandomState(5)), 9)) for _ in range(2)
        )
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(two))

    def test_a_part_of_an_epoch_is_the_same_on_its_own(self) -> None:
        key = OrderKey(11, 2, (1, 0))
        whole = self.rows(key)
        rng = np.random.default_rng(0)
        for _ in range(20):
            positions = rng.integers(0, len(whole), size=5)
            np.testing.assert_array_equal(self.make().rows_at(positions, key), whole[positions])

    def test_no_positions_give_no_rows(self) -> None:
        assert len(self.make().rows_at(np.arange(0), OrderKey(1, 0))) == 0

    def test_another_seed_epoch_or_node_gives_another_order(self) -> None:
        orders = [self.rows(OrderKey(*key)).tolist() for key in ((1, 0, ()), (2, 0, ()), (1, 1, ()), (1, 0, (0,)))]
        assert len({tuple(order) for order in orders}) == 4

    def test_a_bad_batch_size_is_refused_at_once(self) -> None:
        for iterate in (
            lambda size: self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(1)),
            self.make().in_order_indices_batch_iterator if self.in_order else None,
        ):
            if iterate is None:
                continue
            with pytest.raises(ArgumentError, match="batch_size must be at least 1, not 0"):
                iterate(0)
            with pytest.raises(ArgumentTypeError, match="batch_size must be a whole number"):
                iterate(2.5)  # type: ignore[arg-type]  # on purpose


class BatchSamplerContract(ABC):
    """What every sampler must do that hands out each row once an epoch, in batches of its own."""

    KEY = OrderKey(11, 2, (1, 0))

    @abstractmethod
    def make(self) -> BatchSampler:
        """Return a sampler: new, but the same each time."""

    def batches(self, key: OrderKey | None, batch_size: int = 4, drop_last: bool = False) -> list[np.ndarray]:
        """Return the batches of an epoch."""
        plan = self.make().row_plan(batch_size, key, drop_last)
        return [plan.rows(number) for number in range(int(plan.n_batches))]

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_each_row_comes_once_in_batches_that_are_not_too_large(self, batch_size: int) -> None:
        expected = np.sort(np.concatenate(self.batches(None)))
        assert len(np.unique(expected)) == len(expected) == self.make().num_indices_generated()
        for key in (None, self.KEY):
            batches = self.batches(key, batch_size)
            assert all(1 <= len(rows) <= batch_size for rows in batches)
            np.testing.assert_array_equal(np.sort(np.concatenate(batches)), expected)

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_batches_are_counted_before_they_are_made(self, batch_size: int) -> None:
        for drop_last in (False, True):
            numbers = {len(self.batches(key, batch_size, drop_last)) for key in (None, self.KEY, OrderKey(5, 0))}
            assert numbers == {self.make().count(batch_size, drop_last)}

    def test_without_the_last_the_others_are_the_same(self) -> None:
        for key in (None, self.KEY):
            whole = self.batches(key)
            for rows, same in zip(self.batches(key, drop_last=True), whole, strict=False):
                np.testing.assert_array_equal(rows, same)

    def test_any_batch_is_the_same_on_its_own(self) -> None:
        for key in (None, self.KEY):
            for number, rows in reversed(list(enumerate(self.batches(key)))):
                np.testing.assert_array_equal(self.make().row_plan(4, key, False).rows(number), rows)

    def test_another_seed_epoch_or_node_gives_another_order(self) -> None:
        keys = [OrderKey(*key) for key in ((1, 0, ()), (2, 0, ()), (1, 1, ()), (1, 0, (0,)))]
        assert len({tuple(np.concatenate(self.batches(key)).tolist()) for key in keys}) == 4

    def test_the_same_generator_gives_the_same_batches_and_goes_on(self) -> None:
        def drawn(rng: np.random.RandomState | np.random.Generator) -> list[list[int]]:
            return [rows.tolist() for rows in self.make().shuffled_indices_batch_iterator(4, rng)]

        for make in (np.random.RandomState, np.random.default_rng):
            rng = make(5)
            first = drawn(rng)
            assert first == drawn(make(5))
            assert first != drawn(rng)

    def test_the_two_iterators_give_the_batches_of_the_plan(self) -> None:
        for rows, same in zip(self.make().in_order_indices_batch_iterator(4), self.batches(None), strict=True):
            np.testing.assert_array_equal(rows, same)
        with pytest.raises(ArgumentError, match="batch_size must be at least 1, not 0"):
            self.make().in_order_indices_batch_iterator(0)
        with pytest.raises(ArgumentTypeError, match="batch_size must be a whole number"):
            self.make().shuffled_indices_batch_iterator(2.5, np.random.RandomState(1))  # type: ignore[arg-type]  # so
