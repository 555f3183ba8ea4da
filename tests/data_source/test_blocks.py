"""``shuffle="blocks"``: storage has a say in the order."""

from __future__ import annotations

import json
import math
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
from batchup_ng.sampling.block_shuffle import OrderBlocks
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


def read_by_ranks(
    shuffle: Any, world: int, batch_size: int, n: int = 12_800, ranks: int = 2, window: int = 4, epochs: int = 1,
    make: Any = None,
) -> tuple[float, list[Any]]:
    """Return how often all ranks read a block, by what a few of them read, and the warnings.

    The accessor counts the reads of a chunk cache, with room for two windows.
    """
    found, warned = [], []
    for rank in range(min(world, ranks)):
        rows = InBlocks(n, 64, window)
        source = bu.ArrayDataSource([rows]) if make is None else make(rows)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for number in range(epochs):
                list(source.batch_iterator(batch_size, shuffle, shard=(rank, world), epoch=number))
        found.append(rows.read * 64 * world / n / epochs)
        warned += [(each.category, each.filename) for each in told]
    return float(np.mean(found)), warned


@pytest.mark.parametrize(("world", "batch_size"), [(2, 16), (8, 16), (64, 4), (2, 400)])
def test_ranks_are_warned_of_how_often_they_read_a_block(world: int, batch_size: int) -> None:
    found, warned = read_by_ranks(("blocks", 3, 1), world, batch_size, ranks=3, epochs=2)
    expected = times_read(OrderBlocks(64, 4), batch_size, world, 12_800)
    many = expected > 1.5
    assert warned == [(bu.CacheWarning, __file__)] * min(world, 3) * many, "once a source"
    assert found == pytest.approx(expected, rel=0.15)


@given(
    n=st.integers(1, 500), block=st.integers(1, 30), window=st.integers(1, 9), world=st.integers(1, 20),
    batch_size=st.integers(1, 12), uneven=st.sampled_from(["pad", "drop"]), seed=st.integers(0, 2**64 - 1),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")  # short files
def test_no_rank_reads_a_block_of_another_but_that_at_the_border(
    n: int, block: int, window: int, world: int, batch_size: int, uneven: str, seed: int
) -> None:
    source = bu.ArrayDataSource([InBlocks(n, block, window)])
    options: dict[str, Any] = {"shuffle": ("blocks", seed), "uneven": uneven, "pad_mask": True}
    seen: list[int] = []
    blocks_read = 0
    for rank in range(world):
        batches = source.batch_iterator(batch_size, shard=(rank, world), **options)
        own = [int(row) for rows, real in batches for row in rows[real]]
        blocks_read += len({row // block for row in own})
        seen += own
    assert len(set(seen)) == len(seen) == (n if uneven == "pad" else n - n % world)
    assert blocks_read <= -(-n // block) + world - 1


WORLDS = [(groups, world) for groups in (2, 12, 64) for world in (1, 2, 3, 12, 64) if groups % world == 0]


@pytest.mark.parametrize(("groups", "world"), WORLDS)
@pytest.mark.in_turn
def test_each_rank_reads_the_blocks_of_its_groups_alone(groups: int, world: int) -> None:
    for shuffle in [("blocks", 3, groups), *[("blocks", 3)] * (groups == world)]:
        found, warned = read_by_ranks(shuffle, world, 16, n=64 * 500, window=40)
        assert found <= 1.3
        assert not warned
        assert found == pytest.approx(times_read(OrderBlocks(64, 40, groups, 16), 16, world, 64 * 500), abs=0.08)


@pytest.mark.parametrize(("groups", "world"), [(8, 3), (8, 16), (4, 6), (3, 2)])
@pytest.mark.in_turn
def test_a_world_that_does_not_divide_the_groups_is_warned_of(groups: int, world: int) -> None:
    found, warned = read_by_ranks(("blocks", 3, groups), world, 16, n=64 * 500, window=40)
    expected = times_read(OrderBlocks(64, 40 // groups, groups, 16), 16, world, 64 * 500)
    assert expected == pytest.approx(world / math.gcd(world, groups), abs=0.1)
    assert found == pytest.approx(expected, rel=0.15)
    assert warned == [(bu.CacheWarning, __file__)] * min(world, 2)


def test_groups_with_few_blocks_are_warned_of() -> None:
    found, warned = read_by_ranks(("blocks", 3), 16, 16, n=64 * 21, ranks=16)
    assert found > 1.5
    assert found == pytest.approx(times_read(OrderBlocks(64, 4, 16, 16), 16, 16, 64 * 21), rel=0.1)
    assert len(warned) == 16


def part_of_split(rows: InBlocks) -> Any:
    return bu.ArrayDataSource([rows]).split([0.9, 0.1], 1)[0]


def joined(rows: InBlocks) -> Any:
    return bu.ArrayDataSource([rows]).concat(bu.ArrayDataSource([InBlocks(64, 64, 4)]))


def in_groups_of_three(rows: InBlocks) -> Any:
    labels = bu.ArrayDataSource([np.arange(len(rows) // 3)])
    return bu.CompositeDataSource([bu.ArrayDataSource([rows]), labels], batch_size=[3, 1])


@pytest.mark.parametrize("make", [part_of_split, joined, in_groups_of_three])
@pytest.mark.in_turn
def test_ranks_read_little_more_than_their_part_of_sources_of_sources(make: Any) -> None:
    alone = read_by_ranks(("blocks", 3), 1, 16, n=64 * 301, window=40, make=make)[0]
    found, warned = read_by_ranks(("blocks", 3), 8, 16, n=64 * 301, window=40, make=make)
    assert found <= 1.1 * alone
    assert alone <= 1.3
    assert not warned


def batches_of(source: Any, size: int, shuffle: Any, **options: Any) -> list[list[int]]:
    return [x.tolist() for (x,) in source.batch_iterator(size, shuffle, **options)]


@pytest.mark.parametrize("groups", [None, 6])
def test_the_batches_of_all_ranks_are_the_same_in_every_world_that_divides_the_groups(groups: int | None) -> None:
    """By default the order has a group for each rank."""
    source = bu.ArrayDataSource([InBlocks(1000, 10, 4)])
    orders = []
    for world in (1, 2, 3, 6):
        shuffle = ("blocks", 3) if groups is None else ("blocks", 3, groups)
        ranks = [batches_of(source, 8, shuffle, shard=(rank, world), uneven="drop") for rank in range(world)]
        orders.append([row for step in zip(*ranks, strict=True) for batch in step for row in batch][:960])
        assert len(set(orders[-1])) == 960
    assert len(set(map(tuple, orders))) == (1 if groups else 4)
    in_order = np.concatenate([x for (x,) in source.batch_iterator(8, ("blocks", 3, 6))])
    by_hand = bu.ArrayDataSource([np.arange(1000)], sampler=bu.BlockShuffleSampler(1000, 10, 1, groups=6, run=8))
    np.testing.assert_array_equal(in_order, np.concatenate([x for (x,) in by_hand.batch_iterator(5, 3)]))


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
@pytest.mark.parametrize("size", [8, 5])
@pytest.mark.parametrize("repeats", [1, 2])
def test_other_ranks_go_on_with_the_groups_of_the_state(size: int, repeats: int) -> None:
    source = bu.ArrayDataSource([InBlocks(1000, 10, 4)], repeats=repeats)
    ranks = [source.batch_iterator(8, ("blocks", 3), shard=(rank, 8)) for rank in range(8)]
    begun = [row for _ in range(3) for rank in ranks for row in next(rank)[0].tolist()]
    state = json.loads(json.dumps(ranks[0].state_dict()))
    assert "(10, 4, 8, 8)" in state["order"]
    rest = [batches_of(source, size, ("blocks", 3), shard=(rank, 3), uneven="drop", state=state) for rank in range(3)]
    gone_on = [row for step in zip(*rest, strict=True) for batch in step for row in batch]
    by_hand = bu.BlockShuffleSampler(1000, 10, 4, repeats, groups=8, run=8)
    whole = batches_of(bu.ArrayDataSource([np.arange(1000)], sampler=by_hand), 8, 3)
    expected = [row for batch in whole for row in batch]
    assert begun == expected[: len(begun)]
    assert sorted(begun + gone_on) == sorted(expected[: len(begun) + len(gone_on)])
    assert len(begun) + len(gone_on) > 1000 * repeats - 3
    with bu.Loader(source, 8, shuffle=("blocks", 3), pool="serial", shard=(0, 8)) as first:
        next(iter(first))
        saved = first.state_dict()
    options: dict[str, Any] = {"shuffle": ("blocks", 3), "pool": "serial", "shard": (0, 2)}
    with bu.Loader(source, size, **options) as loader, bu.Loader(source, size, start_epoch=1, **options) as fresh:
        loader.load_state_dict(saved)
        list(loader)
        in_groups = f"(10, 4, 2, {size})"
        for _ in range(2):  # the epochs behind it are those of a loader that resumed nothing
            assert [x.tolist() for (x,) in loader] == [x.tolist() for (x,) in fresh]
            assert in_groups in loader.state_dict()["batches"]["order"]
        assert loader.batch(3)[0].tolist() == fresh.batch(3)[0].tolist()
        resumed = source.epochs(2, size, ("blocks", 3), shard=(0, 2), state=saved["batches"])
        second = [[x.tolist() for (x,) in each] for each in resumed][1]
        assert second == batches_of(source, size, ("blocks", 3), epoch=1, shard=(0, 2))
    with bu.Loader(source, 8, shuffle=("blocks", 3), pool="serial", shard=(0, 8)) as ended:
        list(ended)
        at_end = ended.state_dict()
    with bu.Loader(source, size, **options) as loader:
        loader.load_state_dict(at_end)
        assert [x.tolist() for (x,) in loader] == batches_of(source, size, ("blocks", 3), epoch=1, shard=(0, 2))


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
