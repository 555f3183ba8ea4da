"""Classes spread evenly over an epoch, of which any stretch can be computed on its own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ... import randomness
from .permutation import keyed_permutation

GOLDEN = (math.sqrt(5) - 1) / 2
"""The number whose multiples, modulo 1, lie most evenly."""

SLICE = 16_384
"""Members that are put in order at a time, about."""

KEPT = 4
"""How many of the latest slices are kept."""

Made = TypeVar("Made")


def latest(known: dict[int, Made], key: int, most: int, make: Callable[[], Made]) -> Made:
    """Return what is known for `key`, else make it; `most` of the latest are kept. Two threads may both make one."""
    if (found := known.get(key)) is not None:
        return found
    made = known[key] = make()
    for old in list(known)[:-most]:
        known.pop(old, None)
    return made


class Spread:
    """An order of the members of several classes, ``sizes`` of each, in which each class is spread evenly.

    Time goes round from 0 to 1, again and again. Of a class of m members, the k-th has its place at
    ``(k + phase) / m``, with a phase in [0, 1) of the class's own; the order is that of the times, begun anywhere.

    In a stretch of time t there are then less than one more or fewer members of a class than m·t. A stretch of n
    members in a row lasts a time t for which n is the sum of these counts. So of C classes, one with the share p has
    among them n·p, give or take less than ``(1 - p) + p·(C - 1)``, mostly far less: classes of one size have multiples
    of the golden section as phases, which lie evenly in [0, 1). It holds across the seam of two rounds too.

    Time is cut into slices of about :data:`SLICE` members, or one for each class, which are put in order when they are
    first asked for. Safe to use from several threads.
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
        self._n_slices = max(1, total // max(SLICE, n_classes))
        self._starts = np.array([int(self._begun(number).sum()) for number in range(self._n_slices)])
        self._slices: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the class of each place and which of its members stands there, by number: ``(n,) int64`` each."""
        classes, members = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        turned = (places + self._begin) % self._total
        slices = np.searchsorted(self._starts, turned, side="right") - 1
        for number in np.unique(slices).tolist():
            mine = slices == number
            within = turned[mine] - self._starts[number]
            ordered = latest(self._slices, number, KEPT, functools.partial(self._in_order, number))
            classes[mine], members[mine] = (part[within] for part in ordered)
        return classes, members

    def _begun(self, number: int) -> np.ndarray:
        """Return how many members of each class have their place before that slice."""
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
