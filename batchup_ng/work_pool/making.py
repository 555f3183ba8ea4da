"""What it takes to make the batches of a parallel source, the same for all its epochs."""

from __future__ import annotations

import dataclasses
from typing import Any

from .. import batch as batches
from ..data_source.base import AbstractDataSource
from ..faults.policy import ErrorPolicy
from .submission import Submits


@dataclasses.dataclass(slots=True)
class ByteBound:
    """How many batches may be ahead, so that they stay within a number of bytes; shared by the epochs of a source.

    Attributes:
        size: The most batches that may be ahead in any case.
        buffer_bytes: Bytes that all may take; None for any number.
        first: How many may be ahead while nobody knows how large a batch is.
        largest: Bytes of the largest batch that was seen.
    """

    size: int
    buffer_bytes: int | None
    first: int
    largest: int = 0

    def limit(self) -> int:
        """Return how many batches may be ahead now."""
        if self.buffer_bytes is None:
            return self.size
        if not self.largest:
            return min(self.size, self.first)
        # Two less than fit: the consumer has one in its hands, and is given another.
        return min(self.size, max(1, self.buffer_bytes // self.largest - 2))

    def saw(self, batch: Any) -> None:
        """Take note of the size of a batch."""
        if self.buffer_bytes is not None:
            self.largest = max(self.largest, batches.nbytes(batch))


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
