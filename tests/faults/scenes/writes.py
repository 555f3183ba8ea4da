"""Workers die or stand still in the middle of what they write, a message or a slot (F2, F3)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...threads import in_threads
from ..accounting import BATCH, BATCHES, SHUFFLE, SIZES, N, balance, make_pool, planned_rows, source
from ..hunting import is_alive, is_stopped, send, wait_for
from ..mischief import who_was_there
from ..writing import InItsWrite, Mark, noted

WAYS = {"socket": ("message", "full"), "slots": ("message", "slot")}
"""In what a worker can be struck, by the transport of its results: they follow the message, or lie in a slot."""

BY_PIPE = 6
"""The most batches that are sent for before the first result says how large a slot must be."""

ROWS = 70
"""Rows of the epoch that is held up: ten batches."""

SETTLE = 0.02
"""Seconds in which all that a worker has written is read, so that half a message is what remains."""


class Hunter:
    """Kills each process that has stopped in the middle of its write; to be used by ``with``.

    Args:
        folder: Where they leave their notes.

    Attributes:
        killed: The notes of those that it has killed.
    """

    def __init__(self, folder: str) -> None:
        self.killed: list[dict[str, Any]] = []
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hunt)

    def _hunt(self) -> None:
        while not self._over.wait(0.002):
            for found in noted(self._folder):
                if found["pid"] not in [each["pid"] for each in self.killed] and is_stopped(found["pid"]):
                    time.sleep(SETTLE)
                    self.killed.append(found | {"stood": is_stopped(found["pid"])})
                    send(found["pid"])

    def __enter__(self) -> Hunter:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def marked_rows(rng: random.Random, count: int, epochs: int, transport: str) -> list[Mark]:
    """Return marks of rows of which no two are in one batch of any of the epochs: no batch loses three workers."""
    places = [{row: i // BATCH for i, row in enumerate(planned_rows(e).tolist())} for e in range(epochs)]
    marks: list[Mark] = []
    for row in rng.sample(range(N), N):
        if transport == "slots" and any(place[row] < BY_PIPE for place in places):
            continue
        if all(place[row] not in [place[mark.row] for mark in marks] for place in places):
            marks.append(Mark(row, WAYS[transport][len(marks) % 2], rng.random()))
    assert len(marks) >= count
    return marks[:count]


def killed_in_write(
    kind: str, seed: int, kills: int, transport: str = "socket", consumers: int = 1, main: bool = True
) -> dict[str, int]:
    """F2, F3: so many workers are killed in the middle of writing 2 MB, each after a random part.

    They stop in the middle of their message or of filling their slot, and are killed when what they wrote was read; or
    they fill the socket while this process, its reader, stands still, and kill themselves.

    Args:
        kind: The pool.
        seed: Of the random choices.
        kills: How many.
        transport: ``socket`` for results that cannot lie in a slot, ``slots`` for arrays.
        consumers: How many iterate at once, each over its own epoch.
        main: Whether the consumer is the main thread.
    """
    objects = transport == "socket"
    marks = marked_rows(random.Random(seed), kills, consumers, transport)
    with tempfile.TemporaryDirectory() as folder:
        with make_pool(kind, 2) as pool, Hunter(folder) as hunter:
            fault = InItsWrite(marks, folder, signal.SIGSTOP, os.getpid())
            parallel = pool.parallel_data_source(source(SIZES["2 MB"], fault=fault, as_objects=objects), 6)

            def consume(epoch: int) -> None:
                with parallel.batch_iterator(BATCH, shuffle=SHUFFLE, epoch=epoch) as iterator:
                    balance(iterator, width=SIZES["2 MB"], epoch=epoch, as_objects=objects)
                    assert_road(iterator, transport, BATCHES)

            if main:
                consume(0)
            else:
                in_threads([lambda e=e: consume(e) for e in range(consumers)])  # type: ignore[misc]
        return struck(folder, hunter.killed)


def struck(folder: str, killed: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many processes ended in the middle of a write; an AssertionError if one had not begun, or had done.

    Args:
        folder: Where they left their notes.
        killed: Those that stood still when they were killed; the others killed themselves.
    """
    notes = noted(folder)
    for found in notes:
        assert 0 < found["written"] < found["of"], found
        assert not is_alive(found["pid"]), found
    assert all(found["stood"] for found in killed), killed
    by_themselves = {found["pid"] for found in notes} - {found["pid"] for found in killed}
    return {"struck": len(notes), "stood": len(killed), "by themselves": len(by_themselves)}


def assert_road(iterator: Any, transport: str, batches: int) -> None:
    """Assert that the results came by that transport, or what was struck was another."""
    slots = iterator.stats()["transport"]["slots"]
    few = 0 if transport == "socket" else batches - BY_PIPE
    assert few <= slots <= few + BY_PIPE * (few > 0), f"{slots} of {batches} batches came in slots"


def stopped_in_write(kind: str) -> int:
    """F2: a worker stands still with half of its result written; other users of the pool are not held up by it."""
    with tempfile.TemporaryDirectory() as folder, make_pool(kind, 2) as pool:
        row = int(planned_rows(n=ROWS)[3 * BATCH])
        fault = InItsWrite([Mark(row, "message")], folder, signal.SIGSTOP, os.getpid())
        stuck = pool.parallel_data_source(source(SIZES["2 MB"], fault=fault, as_objects=True, n=ROWS), 4)
        others = pool.parallel_data_source(source(SIZES["64 kB"]), 4)
        with stuck.batch_iterator(BATCH, shuffle=SHUFFLE) as first:
            heads = [next(first) for _ in range(3)]
            pid = wait_for(lambda: who_was_there(folder, row), "the worker to be in the batch")
            with going_on(pid):
                wait_for(lambda: is_stopped(pid), "the worker to stop")
                (found,) = noted(folder)
                assert 100_000 < found["written"] < found["of"], found
                batches = balance(others.batch_iterator(BATCH, shuffle=SHUFFLE), width=SIZES["64 kB"])
                assert is_stopped(pid)
            rest = [batch[0] for batch in (*heads, *first)]
        assert np.array_equal(np.concatenate(rest), planned_rows(n=ROWS))
        return batches


@contextlib.contextmanager
def going_on(pid: int) -> Iterator[None]:
    """Let a process that has stopped go on afterwards, whatever happens."""
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)
