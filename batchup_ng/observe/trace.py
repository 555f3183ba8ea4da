"""Writes what happened to each batch as a trace, which Perfetto and Chrome draw as lanes over time.

The format is the JSON of Chrome's trace viewer ("Trace Event Format"): one object for each slice, with its begin and
duration in microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from .. import validation
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

Event = dict[str, Any]


class trace:  # used like a function, as is `contextlib.suppress`
    """Record the batches of all loaders while the block runs, and write them to a file for Perfetto or Chrome.

    Batches of sources over a pool (``pool.parallel_data_source``) are recorded, too. Those of a ``batch_iterator``
    without a pool, of sources that only stream, of ``pool.prefetch`` and with ``measure=False`` are not. A warning says
    if there were no others.

    Open the file at ``https://ui.perfetto.dev`` or at ``chrome://tracing``. Each loader is a process of the trace. The
    first lane is the training loop: ``wait`` in ``next`` and ``step`` between batches. Each worker has a lane with the
    batches that it made: ``read``, then the maps by name, then ``packing`` of a worker process. The parts of a batch
    have their true durations, and are drawn in the order of their first call. An arrow leads from each batch to the
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
        events = list(_events(self._records))
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)
        replace_text(self._path, text)

    def _note(self, meter: Meter, times: tuple[Any, ...]) -> None:
        """Record a batch. The loop's thread calls this."""
        if len(self._records) < self._most:
            self._records.append((meter.number, meter.name, times))
        else:
            self._missed += 1


def _events(records: list[tuple[int, str, tuple[Any, ...]]]) -> Iterator[Event]:
    """Yield the events of a trace. Its time begins with the first submission."""
    if not records:
        return
    start = min(BatchTimes(*times).submitted for _, _, times in records)
    numbers: dict[int, int] = {}  # of the loaders in this trace
    lanes: set[tuple[int, int]] = set()
    latest: dict[int, float] = {}  # when the loop of a loader got its latest batch
    for flow, (meter, name, values) in enumerate(records):
        times, loader = BatchTimes(*values), numbers.setdefault(meter, len(numbers))
        if loader not in latest:
            yield _about(loader, LOOP, "process_name", f"loader {loader}: {name}")
            yield _about(loader, LOOP, "thread_name", "training loop")
        else:
            yield _slice(loader, LOOP, "step", latest[loader] - start, times.asked - latest[loader])
        latest[loader] = times.taken
        about = {"epoch": times.epoch, "batch": times.number, "samples": times.samples}
        yield _slice(loader, LOOP, "wait", times.asked - start, times.taken - times.asked, about)
        if times.ready >= 0:
            at = _us(times.asked - start)
            yield {"ph": "C", "pid": loader, "name": "ready", "ts": at, "args": {"batches": times.ready}}
        made = Made.of(times.made)
        if made is None:
            continue
        lane = made.worker + 1
        if (loader, lane) not in lanes and lane != LOOP:
            lanes.add((loader, lane))
            yield _about(loader, lane, "thread_name", f"worker {made.worker}")
        yield from _made(loader, lane, times, made, start, flow)


def _made(loader: int, lane: int, times: BatchTimes, made: Made, start: float, flow: int) -> Iterator[Event]:
    """Yield the slices of a batch in the lane of its worker, and the arrow to the loop."""
    began, _ = made_between(times, made)
    about = {"epoch": times.epoch, "samples": times.samples, "queued ms": round(1e3 * (began - times.submitted), 3)}
    if made.cpu == made.cpu:
        about["CPU ms"] = round(1e3 * made.cpu, 3)
    yield _slice(loader, lane, f"batch {times.number}", began - start, made.seconds, about)
    at = began - start
    parts = {"read": made.seconds - sum(made.maps.values()), **{_part(name): s for name, s in made.maps.items()}}
    for name, seconds in parts.items():
        yield _slice(loader, lane, name, at, max(0.0, seconds))
        at += max(0.0, seconds)
    arrow = {"cat": "batch", "name": "handed out", "id": flow, "pid": loader}
    yield {**arrow, "ph": "s", "tid": lane, "ts": _us(began + made.seconds / 2 - start)}
    yield {**arrow, "ph": "f", "bp": "e", "tid": LOOP, "ts": _us(times.taken - start)}


def _part(name: str) -> str:
    return "packing" if name == PACKING else f"map {name}"


def _about(loader: int, lane: int, what: str, name: str) -> Event:
    return {"ph": "M", "pid": loader, "tid": lane, "name": what, "args": {"name": name}}


def _slice(loader: int, lane: int, name: str, at: float, seconds: float, args: Any = None) -> Event:
    made = {"ph": "X", "pid": loader, "tid": lane, "name": name, "ts": _us(at), "dur": _us(max(0.0, seconds))}
    return made if args is None else {**made, "args": args}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 1)
