"""The contract of samplers as pytest suites to inherit: of those with random access, of those that make batches.

    class TestMine(SamplerContract):
        def make(self):
            return MySampler(...)
        in_order = True                  # False for one that only draws
        batch_sizes = (1, 3, 7, 1000)    # those that it allows

    class TestMyBatches(BatchSamplerContract):
        def make(self):
            return MyBatchSampler(...)
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pytest

from ..data_source.random_access import RandomAccessDataSource
from ..errors import ArgumentError, ArgumentTypeError, InOrderNotSupported
from ..randomness import OrderKey
from ..sampling.base import BatchSampler, RandomAccessSampler

SOME = 50
"""How many rows of an endless sampler are looked at."""

LOOK = 30
"""How many batches of an epoch are looked at."""

KEY = OrderKey(11, 2, (1, 0))
OTHER_KEYS = [OrderKey(1, 0), OrderKey(2, 0), OrderKey(1, 1), OrderKey(1, 0, (0,))]
"""Keys of other orders: of another seed, epoch, node."""


class RowsSource(RandomAccessDataSource):
    """A source whose samples are the row numbers themselves.

    Args:
        sampler: The sampler to look at; how many rows there are is not checked.
    """

    def __init__(self, sampler: RandomAccessSampler) -> None:
        super().__init__(None, sampler=sampler)  # type: ignore[arg-type]  # as BatchUp allowed

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (np.asarray(indices),)


def rows_of(batches: Any) -> list[list[int]]:
    """Return the rows of some batches of a :class:`RowsSource`."""
    return [batch[0].tolist() for batch in islice(batches, LOOK)]


def refuse_bad_sizes(iterate: Callable[[Any], Any]) -> None:
    """Assert that a function refuses what is no batch size."""
    with pytest.raises(ArgumentError, match="batch_size must be at least 1, not 0"):
        iterate(0)
    with pytest.raises(ArgumentTypeError, match="batch_size must be a whole number"):
        iterate(2.5)


class SamplerContract(ABC):
    """What every random-access sampler must do; a subclass says how one is made, of a dozen rows at least."""

    in_order: ClassVar[bool] = True
    batch_sizes: ClassVar[tuple[int, ...]] = (1, 3, 7, 1000)

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

    def shuffles(self) -> list[Any]:
        """Return what to pass as ``shuffle=``, new each time."""
        return [None] * self.in_order + [5, np.random.RandomState(8), np.random.default_rng(8)]

    def test_in_order_batches_are_the_rows_in_order(self) -> None:
        for size in self.batch_sizes:
            if self.in_order:
                batches = list(islice(self.make().in_order_indices_batch_iterator(size), -(-self.total() // size)))
                assert all(len(batch) == size for batch in batches[:-1])
                np.testing.assert_array_equal(np.concatenate(batches)[: self.total()], self.rows(None))
            else:
                with pytest.raises(InOrderNotSupported, match="shuffle="):
                    self.make().in_order_indices_batch_iterator(size)

    def test_shuffled_batches_are_whole_up_to_the_last(self) -> None:
        total = self.make().num_indices_generated()
        for size in self.batch_sizes:
            drawn = self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(3))
            batches = list(islice(drawn, LOOK))
            assert all(len(batch) == size for batch in batches[:-1])
            assert len(batches) == LOOK or sum(map(len, batches)) == total
            again = islice(self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(3)), LOOK)
            np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(list(again)))

    def test_any_part_of_an_epoch_is_the_same_on_its_own(self) -> None:
        whole, rng = self.rows(KEY), np.random.default_rng(0)
        for size in (0, *[5] * 20):
            positions = rng.integers(0, len(whole), size)
            np.testing.assert_array_equal(self.make().rows_at(positions, KEY), whole[positions])

    def test_rows_are_whole_numbers_one_for_each_position(self) -> None:
        for key in [KEY, *[None] * self.in_order]:
            rows = np.asarray(self.rows(key))
            assert rows.dtype.kind in "iu"
            assert rows.shape == (self.total(),)

    def test_another_seed_epoch_or_node_gives_another_order(self) -> None:
        assert len({tuple(self.rows(key)) for key in OTHER_KEYS}) == len(OTHER_KEYS)

    def test_several_threads_may_ask_at_once(self) -> None:
        sampler, positions = self.make(), np.arange(self.total())
        alone = [self.rows(key) for key in OTHER_KEYS]
        with ThreadPoolExecutor(4) as threads:
            got = threads.map(lambda key: sampler.rows_at(positions, key), OTHER_KEYS * 5)
            for rows, same in zip(got, alone * 5, strict=True):
                np.testing.assert_array_equal(rows, same)

    def test_its_fingerprint_is_that_of_its_like(self) -> None:
        assert json.dumps(self.make().fingerprint()) == json.dumps(self.make().fingerprint())
        assert self.make().fingerprint()[0] == type(self.make()).__name__

    def test_an_epoch_goes_on_anywhere(self) -> None:
        size = self.batch_sizes[min(1, len(self.batch_sizes) - 1)]
        for shuffle in [*[None] * self.in_order, 5]:
            whole = rows_of(RowsSource(self.make()).batch_iterator(size, shuffle, epoch=2))
            for stop in {0, 1, len(whole) // 2, len(whole)}:
                iterator = RowsSource(self.make()).batch_iterator(size, shuffle, epoch=2)
                assert rows_of(islice(iterator, stop)) == whole[:stop]
                state = json.loads(json.dumps(iterator.state_dict()))
                rest = RowsSource(self.make()).batch_iterator(size, shuffle, epoch=2, state=state)
                assert rows_of(islice(rest, len(whole) - stop)) == whole[stop:]

    def test_batches_of_any_size_are_cut_from_one_sequence(self) -> None:
        for size in () if self.make().in_batches else (2, 5):
            drawn = [row for batch in rows_of(RowsSource(self.make()).batch_iterator(size, 5)) for row in batch]
            assert drawn[:SOME] == self.rows(OrderKey(5, 0)).tolist()[:SOME]

    @pytest.mark.parametrize("world", [2, 3])
    def test_ranks_together_hand_out_the_stream(self, world: int) -> None:
        for size in self.batch_sizes[:2]:
            alone = rows_of(RowsSource(self.make()).batch_iterator(size, 5))
            shards: Any = [{"shard": (rank, world), "uneven": "drop"} for rank in range(world)]
            ranks = [rows_of(RowsSource(self.make()).batch_iterator(size, 5, **shard)) for shard in shards]
            assert len({len(rank) for rank in ranks}) == 1
            together = [row for batches in zip(*ranks, strict=True) for batch in batches for row in batch]
            stream = [row for batch in alone for row in batch]
            known = min(len(stream), len(together))
            assert together[:known] == stream[:known]
            if len(alone) < LOOK:
                assert 0 <= len(stream) - len(together) < world * (size if self.make().in_batches else 1)

    def test_a_bad_batch_size_is_refused_at_once(self) -> None:
        refuse_bad_sizes(lambda size: self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(1)))
        if self.in_order:
            refuse_bad_sizes(self.make().in_order_indices_batch_iterator)


class BatchSamplerContract(ABC):
    """What every sampler must do that hands out each row once an epoch, in batches of its own."""

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
        for key in (None, KEY):
            batches = self.batches(key, batch_size)
            assert all(1 <= len(rows) <= batch_size and rows.dtype.kind in "iu" for rows in batches)
            np.testing.assert_array_equal(np.sort(np.concatenate(batches)), expected)

    @pytest.mark.parametrize("batch_size", [1, 3, 7, 1000])
    def test_batches_are_counted_before_they_are_made(self, batch_size: int) -> None:
        for drop_last in (False, True):
            numbers = {len(self.batches(key, batch_size, drop_last)) for key in (None, KEY, OrderKey(5, 0))}
            assert numbers == {self.make().count(batch_size, drop_last)}

    def test_without_the_last_the_others_are_the_same(self) -> None:
        for key in (None, KEY):
            whole = self.batches(key)
            for rows, same in zip(self.batches(key, drop_last=True), whole, strict=False):
                np.testing.assert_array_equal(rows, same)

    def test_any_batch_is_the_same_on_its_own(self) -> None:
        for key in (None, KEY):
            for number, rows in reversed(list(enumerate(self.batches(key)))):
                np.testing.assert_array_equal(self.make().row_plan(4, key, False).rows(number), rows)

    def test_another_seed_epoch_or_node_gives_another_order(self) -> None:
        assert len({tuple(np.concatenate(self.batches(key))) for key in OTHER_KEYS}) == len(OTHER_KEYS)

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
        refuse_bad_sizes(self.make().in_order_indices_batch_iterator)
        refuse_bad_sizes(lambda size: self.make().shuffled_indices_batch_iterator(size, np.random.RandomState(1)))
