"""Measures how long a training loop waits for its batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import validation
from .data_source.epoch.iterator_views import IteratorView
from .errors import ArgumentTypeError
from .loader import Loader


class EpochWait(NamedTuple):
    """How long the loop of one epoch waited.

    Attributes:
        epoch: Number of the epoch, or of the iteration if the watched object does not count epochs.
        batches: How many batches were handed out.
        seconds: Duration of the epoch: the time to open it, and the time from the request for the first batch until the
            end of the loop.
        waited: How many of these seconds the loop spent in ``iter`` and ``next``.
        first: How many of the waited seconds were for the first batch, which may have to start workers.
    """

    epoch: int
    batches: int
    seconds: float
    waited: float
    first: float

    @property
    def share(self) -> float:
        """The share of the time that the loop waited, not counting the first batch."""
        seconds = self.seconds - self.first
        return (self.waited - self.first) / seconds if seconds > 0 else 0.0

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch}: {self.batches} batches in {self.seconds:.2f} s, {self.first:.2f} s to the first; "
            f"then the loop waited {100 * self.share:.1f} % of the time"
        )


@validation.known_names({})
def watch(batches: Any, report: Callable[[EpochWait], object] = print) -> Any:
    """Return an object that iterates like `batches` and reports the loop's wait at the end of each epoch.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; any other object that can be iterated repeatedly,
            such as a framework's loader; or an iterator of one epoch.
        report: Called with an :class:`EpochWait` when an epoch ends or is closed.

    The wait for the first batch counts separately, because workers may have to start. If a framework fetches batches
    ahead on its own thread, that thread does the waiting: watch the object that your own loop iterates over.

    >>> import numpy as np, batchup_ng as bu
    >>> waits = []
    >>> with bu.watch(bu.Loader([np.arange(10)], 2), waits.append) as loader:
    ...     for (x,) in loader:
    ...         pass
    >>> waits[0].epoch, waits[0].batches, 0 <= waits[0].share <= 1
    (0, 5, True)
    """
    if not callable(report):
        raise ArgumentTypeError(f"report must be a function, such as print or a_list.append, not {report!r}")
    if isinstance(batches, Loader):
        return batches.view(lambda iterator: WatchedIterator(iterator, iterator.epoch, report, iterator.start_seconds))
    if isinstance(batches, Iterator):
        return WatchedIterator(batches, getattr(batches, "epoch", 0), report, getattr(batches, "start_seconds", 0.0))
    if isinstance(batches, Iterable):
        return Watched(batches, report)
    raise ArgumentTypeError(f"batches must be a Loader or something to iterate over, not a {type(batches).__name__}")


class Watched:
    """An object to iterate over repeatedly, watched each time; it has the other attributes of `batches`."""

    def __init__(self, batches: Iterable[Any], report: Callable[[EpochWait], object]) -> None:
        self._batches = batches
        self._report = report
        self._epochs = 0

    def __iter__(self) -> WatchedIterator:
        self._epochs += 1
        began = time.perf_counter()
        iterator = iter(self._batches)
        return WatchedIterator(iterator, self._epochs - 1, self._report, time.perf_counter() - began)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises TypeError if there is no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask before there are attributes
            raise AttributeError(name)
        return getattr(self._batches, name)


class WatchedIterator(IteratorView):
    """An iterator of one epoch that measures the duration of each ``next``; `opening` seconds count too."""

    def __init__(
        self, iterator: Iterator[Any], epoch: int, report: Callable[[EpochWait], object], opening: float = 0.0
    ) -> None:
        super().__init__(iterator)
        self._report = [report]  # until one of the threads that share this takes it
        self._number = epoch
        self._batches = 0
        self._waited = self._first = self._opening = opening
        self._began: float | None = None  # when the first batch was asked for,
        self._asked = 0.0  # and the latest

    def _begin(self) -> None:
        self._asked = time.perf_counter()
        if self._began is None:
            self._began = self._asked

    def _received(self, batch: Any) -> Any:
        took = time.perf_counter() - self._asked
        self._waited += took
        if not self._batches:
            self._first += took
        self._batches += 1
        return batch

    def _failed(self) -> None:
        self._waited += time.perf_counter() - self._asked
        self._finish()

    def close(self) -> None:
        """Close the watched iterator, and report."""
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()
        self._finish()

    def break_off(self, by: str) -> None:
        """End the epoch of a loader: see ``BatchIterator.break_off``."""
        self._iterator.break_off(by)
        self._finish()

    def _finish(self) -> None:
        """Report once, if the loop has begun."""
        if self._began is not None:
            seconds = self._opening + time.perf_counter() - self._began
            try:
                report = self._report.pop()
            except IndexError:
                return
            report(EpochWait(self._number, self._batches, seconds, self._waited, self._first))
