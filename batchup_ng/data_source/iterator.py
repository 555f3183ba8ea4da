"""The iterator that hands out the batches of one epoch, whatever engine makes them."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from .. import batch as batches
from ..buffers import Buffers
from ..errors import ArgumentTypeError, LostSamples
from ..sampling.plan import BatchPlan


class Engine(Protocol):
    """Makes batches in plan order; what stands between a plan and a :class:`BatchIterator`."""

    def __next__(self) -> Any:
        """Return the next batch; raises ``StopIteration`` at the end, or what went wrong in making it."""
        ...

    def ready(self) -> int:
        """Return how many batches are made and wait."""
        ...

    def close(self) -> None:
        """End the work; may be called again, from any thread."""
        ...


class StreamEngine:
    """Makes each batch when it is asked for, from an iterator, on the consumer's own thread."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self._stream = stream

    def __next__(self) -> Any:
        return next(self._stream)

    def ready(self) -> int:
        return 0

    def close(self) -> None:
        close = getattr(self._stream, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # the generator is running just now, on another thread
                close()


class ReadsBatches(Protocol):
    """The part of a source that an engine needs."""

    def read(self, rows: Any, key: Any, buffers: Buffers) -> Any: ...


def walk(source: ReadsBatches, plan: BatchPlan, buffers: Buffers) -> Iterator[Any]:
    """Yield the batches of `plan`, read one after the other: the reference that every pool must equal."""
    for planned in plan:
        yield source.read(planned.rows, planned.key, buffers)


class BatchIterator(Iterator[Any]):
    """Hands out batches, each a tuple of arrays, in the order of the plan.

    A loop that is broken off ends the work as soon as nothing refers to the iterator; ``with`` or :meth:`close` do
    so at once. An exception that was raised in making a batch is raised here, in that batch's turn, after which
    the iterator is closed.

    Args:
        engine: Makes the batches.
        n_batches: Returns how many there will be, an int or ``math.inf``; None where nobody can know.
        exact: Whether `n_batches` is a promise, which is checked at the end of the epoch.
    """

    def __init__(self, engine: Engine, n_batches: Callable[[], float] | None, exact: bool = True) -> None:
        self._engine = engine
        self._n_batches = n_batches
        self._exact = exact
        self._delivered = 0
        self._samples = 0
        self._waited = 0.0
        self._ended = False
        self._finalizer = weakref.finalize(self, engine.close)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        began = time.perf_counter()
        try:
            batch = next(self._engine)
        except BaseException as error:
            self._waited += time.perf_counter() - began
            self.close()
            if isinstance(error, StopIteration):
                self._balance()
            raise
        self._waited += time.perf_counter() - began
        self._delivered += 1
        self._samples += _count(batch)
        return batch

    def __len__(self) -> int:
        """Return how many batches are left, where that is known.

        Raises:
            TypeError: the epoch never ends, or only its end will tell.
        """
        total = None if self._n_batches is None else self._n_batches()
        if total is None:
            raise ArgumentTypeError("the number of batches of this stream is not known, so it has no len()")
        if total == math.inf:
            raise ArgumentTypeError("this epoch never ends, so it has no len(); bound it with batchup_ng.take")
        return 0 if self._ended else max(0, int(total) - self._delivered)

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length, which some have not

    def __length_hint__(self) -> int:
        try:
            return len(self)
        except TypeError:
            return 0

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the epoch and what was started for it; may be called again. ``next()`` then raises ``StopIteration``."""
        self._ended = True
        self._finalizer()

    def stats(self) -> dict[str, float]:
        """Return what happened so far.

        Returns:
            ``batches`` and ``samples`` delivered; ``seconds_waited``, for which the consumer stood in ``next()``;
            ``ready``, the number of batches that are made and wait.
        """
        return {
            "batches": self._delivered,
            "samples": self._samples,
            "seconds_waited": self._waited,
            "ready": 0 if self._ended else self._engine.ready(),
        }

    def _balance(self) -> None:
        """Raise :class:`LostSamples` if not every planned batch was delivered."""
        if not self._exact or self._n_batches is None:
            return
        planned = self._n_batches()
        if planned != self._delivered:
            raise LostSamples(f"{planned} batches were planned for this epoch and {self._delivered} were delivered")


def _count(batch: Any) -> int:
    try:
        return batches.length(batch)
    except TypeError:
        return 0
