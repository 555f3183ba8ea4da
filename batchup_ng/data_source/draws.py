"""Where the draws of an epoch from a generator of the user's begin.

Batches are drawn when they are first asked for, as BatchUp did. Until then others may draw from the same generator: a
second iterator that was made of it, the training loop. So what a state tells is not how the generator was when the
iterator was made, but just before the first draw.

What others draw between two draws of an epoch is not noticed, for to look at a ``RandomState`` takes 20 to 40 µs, as
long as a small batch. It matters only to orders that are drawn as they go: of repeats, choices, draws by weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import randomness
from ..errors import ArgumentTypeError, StateError


class Draws:
    """Finds the state of a generator before the first draw for an epoch.

    Args:
        rng: The generator. Of one that is not NumPy's there is no state to be had.
    """

    def __init__(self, rng: Any) -> None:
        self._rng = rng
        self._first: dict[str, Any] | None = None
        self._unknown: ArgumentTypeError | None = None
        try:
            randomness.state_of(rng)
        except ArgumentTypeError as error:
            self._unknown = error
            self._as_made = randomness.copy_of(rng)

    def of(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return what `make` returns: an iterator that draws as it is made, or as it goes."""
        return make() if self._unknown is not None else self._watched(self._noted(make))

    def _watched(self, drawn: Iterator[Any]) -> Iterator[Any]:
        end = object()
        while self._first is None:
            rows = self._noted(lambda: next(drawn, end))
            if rows is end:
                return
            yield rows
        yield from drawn

    def _noted(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns; if it drew, that was the first draw."""
        before = randomness.state_of(self._rng)
        try:
            return work()
        finally:
            if self._first is None and not _same(before, randomness.state_of(self._rng)):
                self._first = before

    def state(self) -> dict[str, Any]:
        """Return the state of the generator before the first draw, which may be yet to come.

        Raises:
            StateError: the generator is not NumPy's.
        """
        if self._unknown is not None:
            raise StateError(str(self._unknown)) from self._unknown
        return randomness.state_of(self._rng) if self._first is None else self._first

    def copy(self) -> Any:
        """Return a generator like this one before the first draw."""
        if self._unknown is not None:
            return randomness.copy_of(self._as_made)
        twin = randomness.copy_of(self._rng)
        if self._first is not None:
            randomness.put_state(twin, self._first)
        return twin


def _same(one: Any, other: Any) -> bool:
    """Return whether two states of one generator are the same."""
    if isinstance(one, dict):
        return all(_same(one[name], other[name]) for name in one)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)
