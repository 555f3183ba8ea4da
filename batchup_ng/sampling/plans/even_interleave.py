"""An order with classes spread evenly over an epoch; any stretch of it can be computed on its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ... import randomness
from .permutation import keyed_permutation

GOLDEN = (math.sqrt(5) - 1) / 2
"""The number with the most evenly spaced multiples, modulo 1."""

SLICE_MEMBERS = 16_384
"""Approximate number of members put in order at a time."""

KEPT_SLICES = 4
"""Slices to keep: the latest ones."""

Made = TypeVar("Made")


def latest(known: dict[int, Made], key: int, most: int, make: Callable[[], Made]) -> Made:
    """Return the known value for `key`, else make it; keeps the `most` latest. Two threads may both make one."""
    if (found := known.get(key)) is not None:
        return found
    made = known[key] = make()
    for old in list(known)[:-most]:
        known.pop(old, None)
    return made


class Spread:
    """An order of the members of several classes, ``sizes`` of each, with each class spread evenly.

    Time runs from 0 to 1, again and again. In a class of m members, the k-th stands at time ``(k + phase) / m``; each
    class has its own phase in [0, 1). Members come in the order of their times, starting anywhere.

    A stretch of time t has m·t members of a class, give or take less than one. A stretch of n members in a row lasts
    the time t at which these counts sum to n. So with C classes, it has n·p members of a class with the share p, give
    or take less than ``(1 - p) + p·(C - 1)``, mostly far less: the phases of classes of one size are multiples of the
    golden section, which lie evenly in [0, 1). This holds across the seam of two rounds too.

    Time is cut into slices of about :data:`SLICE_MEMBERS` members, or of one for each class if those are more. Each
    slice is put in order on first use. Safe to use from several threads.
    """

    def __init__(self, sizes: np.ndarray, word: int) -> None:
        self._sizes = sizes
        n_classes, total = len(sizes), int(sizes.sum())
        shuffled = keyed_permutation(n_classes, randomness.word("classes", word))(np.arange(n_classes))
        self._phases = np.empty(n_classes)
        by_size = shuffled[np.argsort(sizes[shuffled], kind="stable")]
        start = randomness.unit_floats(np.array([randomness.word("phases", word)], dtype=np.uint64))
        self._phases[by_size] = (np.arange(n_classes) * GOLDEN + start) % 1.0
        self._total, self._begin = total, randomness.word("begin", word) % max(1, total)
        self._n_slices = max(1, total // max(SLICE_MEMBERS, n_classes))
        self._starts = np.array([int(self._begun(number).sum()) for number in range(self._n_slices)])
        self._slices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each place and the number of the member there: ``(n,) int64`` each."""
        classes, members = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        turned = (places + self._begin) % self._total
        slices = np.searchsorted(self._starts, turned, side="right") - 1
        for number in np.unique(slices).tolist():
            mine = slices == number
            within = turned[mine] - self._starts[number]
            ordered = latest(self._slices, number, KEPT_SLICES, functools.partial(self._in_order, number))
            classes[mine], members[mine] = (part[within] for part in ordered)
        return classes, members

    def _begun(self, number: int) -> np.ndarray:
        """Return how many members of each class stand before that slice."""
        if number == self._n_slices:
            return self._sizes
        return np.ceil(self._sizes * (number / self._n_slices) - self._phases).astype(np.int64)

    def _in_order(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        begun = self._begun(number)
        counts = self._begun(number + 1) - begun
        classes = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(classes)) + np.repeat(begun - np.cumsum(counts) + counts, counts)
        order = np.argsort((numbers + self._phases[classes]) / self._sizes[classes], kind="stable")
        return classes[order], numbers[order]
