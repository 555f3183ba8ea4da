"""Tasks that run at once, each in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from batchup_ng.interpreter import FREE_THREADED, has_lock

needs_lock = pytest.mark.skipif(not has_lock(), reason="this interpreter has no lock")

# There, an object is freed by the thread that made it, in its next step of Python.
frees_at_once = pytest.mark.skipif(FREE_THREADED, reason="this interpreter leaves an object to the thread that made it")


def in_threads(tasks: list[Callable[[], Any]], seconds: float = 600.0) -> None:
    """Run each in a thread of its own; raise the first exception; the main thread only waits and is not disturbed."""
    errors: list[BaseException] = []

    def run(task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a task hangs"
