"""Measures how long a training loop waits for its batches, and how fast it would be without data to wait for.

For the second, a :class:`WatchedIterator` hands out copies of one batch for some steps. It asks for no other batch
during that time, so workers fill their buffer and then rest. The iterator below it does not notice: the batch counts
once, and the next one comes after it.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from . import validation
from .batch_layout import copied
from .data_source.epoch.iterator_views import IteratorView
from .display import in_seconds
from .errors import ArgumentError, ArgumentTypeError
from .loader import Loader
from .observe.explain import explain as explain_batches

FED_AFTER, FEWEST_STEPS = 8, 8
"""Number of the batch that is handed out again, from 1: by then, a step is as fast as later ones. Least number of steps
with it; the first half of them does not count, because workers still fill the buffer."""


class EpochWait(NamedTuple):
    """How long the loop of one epoch waited.

    Attributes:
        epoch: Number of the epoch, or of the iteration if the watched object does not count epochs.
        batches: How many batches were handed out.
        seconds: Duration of the epoch: the time to open it, and the time from the request for the first batch until the
            end of the loop.
        waited: How many of these seconds the loop spent in ``iter`` and ``next``.
        first: How many of the waited seconds were for the first batch, which may have to start workers.
        headroom: Seconds of a step with one batch handed out again and again, if ``watch(..., headroom=n)`` measured it
            in this epoch; NaN if not. The steps are not part of the other figures.
    """

    epoch: int
    batches: int
    seconds: float
    waited: float
    first: float
    headroom: float = math.nan

    @property
    def share(self) -> float:
        """The share of the time that the loop waited, not counting the first batch."""
        seconds = self.seconds - self.first
        return (self.waited - self.first) / seconds if seconds > 0 else 0.0

    def __str__(self) -> str:
        said = (
            f"epoch {self.epoch}: {self.batches} batches in {self.seconds:.2f} s, {self.first:.2f} s to the first; "
            f"then the loop waited {100 * self.share:.1f} % of the time"
        )
        of_step = f"; a step with a batch that is there takes {in_seconds(self.headroom)}"
        return said if math.isnan(self.headroom) else said + of_step


@validation.known_names({})
def watch(
    batches: Any, report: Callable[[Any], object] = print, *, explain: bool = False, headroom: int = 0
) -> Any:
    """Return an object that iterates like `batches` and reports the loop's wait at the end of each epoch.

    Args:
        batches: A :class:`~batchup_ng.Loader`, which gives a loader; any other object that can be iterated repeatedly,
            such as a framework's loader; or an iterator of one epoch.
        report: Called with an :class:`EpochWait` when an epoch ends or is closed.
        explain: Whether to call `report` also with an :class:`~batchup_ng.Explanation`, made without a trial. An epoch
            with too few batches to explain has none.
        headroom: Number of additional steps, 0 or at least 8, to measure how fast the loop would be if data cost
            nothing. Once, the eighth batch of an epoch is handed out so many times more, as copies. Your loop trains on
            it again, which changes the run: measure in a run that you throw away. The epoch then goes on with the next
            batch; states and lengths count the batch once. Watch the object that your own loop iterates over.

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
    steps = validation.not_negative("headroom", headroom)
    if 0 < steps < FEWEST_STEPS:
        raise ArgumentError(f"headroom must be 0 or at least {FEWEST_STEPS} steps, not {steps}; pass 16")
    how = Watching(report, explain, [steps] if steps else [])
    if isinstance(batches, Loader):
        return batches.view(lambda iterator: _watched(iterator, iterator.epoch, how))
    if isinstance(batches, Iterator):
        return _watched(batches, getattr(batches, "epoch", 0), how)
    if isinstance(batches, Iterable):
        return Watched(batches, how)
    raise ArgumentTypeError(f"batches must be a Loader or something to iterate over, not a {type(batches).__name__}")


class Watching(NamedTuple):
    """How to watch: the function for reports, whether it gets explanations, and the steps with one batch to be done."""

    report: Callable[[Any], object]
    explain: bool
    steps: list[int]  # the number, until an epoch does them


def _watched(iterator: Any, epoch: int, how: Watching) -> WatchedIterator:
    return WatchedIterator(iterator, epoch, how, getattr(iterator, "start_seconds", 0.0))


class Watched:
    """An object to iterate over repeatedly, watched each time; it has the other attributes of `batches`."""

    def __init__(self, batches: Iterable[Any], how: Watching) -> None:
        self._batches = batches
        self._how = how
        self._epochs = 0

    def __iter__(self) -> WatchedIterator:
        self._epochs += 1
        began = time.perf_counter()
        iterator = iter(self._batches)
        opening = time.perf_counter() - began
        return WatchedIterator(iterator, self._epochs - 1, self._how, opening)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]  # raises TypeError if there is no length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle ask before there are attributes
            raise AttributeError(name)
        return getattr(self._batches, name)


class WatchedIterator(IteratorView):
    """An iterator of one epoch that measures the duration of each ``next``; `opening` seconds count too."""

    def __init__(self, iterator: Iterator[Any], epoch: int, how: Watching, opening: float) -> None:
        super().__init__(iterator)
        self._how = how
        self._report = [how.report]  # until one of the threads that share this takes it
        self.hands_out_again = bool(how.steps)  # whether it may hand out a batch more than once
        self._fed: _Fed | None = None  # while it does
        self._headroom = math.nan
        self._apart = 0.0  # seconds of that
        self._number = epoch
        self._batches = 0
        self._waited = self._first = self._opening = opening
        self._began: float | None = None  # when the first batch was asked for,
        self._asked = 0.0  # and the latest

    def __next__(self) -> Any:
        fed = self._fed
        if fed is not None:
            again = fed.next()
            if again is not None:
                return again[0]
            self._end_feeding(fed)
        return super().__next__()

    def _end_feeding(self, fed: _Fed) -> None:
        """Note the steps with one batch. They are no part of the epoch, nor of the loop's steps."""
        self._fed = None
        seconds = fed.steps[len(fed.steps) // 2 :]
        if not seconds:
            return
        self._headroom = statistics.median(seconds)
        self._apart += fed.seconds
        meter = getattr(self._marked, "meter", None)
        if meter is not None:
            meter.note_headroom(self._headroom, fed.began, fed.began + fed.seconds)

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
        if self._batches == FED_AFTER and self._how.steps and not getattr(self._marked, "is_requested", False):
            with contextlib.suppress(IndexError):  # another thread took them
                self._fed = _Fed(copied(batch), self._how.steps.pop())
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
            if self._fed is not None:
                self._end_feeding(self._fed)
            seconds = self._opening + time.perf_counter() - self._began - self._apart
            try:
                report = self._report.pop()
            except IndexError:
                return
            report(EpochWait(self._number, self._batches, seconds, self._waited, self._first, self._headroom))
            if self._how.explain:
                explanation = None
                with contextlib.suppress(ArgumentError, ArgumentTypeError):  # nothing was measured, or too little
                    explanation = explain_batches(self._iterator, trial=False)
                if explanation is not None:
                    report(explanation)


class _Fed:
    """Hands out copies of a batch, `n` times, and measures the steps of the loop between them.

    Attributes:
        steps: Seconds from one copy to the request for the next.
        began: When the first of them was requested, by the monotonic clock.
        seconds: Seconds from then until the latest request.
    """

    def __init__(self, batch: Any, n: int) -> None:
        self._batch = batch
        self._left = n
        self._handed = math.nan  # when the latest was handed out
        self.steps: list[float] = []
        self.began, self.seconds = math.nan, 0.0

    def next(self) -> tuple[Any] | None:
        """Return a copy, in a tuple; None after the last one."""
        now = time.monotonic()
        if math.isnan(self.began):
            self.began = now
        else:
            self.steps.append(now - self._handed)
        self.seconds = now - self.began
        if not self._left:
            return None
        self._left -= 1
        again = copied(self._batch)
        self._handed = time.monotonic()
        return (again,)
