"""How the weights and the rows of an epoch have changed in its course, and how a state of another source goes on.

A history belongs to an epoch: its eras, and the weights of the epochs after it, if the user has set some. It is part of
the options of an epoch and of its state. The plan of the epoch is made with an :class:`.EraSampler`, so the order stays
a function of the seed, the epoch and the history.

``adopt=`` turns a state of another source into one of this source: the rest of the epoch is another era.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...display import counted
from ...errors import ArgumentError, ArgumentTypeError, StateError
from ...graph.mixed import ordering
from ...graph.node import Node
from ...graph.rows import RowsNode
from ...sampling.eras import Era, EraSampler
from ...sampling.mixture import MixtureSampler
from ...sampling.row_sets import MAX_ROWS
from ...sampling.schedules import WeightSchedule, schedule_from, stairs_of
from .described import Described, Rows, description, row_set_of, with_sampler
from .state import LAST_POSITION, Identity, SavedEpoch, as_state, from_state, identity, is_whole

ADOPTED = ("weights", "rows")
"""The differences between a state and a source that ``adopt=`` may name."""

SHOWN = 5
"""The most rows that an error lists."""


class History(NamedTuple):
    """Changes of weights and rows.

    Attributes:
        epoch: The number of the epoch with these eras.
        eras: Its eras; empty if it has one.
        later: The weights of the epochs after it, which the user has set; None if the source's apply.
    """

    epoch: int
    eras: tuple[Era, ...] = ()
    later: WeightSchedule | None = None

    def at(self, epoch: int) -> History | None:
        """Return the history of an epoch; None if nothing changes in it."""
        if epoch == self.epoch:
            return self if self.eras or self.later else None
        if epoch > self.epoch and self.later is not None:
            return History(epoch, (Era(0, self.later),), self.later)
        return None


def sampler_of(node: Node) -> Any:
    """Return the sampler that orders the samples of `node`; None if it has none."""
    return getattr(ordering(node)[1], "sampler", None)


def planner(node: Node, options: Any) -> Node:
    """Return `node` with the order that the history of the options gives it."""
    history = None if options.history is None else options.history.at(options.epoch)
    if history is None or not history.eras:
        return node
    _, root = ordering(node)
    assert isinstance(root, RowsNode)
    made = copy.copy(root)
    made.sampler = EraSampler(root.sampler, history.eras, options.order_key())
    return with_sampler(node, made)


# -- states ------------------------------------------------------------------------------------------------------


def plain_parts(own: Described | None, history: History | None) -> dict[str, Any] | None:
    """Return the entry of a state for the description of a source and a history."""
    if own is None:
        return None
    eras = [] if history is None else [_plain_era(era) for era in history.eras]
    later = None if history is None or history.later is None else history.later.plain()
    return {**own.plain(), "eras": eras, "later": later}


def _plain_era(era: Era) -> list[Any]:
    rows = None if era.rows is None else [[part.end, list(part.left_out)] for part in era.rows.parts]
    return [era.start, None if era.weights is None else era.weights.plain(), rows]


class SavedParts(NamedTuple):
    """The entry of a state that :func:`plain_parts` made, checked."""

    form: str
    weights: WeightSchedule | None
    rows: tuple[Rows, ...]
    last: list[str | None]
    eras: tuple[Era, ...]
    later: WeightSchedule | None


def saved_parts(saved: SavedEpoch) -> SavedParts | None:
    """Return what a state says of its source and its history; None if it says nothing.

    Raises:
        StateError: the entry is damaged.
    """
    if saved.parts is None:
        return None
    try:
        return _checked_parts(saved)
    except (ArgumentError, ArgumentTypeError, TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise StateError(f"this state is damaged: its 'parts' cannot be {saved.parts!r:.100}") from error


def _checked_parts(saved: SavedEpoch) -> SavedParts:
    parts = saved.parts
    if set(parts) != {"form", "weights", "rows", "last", "eras", "later"} or type(parts["form"]) is not str:
        raise ValueError("entries")
    rows = _checked_rows(parts["rows"])
    n = len(rows)

    def weights_of(plain: Any) -> WeightSchedule | None:
        return None if plain is None else schedule_from(plain, n)

    eras: list[Era] = []
    for start, weights, its_rows in parts["eras"]:
        own = None if its_rows is None else row_set_of(_checked_rows(its_rows))
        if its_rows is not None and (own is None or len(its_rows) != n):
            raise ValueError("rows")
        ascends = start > eras[-1].start if eras else start == 0
        if not is_whole(start, 0, LAST_POSITION // 2) or not (ascends or (start and start == eras[-1].start)):
            raise ValueError("start")
        eras.append(Era(start, weights_of(weights), own))
    weights, later = weights_of(parts["weights"]), weights_of(parts["later"])
    if weights is None and (later is not None or any(era.weights is not None for era in eras)):
        raise ValueError("weights")
    if any(era.rows is None for era in eras[:1]) and any(era.rows is not None for era in eras):
        raise ValueError("rows")
    last = parts["last"]
    if type(last) is not list or len(last) != n or not all(name is None or type(name) is str for name in last):
        raise ValueError("last")
    return SavedParts(parts["form"], weights, rows, last, tuple(eras), later)


def _checked_rows(rows: Any) -> tuple[Rows, ...]:
    made: list[Rows] = []
    for n, left_out in rows:
        if not is_whole(n, 0, MAX_ROWS):
            raise ValueError("rows")
        listed = [] if left_out is None else list(left_out)
        if not all(is_whole(row, 0, n - 1) for row in listed) or sorted(set(listed)) != listed:
            raise ValueError("rows that are left out")
        made.append((n, None if left_out is None else tuple(listed)))
    if not made:
        raise ValueError("no parts")
    return tuple(made)


def history_of(saved: SavedEpoch, source: Identity) -> History | None:
    """Return the history of a state of this source.

    Raises:
        StateError: the entry is damaged.
    """
    parts, own = saved_parts(saved), description(source)
    if parts is None:
        return None
    same = own is not None and own.form == parts.form and own.rows == parts.rows
    now = None if own is None or own.weights is None else schedule_from(own.weights, len(own.rows))
    if own is None or not same or not _same_stairs(parts.weights, now):
        raise StateError("this state is damaged: its 'parts' do not fit its source")
    rows = [era.rows for era in parts.eras if era.rows is not None]
    if rows and (own.row_set() is None or rows[-1].parts != own.row_set().parts):  # type: ignore[union-attr]
        raise StateError("this state is damaged: its 'parts' do not fit its source")
    history = History(saved.epoch, parts.eras, parts.later)
    return history if history.eras or history.later else None


# -- states of other sources -------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A difference between a state and a source: the name that ``adopt=`` has for it, None if it has none, in words."""

    name: str | None
    words: str


def differences(saved: SavedEpoch, own: Described | None) -> list[Difference]:
    """Return what differs between the source of a state and this one; none if they are altogether different."""
    parts = saved_parts(saved)
    if own is None or parts is None or own.form != parts.form or len(own.rows) != len(parts.rows):
        return []
    found = []
    if parts.weights is not None:
        now = schedule_from(own.weights, len(own.rows))
        if not _same_stairs(parts.weights, now):
            found.append(Difference("weights", f"its weights are {parts.weights}, and here they are {now}"))
    for i, (then, rows) in enumerate(zip(parts.rows, own.rows, strict=True)):
        name = f"part {i}" if len(own.rows) > 1 else "the source"
        found += _of_part(name, then, rows)
        if parts.last[i] is not None and then[0] <= rows[0] and own.file_of(i, then[0] - 1) != parts.last[i]:
            last = f"row {then[0] - 1} of {name}"
            found.append(Difference(None, f"{last} is another file than in the state; add files after the others"))
    if saved.order not in ("seed", "in order") and found:
        found.append(Difference(None, f"its order is by {saved.order!r:.40}, which cannot go on with them"))
    return found


def _same_stairs(one: WeightSchedule | None, other: WeightSchedule | None) -> bool:
    if one is None or other is None:
        return one is other
    pairs = [[(start, counts.tolist()) for start, counts in stairs_of(each)] for each in (one, other)]
    return pairs[0] == pairs[1]


def _of_part(name: str, then: Rows, now: Rows) -> list[Difference]:
    """Return what differs in the rows of a part."""
    found = []
    if now[0] > then[0]:
        more = counted(now[0] - then[0], "row")
        found.append(Difference("rows", f"{name} has {more} more than the {then[0]} of the state"))
    if now[0] < then[0]:
        found.append(Difference(None, f"{name} has {counted(then[0] - now[0], 'row')} fewer than the {then[0]} of the "
                                      f"state; keep them, and leave them out by subset(exclude=...)"))  # fmt: skip
    if then[1] != now[1] or None in (then[1], now[1]):
        if then[1] is None or now[1] is None:
            if then != now or found:
                found.append(Difference(None, f"{name} leaves out more rows than a state can list"))
        else:
            gone, back = sorted({*now[1]} - {*then[1]}), sorted({*then[1]} - {*now[1]})
            if gone:
                found.append(Difference("rows", f"{name} leaves out {_listed(gone)} that the state has"))
            if back:
                found.append(Difference("rows", f"{name} has {_listed(back)} that the state leaves out"))
    return found


def _listed(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:SHOWN])) + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}"


def refusal(saved: SavedEpoch, source: Identity) -> StateError:
    """Return the error for a state of another source, in words."""
    found = differences(saved, description(source))
    if not found:
        return StateError(
            f"this state is of another source: it was saved from {saved.told}, and this is {source.told}; the "
            f"graph, the lengths and the samplers must be the same"
        )
    words = "; ".join(each.words for each in found)
    names = sorted({each.name for each in found if each.name is not None}, reverse=True)
    if any(each.name is None for each in found):
        return StateError(f"this state is of another source: {words}; adopt= cannot go on with that")
    return StateError(
        f"this state is of another source: {words}; pass adopt={names} to load_state_dict to go on with what is here"
    )


def adopted(state: Any, node: Node, adopt: Any) -> Any:
    """Return a state of another source as one of this source, if `adopt` names all that differs; else as it is."""
    names = checked_names(adopt)
    if not names or state is None:
        return state
    saved = from_state(state)
    source = identity(node)
    own, parts = description(source), saved_parts(saved)
    if source.source == saved.source or own is None or parts is None:
        return state
    found = differences(saved, own)
    if not found or any(each.name not in names for each in found):
        return state
    what, n = {each.name for each in found}, len(own.rows)
    now = None if own.weights is None else schedule_from(own.weights, n)
    later = None if "weights" in what else parts.later
    at = saved.samples
    coming = () if "weights" in what else tuple(era for era in parts.eras if era.start > at)  # set for later samples
    eras = [era for era in parts.eras if era.start <= at] or [Era(0)]
    with_rows = "rows" in what or eras[0].rows is not None
    eras[0] = Era(0, eras[0].weights or parts.weights, eras[0].rows or (row_set_of(parts.rows) if with_rows else None))
    eras.append(Era(at, now if "weights" in what else None, own.row_set() if "rows" in what else None))
    history = History(saved.epoch, (*eras, *coming), later)
    if not at:  # the epoch has the rows of this source from the begin
        own_eras = () if "weights" in what else tuple(era._replace(rows=None) for era in parts.eras)
        history = History(saved.epoch, own_eras, later)
    return as_state(dataclasses.replace(saved, source=source.source, told=source.told, parts=plain_parts(own, history)))


def checked_names(adopt: Any) -> tuple[str, ...]:
    """Return the names in ``adopt=``, checked."""
    if isinstance(adopt, str) or not isinstance(adopt, Iterable):
        raise ArgumentTypeError(f"adopt must be a list of {list(ADOPTED)}, not {adopt!r:.80}")
    names = tuple(adopt)
    for name in names:
        if name not in ADOPTED:
            raise ArgumentError(f"adopt may name {list(ADOPTED)}, not {name!r:.80}")
    return names


def changed(history: History | None, epoch: int, after: int, weights: WeightSchedule) -> History:
    """Return the history with other weights from sample `after` of an epoch on, and in all epochs after it.

    Changes that were set for later samples go.
    """
    now = None if history is None else history.at(epoch)
    eras = [era for era in (now.eras if now is not None else ()) if era.start <= after] or [Era(0)]
    same = [i for i, era in enumerate(eras) if era.start == after]
    if same:
        eras[same[-1]] = eras[same[-1]]._replace(weights=weights)
    else:
        eras.append(Era(after, weights))
    return History(epoch, tuple(eras), weights)


def mixture_of(node: Node) -> MixtureSampler | None:
    """Return the sampler of the mixture that orders the samples of `node`; None if there is none."""
    sampler = sampler_of(node)
    return sampler if isinstance(sampler, MixtureSampler) else None

