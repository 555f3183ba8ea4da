"""Rows that lie one after the other in a file: how many of them to read in one go.

It decides about orders by blocks, ``shuffle="blocks"``, for storage that has no chunks of its own.
"""

from __future__ import annotations

from .base import StoredRows

RUN_BYTES = 1 << 20
"""Bytes worth reading in one go if storage has no chunks of its own: disks and networks add a delay to each read."""

WINDOW_BYTES = 256 << 20
"""Bytes of rows that a shuffle of blocks mixes if no cache sets the number."""


class InRuns(StoredRows):
    """Rows that lie one after the other in the files, of `_mean_bytes` each."""

    _mean_bytes: int  # set by each format when it is made

    @property
    def natural_block(self) -> int:
        """How many neighbouring rows are as cheap to read together as one."""
        return block_of_run(self._mean_bytes)

    @property
    def natural_window(self) -> int:
        """How many such blocks a shuffle may mix and still read each block once."""
        return window_of_runs(self._mean_bytes)


def block_of_run(row_bytes: int) -> int:
    """Return how many rows one read should take."""
    return max(1, RUN_BYTES // max(1, row_bytes))


def window_of_runs(row_bytes: int) -> int:
    """Return how many such reads a shuffle may mix."""
    return max(2, WINDOW_BYTES // max(1, block_of_run(row_bytes) * row_bytes))
