"""``shuffle="blocks"``: storage has a say in the order."""

from __future__ import annotations

import json
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_source.blocks import times_read
from batchup_ng.data_source.epoch.state import digest
from batchup_ng.errors import ArgumentError, ArgumentTypeError, StateError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises


class InBlocks:
    """Rows, their own numbers, in blocks; counts how often a block is read with room for so many."""

    def __init__(self, n: int, block: int, window: int) -> None:
        self.n, self.natural_block, self.natural_window = n, block, window
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.read = 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        rows = np.arange(self.n)[rows]
        for block in np.atleast_1d(rows // self.natural_block).tolist():
            self.read += block not in self.kept
            self.kept[block] = None
            self.kept.move_to_end(block)
            if len(self.kept) > 2 * self.natural_window:
                self.kept.popitem(last=False)
        return rows


def epoch(source: Any, shuffle: Any, **options: Any) -> list[int]:
    return [int(row) for (rows,) in source.batch_iterator(7, shuffle=shuffle, **options) for row in rows]


def test_each_row_once_and_each_block_about_once() -> None:
    rows = InBlocks(1000, 10, 8)
    source = bu.ArrayDataSource([rows])
    order = epoch(source, ("blocks", 3))
    assert sorted(order) == list(range(1000))
    assert rows.read == 100
    epoch(source, 3)
    assert rows.read > 600, "a full shuffle reads nearly every row's block anew"


def test_the_order_is_that_of_the_sampler() -> None:
    source = bu.ArrayDataSource([InBlocks(100, 10, 4), np.arange(100)])
    by_hand = bu.ArrayDataSource([np.arange(100)], sampler=bu.BlockShuffleSampler(100, 10, 4))
    for number in range(3):
        in_blocks = [y.tolist() for _, y in source.batch_iterator(7, shuffle=("blocks", 3), epoch=number)]
        assert in_blocks == [y.tolist() for (y,) in by_hand.batch_iterator(7, shuffle=3, epoch=number)]


def test_the_longest_blocks_of_several_columns_count_and_the_least_room() -> None:
    source = bu.ArrayDataSource([InBlocks(100, 10, 4), InBlocks(100, 5, 100), np.arange(100)])
    assert source.node.natural_blocks() == (10, 4)
    assert bu.ArrayDataSource([InBlocks(100, 10, 4), InBlocks(100, 5, 2)]).node.natural_blocks() == (10, 1)
    assert bu.ArrayDataSource([InBlocks(100, 10, 4), InBlocks(100, 50, 9)]).node.natural_blocks() == (10, 4)
    assert bu.ArrayDataSource([np.arange(100)]).node.natural_blocks() is None


def test_a_column_that_has_room_for_all_its_rows_does_not_count() -> None:
    labels = InBlocks(3000, 1300, 1000)
    assert bu.ArrayDataSource([InBlocks(3000, 20, 100), labels]).node.natural_blocks() == (20, 100)
    assert bu.ArrayDataSource([InBlocks(3000, 20, 200), labels]).node.natural_blocks() == (20, 200), "which is all rows"
    assert bu.ArrayDataSource([labels]).node.natural_blocks() == (1300, 1000)


def test_rows_that_are_alone_do_not_part_the_blocks_of_others() -> None:
    names = InBlocks(3000, 1, 16)
    assert bu.ArrayDataSource([names, InBlocks(3000, 64, 40)]).node.natural_blocks() == (64, 40)
    assert bu.ArrayDataSource([names]).node.natural_blocks() == (1, 16)


def test_an_accessor_may_say_no_more_than_its_block() -> None:
    rows = InBlocks(100, 10, 4)
    del rows.natural_window
    assert bu.ArrayDataSource([rows]).node.natural_blocks() == (10, 16)


def test_what_lies_around_an_accessor_does_not_hide_its_blocks() -> None:
    class Encoded(InBlocks):
        def __getitem__(self, rows: Any) -> Any:
            return [b"" for _ in rows]

    assert bu.ArrayDataSource([bu.ImageBytes(Encoded(100, 10, 4), 8)]).node.natural_blocks() == (10, 4)
    source = bu.ArrayDataSource([InBlocks(100, 10, 4)]).map(lambda x: (x,)).with_index()
    assert source.node.natural_blocks() == (10, 4)


@given(share=st.floats(0.2, 1.0), seed=st.integers(0, 1000))
def test_a_part_of_the_rows_reads_a_block_not_much_more_than_once(share: float, seed: int) -> None:
    rows = InBlocks(2000, 10, 20)
    part, _ = bu.ArrayDataSource([rows]).split((share * 0.99, 0.005), seed)
    order = epoch(part, ("blocks", seed))
    assert sorted(order) == sorted(part.rows.tolist())
    assert rows.read <= 200 * 1.6
    again = bu.ArrayDataSource([InBlocks(2000, 10, 20)], indices=part.rows)
    assert sorted(epoch(again, ("blocks", seed))) == sorted(order)


def test_a_part_is_mixed_where_few_blocks_are_kept() -> None:
    rows = InBlocks(20_000, 1000, 7)
    part, _ = bu.ArrayDataSource([rows]).split((0.9, 0.1), 1)
    block, window = part.node.natural_blocks() or (0, 0)
    assert (block, window) == (pytest.approx(900, rel=0.05), 3)
    epoch(part, ("blocks", 1))
    assert rows.read <= 20 * 2.2


def test_sources_of_sources_have_blocks_too() -> None:
    first, second = InBlocks(300, 10, 8), InBlocks(200, 20, 8)
    joined = bu.ArrayDataSource([first]).concat(bu.ArrayDataSource([second]))
    assert joined.node.natural_blocks() == (20, 4)
    assert len(epoch(joined, ("blocks", 1))) == 500
    assert first.read <= 40
    assert second.read <= 12
    beside = bu.ArrayDataSource([InBlocks(100, 10, 4)]).zip(bu.ArrayDataSource([np.arange(100)]))
    assert beside.node.natural_blocks() == (10, 4)
    first_source, second_source = bu.ArrayDataSource([InBlocks(100, 10, 4)]), bu.ArrayDataSource([np.arange(100)])
    both = bu.CompositeDataSource([first_source, second_source])
    x, y = (np.concatenate(part) for part in zip(*both.batch_iterator(7, shuffle=("blocks", 2)), strict=True))
    assert sorted(x) == sorted(y) == list(range(100))
    assert len(set(x[:30] // 10)) <= 4 < len(set(y[:30] // 10)), "each source has an order of its own"


def test_a_state_goes_on_with_its_own_blocks_whatever_the_accessors_say() -> None:
    def opened(block: int, window: int, state: Any = None, parts: int = 1) -> Any:
        source = bu.ArrayDataSource([InBlocks(100, block, window)])
        source = source.split([0.7], 1)[0].repeat(2) if parts == 2 else source
        if parts == 3:
            source = bu.ChoiceDataSource([source, bu.ArrayDataSource([InBlocks(60, 2 * block, window)])], True)
        return source.batch_iterator(7, shuffle=("blocks", 5), state=state)

    for parts in (1, 2, 3):
        whole = [x.tolist() for (x,) in opened(10, 4, parts=parts)]
        batches = opened(10, 4, parts=parts)
        done = [next(batches)[0].tolist() for _ in range(3)]
        state = json.loads(json.dumps(batches.state_dict()))
        for block, window in ((10, 4), (10, 5), (3, 2), (1000, 1)):
            rest = opened(block, window, state, parts)
            again = opened(10, 4, rest.state_dict(), parts)
            assert done + [x.tolist() for (x,) in rest] == whole
            assert done + [x.tolist() for (x,) in again] == whole
    with raises(StateError):
        bu.ArrayDataSource([InBlocks(100, 10, 4)]).batch_iterator(7, shuffle=5, state=state_of_blocks())


@pytest.mark.parametrize("width", [1, 4000], ids=["56 bytes", "224 kB"])
def test_in_every_pool_a_state_goes_on_with_its_own_blocks(pools: list[AbstractWorkerPool], width: int) -> None:
    class Wide(InBlocks):
        def __getitem__(self, rows: Any) -> Any:
            return np.repeat(super().__getitem__(rows)[..., None], width, axis=-1)

    def rows_of(batches: Any) -> list[list[int]]:
        found = [x for (x,) in batches]
        assert all((x == x[:, :1]).all() for x in found)
        return [x[:, 0].tolist() for x in found]

    whole = rows_of(bu.ArrayDataSource([Wide(60, 10, 3)]).batch_iterator(7, shuffle=("blocks", 5)))
    for pool in pools:
        first = pool.parallel_data_source(bu.ArrayDataSource([Wide(60, 10, 3)])).batch_iterator(7, ("blocks", 5))
        done = rows_of([next(first), next(first)])
        state = first.state_dict()
        first.close()
        other = pool.parallel_data_source(bu.ArrayDataSource([Wide(60, 10, 2)]))
        assert done + rows_of(other.batch_iterator(7, shuffle=("blocks", 5), state=state)) == whole


def state_of_blocks() -> Any:
    batches = bu.ArrayDataSource([InBlocks(100, 10, 4)]).batch_iterator(7, shuffle=("blocks", 5))
    next(batches)
    return batches.state_dict()


def in_version_2(state: dict[str, Any], blocks: list[tuple[int, int]]) -> dict[str, Any]:
    """Return a state as version 2 wrote it, which lists the blocks of all nodes, each once."""
    *counts, _ = state["counts"]
    body = {name: value for name, value in state.items() if name not in ("counts", "digest")}
    body |= {"version": 2, "order": f"blocks {sorted(set(blocks))}"}
    own = digest(body)
    return {**body, "counts": [*counts, digest([own, *counts])], "digest": own}


def test_a_state_of_version_2_goes_on() -> None:
    """It was saved with a larger window, for the accessor took that from its cache then."""
    for indices in (None, np.arange(0, 3000, 2)):

        def opened(window: int, state: Any = None, part: bool = False, rows: Any = indices) -> Any:
            source: Any = bu.ArrayDataSource([InBlocks(3000, 10, window)], indices=rows)
            source = source.subset(np.arange(0, 1400, 3)) if part else source
            return source.batch_iterator(50, shuffle=("blocks", 5), state=state)

        for part in (False, True):
            whole = [x.tolist() for (x,) in opened(80, part=part)]
            batches = opened(80, part=part)
            done = [next(batches)[0].tolist() for _ in range(3)]
            own = batches._epoch.node
            listed = [own.natural_blocks(), own.source.natural_blocks()] if part else [own.natural_blocks()]
            state = in_version_2(batches.state_dict(), listed)
            for window in (80, 50):
                assert done + [x.tolist() for (x,) in opened(window, state, part)] == whole
    two = bu.ChoiceDataSource([bu.ArrayDataSource([InBlocks(90, 10, n)]) for n in (3, 4)])
    iterator = two.batch_iterator(5, shuffle=("blocks", 5))
    next(iterator)
    good = in_version_2(iterator.state_dict(), [(10, 3), (10, 4)])
    assert len(list(two.batch_iterator(5, shuffle=("blocks", 5), state=good))) == len(list(iterator))
    bad = in_version_2(iterator.state_dict(), [(10, 7), (10, 8)])
    with raises(StateError):
        two.batch_iterator(5, shuffle=("blocks", 5), state=bad)


def test_the_epochs_behind_a_state_have_its_blocks_too() -> None:
    def made(window: int) -> Any:
        return bu.ArrayDataSource([InBlocks(100, 10, window)])

    whole = [[x.tolist() for (x,) in each] for each in made(4).epochs(2, 7, ("blocks", 5))]
    state = state_of_blocks()
    series = [[x.tolist() for (x,) in each] for each in made(6).epochs(2, 7, ("blocks", 5), state=state)]
    assert series == [whole[0][1:], whole[1]]
    with bu.Loader(made(4), 7, shuffle=("blocks", 5), pool="serial") as first:
        next(iter(first))
        state = first.state_dict()
    with bu.Loader(made(6), 7, shuffle=("blocks", 5), pool="serial") as loader:
        loader.load_state_dict(state)
        assert loader.batch(3)[0].tolist() == whole[0][3]
        rest = iter(loader)
        assert [next(rest)[0].tolist()] == [whole[0][1]]
        assert loader.batch(3)[0].tolist() == whole[0][3]


@pytest.mark.parametrize("taken", [0, 1, 15])
def test_a_loaders_state_from_any_moment_keeps_its_blocks(taken: int) -> None:
    def made(block: int) -> bu.Loader:
        return bu.Loader([InBlocks(100, block, 4)], 7, shuffle=("blocks", 5), pool="serial")

    with made(10) as first, made(5) as other:
        whole = [[x.tolist() for (x,) in first] for _ in range(3)]
        first.set_epoch(0)
        if taken:
            batches = iter(first)
            for _ in range(taken):
                next(batches)
        other.load_state_dict(first.state_dict())
        rest = [*whole[0][taken:], *whole[1], *whole[2]]
        loops = range(2 + (taken < 15))
        assert [x.tolist() for _ in loops for (x,) in other] == rest


@pytest.mark.parametrize(("world", "batch_size"), [(2, 16), (8, 16), (64, 4), (2, 400)])
def test_ranks_are_warned_of_how_often_they_read_a_block(world: int, batch_size: int) -> None:
    found, warned = [], []
    for rank in range(min(world, 4)):
        rows = InBlocks(12_800, 64, 4)
        source = bu.ArrayDataSource([rows])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for number in range(2):
                list(source.batch_iterator(batch_size, ("blocks", 3), shard=(rank, world), epoch=number))
        found.append(rows.read * 64 * world / 12_800 / 2)
        warned += [(each.category, each.filename) for each in told]
    many = times_read(64, 4, batch_size, world) > 1.5
    assert warned == [(bu.CacheWarning, __file__)] * len(found) * many, "once a source"
    assert np.mean(found) == pytest.approx(times_read(64, 4, batch_size, world), rel=0.15)


def test_a_loader_draws_a_seed_and_keeps_it_in_its_state() -> None:
    def loader() -> bu.Loader:
        return bu.Loader([InBlocks(100, 10, 4)], 7, shuffle="blocks", pool="auto")

    with loader() as first, loader() as second:
        orders = [np.concatenate([x for (x,) in first]).tolist() for _ in range(2)]
        assert orders[0] != orders[1]
        assert sorted(orders[0]) == list(range(100))
        second.load_state_dict(first.state_dict())
        assert [x.tolist() for (x,) in second] == [x.tolist() for (x,) in first]


def test_the_word_alone_draws_a_seed() -> None:
    source = bu.ArrayDataSource([InBlocks(100, 10, 4)])
    np.random.seed(1)
    first, second = epoch(source, "blocks"), epoch(source, "blocks")
    assert first != second
    np.random.seed(1)
    assert epoch(source, "blocks") == first
    batches = source.batch_iterator(7, shuffle="blocks")
    next(batches)
    state = batches.state_dict()
    resumed = source.batch_iterator(7, shuffle="blocks", state=state)
    assert [x.tolist() for (x,) in resumed] == [x.tolist() for (x,) in batches]


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
def test_ranks_share_one_order() -> None:
    source = bu.ArrayDataSource([InBlocks(100, 10, 4)])
    parts = [epoch(source, ("blocks", 3), shard=(rank, 2)) for rank in range(2)]
    assert sorted(parts[0] + parts[1])[:100] == list(range(100))
    with raises(ArgumentError):
        epoch(source, "blocks", shard=(0, 2))


def test_what_has_no_blocks_is_refused_with_what_to_do() -> None:
    for source in (
        bu.ArrayDataSource([np.arange(9)]),
        bu.CallableDataSource(lambda *_, **__: iter([(np.arange(3),)])),
        bu.ArrayDataSource([InBlocks(9, 0, 2)]),
        bu.ArrayDataSource([InBlocks(9, 3, 2)], indices=[3, 1, 2]),
        bu.ArrayDataSource([InBlocks(9, 3, 2)]).subset([3, 1, 2]),
        bu.ArrayDataSource([InBlocks(9, 3, 2)], sampler=bu.WeightedSampler(np.ones(9))),
    ):
        with raises(ArgumentError):
            list(source.batch_iterator(2, shuffle=("blocks", 1)))


def test_misspelt_words_are_told() -> None:
    for shuffle in ("block", ("block", 1)):
        with raises(ArgumentTypeError):
            epoch(bu.ArrayDataSource([InBlocks(9, 3, 2)]), shuffle)
    with raises(ArgumentError):
        epoch(bu.ArrayDataSource([InBlocks(9, 3, 2)]), ("blocks", -1))
