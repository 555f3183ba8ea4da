"""A sampler of every k-th row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from .plans.permutation import check_length
from .standard import StandardSampler


class StridedSampler(StandardSampler):
    """Hands out every `stride`-th row from `start` on, before `stop`: the rows ``range(length)[start:stop:stride]``.

    In order they come as stored, backwards if `stride` is negative; with ``shuffle=`` the same rows are shuffled.

    Args:
        length: How many rows there are, at most 2^62.
        start: The first row, from the end if negative; None is the first row, or the last if `stride` is negative.
        stop: The row before which to stop, from the end if negative; None goes on to the end.
        stride: Distance to the next row, not 0.
        repeats: How often each row is handed out; -1 without end.

    Raises:
        ArgumentError: `stride` is 0, `start`, `stop` and `stride` leave no row, or `length` or `repeats` is out of
            range.

    >>> StridedSampler(10, start=1, stride=3).rows_at(np.arange(3), None)
    array([1, 4, 7])
    """

    @validation.known_names({})
    def __init__(
        self, length: int, start: int | None = None, stop: int | None = None, stride: int = 1, repeats: int = 1
    ) -> None:
        self.n_rows: int = validation.integer("length", length)
        check_length("length", self.n_rows)
        start = None if start is None else validation.integer("start", start)
        stop = None if stop is None else validation.integer("stop", stop)
        step = validation.integer("stride", stride)
        if step == 0:
            raise ArgumentError("stride must not be 0; pass 1 for every row, 2 for every second")
        self.rows = range(self.n_rows)[start:stop:step]
        if self.n_rows and not len(self.rows):
            raise ArgumentError(
                f"start={start}, stop={stop}, stride={step} leave no row of {self.n_rows}; move start or stop"
            )
        super().__init__(len(self.rows), repeats)
        self._length_in_words, self.start, self.stop, self.stride = str(length), start, stop, step  # for repr
        self._step = self.rows.step if len(self.rows) > 1 else 1  # a single row would allow any step

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), self.n_rows, self.rows.start, self.rows.step]

    def map_indices(self, indices: Any) -> Any:
        return np.asarray(indices) * self._step + self.rows.start
