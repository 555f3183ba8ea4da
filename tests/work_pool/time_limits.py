"""Time limits that only samples exceed which hang: on a busy machine any sample may take longer than a short limit."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batchup_ng.work_pool import threads
from batchup_ng.work_pool.processes.schedule import Schedule


def stop_the_clock_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass for pools of threads. A task is late once it says that its future is due."""
    monkeypatch.setattr(threads, "time", SimpleNamespace(monotonic=lambda: 0.0))


def only_what_hangs_is_late(monkeypatch: pytest.MonkeyPatch, mark: Path) -> None:
    """Let no task exceed its time but those in a worker that has called :func:`.pool_tasks.time_is_up` with `mark`."""
    due = Schedule._due

    def due_if_it_hangs(schedule: Any, worker: Any) -> Any:
        up, task = due(schedule, worker)
        if task is None:
            return up, task
        pid = worker.seat.greeting.pid if hasattr(worker, "seat") else worker.process.pid
        return (up if Path(f"{mark}.{pid}").exists() else max(up, time.monotonic() + 0.05)), task

    monkeypatch.setattr(Schedule, "_due", due_if_it_hangs)
    stop_the_clock_of_threads(monkeypatch)
