"""The order of an epoch whose weights or rows change in its course.

An epoch has eras. An era begins at a position and has weights and rows of its own. The order before a position does not
depend on the eras that begin there or later. So an epoch goes on from its middle with other weights, added rows or rows
left out, and loses and repeats nothing.

A stream is the sequence of the rows of one part of a mixture, or of all rows of another source. It consists of laps. In
a lap each row comes once. If rows change in the middle of a lap, the rest of the lap has the rows that have not come,
without those that are left out now, and those that were added, in a new order. The next laps have the new rows.

Everything here is for one key: counts at the begin of an era inside a period depend on the order.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..randomness import OrderKey
from .base import RandomAccessSampler
from .mixture import MixtureSampler, check_end
from .phases import NO_LIMIT, Left, Phases
from .plans.permutation import keyed_permutation
from .row_sets import PART_BITS, RowSet
from .schedules import WeightSchedule, stairs_of

ROWS_AT_A_TIME = 1 << 18
"""Rows of a lap that are looked at together for those that are left out."""


class Era(NamedTuple):
    """A stretch of an epoch from `start` on.

    Attributes:
        start: Its first position.
        weights: The weights of the mixture; None if they do not change. In the first era, None stands for the source's.
        rows: The rows; None if they do not change. In the first era, None stands for the source's.
    """

    start: int
    weights: WeightSchedule | None = None
    rows: RowSet | None = None


Shuffled = Callable[[np.ndarray, int, int], np.ndarray]
"""Returns the rows at places of a lap, by the number of the lap and its number of rows."""


class _Laps(NamedTuple):
    """Whole laps from sample `start` of the stream on; the first is number `lap`."""

    start: int
    lap: int
    rows: RowSet

    def addresses(self, numbers: np.ndarray, shuffled: Shuffled) -> np.ndarray:
        laps, places = np.divmod(numbers - self.start, self.rows.size)
        found = np.empty_like(numbers)
        for lap in np.unique(laps):
            mine = np.flatnonzero(laps == lap)
            found[mine] = shuffled(places[mine], self.lap + int(lap), self.rows.size)
        return self.rows.addresses(found)

    def lap_of(self, number: int) -> tuple[int, int, int]:
        """Return the lap of a sample, with its first sample and the one after it."""
        laps, size = (number - self.start) // max(1, self.rows.size), self.rows.size
        return self.lap + laps, self.start + laps * size, self.start + (laps + 1) * size


class _Rest(NamedTuple):
    """The rest of a lap after its rows changed: the rows that had not come and are still there, and those `added`."""

    start: int
    lap: int
    numbers: np.ndarray | range  # of the rows that had not come, by the order before the change
    gone: np.ndarray  # places in `numbers` whose rows are left out now, ascending
    before: Callable[[np.ndarray], np.ndarray]  # addresses of numbers by the order before the change
    added: RowSet
    word: int | None  # of the new order; None is in order

    @property
    def size(self) -> int:
        return len(self.numbers) - len(self.gone) + self.added.size

    def addresses(self, numbers: np.ndarray, shuffled: Shuffled) -> np.ndarray:
        places = numbers - self.start
        if self.word is not None:
            places = keyed_permutation(self.size, self.word)(places)
        found, n = np.empty_like(numbers), len(self.numbers) - len(self.gone)
        old, new = np.flatnonzero(places < n), np.flatnonzero(places >= n)
        if len(old):
            kept = places[old]
            kept = kept + np.searchsorted(self.gone - np.arange(len(self.gone)), kept, side="right")
            found[old] = self.before(_taken(self.numbers, kept))
        if len(new):
            found[new] = self.added.addresses(places[new] - n)
        return found

    def lap_of(self, number: int) -> tuple[int, int, int]:
        return self.lap, self.start, self.start + self.size


class Stream:
    """The rows of a stream, by their number in it.

    Args:
        rows: The rows at the start of the epoch.
        shuffled: The order of a whole lap.
        word: Returns the key of the order of a lap that changed after so many samples; None if the epoch is in order.
    """

    def __init__(self, rows: RowSet, shuffled: Shuffled, word: Callable[[int, int], int] | None) -> None:
        self._shuffled, self._word = shuffled, word
        self._each: list[_Laps | _Rest] = [_Laps(0, 0, rows)]
        self._rows = [rows]  # of each era
        self.needed = rows.size  # the number of samples until each row has come

    def change(self, draw: int, left: Left | None, rows: RowSet) -> None:
        """Let the stream have other rows after `draw` samples.

        `left` are samples before which others have come; None if the first samples have come in order.
        """
        numbers = np.arange(0) if left is None else left.numbers
        end = draw if left is None else left.end  # from it on no sample has come
        lost, added = rows.lacks_some_of(self._rows[-1]), rows.added_to(self._rows[-1])
        self._check_new(added)
        short = self.needed > draw or bool((numbers < self.needed).any())
        before = functools.partial(_addresses, tuple(self._each), self._shuffled)
        made: list[_Laps | _Rest] = []
        at, number = draw, int(numbers[0]) if len(numbers) else end
        last = _last_come(draw, numbers, end)
        while True:
            segment = _segment(self._each, number)
            lap, first, stop = segment.lap_of(number)
            if isinstance(segment, _Laps) and first > last:
                break  # of this lap and later ones no row has come
            own: np.ndarray | range = numbers[(numbers >= first) & (numbers < stop)]
            if not len(own):
                own = range(max(first, end), stop)
            elif end < stop:
                own = np.concatenate([own, np.arange(max(first, end), stop)])
            gone = _gone(own, before, rows) if lost else np.arange(0)
            rest = _Rest(at, lap, own, gone, before, added, None if self._word is None else self._word(draw, lap))
            if rest.size:
                made.append(rest)
                at += rest.size
            later = numbers[numbers >= stop]
            number = int(later[0]) if len(later) else max(end, stop)
        made.append(_Laps(at, lap, rows))
        if short or added.size:
            self.needed = made[1].start if len(made) > 1 else at + rows.size
        self._rows.append(rows)
        self._each = [*[each for each in self._each if each.start < draw], *made]

    @property
    def present(self) -> RowSet:
        """The rows of the latest era."""
        return self._rows[-1]

    def _check_new(self, added: RowSet) -> None:
        """Refuse rows that an earlier era of this epoch had, and that an era after it left out."""
        for part in added.parts:
            address = np.array([(part.part << PART_BITS) + part.first], np.int64)
            if any(rows.rows(address)[1].any() for rows in self._rows[:-1]):
                raise ArgumentError(
                    f"row {part.first} of part {part.part} was left out in the middle of this epoch, and is back now; "
                    f"leave it out until the epoch ends, because it may have come before"
                )

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the rows by their present numbers, ``(n,) int64``. For a row that is left out now, it is the next."""
        return self._rows[-1].rows(_addresses(self._each, self._shuffled, numbers))[0]

    def end_of_lap(self, laps: int) -> int:
        """Return the samples up to the end of lap number ``laps - 1``."""
        tail = self._each[-1]
        assert isinstance(tail, _Laps)
        return tail.start + max(0, laps - tail.lap) * tail.rows.size


def _segment(each: Sequence[_Laps | _Rest], number: int) -> _Laps | _Rest:
    return each[bisect.bisect_right([one.start for one in each], number) - 1]


def _addresses(each: Sequence[_Laps | _Rest], shuffled: Shuffled, numbers: np.ndarray) -> np.ndarray:
    """Return the addresses of samples of a stream."""
    which = np.searchsorted([one.start for one in each], numbers, side="right") - 1
    found = np.empty_like(numbers)
    for segment in np.unique(which):
        mine = np.flatnonzero(which == segment)
        found[mine] = each[segment].addresses(numbers[mine], shuffled)
    return found


def _last_come(draw: int, numbers: np.ndarray, end: int) -> int:
    """Return the last sample that has come: all before `end` but `numbers`; -1 if none has."""
    if not len(numbers):
        return draw - 1
    come = np.setdiff1d(np.arange(int(numbers[0]), end), numbers)
    return int(come[-1]) if len(come) else int(numbers[0]) - 1


def _taken(numbers: np.ndarray | range, places: np.ndarray) -> np.ndarray:
    return numbers.start + places if isinstance(numbers, range) else np.asarray(numbers[places])


def _gone(numbers: np.ndarray | range, before: Callable[[np.ndarray], np.ndarray], rows: RowSet) -> np.ndarray:
    """Return the places in `numbers` whose rows are not there any more, ascending."""
    found = []
    for start in range(0, len(numbers), ROWS_AT_A_TIME):
        places = np.arange(start, min(len(numbers), start + ROWS_AT_A_TIME), dtype=np.int64)
        found.append(places[~rows.rows(before(_taken(numbers, places)))[1]])
    return np.concatenate([np.arange(0), *found])


class EraSampler(RandomAccessSampler):
    """The order of one epoch whose weights or rows have changed.

    Args:
        base: The sampler of the source as it is now.
        eras: The eras, by ascending start, all of them of this epoch. If one has rows, the first has. The last rows are
            the rows of `base`.
        key: Seed and epoch; None is in order.
    """

    def __init__(self, base: Any, eras: Sequence[Era], key: OrderKey | None) -> None:
        self.base, self.eras, self.key = base, tuple(eras), key
        self.n_rows = base.n_rows
        self.block = base.block
        self.indices = base.indices
        self._mixed = base if isinstance(base, MixtureSampler) else None
        self._streams: list[Stream | None] = self._begun(eras[0].rows)
        if self._mixed is None:
            for era in self.eras[1:]:
                self._change(np.array([era.start]), {}, era.rows)
            self.length = -1 if base.repeats == -1 else self._of_stream(0).end_of_lap(base.repeats)
        else:
            self._sizes = np.array(self._mixed.lengths, np.int64)
            self._needed = self._sizes.copy()
            self._phases = self._mixed_phases(self._mixed)
            self.length = self._end(self._mixed)
            check_end(self.length, self._phases)

    def fingerprint(self) -> list[Any]:
        return list(self.base.fingerprint())

    def num_indices_generated(self) -> Any:
        return math.inf if self.length == -1 else self.length

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        if self._mixed is None:
            return np.asarray(self.map_indices(self._of_stream(0).rows(positions)))
        parts, numbers = self._phases.samples_at(positions, self.key)
        if not self._streams:
            return self._mixed.rows_of(parts, numbers, self.key)
        found = np.empty_like(numbers)
        for part in np.unique(parts):
            mine, stream = np.flatnonzero(parts == part), self._streams[part]
            if stream is None:
                found[mine] = self._mixed.rows_of(parts[mine], numbers[mine], self.key)
            else:
                found[mine] = stream.rows(numbers[mine]) + self._mixed.first_rows[part]
        return found

    # -- the streams -------------------------------------------------------------------------------------------

    def _begun(self, first: RowSet | None) -> list[Stream | None]:
        """Return the streams at the start of the epoch. A part whose rows never change needs none."""
        if first is None:
            return []
        if self._mixed is None:
            return [Stream(first, self.base.lap_order(self.key), self._word(0))]
        sets = [first, *[era.rows for era in self.eras[1:] if era.rows is not None]]
        streams: list[Stream | None] = []
        for part, own in enumerate(first.parts):
            changes = any(each.parts[part] != own for each in sets)
            streams.append(
                Stream(RowSet([own]), self._mixed.lap_order(part, self.key), self._word(part)) if changes else None
            )
        return streams

    def _word(self, stream: int) -> Callable[[int, int], int] | None:
        key = self.key
        return None if key is None else lambda draw, lap: key.word("rest", stream, draw, lap)

    def _of_stream(self, number: int) -> Stream:
        stream = self._streams[number]
        assert stream is not None
        return stream

    def _change(self, draws: np.ndarray, left: dict[int, Left], rows: RowSet | None) -> dict[int, Left]:
        """Let the streams have other rows after so many draws of each. Return what is left of the other parts."""
        if rows is None:
            return left
        kept = dict(left)
        for number, stream in enumerate(self._streams):
            own = rows if self._mixed is None else RowSet([rows.parts[number]])
            if stream is not None and own.parts != stream.present.parts:
                stream.change(int(draws[number]), kept.pop(number, None), own)
        return kept

    # -- the parts of a mixture ----------------------------------------------------------------------------------

    def _mixed_phases(self, mixed: MixtureSampler) -> Phases:
        phases, weights = Phases(len(mixed.lengths)), mixed.schedule
        for era in self.eras:
            weights = era.weights or weights
            draws, left = phases.counts_before(era.start, self.key), phases.left_at(era.start, self.key)
            if era.start:
                left = self._change(draws, left, era.rows)
                self._note_needed(left)
            stairs = stairs_of(weights)
            now = [each for each in stairs if each[0] <= era.start][-1]
            later = [each for each in stairs if each[0] > era.start]
            phases.begin(
                era.start, mixed.stairs_before_end([now, *later]), self._limits(mixed), self.key,
                first=mixed.until == "first", left=left,
            )  # fmt: skip
        return phases

    def _note_needed(self, left: dict[int, Left]) -> None:
        """Note how many draws of each part it takes until each of its rows has come."""
        for part, stream in enumerate(self._streams or [None] * len(self._needed)):
            number = self._sizes[part] if stream is None else stream.needed
            self._needed[part] = number
            if part in left and left[part].end >= number:
                before = int((left[part].numbers < number).sum())
                self._needed[part] = left[part].draw + before if before else number

    def _limits(self, mixed: MixtureSampler) -> np.ndarray:
        """Return the most samples of each part in the epoch, by the rows that the streams have by now."""
        limits = mixed.limits.copy()
        for part, stream in enumerate(self._streams):
            if stream is not None and limits[part] < NO_LIMIT:
                limits[part] = stream.end_of_lap(1 if mixed.max_repeats is None else mixed.max_repeats[part])
        return limits

    def _end(self, mixed: MixtureSampler) -> int:
        if mixed.given_length is not None:
            return mixed.given_length
        if mixed.until == "first":
            assert self._phases.end is not None
            return self._phases.end
        used = np.any([phase.counts > 0 for phase in self._phases.each], axis=0)
        return self._phases.first_with(np.where(used, self._needed, 0))
