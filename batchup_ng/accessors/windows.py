"""Windows of one or several series, which are read from the series as they are asked for.

The windows are numbered series by series. The first step of a window is computed from its number: nothing is kept for
each window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..display import array_words
from ..memory.leases import FRESH
from ..memory.paging import file_name
from .base import check_out, checked_rows, fill_rows, gather, rows_of, sample_name


class Windows:
    """Windows of `length` steps: window i of a series is its steps ``i * stride`` to ``i * stride + length``.

    :func:`~batchup_ng.windows` makes it. ``w[rows]`` is ``(n, length, ...)`` of the dtype of the values.

    Attributes:
        values: The steps of all series, one series after the other: ``(total, ...)``.
        length: Steps of a window.
        stride: Steps from the beginning of a window to the beginning of the next one.

    Args:
        values: An array, or an accessor with ``shape`` and ``dtype``.
        first: Where in `values` the first window of each series begins: ``(m,) int``.
        counts: How many windows each series has: ``(m,) int``.
        length: Steps of a window.
        stride: Steps between the beginnings of windows.
    """

    def __init__(self, values: Any, first: np.ndarray, counts: np.ndarray, length: int, stride: int) -> None:
        self.values, self.length, self.stride = values, length, stride
        self.ends = np.cumsum(counts)
        self.origins = first - stride * (self.ends - counts)  # where window 0 would begin if it were of this series

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all windows, ``(n, length, ...)``."""
        return len(self), self.length, *self.values.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def series(self) -> np.ndarray:
        """The number of the series of each window: ``(n,) int64``."""
        return self._series_of(np.arange(len(self)))

    @property
    def starts(self) -> np.ndarray:
        """The row of `values` with the first step of each window: ``(n,) int64``."""
        return self._starts_of(np.arange(len(self)))

    @property
    def natural_block(self) -> int:
        """How many neighbouring windows are as cheap to read together as one, by the `natural_block` of the values."""
        return max(1, int(self.values.natural_block) // self.stride)

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix and still read each block once."""
        return int(self.values.natural_window)

    def __getitem__(self, rows: Any) -> Any:
        """Return one window for an int, ``(length, ...)``, else ``(n, length, ...)``, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length.
        """
        return rows_of(self, rows)

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Write the windows `rows`, ``(n,) int``, into `out`, ``(n, length, ...)``; raises the errors of indexing."""
        rows = checked_rows(rows, len(self))
        check_out(self, rows, out)
        steps = self._steps_of(rows)
        into = out if out.flags.c_contiguous else np.empty_like(out, order="C")
        flat = into.reshape(len(steps), *self.values.shape[1:])
        if isinstance(self.values, np.ndarray):
            fill_rows(self.values, steps, flat)
        else:
            needed, places = np.unique(steps, return_inverse=True)  # windows overlap, and a step may have to be decoded
            np.take(gather(self.values, needed, FRESH), places, 0, flat, "clip")
        if into is not out:
            out[...] = into

    def sample_name(self, row: int) -> str | None:
        """Return the values' name for the first step of the window, or the file that they are mapped from."""
        return file_name(self.values) or sample_name(self.values, int(self._starts_of(np.array([row]))[0]))

    def file_paths(self, rows: Sequence[int]) -> list[str]:
        """Return the files that the windows are read from."""
        own = getattr(self.values, "file_paths", None)
        if own is not None:
            return list(own(self._steps_of(np.asarray(rows, np.int64))))
        name = file_name(self.values)
        return [] if name is None else [name]

    def __repr__(self) -> str:
        return f"Windows({len(self)} of {self.length} steps of {array_words(self.values)}, stride={self.stride})"

    def _series_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.ends, rows, side="right")

    def _starts_of(self, rows: np.ndarray) -> np.ndarray:
        starts: np.ndarray = self.origins[self._series_of(rows)] + self.stride * rows
        return starts

    def _steps_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows of `values` of all steps of some windows, one window after the other."""
        return (self._starts_of(rows)[:, None] + np.arange(self.length)).reshape(-1)
