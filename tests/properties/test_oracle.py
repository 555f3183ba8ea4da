"""What ranks get, and what a resume goes on with, is what arithmetic on the epoch of one process says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.errors import InOrderNotSupported
from batchup_ng.graph.node import nodes_of
from batchup_ng.sampling.plans.epoch import SamplesPlan
from batchup_ng.testing.sources import assert_same_batches

from .graphs import graphs

FAR = 60
"""Batches of an endless epoch that are looked at."""


class Blocks:
    """An accessor that says how long its blocks are; rows are their own numbers."""

    def __init__(self, n: int, block: int, window: int) -> None:
        self.n, self.natural_block, self.natural_window = n, block, window

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(self.n)[rows]


@st.composite
def in_blocks(draw: st.DrawFn) -> Any:
    """A graph of sources that have blocks, whose order is by them."""

    def leaf() -> Any:
        n = draw(st.integers(1, 60))
        source: Any = bu.ArrayDataSource([Blocks(n, draw(st.integers(1, 9)), draw(st.integers(1, 5)))])
        kind = draw(st.sampled_from(["plain", "subset", "repeat", "take", "map"]))
        if kind == "subset":
            return source.subset(np.arange(0, n, draw(st.integers(1, 3))))
        if kind == "repeat":
            return source.repeat(draw(st.integers(1, 3)))
        if kind == "take":
            return source.take(draw(st.integers(1, 40)))
        return source.map(lambda x: (x,)) if kind == "map" else source

    kind = draw(st.sampled_from(["leaf", "choice", "composite", "concat", "rounds"]))
    if kind == "choice":
        return bu.ChoiceDataSource([leaf(), leaf()], draw(st.booleans()))
    if kind == "composite":
        return bu.CompositeDataSource([leaf(), leaf()], trim=draw(st.booleans()))
    if kind == "rounds":
        return bu.repeat(bu.ChoiceDataSource([leaf(), leaf()], True), 2)
    if kind == "concat":
        try:
            return bu.concat(leaf(), leaf())
        except (bu.ArgumentError, TypeError):  # what take() gives has no numbers
            assume(False)
    return leaf()


def samples(found: list[Any]) -> list[Any]:
    """Return the samples of batches, one by one, as strings."""
    made = []
    for batch in found:
        leaves = [np.asarray(leaf) for leaf in batches.leaves(batch)]
        made += [str([leaf[i].tolist() for leaf in leaves]) for i in range(min(map(len, leaves), default=0))]
    return made


def of_rank(whole: list[Any], at: int, step: int, rank: int, world: int, uneven: str, drop_last: bool) -> list[Any]:
    """Return what each step of a rank has: `step` at a time of `whole`, the end shared out evenly."""
    found, n = [], len(whole)
    while n - at >= step * world:
        found.append(whole[at + rank * step : at + (rank + 1) * step])
        at += step * world
    share, over = divmod(0 if drop_last else n - at, world)
    share += bool(over) and uneven == "pad"
    places = [(at + rank * share + i) % n for i in range(share)]
    return [*found, [whole[place] for place in places]] if share else found


STAGES = st.lists(
    st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(1, 9), st.integers(0, 4), st.sampled_from(["pad", "drop"])),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
@given(source=graphs() | in_blocks(), seed=st.integers(0, 99), epoch=st.integers(0, 3), drop_last=st.booleans(),
       stages=STAGES, shuffled=st.sampled_from([True, True, False]), groups=st.integers(1, 6))  # fmt: skip
def test_any_chain_of_worlds_and_batch_sizes_hands_out_the_epoch_of_one_process(
    source: Any, seed: int, epoch: int, drop_last: bool, stages: list[tuple[int, int, int, str]], shuffled: bool,
    groups: int,
) -> None:
    shuffle: Any = seed if shuffled else None
    if any(isinstance(array, Blocks) for node in nodes_of(source) for array in getattr(node, "data", [])):
        shuffle = ("blocks", seed, groups)
    size = stages[0][1]
    try:
        plan = source.plan(size, shuffle, epoch=epoch)
    except (InOrderNotSupported, bu.ArgumentError):  # concat of take() has no blocks
        assume(False)
    cut = isinstance(plan, SamplesPlan)
    assume(not cut or not source.node.traits.draws_by_batch)  # whose draws are those of whole batches
    alone = source.batch_iterator(size, shuffle, epoch=epoch, drop_last=False if cut else drop_last)
    endless = plan.n_batches == math.inf
    listed = list(islice(alone, FAR * 10 if endless else None))
    whole = samples(listed) if cut else [samples([batch]) for batch in listed]
    reached, state = 0, None
    for world, other, steps, uneven in stages:
        size = other if cut else size
        step = size if cut else 1
        options: dict[str, Any] = {"epoch": epoch, "drop_last": drop_last, "uneven": uneven, "state": state}
        ranks = [source.batch_iterator(size, shuffle, shard=(rank, world), **options) for rank in range(world)]
        # Batches that are what is in order were left out by the plan already, alone; among ranks whole rounds are.
        left_out = drop_last and (cut or world > 1)
        for rank, iterator in enumerate(ranks):
            expected = of_rank(whole, reached, step, rank, world, uneven, left_out)
            if not endless:
                assert len(iterator) == len(expected)
            got = [next(iterator) for _ in range(min(steps, len(expected)))]
            for batch, rows in zip(got, expected, strict=False):
                assert samples([batch]) == (rows if cut else rows[0])
        states = [json.loads(json.dumps(iterator.state_dict())) for iterator in ranks]
        assert ranks[0].state_dict() == states[0], "asking twice changes nothing"
        assert len({json.dumps({**one, "counts": None, "digest": None}) for one in states}) == 1
        state = states[-1]
        taken = min(steps, len(expected))
        at_end = taken == len(expected) and not endless
        reached = len(whole) if at_end else reached + taken * step * world
        assert state["samples" if cut else "batches"] == reached
        again = source.batch_iterator(size, shuffle, **{**options, "state": state})
        used = source.batch_iterator(size, shuffle, epoch=epoch, drop_last=drop_last)
        next(used, None)
        for _ in range(2):
            used.load_state_dict(state)
        if not endless:
            assert_same_batches(list(used), list(again))
        if at_end:
            assert len(again) == 0
            break



N, SIZE = 23, 5

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["iterate", "save", "end", "open anew", "set_epoch"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["load", "load twice", "load anew"]), st.integers(0, 5)),
    ),
    max_size=25,
)


@given(operations=OPERATIONS, shuffle=st.sampled_from([None, 3, True, "blocks"]), threads=st.booleans())
def test_a_loader_is_where_a_count_of_its_batches_says(
    operations: list[tuple[str, int]], shuffle: Any, threads: bool
) -> None:
    """The model: an epoch and a position in it, and whether an iterator is there that has them."""
    source = bu.ArrayDataSource([Blocks(N, 4, 2)])
    options: dict[str, Any] = {"shuffle": shuffle, "pool": THREADS if threads else "serial"}
    loader = bu.Loader(source, SIZE, **options)
    drawn = loader.state_dict()["seed"]
    seed = ("blocks", drawn) if shuffle == "blocks" else drawn if shuffle is True else shuffle
    orders: dict[int, list[int]] = {}

    def rows(epoch: int) -> list[int]:
        if epoch not in orders:
            orders[epoch] = [int(x) for (part,) in source.batch_iterator(N, seed, epoch=epoch) for x in part]
        return orders[epoch]

    epoch, at, iterator = 0, 0, None  # the next epoch where there is no iterator, from where it begins
    begun = False  # whether anything was asked of the iterator
    saved: list[tuple[Any, int, int]] = [(json.loads(json.dumps(loader.state_dict())), 0, 0)]
    for what, n in operations:
        if what == "take":
            if iterator is None:
                iterator, begun = iter(loader), False
            for _ in range(n):
                begun = True
                batch = next(iterator, None)
                if batch is None:
                    assert at == N
                    epoch, at, iterator = epoch + 1, 0, None
                    break
                assert batch[0].tolist() == rows(epoch)[at : at + SIZE]
                at = min(N, at + SIZE)
        elif what == "end":
            if iterator is None:
                iterator = iter(loader)
            assert [int(x) for (part,) in iterator for x in part] == rows(epoch)[at:]
            epoch, at, iterator = epoch + 1, 0, None
        elif what == "iterate":
            if iterator is not None and begun:
                epoch, at = epoch + 1, 0
            iterator, begun = iter(loader), False
        elif what == "save":
            saved.append((json.loads(json.dumps(loader.state_dict())), epoch, at))
            assert loader.state_dict() == loader.state_dict()
        elif what == "set_epoch":
            if n != (epoch + 1 if iterator is not None and begun else epoch):
                epoch, at, iterator = n, 0, None
            loader.set_epoch(n)
        elif what == "open anew":
            state = loader.state_dict()
            loader.close()
            loader = bu.Loader(source, SIZE, **options)
            loader.load_state_dict(state)
            epoch, at = (epoch + 1, 0) if at == N else (epoch, at)
            iterator = None
        elif what.startswith("load"):
            state, epoch, at = saved[n % len(saved)]
            if what == "load anew":
                loader.close()
                loader = bu.Loader(source, SIZE, **options)
            for _ in range(2 if what == "load twice" else 1):
                loader.load_state_dict(state)
            if at == N:
                epoch, at = epoch + 1, 0
            iterator = None
        if iterator is None:
            assert loader.epoch == epoch
            assert len(loader) == -(-(N - at) // SIZE)
        else:
            assert len(iterator) == -(-(N - at) // SIZE)
        state = loader.state_dict()
        assert (state["epoch"], state["batches"]["samples"]) == (epoch, at)
    loader.close()


@pytest.fixture(scope="module", autouse=True)
def threads_of_the_module() -> Iterator[None]:
    with THREADS:
        yield


THREADS = bu.WorkerThreadPool(2)
