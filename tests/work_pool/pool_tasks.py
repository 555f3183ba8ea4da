"""What pools are given to do by their contract: tasks, streams, maps that fail; workers import it without pytest."""

from __future__ import annotations

import builtins
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from batchup_ng.work_pool.task import current


def square(x: int) -> int:
    return x * x


def shifted(x: int, by: int = 0) -> int:
    return x + by


def fails_at_three(x: int) -> int:
    if x == 3:
        raise ZeroDivisionError(f"{x} cannot be done")
    return x


class WeaklyHeld(Exception):
    """An exception to which there may be weak references, as there may not to those of Python itself."""


def fails_weakly(fails: bool) -> None:
    if fails:
        raise WeaklyHeld


def counting_batches(batch_size: int, **options: Any) -> Iterator[Any]:
    for start in range(0, 20, batch_size):
        yield (np.arange(start, min(start + batch_size, 20)),)


# -- samples that cannot be made ------------------------------------------------------------------------------------

N = 40
"""Samples of the sources here."""

LONG = 100_000_000 if os.environ.get("BATCHUP_NG_TESTS_THOROUGH") else 10_000_000
"""Characters of the longest text of an exception."""


class Unpicklable(Exception):
    """An exception that can go nowhere."""

    def __init__(self, text: str) -> None:
        super().__init__(text, threading.Lock())

    def __str__(self) -> str:
        return str(self.args[0])


class Unrebuildable(Exception):
    """An exception that can be pickled, and not loaded."""

    def __init__(self, text: str, why: int) -> None:
        super().__init__(f"{text} {why}")


class Lying(Exception):
    """An exception that becomes something else on its way."""

    def __reduce__(self) -> Any:
        return dict, ()


class Mute(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


class Untraceable(LookupError):
    """An exception at which Python's own code for tracebacks fails."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


class Truthless(Exception):
    """An exception that nobody can ask whether it is true, as Python's own code for tracebacks does."""

    def __len__(self) -> int:
        raise RuntimeError("no length")


def group(text: str) -> Exception:
    kind = getattr(builtins, "ExceptionGroup", None)
    return kind("two at once", [ValueError(text), KeyError("two")]) if kind else ValueError("no groups before 3.11")


MAKERS: dict[str, Any] = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "OSError": lambda text: FileNotFoundError(2, text, "a.png"),
    "unpicklable": Unpicklable,
    "unrebuildable": lambda text: Unrebuildable(text, 3),
    "lying": Lying,
    "mute": Mute,
    "untraceable": Untraceable,
    "truthless": Truthless,
    "group": group,
    "long": lambda text: ValueError(text + "x" * LONG),
    "StopIteration": StopIteration,
    "GeneratorExit": GeneratorExit,
}
"""What a map may raise, whatever pool it runs in."""

ENDS_PROGRAMS: dict[str, Any] = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}
"""What a map may raise where it does not run on the consumer's own thread."""


class Fails:
    """A map that raises something for some rows.

    Args:
        make: Makes the exception.
        rows: Which rows are bad.
    """

    def __init__(self, make: Any, *rows: int) -> None:
        self.make = make
        self.rows = rows

    def __call__(self, x: np.ndarray) -> Any:
        if np.isin(x, self.rows).any():
            raise self.make("bad sample")
        return (x,)


class FailsAtFirst:
    """A map that fails until it was called a number of times with a row, as a bad connection does."""

    def __init__(self, row: int, times: int, folder: Path) -> None:
        self.row = row
        self.times = times
        self.folder = folder

    def __call__(self, x: np.ndarray) -> Any:
        if self.row in x:
            before = len(list(self.folder.iterdir()))
            (self.folder / str(before)).touch()
            if before < self.times:
                raise ConnectionError("not now")
        return (x,)


def time_is_up(mark: Path) -> None:
    """Say that the task of this thread hangs: to a pool of threads by its future, else by a file beside `mark`.

    The tests have ``time_limits.py`` see to it that no other task is late.
    """
    future = getattr(current, "future", None)
    if future is None:
        Path(f"{mark}.{os.getpid()}").touch()
    elif future.timeout is not None:
        future.due = 0.0


class Hangs:
    """A map that waits, at some rows, until a file is there."""

    def __init__(self, rows: tuple[int, ...], path: Path) -> None:
        self.rows = rows
        self.path = path

    def __call__(self, x: np.ndarray) -> Any:
        if np.isin(x, self.rows).any():
            time_is_up(self.path)
            while not self.path.exists():
                time.sleep(0.01)
        return (x,)


class Named:
    """An accessor whose rows have names."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(N)[rows]

    def sample_name(self, row: int) -> str:
        return f"shard/{row:03}.png"
