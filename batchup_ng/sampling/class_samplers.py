"""Samplers that use the class of each row. They keep only the rows sorted by class and compute the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import validation
from ..display import array_words
from ..errors import ArgumentError
from ..randomness import OrderKey, pair_words, words_at
from .base import RandomAccessSampler, array_fingerprint
from .plans.batched_permutation import each_permuted
from .plans.even_interleave import Spread, latest
from .plans.rows import RowPlan
from .standard import RepeatedSampler, check_row_numbers, row_numbers
from .weighted import class_numbers


class ByClass:
    """The entries of `y`, ``(n,) int64``, sorted by class: their places, the `classes` that occur, ascending, and their
    `sizes`.
    """

    def __init__(self, y: np.ndarray) -> None:
        few_bits = np.min_scalar_type(int(y.max(initial=0)))  # NumPy sorts up to 16 bits by radix, fast
        self._rows = order = np.argsort(y.astype(few_bits), kind="stable")
        self._firsts = np.flatnonzero(np.diff(y[order], prepend=-1))
        self.classes = y[order[self._firsts]]
        self.sizes = np.diff(self._firsts, append=len(y))
        self.fingerprint = [array_fingerprint(y), array_fingerprint(self.sizes)]

    def rows(self, classes: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Return the rows of the numbered members of the numbered classes: ``(n,) int64``."""
        return np.asarray(self._rows[self._firsts[classes] + members])


class StratifiedSampler(RepeatedSampler):
    """Hands out each row once a repeat, with each class spread evenly over the repeat.

    In a shuffled epoch every stretch, and so each batch of any size and each rank's part of it, has the classes in the
    proportions of the data. With C classes, n samples in a row have n·p of a class with the share p, give or take less
    than ``1 + p·(C - 2)``, mostly far less, even across the seam of two repeats. All repeats of an epoch have one order
    of classes; the rows of each class are shuffled again each repeat. In order, without ``shuffle=``, the rows come as
    stored, or as `indices` lists them. Memory: 8 bytes a row.

    Args:
        y: Class of each row of the data: ``(N,) int``, not negative.
        indices: The rows to hand out: ``(n,) int``; None for all.
        repeats: How often each row is handed out; -1 without end.

    Raises:
        ArgumentError: `y` is empty or has a negative class, one of `indices` is not a row of `y`, or `repeats` is
            neither -1 nor at least 1.
    """

    @validation.known_names({})
    def __init__(self, y: Any, indices: Any = None, repeats: int = 1) -> None:
        classes = class_numbers(y)
        self._y_in_words = array_words(classes)
        n_rows = len(classes)
        self.indices = None if indices is None else row_numbers("indices", indices)
        if self.indices is not None:
            check_row_numbers("indices", self.indices, len(classes))
            classes = classes[self.indices]
        super().__init__(len(classes), repeats)
        self.n_rows = n_rows
        self._by_class = ByClass(classes)
        self._spreads: dict[int, Spread] = {}

    def fingerprint(self) -> list[Any]:
        own = [] if self.indices is None else array_fingerprint(self.indices)
        return [*super().fingerprint(), *self._by_class.fingerprint, own]

    def _shuffled(self, places: np.ndarray, key: OrderKey, repeat: int) -> np.ndarray:
        word = key.word("stratified")  # of this epoch; the spread of one other epoch is kept
        spread = latest(self._spreads, word, 2, lambda: Spread(self._by_class.sizes, word))
        classes, numbers = spread.at(places)
        keys = words_at(key.word("members", repeat), classes)
        own = each_permuted(numbers, self._by_class.sizes[classes], keys)
        return np.asarray(self.map_indices(self._by_class.rows(classes, own)))


class BalancedBatchSampler(RandomAccessSampler):
    """Makes batches of the same number of samples of each class.

    A batch has `per_class` samples of each class that occurs, in ascending order of the classes, so its size must be
    :attr:`batch_size`. Each class goes through its own rows in an order of its own. Each row comes once before any
    comes again, and none comes twice in a batch unless the class has fewer rows than `per_class`. An epoch ends when
    all rows of the largest class were handed out once; rows of smaller classes come several times by then.

    With `classes_per_batch`, a batch has that many of the classes (P classes of K samples: Hermans, Beyer, Leibe, "In
    Defense of the Triplet Loss for Person Re-Identification", 2017). In each round the classes are shuffled and dealt
    out to as many batches as they fill. The remaining classes sit the round out and go on with their rows in the next.
    Classes take turns at that, so an epoch has more rounds: as many as the largest class needs if it sits out most. In
    order, without ``shuffle=``, classes and rows come in the order of their numbers.

    The sampler orders whole batches: ranks share these out, and a state goes on with the same size only. Memory: 8
    bytes a row.

    Args:
        y: Class of each row: ``(n,) int``, not negative.
        per_class: Samples of each class in a batch.
        classes_per_batch: How many classes a batch has; None for all.

    Attributes:
        batch_size: Samples of a batch.
        classes: The classes that occur: ``(n_classes,) int64``.

    Raises:
        ArgumentError: `y` is empty or has a negative class, or a number is below 1 or above the number of classes.
    """

    @validation.known_names({})
    def __init__(self, y: Any, per_class: int, classes_per_batch: int | None = None) -> None:
        numbers = class_numbers(y)
        self._y_in_words = array_words(numbers)
        self.per_class = validation.positive_int("per_class", per_class)
        self.n_rows = len(numbers)
        self._by_class = ByClass(numbers)
        self.classes = self._by_class.classes
        n = len(self.classes)
        wanted = n if classes_per_batch is None else classes_per_batch
        self.classes_per_batch = validation.positive_int("classes_per_batch", wanted)
        if self.classes_per_batch > n:
            raise ArgumentError(f"classes_per_batch must be at most {n}, the classes of y, not {classes_per_batch}")
        self.batch_size: int = self.per_class * self.classes_per_batch
        self._batches_a_round, self._sit_out = divmod(n, self.classes_per_batch)
        # After so many turns of a class its rows and its batches end together.
        self._cycles = np.lcm(self._by_class.sizes, self.per_class)

    def fingerprint(self) -> list[Any]:
        order = ["in turn"] if self._sit_out else []  # states of the order before, which lost rows, do not fit
        return [type(self).__name__, self.per_class, self.classes_per_batch, *self._by_class.fingerprint, *order]

    def num_indices_generated(self) -> Any:
        turns, n = math.ceil(int(self._by_class.sizes.max()) / self.per_class), len(self.classes)
        rounds = -(-turns * n // (n - self._sit_out))  # so many that each class takes part in `turns` of them
        return rounds * self._batches_a_round * self.batch_size

    def check_batch_size(self, batch_size: int) -> None:
        if batch_size != self.batch_size:
            raise ArgumentError(
                f"batch_size must be {self.batch_size}, which is per_class={self.per_class} of each of "
                f"{self.classes_per_batch} classes, not {batch_size}; pass that, or no batch_size to a Loader"
            )

    def row_plan(self, batch_size: int, key: OrderKey | None, drop_last: bool) -> RowPlan:
        self.check_batch_size(batch_size)
        plan = super().row_plan(batch_size, key, drop_last)
        plan.n_samples = None  # the plan orders whole batches
        return plan

    def rows_at(self, positions: np.ndarray, key: OrderKey | None) -> np.ndarray:
        batches, slots = np.divmod(positions, self.batch_size)
        places, within = np.divmod(slots, self.per_class)
        if key is None or self.classes_per_batch == len(self.classes):
            taken, classes = np.divmod(batches * self.classes_per_batch + places, len(self.classes))
        else:
            rounds, batches = np.divmod(batches, self._batches_a_round)
            classes, taken = self._dealt(rounds, batches * self.classes_per_batch + places, key)
        turns = taken * self.per_class + within
        sizes = self._by_class.sizes[classes]
        own = turns % sizes
        if key is not None:
            own = each_permuted(own, sizes, pair_words(key.word("balanced"), classes, turns // self._cycles[classes]))
        return self._by_class.rows(classes, own)

    def _dealt(self, rounds: np.ndarray, places: np.ndarray, key: OrderKey) -> tuple[np.ndarray, np.ndarray]:
        """Return the classes at places of shuffled rounds, and in how many rounds before each class took part.

        The classes stand in a circle. In each round, the next `_sit_out` of them sit out, and the others are shuffled.
        """
        n, out = len(self.classes), self._sit_out
        dealt = each_permuted(places, np.full(len(places), n - out), words_at(key.word("dealt"), rounds))
        if not out:
            return dealt, rounds
        seats = ((rounds + 1) * out + dealt) % n
        circle = np.full(len(seats), key.word("circle"), np.uint64)
        missed = (rounds * out - seats + n - 1) // n  # how often the seat came in the seats 0 to rounds * out - 1
        return each_permuted(seats, np.full(len(seats), n), circle), rounds - missed
