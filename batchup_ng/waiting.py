"""Measures how long a training loop waits for its batches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import validation
from .data_source.epoch.iterator_views import IteratorView
from .errors import ArgumentError, ArgumentTypeError
from .loader import Loader
from .observe.explain import explain as explain_batches


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
def watch(batches: Any, report: Callable[[Any], object] = print, *, explain: bool = False) -> Any:
    """Return an object that iterates like `batches` and reports the loop's wait at the end of each epoch.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; any other object that can be iterated repeatedly,
            such as a framework's loader; or an iterator of one epoch.
        report: Called with an :class:`EpochWait` when an epoch ends or is closed.
        explain: Whether to call `report` also with an :class:`~batchup_ng.Explanation`, made without a trial. An epoch
            with too few batches to explain has none.

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
    explain = validation.true_or_false("explain", explain)
    if isinstance(batches, Loader):
        return batches.view(lambda iterator: _watched(iterator, iterator.epoch, report, explain))
    if isinstance(batches, Iterator):
        return _watched(batches, getattr(batches, "epoch", 0), report, explain)
    if isinstance(batches, Iterable):
        return Watched(batches, report, explain)
    raise ArgumentTypeError(f"batches must be a Loader or something to iterate over, not a {type(batches).__name__}")


def _watched(iterator: Any, epoch: int, report: Callable[[Any], object], explain: bool) -> WatchedIterator:
    return WatchedIterator(iterator, epoch, report, getattr(iterator, "start_seconds", 0.0), explain)


class Watched:
    """An object to iterate over repeatedly, watched each time; it has the other attributes of `batches`."""

    def __init__(self, batches: Iterable[Any], report: Callable[[Any], object], explain: bool) -> None:
        self._batches = batches
        self._report = report
        self._explain = explain
        self._epochs = 0

    def __iter__(self) -> WatchedIterator:
        self._epochs += 1
        began = time.perf_counter()
        iterator = iter(self._batches)
        opening = time.perf_counter() - began
        return WatchedIterator(iterator, self._epochs - 1, self._report, opening, self._explain)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises TypeError if there is no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask before there are attributes
            raise AttributeError(name)
        return getattr(self._batches, name)


class WatchedIterator(IteratorView):
    """An iterator of one epoch that measures the duration of each ``next``; `opening` seconds count too."""

    def __init__(
        self, iterator: Iterator[Any], epoch: int, report: Callable[[Any], object], opening: float, explain: bool
    ) -> None:
        super().__init__(iterator)
        self._explain = explain
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
            if self._explain:
                explanation = None
                with contextlib.suppress(ArgumentError, ArgumentTypeError):  # nothing was measured, or too little
                    explanation = explain_batches(self._iterator, trial=False)
                if explanation is not None:
                    report(explanation)
