"""A sampler that mixes parts of the data in given proportions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..randomness import OrderKey, pair_words
from .base import RandomAccessSampler, array_fingerprint
from .phases import NO_LIMIT, Phases
from .plans.batched_permutation import each_permuted
from .plans.permutation import check_length
from .schedules import Step, WeightSchedule, schedule_of, stairs_of

UNTIL = ("all", "first")
"""Ends of an epoch without a given length."""


class MixtureSampler(RandomAccessSampler):
    """Hands out rows of several parts of the data in given proportions.

    The rows lie part after part, as :func:`~batchup_ng.concat` puts sources: rows 0 to ``lengths[0] - 1`` are the first
    part. An epoch is made of periods. Each period has a whole number of rows of each part: proportions of 3 to 1 have a
    period of 4. Whole numbers are kept exactly if, without a common divisor, they add up to at most a million. Other
    weights have the shortest period below 1000 that fits them, or else are kept to a thousandth.

    With ``shuffle=`` each period is shuffled, and each part goes through its own rows in an order of its own, a new one
    each time. Each row of a part comes once before any comes again, except in the period in which the part begins
    again. In order, the parts are spread evenly over a period, and the rows of each part come as stored, over and over.

    Weights may change at given positions. Where they change, or where a part leaves, a new period begins, and the one
    before may end early: the counts up to there are within one period of the weights, and the same in every order.

    Args:
        lengths: How many rows each part has.
        weights: How much of each part to hand out, not negative, in any unit; None for equal weights. Weights that
            change are the result of :func:`~batchup_ng.steps` or :func:`~batchup_ng.ramp`.
        length: Positions of an epoch; -1: no end. None: `until` says.
        max_repeats: How often each row may come in an epoch, one number or one a part. A part whose rows have come that
            often leaves, and the others go on by their weights. None: any number of times.
        until: The end of an epoch without `length`. ``"all"``, the default: as many whole periods as it takes to hand
            out each row of each part with a weight; rows of a part that is small for its share come several times.
            ``"first"``: the epoch ends when the rows of a part have come as often as they may, once by default.

    Raises:
        ArgumentError: there are no parts, a part to hand out is empty, or the weights do not fit: not one for each
            part, not proportions, or too unlike each other; `length` is given with `until`, or is more than
            `max_repeats` allows.

    >>> MixtureSampler([3, 1]).rows_at(np.arange(6), None)
    array([0, 3, 1, 3, 2, 3])
    >>> MixtureSampler([4, 1], max_repeats=1).rows_at(np.arange(5), None)
    array([0, 4, 1, 2, 3])
    """

    @validation.known_names({})
    def __init__(
        self,
        lengths: Sequence[int],
        weights: Any = None,
        length: int | None = None,
        *,
        max_repeats: int | Sequence[int] | None = None,
        until: str | None = None,
    ) -> None:
        self.lengths = _lengths(lengths)
        n = len(self.lengths)
        self.schedule: WeightSchedule = schedule_of(weights, n)
        self.stairs = _checked_stairs(self.schedule, self.lengths)
        self.n_rows = sum(self.lengths)
        known = weights is None or isinstance(weights, WeightSchedule)
        self.weights = weights if known else np.asarray(weights).tolist()
        self._sizes = np.array(self.lengths, dtype=np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self.max_repeats = _repeats(max_repeats, n)
        self.until = None if until is None else validation.one_of("until", until, UNTIL)
        self.given_length = None if length is None else _length(length)
        if self.until is not None and self.given_length is not None:
            raise ArgumentError(f"until={until!r} is for an epoch without a length; leave it out, or length={length}")
        self.limits = self._limits()
        self.phases = Phases(n)
        self.phases.begin(0, self.stairs_before_end(self.stairs), self.limits, first=self.until == "first")
        self.length = self._end() if self.given_length is None else self.given_length
        check_end(self.length, self.phases)

    def _limits(self) -> np.ndarray:
        """Return the most samples of each part in an epoch, ``(n_parts,) int64``."""
        repeats = self.max_repeats
        if repeats is None and self.until != "first":
            return np.full(len(self.lengths), NO_LIMIT)
        pairs = zip(self.lengths, repeats or [1] * len(self.lengths), strict=True)
        return np.array([min(NO_LIMIT, n * times) if n else NO_LIMIT for n, times in pairs])

    def stairs_before_end(self, stairs: list[Step]) -> list[Step]:
        """Return the stairs that begin before the given length of the epoch, and the first."""
        length = self.given_length
        return stairs if length in (None, -1) else [each for each in stairs if each[0] < length or not each[0]]

    def _end(self) -> int:
        if self.until == "first":
            assert self.phases.end is not None
            return self.phases.end
        return self.phases.first_with(np.where(self.used, self._sizes, 0))

    @property
    def used(self) -> np.ndarray:
        """Which parts have a weight at any time, ``(n_parts,) bool``."""
        used: np.ndarray = np.any([counts > 0 for _, counts in self.stairs], axis=0)
        return used

    def fingerprint(self) -> list[Any]:
        changing = [self.schedule.plain()] if len(self.stairs) > 1 else []
        repeats = [] if self.max_repeats is None else [["max_repeats", *self.max_repeats]]
        until = ["first"] if self.until == "first" else []
        parts = [array_fingerprint(self._sizes), array_fingerprint(self.stairs[0][1])]
        return [type(self).__name__, self.length, *parts, *changing, *repeats, *until]

    def num_indices_generated(self) -> Any:
        return math.inf if self.length == -1 else self.length

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        return self.rows_of(*self.phases.samples_at(positions, key), key)

    def rows_of(self, parts: np.ndarray, numbers: np.ndarray, key: OrderKey | None) -> np.ndarray:
        """Return the row of each sample: ``(n,) int64``.

        Args:
            parts: The part of each, ``(n,) int64``.
            numbers: Its number in the sequence of the part, ``(n,) int64``.
            key: Seed and epoch.
        """
        sizes = self._sizes[parts]
        repeats, own = np.divmod(numbers, sizes)
        if key is not None:
            own = each_permuted(own, sizes, pair_words(key.word("part"), parts, repeats))
        return np.asarray(self._starts[parts] + own)

    def checked_schedule(self, weights: Any) -> WeightSchedule:
        """Return other weights of these parts. Raise if they do not fit."""
        schedule = schedule_of(weights, len(self.lengths))
        _checked_stairs(schedule, self.lengths)
        return schedule

    def checked_position(self, name: str, position: Any, earliest: int) -> int:
        """Return a position of the epoch. Raise if it is before `earliest` or after the end."""
        at = validation.not_negative(name, position)
        if at < earliest:
            raise ArgumentError(
                f"{name} must be at least {earliest}, not {at}; the batches up to there were handed out or are in the "
                f"making"
            )
        if 0 <= self.length < at:
            raise ArgumentError(f"{name} must be at most {self.length}, the length of the epoch, not {at}")
        return at

    @property
    def first_rows(self) -> np.ndarray:
        """The first row of each part, ``(n_parts,) int64``."""
        return self._starts

    def lap_order(self, part: int, key: OrderKey | None) -> Callable[[np.ndarray, int, int], np.ndarray]:
        """Return the function of (places, lap, n) that gives the rows of a part at places of a lap over its n rows."""
        if key is None:
            return lambda places, lap, n: places
        word = key.word("part")

        def shuffled(places: np.ndarray, lap: int, n: int) -> np.ndarray:
            words = pair_words(word, np.full(len(places), part), np.full(len(places), lap))
            return each_permuted(places, np.full(len(places), n), words)

        return shuffled


def _lengths(lengths: Sequence[int]) -> list[int]:
    made = [validation.integer(f"lengths[{i}]", n) for i, n in enumerate(lengths)]
    if not made:
        raise ArgumentError("lengths must hold the number of rows of each part, and is empty")
    check_length("the sum of lengths", sum(made))
    return made


def _length(length: Any) -> int:
    whole = validation.integer("length", length)
    if whole < 1 and whole != -1:
        raise ArgumentError(f"length must be at least 1, or -1 for no end, not {whole}; None goes once through all")
    return whole


def _checked_stairs(schedule: WeightSchedule, lengths: list[int]) -> list[Step]:
    """Return the stairs of a schedule. Refuse a part without rows that is to be handed out."""
    stairs = stairs_of(schedule)
    for i, n in enumerate(lengths):
        if n < 0 or (n == 0 and any(counts[i] for _, counts in stairs)):
            raise ArgumentError(f"lengths[{i}] must be at least 1 for a part to be handed out, not {n}; leave it out")
    return stairs


def _repeats(max_repeats: Any, n_parts: int) -> list[int] | None:
    if max_repeats is None:
        return None
    if not isinstance(max_repeats, (list, tuple, np.ndarray)):
        return [validation.positive_int("max_repeats", max_repeats)] * n_parts
    if len(max_repeats) != n_parts:
        raise ArgumentError(f"max_repeats must be one number, or {n_parts}, one a part, not {max_repeats!r}")
    return [validation.positive_int(f"max_repeats[{i}]", times) for i, times in enumerate(max_repeats)]


def check_end(length: int, phases: Phases) -> None:
    """Raise :class:`ArgumentError` if all parts are used up before `length` positions, -1 for no end."""
    if phases.end is not None and not 0 <= length <= phases.end:
        wanted = "without an end (length=-1)" if length == -1 else f"of length={length}"
        raise ArgumentError(
            f"an epoch {wanted} needs more samples than max_repeats= allows: all parts are used up after {phases.end}; "
            f"pass at most that length, or allow more repeats"
        )
