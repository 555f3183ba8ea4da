"""States of a source with other weights, more rows or other exclusions: what is refused in words, and what goes on."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, StateError
from tests.messages import raises

PART = 1000
"""The samples of part i are i * 1000, i * 1000 + 1, ..."""


def part(i: int, n: int, left_out: Any = ()) -> Any:
    """Return a part with `n` stored rows, some of them left out."""
    stored = bu.ArrayDataSource([i * PART + np.arange(n)])
    return bu.subset(stored, exclude=sorted(left_out)) if left_out else stored


class World:
    """What the data are at some time: a plain description, and the source of it."""

    def __init__(self, kind: str, rows: list[tuple[int, set[int]]], weights: list[int], options: Any) -> None:
        self.kind, self.rows, self.weights, self.options = kind, rows, weights, options

    def source(self) -> Any:
        parts = [part(i, n, left_out) for i, (n, left_out) in enumerate(self.rows)]
        if self.kind == "mix":
            return bu.mix(*parts, weights=self.weights, **self.options).map(lambda x: (x,))
        made = parts[0] if self.kind == "one" else bu.concat(*parts)
        return made.map(lambda x: (x,))

    def shares(self) -> list[int]:
        """The samples of each part in a period."""
        return [weight // math.gcd(*self.weights) for weight in self.weights]

    def present(self) -> set[int]:
        return {i * PART + row for i, (n, left_out) in enumerate(self.rows) for row in range(n) if row not in left_out}

    def streams(self) -> list[set[int]]:
        """The samples of each stream: of each part of a mixture, or all samples."""
        if self.kind != "mix":
            return [self.present()]
        return [{x for x in self.present() if x // PART == i} for i in range(len(self.rows))]


@st.composite
def changes(draw: st.DrawFn, world: World, ever: list[set[int]]) -> World:
    """A world after some time: rows added, rows left out that never were, other weights. `ever` notes what was."""
    rows = []
    for i, (n, left_out) in enumerate(world.rows):
        more = n + draw(st.sampled_from([0, 0, 1, 7]))
        out = left_out | draw(st.sets(st.integers(0, more - 1), max_size=2))
        if len(out) == more:
            out = left_out
        ever[i] |= out
        rows.append((more, out))
    weights = draw(st.sampled_from([world.weights, [draw(st.integers(1, 4)) for _ in world.weights]]))
    return World(world.kind, rows, weights, world.options)


def taken(source: Any, state: Any, shuffle: Any, size: int, world: int, rounds: int | None) -> tuple[list[int], Any]:
    """Return what some ranks hand out together, in the order of the epoch, and the state after it."""
    ranks = []
    for rank in range(world):
        iterator = source.batch_iterator(size, shuffle=shuffle, shard=(rank, world))
        if state is not None:
            iterator.load_state_dict(json.loads(json.dumps(state)), adopt=("weights", "rows"))
        ranks.append(iterator)
    given: list[int] = []
    n = 0
    while rounds is None or n < rounds:
        batches = [next(rank, None) for rank in ranks]
        if any(batch is None for batch in batches):
            break
        given += [x for batch in batches for x in batch[0].tolist()]
        n += 1
    after = ranks[0].state_dict()
    return given[: after["samples"] - (0 if state is None else state["samples"])], after  # without padding


@given(data=st.data())
def test_what_goes_on_with_other_weights_and_rows_loses_and_repeats_nothing(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["one", "concat", "mix"]))
    n_parts = 1 if kind == "one" else data.draw(st.integers(1, 3))
    options = {"length": -1} if data.draw(st.booleans()) else {}
    rows: list[tuple[int, set[int]]] = [(data.draw(st.integers(2, 12)), set()) for _ in range(n_parts)]
    world = World(kind, rows, [data.draw(st.integers(1, 4)) for _ in range(n_parts)], options)
    shuffle = data.draw(st.sampled_from([None, 3, 4]))
    ever: list[set[int]] = [set() for _ in rows]
    counts: dict[int, int] = {}
    missed: dict[int, int] = dict.fromkeys(world.present(), 0)
    state, all_given, begun = None, 0, 0
    for _ in range(data.draw(st.integers(1, 4))):
        size, ranks = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
        given, state = taken(world.source(), state, shuffle, size, ranks, data.draw(st.integers(0, 6)))
        assert set(given) <= world.present()
        for x in given:
            counts[x] = counts.get(x, 0) + 1
        all_given += len(given)
        laps = [min(counts.get(x, 0) + missed[x] for x in stream) for stream in world.streams()]
        later = data.draw(changes(world, ever))
        for x in later.present() - world.present():  # new rows join the lap that is under way, or the next one
            missed[x] = laps[x // PART if kind == "mix" else 0]
        if later.rows != world.rows or later.shares() != world.shares():
            begun = all_given
        world = later
    rest, _ = taken(world.source(), state, shuffle, 1, 1, 200 if options and kind == "mix" else None)
    given = rest
    assert set(given) <= world.present()
    if kind != "mix":  # each row once: what was handed out before, or now
        for x in given:
            counts[x] = counts.get(x, 0) + 1
        assert all(counts.get(x, 0) + missed[x] == 1 for x in world.present()), (counts, missed)
        assert all(n == 1 for n in counts.values())
        return
    left_over = (all_given + len(given) - begun) % sum(world.shares())
    stop = len(given) - left_over  # a whole number of periods since the last change
    for x in given[:stop]:
        counts[x] = counts.get(x, 0) + 1
    for stream in world.streams():
        seen = [counts.get(x, 0) + missed[x] for x in stream]
        # In the period in which a part begins again, a row may come before others have come as often.
        assert max(seen) - min(seen) <= (1 if options or shuffle is None else 2), (seen, stream)
    if not options:  # until all were handed out
        assert all(counts.get(x, 0) >= 1 for x in world.present())


def state_after(source: Any, batches: int = 3, **options: Any) -> Any:
    iterator = source.batch_iterator(5, **{"shuffle": 7, **options})
    for _ in range(batches):
        next(iterator)
    return json.loads(json.dumps(iterator.state_dict()))


def mixture(weights: Any = (7, 2), n: int = 40, left_out: Any = (), **options: Any) -> Any:
    return bu.mix(part(0, n, left_out), part(1, 30), weights=list(weights), **{"length": 90, **options})


def test_what_differs_is_said_in_words_with_what_to_write() -> None:
    state = state_after(mixture())
    for other in (
        mixture((4, 4)),
        mixture(n=45),
        mixture(left_out=[3, 17]),
        mixture((4, 4), 45, range(10)),
        mixture(bu.steps((0, [7, 2]), (20, [1, 1])).points[1][1], n=41),
    ):
        with raises(StateError):
            other.batch_iterator(5, 7, state=state)
    before = state_after(mixture(left_out=[3]))
    with raises(StateError):
        mixture().batch_iterator(5, 7).load_state_dict(before, adopt=["weights"])
    with raises(StateError):
        part(0, 45).batch_iterator(5, 7, state=state_after(part(0, 40)))
    with raises(StateError):
        mixture((4, 4), n=45).batch_iterator(5, 7).load_state_dict(state, adopt=["weights"])


def test_what_cannot_be_adopted_is_refused() -> None:
    state, adopt = state_after(mixture()), ["weights", "rows"]
    for other in (
        mixture(n=39),  # a row is missing
        mixture(left_out=range(0, 40, 2)).map(lambda x: (x,)),  # another graph
        bu.mix(part(0, 40), part(1, 30), part(2, 5), weights=[7, 2, 1], length=90),
        mixture(length=80),
        mixture(max_repeats=9),
    ):
        with raises(StateError):
            other.batch_iterator(5, 7).load_state_dict(state, adopt=adopt)
    with raises(StateError):
        mixture((4, 4)).batch_iterator(5, 8).load_state_dict(state, adopt=adopt)  # another seed
    with raises(StateError):  # more rows are left out than a state lists
        part(0, 4000, range(1000)).batch_iterator(5, 7).load_state_dict(state_after(part(0, 4000)), adopt=adopt)
    with raises(StateError):  # it may have come before it was left out
        without = part(0, 40, [3]).batch_iterator(5, 7)
        without.load_state_dict(state_after(part(0, 40)), adopt=adopt)
        part(0, 40).batch_iterator(5, 7).load_state_dict(without.state_dict(), adopt=adopt)


@pytest.mark.parametrize(("adopt", "error"), [("weights", ArgumentTypeError), (3, ArgumentTypeError),
                                              (["order"], ArgumentError), ([3], ArgumentError)])  # fmt: skip
def test_adopt_names_differences(adopt: Any, error: type) -> None:
    iterator = mixture().batch_iterator(5, 7)
    state = iterator.state_dict()
    with raises(error):
        iterator.load_state_dict(state, adopt=adopt)
    assert len(list(iterator)) == 18


def test_a_state_of_the_same_source_needs_nothing_to_be_adopted() -> None:
    state = state_after(mixture())
    iterator = mixture().batch_iterator(5, 7)
    iterator.load_state_dict(state, adopt=["weights", "rows"])
    assert iterator.state_dict() == state


def test_a_state_from_before_the_first_batch_has_the_order_of_the_new_source() -> None:
    iterator = mixture((4, 4)).batch_iterator(5, 7)
    iterator.load_state_dict(state_after(mixture(), 0), adopt=["weights"])
    assert [x.tolist() for (x,) in iterator] == [x.tolist() for (x,) in mixture((4, 4)).batch_iterator(5, 7)]


def test_a_state_keeps_what_it_adopted_and_stays_small(tmp_path: Any) -> None:
    iterator = mixture((4, 4), 60, range(0, 60, 3)).batch_iterator(5, 7)
    iterator.load_state_dict(state_after(mixture()), adopt=["weights", "rows"])
    next(iterator)
    iterator.save_state(tmp_path / "state.json")
    assert (tmp_path / "state.json").stat().st_size < 4096
    again = mixture((4, 4), 60, range(0, 60, 3)).batch_iterator(3, 7)
    again.load_state(tmp_path / "state.json")
    rest = np.concatenate([x for (x,) in iterator])
    assert np.concatenate([x for (x,) in again]).tolist() == rest.tolist()
    assert not set(rest.tolist()) & set(range(0, 60, 3))


def test_a_schedule_goes_on_by_the_positions_of_the_epoch() -> None:
    later = mixture().batch_iterator(5, 7)
    steps = bu.mix(part(0, 40), part(1, 30), weights=bu.steps((0, [1, 0]), (40, [0, 1])), length=90)
    iterator = steps.batch_iterator(5, 7)
    iterator.load_state_dict(state_after(mixture()), adopt=["weights"])
    drawn = np.concatenate([x for (x,) in iterator])
    assert (drawn[:25] < PART).all()
    assert (drawn[25:] >= PART).all()
    later.close()


def test_the_excluded_rows_of_an_order_of_many_rows_are_found() -> None:
    n = 300_000  # more than are looked at together
    state = state_after(part(0, n))
    seen = {int(x) for batch in list(part(0, n).batch_iterator(5, 7))[:3] for x in batch[0]}
    out = [row for row in range(0, 100_000, 5000) if row not in seen]
    iterator = part(0, n, out).batch_iterator(50_000, 7)
    iterator.load_state_dict(state, adopt=["rows"])
    rest = np.concatenate([x for (x,) in iterator])
    assert np.sort(rest).tolist() == sorted(set(range(n)) - seen - set(out))


def test_files_between_others_are_noticed_and_files_behind_them_are_adopted(tmp_path: Any) -> None:
    def write(names: str) -> Any:
        for name in names:
            Image.new("L", (4, 4), ord(name)).save(tmp_path / f"{name}.png")
        return bu.ArrayDataSource([bu.ImageFiles(sorted(tmp_path.glob("*.png")), size=4, mode="L")])

    state = state_after(write("bdfhjlnprtvx"), 1)
    behind = write("yz")
    seen = set(next(write("").subset(range(12)).batch_iterator(5, 7))[0][:, 0, 0].tolist())
    iterator = behind.batch_iterator(5, 7)
    iterator.load_state_dict(state, adopt=["rows"])
    rest = [int(x) for (batch,) in iterator for x in batch[:, 0, 0]]
    assert sorted([*rest, *seen]) == sorted(map(ord, "bdfhjlnprtvxyz"))
    between = write("c").batch_iterator(5, 7)
    with raises(StateError):
        between.load_state_dict(state, adopt=["rows"])
