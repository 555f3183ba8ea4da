"""Writes what happened to each batch as a trace, which Perfetto and Chrome draw as lanes over time.

The format is the JSON of Chrome's trace viewer ("Trace Event Format"): one object for each slice, with its begin and
duration in microseconds. Readers refuse slices of a lane that overlap and do not lie in one another. So all times are
whole ticks, whose sums floating-point numbers hold exactly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from .. import validation
from ..display import in_seconds
from ..errors import ArgumentError
from ..meters import batch_times
from ..meters.batch_times import BatchTimes, Meter, made_between
from ..meters.stopwatch import PACKING, Made
from ..replaced_file import replace_text
from ..warn import warn_consumer

MOST_BATCHES = 100_000
"""Default for the number of batches that a trace holds, some 60 MB of JSON."""

LOOP = 0
"""Number of the lane of the training loop; the lanes of workers follow."""

TICK_US = 0.125
"""Microseconds of a tick. A power of two, so that begin and duration of a slice add up exactly."""

Event = dict[str, Any]


class trace:  # used like a function, as is `contextlib.suppress`
    """Record the batches of all loaders while the block runs, and write them to a file for Perfetto or Chrome.

    Batches of sources over a pool (``pool.parallel_data_source``) are recorded, too. Those of a ``batch_iterator``
    without a pool, of sources that only stream, of ``pool.prefetch`` and with ``measure=False`` are not. A warning says
    if there were no others.

    Open the file at ``https://ui.perfetto.dev`` or at ``chrome://tracing``. Each loader is a process of the trace. The
    first lane is the training loop: ``wait`` in ``next`` and ``step`` between batches. Each worker has a lane with the
    batches that it made: ``read``, then the maps by name, then ``packing`` of a worker process. The parts of a batch
    have their true durations, and are drawn in the order of their first call. A batch names its slowest sample, if
    samples were timed one by one (:class:`~batchup_ng.Explanation`). An arrow leads from each batch to the
    moment when the loop got it. ``ready`` counts the finished batches.

    Args:
        path: The file to write when the block ends, also by an exception. An existing file is replaced.
        most: Number of batches to record. A warning says if there were more.

    Raises:
        ArgumentError: `most` is below 1, or the folder of `path` does not exist.
        OSError: the file cannot be written; raised when the block ends.

    >>> import json, tempfile, numpy as np, batchup_ng as bu
    >>> with tempfile.TemporaryDirectory() as folder, bu.Loader([np.arange(6)], 2, pool="serial") as loader:
    ...     with bu.trace(f"{folder}/epoch.json"):
    ...         for (x,) in loader:
    ...             pass
    ...     with open(f"{folder}/epoch.json") as file:
    ...         names = [event["name"] for event in json.load(file)["traceEvents"]]
    >>> names.count("wait"), names.count("batch 2")
    (3, 1)
    """

    @validation.known_names({})
    def __init__(self, path: str | os.PathLike[str], *, most: int = MOST_BATCHES) -> None:
        self._path = os.fspath(path)
        self._most = validation.positive_int("most", most)
        folder = os.path.dirname(os.path.realpath(self._path))
        if not os.path.isdir(folder):
            raise ArgumentError(f"path must be in a folder that exists, and {folder!r} is none; make it first")
        self._records: list[tuple[int, str, tuple[Any, ...]]] = []  # number and name of a meter, the times of a batch
        self._missed = 0

    def __enter__(self) -> trace:
        batch_times.listeners = (*batch_times.listeners, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        batch_times.listeners = tuple(each for each in batch_times.listeners if each != self._note)
        self.save()
        if not self._records and kind is None:
            warn_consumer(
                "the trace has no batch, for none came from a Loader or from a source over a pool in its block; loops "
                "over a batch_iterator without a pool, over pool.prefetch and with measure=False are not recorded",
                UserWarning,
            )
        if self._missed:
            warn_consumer(
                f"the trace has the first {self._most} of {self._most + self._missed} batches; pass a larger most=, or "
                f"trace fewer",
                UserWarning,
            )

    def save(self) -> None:
        """Write the batches that were recorded until now."""
        text = json.dumps({"traceEvents": _events(self._records), "displayTimeUnit": "ms"}, allow_nan=False)
        replace_text(self._path, text)

    def _note(self, meter: Meter, times: tuple[Any, ...]) -> None:
        """Record a batch. The loop's thread calls this."""
        if len(self._records) < self._most:
            self._records.append((meter.number, meter.name, times))
        else:
            self._missed += 1


def _events(records: list[tuple[int, str, tuple[Any, ...]]]) -> list[Event]:
    """Return the events of a trace: first the names of its lanes, then what happened, in the order of time.

    Its time begins with the first submission.
    """
    if not records:
        return []
    start = min(BatchTimes(*times).submitted for _, _, times in records)
    numbers: dict[int, int] = {}  # of the loaders in this trace
    names: dict[tuple[int, int], list[Event]] = {}  # of each lane of a loader
    events: list[Event] = []
    latest: dict[int, int] = {}  # when the loop of a loader got its latest batch
    ends: dict[tuple[int, int], int] = {}  # when a lane ended its latest batch
    for flow, (meter, name, values) in enumerate(records):
        times, loader = BatchTimes(*values), numbers.setdefault(meter, len(numbers))
        asked, taken = _ticks(times.asked - start), _ticks(times.taken - start)
        if loader not in latest:
            of_loader = _about(loader, LOOP, "process_name", name=f"loader {loader}: {_valid(name)}")
            names[loader, LOOP] = [of_loader, *_named(loader, LOOP, "training loop")]
        else:
            events.append(_slice(loader, LOOP, "step", latest[loader], asked))
        latest[loader] = taken
        about = {"epoch": times.epoch, "batch": times.number, "samples": times.samples}
        events.append(_slice(loader, LOOP, "wait", asked, taken, about))
        if times.ready >= 0:
            ready = {"ph": "C", "pid": loader, "name": "ready", "ts": TICK_US * asked}
            events.append({**ready, "args": {"batches": times.ready}})
        made = Made.of(times.made)
        if made is None:
            continue
        lane = made.worker + 1
        if (loader, lane) not in names:
            names[loader, lane] = _named(loader, lane, f"worker {made.worker}")
        began, ended = (_ticks(at - start) for at in made_between(times, made))
        began = min(ended, max(began, ends.get((loader, lane), began)))  # of a worker with another clock
        ends[loader, lane] = ended
        events += _made(loader, lane, times, made, began, ended)
        events += _arrow(loader, lane, flow, (began + ended) // 2, max(asked, taken - 1))
    events.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))  # a slice before its parts
    return [event for lane in sorted(names) for event in names[lane]] + events


def _made(loader: int, lane: int, times: BatchTimes, made: Made, began: int, ended: int) -> Iterator[Event]:
    """Yield the slices of a batch in the lane of its worker. Its parts lie in it, one after the other."""
    queued = made_between(times, made)[0] - times.submitted
    about: dict[str, Any] = {"epoch": times.epoch, "samples": times.samples, "queued ms": round(1e3 * queued, 3)}
    if made.cpu == made.cpu:
        about["CPU ms"] = round(1e3 * made.cpu, 3)
    if made.slowest is not None:
        seconds, _, step, sample = made.slowest
        about["slowest sample"] = f"{_valid(sample)}: {in_seconds(seconds)} in {_valid(step)}"
    yield _slice(loader, lane, f"batch {times.number}", began, ended, about)
    at = 0.0
    parts = {"read": made.seconds - sum(made.maps.values()), **{_part(name): s for name, s in made.maps.items()}}
    for name, seconds in parts.items():
        since, at = at, at + max(0.0, seconds)
        yield _slice(loader, lane, name, *(min(ended, began + _ticks(edge)) for edge in (since, at)))


def _arrow(loader: int, lane: int, flow: int, since: int, to: int) -> Iterator[Event]:
    """Yield the ends of an arrow, each inside of a slice: a batch, and the wait for it."""
    arrow = {"cat": "batch", "name": "handed out", "id": flow, "pid": loader}
    yield {**arrow, "ph": "s", "tid": lane, "ts": TICK_US * since}
    yield {**arrow, "ph": "f", "bp": "e", "tid": LOOP, "ts": TICK_US * max(since, to)}


def _part(name: str) -> str:
    return "packing" if name == PACKING else f"map {_valid(name)}"


def _named(loader: int, lane: int, name: str) -> list[Event]:
    """Return the events that name a lane and give it its place."""
    return [_about(loader, lane, "thread_name", name=name), _about(loader, lane, "thread_sort_index", sort_index=lane)]


def _about(loader: int, lane: int, what: str, **args: Any) -> Event:
    return {"ph": "M", "pid": loader, "tid": lane, "name": what, "args": args}


def _slice(loader: int, lane: int, name: str, since: int, to: int, args: Any = None) -> Event:
    times = {"ts": TICK_US * since, "dur": TICK_US * max(0, to - since)}
    made = {"ph": "X", "pid": loader, "tid": lane, "name": name, **times}
    return made if args is None else {**made, "args": args}


def _ticks(seconds: float) -> int:
    return round(1e6 * seconds / TICK_US)


def _valid(text: str) -> str:
    """Return a text without lone surrogates, as in names of files, which readers of JSON may refuse."""
    return text.encode("utf-8", "replace").decode()
