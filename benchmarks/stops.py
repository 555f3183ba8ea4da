"""Trials of loaders that are stopped: from a saved state, and by a blow that hits a worker.

Each turn has a process of its own. The feeds are in ``peers/stopping.py``.
"""

from __future__ import annotations

import contextlib
import pickle
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Epoch
from benchmarks.workloads.base import Workload
from benchmarks.workloads.numbers import STRUCK


class Hung(BaseException):
    """No batch came within the limit. Loaders that catch `Exception` must not catch it."""


def resume(feed: Any, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Take ``share`` of the batches, save the state, close the loader, and go on with a new one from that state.

    ``first_batch_seconds`` runs from the request for the new loader to its first batch. Figures: ``lost`` and
    ``twice``, the rows that both parts together have not delivered, or more than once; ``state_bytes``, pickled.
    """
    taken = max(1, int(settings["share"] * workload.samples / workload.batch_size))
    batches = feed.epoch(0)
    delivered = [np.array(next(batches)[0]) for _ in range(taken)]
    state = pickle.dumps(feed.state(taken))
    del batches
    feed.close()
    clock = time.perf_counter()
    rest, first = [], 0.0
    for batch in feed.resume(pickle.loads(state)):
        first = first or time.perf_counter() - clock
        rest.append(np.array(batch[0]))
    seconds = time.perf_counter() - clock
    figures = {"state_bytes": float(len(state)), **counted([*delivered, *rest], workload.samples)}
    return _epoch(rest, seconds, first, figures, "" if rest else "no batch followed")


def crash(feed: Any, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Run an epoch while a blow hits a worker; wait at most ``limit`` seconds for each batch.

    The note ``end`` says how it ended. Figures: ``reaction_seconds``, from the blow to the error, or to the batch with
    the row of the blow, or else to the end; ``hung``, 1.0 if no batch came; ``lost`` and ``twice``, as in
    :func:`resume`, if the epoch came to its end.
    """
    struck = Path(workload.folder, STRUCK)
    struck.unlink(missing_ok=True)
    row, limit, before = workload.detail["row"], settings["limit"], signal.signal(signal.SIGALRM, _hang)
    delivered: list[Any] = []
    end, ended, first, came = "", False, 0.0, 0.0
    clock = time.perf_counter()
    try:
        for batch in _within(limit, feed.epoch(0)):
            first = first or time.perf_counter() - clock
            delivered.append(np.array(batch[0]))
            came = came or (time.monotonic() if row in delivered[-1] else 0.0)
        ended = True
    except Hung:
        end = f"no batch for {limit:g} s"
    except Exception as error:
        end = type(error).__name__
    until, seconds = time.monotonic(), time.perf_counter() - clock
    with contextlib.suppress(Exception, Hung):
        signal.setitimer(signal.ITIMER_REAL, limit)
        feed.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    if not struck.exists():
        raise RuntimeError(f"no worker came to the row of the blow; it ended with {end or 'all batches'}")
    reaction = (came or until) - float(struck.read_text())
    figures = {"reaction_seconds": reaction, "hung": float(end.startswith("no batch"))}
    if ended:
        figures |= counted(delivered, workload.samples)
        end = "goes on" if figures["lost"] == 0 else "goes on without a word, rows are missing"
    return _epoch(delivered, seconds, first, figures, end)


def counted(parts: list[Any], samples: int) -> dict[str, float]:
    """Return how many rows of so many are in none of the parts, and how many more than once."""
    times = np.bincount(np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64), minlength=samples)
    return {"lost": float((times == 0).sum()), "twice": float((times > 1).sum())}


def _epoch(parts: list[Any], seconds: float, first: float, figures: dict[str, float], end: str) -> Epoch:
    sizes = [len(part) for part in parts]
    return Epoch(
        seconds=seconds, first_batch_seconds=first, batches=len(parts), samples=sum(sizes), bytes=8 * sum(sizes),
        figures=figures, notes={"end": end},
    )  # fmt: skip


def _within(limit: float, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches. The program gets a SIGALRM if one does not come in time."""
    while True:
        signal.setitimer(signal.ITIMER_REAL, limit)
        batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _hang(signum: int, frame: Any) -> None:
    raise Hung
