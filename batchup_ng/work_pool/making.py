"""What it takes to make the batches of a parallel source, the same for all its epochs."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import batch as batches
from .. import system_limits
from ..data_source.base import AbstractDataSource
from ..faults.policy import ErrorPolicy
from .task import Submits

DEFAULT_SHARE = 0.25
"""The part of the free memory that batches ahead may have where the user does not say how much."""

DEFAULT_BYTES = 10**9
"""The most that this may be, in bytes."""


@dataclasses.dataclass(slots=True)
class ByteBound:
    """How many batches may be ahead, so that they stay within a number of bytes; shared by the epochs of a source.

    Attributes:
        size: The most batches that may be ahead in any case.
        buffer_bytes: Bytes that all may take.
        first: How many may be ahead while nobody knows how large a batch is.
        least: How many may be ahead of batches that fit at all; one that is larger than all bytes is made alone.
        largest: Bytes of the largest batch that was seen.
    """

    size: int
    buffer_bytes: int
    first: int
    least: int = 1
    largest: int = 0
    _limit: int = 0

    def __post_init__(self) -> None:
        self._limit = min(self.size, self.first)

    def __str__(self) -> str:
        nbytes = self.buffer_bytes
        return f"{self.size} batches or {f'{nbytes / 1e6:.0f} MB' if nbytes >= 1_000_000 else f'{nbytes} bytes'}"

    def limit(self) -> int:
        """Return how many batches may be ahead now."""
        return self._limit

    def saw(self, batch: Any) -> None:
        """Take note of the size of a batch."""
        try:
            nbytes = batches.nbytes(batch)
        except Exception:  # an object of the user's that cannot tell, as a sparse tensor
            nbytes = 0
        if nbytes > self.largest or not self.largest:
            self.largest = max(1, nbytes)
            fit = self.buffer_bytes // self.largest
            # Two less than fit: the consumer has one in its hands, and is given another.
            self._limit = min(self.size, max(self.least if fit else 1, fit - 2))


def byte_bound(size: int, buffer_bytes: int | None, first: int) -> ByteBound:
    """Return the bound of a source; without `buffer_bytes` a quarter of the free memory, 1 GB at most."""
    if buffer_bytes is not None:
        return ByteBound(size, buffer_bytes, first)
    return ByteBound(size, int(min(system_limits.available() * DEFAULT_SHARE, DEFAULT_BYTES)), first, least=2)


@dataclasses.dataclass(frozen=True, slots=True)
class Making:
    """What makes the batches of an epoch.

    Attributes:
        pool: Runs the reads.
        buffers: Where workers take memory from.
        shared: Stands for the source in the arguments of a task.
        source: The source itself.
        at_once: How many tasks the pool runs at once.
        policy: What to do about samples that fail.
        timeout: Seconds that a sample may take; None for any.
        bound: How far ahead to be.
    """

    pool: Submits
    buffers: Any
    shared: Any
    source: AbstractDataSource
    at_once: int
    policy: ErrorPolicy
    timeout: float | None
    bound: ByteBound
