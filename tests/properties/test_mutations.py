"""No changed state is ever resumed from: it is refused by one of our errors, whatever was changed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch.state import digest
from batchup_ng.data_source.epoch.state_file import read_state
from batchup_ng.errors import StateError
from batchup_ng.testing.sources import assert_same_batches

SOURCE = bu.ArrayDataSource([np.arange(1000)])


class Counting:
    """An iterator of the user's that can be saved."""

    def __init__(self) -> None:
        self.given = 0

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> Any:
        self.given += 1
        return (np.full(10, self.given),)

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given, "more": [1, "x"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


ORDERS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "in order": lambda: (SOURCE, None),
    "seed": lambda: (SOURCE, 7),
    "large seed": lambda: (SOURCE, 1 << 200),
    "stream": lambda: (bu.IteratorDataSource(Counting()), None),
}


@pytest.fixture(scope="module")
def share(in_full: bool) -> int:
    """How many changes each test tries."""
    return 10_000 if in_full else 50


def opened(order: str, state: Any = None) -> Any:
    source, shuffle = ORDERS[order]()
    return source.batch_iterator(10, shuffle=shuffle, epoch=1, state=state)


def state_of(order: str) -> dict[str, Any]:
    iterator = opened(order)
    for _ in range(3):
        next(iterator)
    state: dict[str, Any] = iterator.state_dict()
    return state


class Unshowable:
    """A value without a text."""

    def __repr__(self) -> str:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]  # on purpose


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


KNOT: list[Any] = []
KNOT.append(KNOT)
STRANGE = [None, True, False, 0, 1, -1, 1 << 62, 1 << 63, 1 << 70, 10**5000, 0.5, 1.0, float("nan"), float("inf"), "",
           "x", "\ud800", b"x", [], {}, [[]], {1: 2}, {"a": 1, 2: 3}, {3, 4}, object(), Unshowable(), KNOT, nested(400),
           {"b85": "", "dtype": "<u4"}, {"b85": "0" * 11, "dtype": "O"}, np.array([1, 2]), np.array([None]),
           np.zeros(3, "i4,f8"), np.datetime64("2020"), np.int64(7), lambda: None]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to each part of what JSON can hold."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [way for key, part in items for way in places(part, (*path, key))]


def mutated(state: dict[str, Any], rng: random.Random) -> Any:
    """Return a state with something changed: a value, a bit of a text, a name, a part left out or put elsewhere."""
    changed, ways = copy.deepcopy(state), places(state)
    for *to, key in rng.choices(ways, k=rng.choice((1, 1, 1, 2, 3))):
        holder: Any = changed
        try:
            for step in to:
                holder = holder[step]
            old = holder[key]
        except (TypeError, LookupError, ValueError):
            continue  # it went with what was changed before
        if type(holder) in (dict, list) and not any(holder is strange for strange in STRANGE):
            _change(holder, key, old, rng)
    return changed


def _change(holder: Any, key: Any, old: Any, rng: random.Random) -> None:
    kind = rng.randrange(7)
    if kind == 0:
        holder[key] = rng.choice(STRANGE)
    elif kind == 1 and isinstance(old, int) and not isinstance(old, bool):
        holder[key] = old ^ (1 << rng.randrange(64))
    elif kind == 2 and isinstance(old, str) and old:
        at = rng.randrange(len(old))
        holder[key] = old[:at] + chr(ord(old[at]) ^ (1 << rng.randrange(7))) + old[at + 1 :]
    elif kind == 3 and isinstance(holder, dict):
        holder[str(key) + rng.choice("abc")] = holder.pop(key)
    elif kind == 4 and isinstance(holder, dict):
        del holder[key]
    elif kind == 5 and isinstance(old, str):
        holder[key] = old[: rng.randrange(len(old) + 1)]
    else:
        holder[key] = [old]


def same(changed: Any, state: Any) -> bool:
    """Return whether a change changed nothing, for a number of NumPy's is as good."""
    try:
        return json.dumps(changed, sort_keys=True, default=np.int64.item) == json.dumps(state, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False


@pytest.mark.parametrize("order", ORDERS)
def test_no_changed_state_is_ever_resumed_from(order: str, share: int) -> None:
    state, rng = state_of(order), random.Random(order)
    refused = 0
    for _ in range(share):
        changed = mutated(state, rng)
        if same(changed, state):
            continue
        with pytest.raises(StateError):
            opened(order, changed)
        refused += 1
    assert refused > 0.9 * share


ROWS = 95
CHOICE = bu.ChoiceDataSource([bu.ArrayDataSource([np.arange(50)]), bu.ArrayDataSource([np.arange(50, 95)])], True)


class Blocks:
    """An accessor that says how long its blocks are."""

    natural_block, natural_window = 5, 3

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(ROWS)[rows]


def noisy(x: np.ndarray, rng: Any) -> Any:
    return x, rng.random()


FORGED: dict[str, tuple[Callable[[], Any], Any]] = {
    "in order": (lambda: bu.ArrayDataSource([np.arange(ROWS)]), None),
    "seed": (lambda: bu.ArrayDataSource([np.arange(ROWS)]).map(noisy, rng="sample"), 7),
    "endless": (lambda: bu.ArrayDataSource([np.arange(ROWS)]).repeat().map(noisy, rng="sample"), 7),
    "blocks": (lambda: bu.ArrayDataSource([Blocks()]), ("blocks", 7)),
    "choice": (lambda: CHOICE.map(noisy, rng="sample"), 7),
    "endless choice": (lambda: CHOICE.repeat().map(noisy, rng="sample"), 7),
    "stream": (lambda: bu.IteratorDataSource(Counting()).map(noisy, rng="sample"), None),
}
OTHERS = [None, True, False, 0, 1, 2, 4, -1, -4, 29, 31, 40, 94, 95, 96, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70, 0.5,
          30.0, "", "3", "30", [], [3], [-1], {}, {"a": 1}, "in order", "seed", "stream", "blocks", "blocks []",
          "blocks [(5, 3)]", "blocks [(0, 3)]", "blocks [(5, 3), (5, 3)]", "old blocks [(5, 3)]",
          "blocks [(5, 3, 2, 10)]", "blocks [(5, 3, 2)]", "blocks [(5, 3, 1, 1)]", "blocks [(5, 3, 0, 10)]",
          {"iterator": 3, "counted": []}, {"iterator": {"given": 3}, "counted": [[[0], -30]]},
          {"iterator": {"given": 3}, "counted": [[["a"], 30]]}, {"iterator": {"given": 3}, "counted": 3},
          [30, 30, 0, 0], [30, 29, 0, 0], [30, 31, -1, 0], [30, 30, 0, 31], [30.0, 30, 0, 0]]  # fmt: skip


def forged(state: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a state of which one entry has another value, with the digest of one that was never changed."""
    *counts, _ = state["counts"]
    body = {key: part for key, part in state.items() if key not in ("counts", "digest")}
    if name == "counts":
        counts = value if isinstance(value, list) else [value, *counts[1:]]
    elif name in body:
        body[name] = value
    own = digest(body)
    return {**body, "counts": [*counts, digest([own, *counts])], "digest": own}


def joined(batches: list[Any]) -> list[Any]:
    """Return the samples of batches, each as one of its own."""
    return [tuple(column[i : i + 1] for column in batch) for batch in batches for i in range(len(batch[0]))]


@pytest.mark.in_turn
@pytest.mark.parametrize("order", FORGED)
def test_a_forged_state_is_refused_or_is_one_of_that_epoch(order: str) -> None:
    """Whatever an entry says, and though the digest is right: no other error, and never other samples."""

    def opened(state: Any = None) -> Any:
        return FORGED[order][0]().batch_iterator(10, shuffle=FORGED[order][1], state=state)

    first = opened()
    whole = list(islice(opened(), 12))
    for _ in range(3):
        next(first)
    state = first.state_dict()
    assert_same_batches([next(opened(forged(state, "", None)))], whole[3:4])
    refused = 0
    for name in state:
        for value in OTHERS:
            try:
                resumed = opened(forged(state, name, value))
            except StateError:
                refused += 1
                continue
            begins = resumed.state_dict()["samples" if order != "choice" else "batches"]
            if "endless" in order and begins > 95:
                next(resumed)
            elif resumed.epoch == 0 and order != "stream" and (name, order) != ("order", "blocks"):
                got, expected = list(islice(resumed, 13)), whole
                if "choice" not in order:
                    got, expected = joined(got), joined(whole)
                begins = begins // 10 if order == "endless choice" else begins
                n = len(expected) - begins
                assert_same_batches(got[:n], expected[begins:])
                assert len(got) == n or "endless" in order
    assert refused > 0.75 * len(OTHERS) * len(state)


@pytest.mark.parametrize("name", ["epoch", "seed", "batches", "more"])
def test_a_forged_state_of_a_loader_is_refused_and_nothing_has_changed(name: str) -> None:
    for shuffle in (7, True):
        with bu.Loader([np.arange(ROWS)], 10, shuffle=shuffle, pool="serial") as loader:
            whole = list(loader)
            iterator = iter(loader)
            done = next(iterator)
            state = loader.state_dict()
            for value in OTHERS:
                if (value is None and name in ("batches", "seed")) or (value == state.get(name) and value is not True):
                    continue
                try:
                    loader.load_state_dict({**state, name: value})
                except StateError:
                    assert loader.state_dict() == state
                else:
                    assert name == "more", (name, value)
                    loader.load_state_dict(state)
            assert len([done, *(loader if name == "more" else iterator)]) == len(whole)


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """Return the bytes of a file with some changed, left out, put in or written twice."""
    at, to = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    kind = rng.randrange(6)
    if kind == 0:
        return raw[:at]
    if kind == 1 and at < len(raw):
        return raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]
    if kind == 2:
        return raw[:at] + rng.randbytes(rng.randrange(1, 9)) + raw[at:]
    if kind == 3:
        return raw[:at] + raw[at:to] * rng.randrange(2, 4) + raw[to:]
    return raw[:at] + raw[to:] if kind == 4 else raw[:at] + bytes(to - at) + raw[to:]


@pytest.mark.parametrize("order", ORDERS)
def test_no_damaged_file_is_ever_resumed_from(order: str, share: int, tmp_path: Path) -> None:
    iterator, path = opened(order), tmp_path / "state.json"
    for _ in range(3):
        next(iterator)
    iterator.save_state(path)
    raw, state, rest = path.read_bytes(), read_state(path), next(iterator)
    rng = random.Random(f"file {order}")
    refused = 0
    for _ in range(share):
        path.write_bytes(damaged(raw, rng))
        again = opened(order)
        try:
            again.load_state(path)
        except StateError:
            refused += 1
        else:  # only white space was changed, or something was written twice
            assert read_state(path) == state
            assert_same_batches([next(again)], [rest])
    assert refused > 0.8 * share
