"""The task that makes a planned batch from its rows, in each pool and in the direct loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...batch_layout import finished
from ...error_context import raise_if_of_signal_handler
from ...errors import ArgumentError
from ...faults.isolation import READ_FAILURES, PartialBatch, isolable, isolate
from ...graph.node import Node
from ...memory.leases import Buffers
from ...meters import stopwatch
from ...randomness import BatchKey
from ...randomness.numpy_rng import globals_kept
from ...sampling.plans.rows import planned_samples, take_rows, whole_samples

MASK_COLUMN = "pad_mask"
"""The column of a dict that marks padding."""


class MakeBatch(NamedTuple):
    """Makes a batch from its rows, or finds the samples that cannot be made.

    The direct loop, a serial pool and threads call it. A process worker takes the same steps one by one, because it
    also has to find out whether the result can be sent.

    On the consumer's thread, this class seeds the global generators and restores them. A worker process with one thread
    seeds them itself. Threads share them, so they never seed them.
    """

    action: str = "raise"  # action of the error policy on bad samples
    retries: int = 0  # how often a failed batch is made again whole
    pad_mask: bool = False  # whether each batch ends with an array that marks padding
    own_thread: bool = True  # whether it runs on the consumer's own thread, where Ctrl-C ends the program
    seeded: bool = False  # whether each batch seeds the global generators
    types: Any = None  # exceptions that are a sample's fault, as in the error policy; for workers the shared constant
    metered: bool = False  # whether to measure how long it takes

    def __call__(self, source: Node, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        """Return the batch of `rows`, or a :class:`~batchup_ng.faults.isolation.PartialBatch` if samples fail."""
        begun = stopwatch.begin() if self.metered else None
        try:
            return self.read(source, rows, key, buffers)
        except BaseException as error:
            if not self.catches(error, rows):
                raise
            failure = error
        finally:
            if begun is not None:
                stopwatch.end(begun)
        try:
            return self.isolated(lambda rows, key: self.read(source, rows, key, buffers), rows, key, failure)
        finally:
            del failure  # its traceback holds this frame

    def read(self, source: Node, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
        """Return the batch of `rows`, ready to hand out."""
        if not (self.seeded and self.own_thread):
            batch = finished(source.read(rows, key, buffers), buffers)
        else:
            with globals_kept(key):
                batch = finished(source.read(rows, key, buffers), buffers)
        return with_mask(batch, key, planned_samples(rows, batch)) if self.pad_mask else batch

    def catches(self, error: BaseException, rows: Any) -> bool:
        """Return whether to search the batch for the samples that caused `error`. Otherwise the caller raises it."""
        return self._fails(error) and isolable(error, rows)

    def _fails(self, error: BaseException) -> bool:
        """Return whether `error` is a failure that does not end the program. Raise an exception of a signal handler."""
        if not self.own_thread:
            return True
        raise_if_of_signal_handler(error)
        return isinstance(error, READ_FAILURES)

    def isolated(
        self, read: Callable[[Any, BatchKey], Any], rows: Any, key: BatchKey, error: BaseException
    ) -> PartialBatch:
        """Return what remains of a batch whose read raised `error`. `read` reads some of its rows, with their key."""
        reader = _OwnReader(read, rows, key, self._fails, whole_samples(rows)[1])
        return isolate(reader, rows, error, self)


@dataclasses.dataclass(frozen=True)
class _OwnReader:
    """Reads samples of one batch where this code runs: a :class:`~batchup_ng.faults.isolation.Reader`."""

    read: Callable[[Any, BatchKey], Any]
    rows: Any  # of the whole batch
    key: BatchKey
    fails: Callable[[BaseException], bool]  # whether an exception is a failure; any other ends the search
    n: int  # number of samples

    def together(self, places: np.ndarray) -> Any:
        whole = len(places) == self.n
        try:
            return self.read(*(self.rows, self.key) if whole else (take_rows(self.rows, places), self.key.part(places)))
        except BaseException as raised:
            if not self.fails(raised):
                raise
            return raised

    def alone(self, places: np.ndarray, error: BaseException) -> Iterator[Any]:
        for place in places.reshape(-1, 1):
            yield error if self.n == 1 else self.together(place)  # a batch of one sample was read alone


def with_mask(batch: Any, key: BatchKey, planned: int) -> Any:
    """Append an array to a batch that is False where a sample only pads: ``(planned,) bool``.

    In a dict it is the column ``"pad_mask"``.

    The samples are the planned ones without those left out as bad, even if maps return more or fewer.
    """
    # A padding sample occurred before in the epoch, so its position is below the batch's start.
    mask = key.positions(planned) >= key.start
    if isinstance(batch, Mapping):
        if MASK_COLUMN in batch:
            raise ArgumentError(f"column {MASK_COLUMN!r} would be added, and the batch has one of that name; rename it")
        return {**batch, MASK_COLUMN: mask}
    return (*batch, mask) if isinstance(batch, (tuple, list)) else (batch, mask)
