"""Maps of row numbers that go wrong: at certain rows, in certain ways, always or only the first time.

All are objects of importable classes, so that they travel by reference and start fast. A folder on disk tells a
second attempt from the first, whichever process makes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np


def first_time(folder: str, name: object) -> bool:
    """Return whether this is the first call with that name; leaves the caller's pid in a file of that name."""
    try:
        fd = os.open(Path(folder, str(name)), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    with os.fdopen(fd, "w") as file:
        file.write(f"{os.getpid()}\n")
    return True


def who_was_there(folder: str, name: object) -> int | None:
    """Return the pid of the process that came first, None if none came yet."""
    with contextlib.suppress(FileNotFoundError):
        text = Path(folder, str(name)).read_text()
        return int(text) if text.endswith("\n") else None
    return None


class AtRows:
    """Does something in each batch that holds one of certain rows.

    Args:
        rows: The rows.
        act: What to do, by its name among the functions below.
        folder: Where the first time is told from the second; without it, the act is done each time.
        log: A file that counts how often it is done, for :func:`acts`.
    """

    def __init__(
        self, rows: Collection[int], act: str, folder: str | None = None, log: str | None = None
    ) -> None:  # fmt: skip
        self.rows = sorted(rows)
        self.act = act
        self.folder = folder
        self.log = log

    def __call__(self, rows: np.ndarray) -> Any:
        for row in self.rows:
            if row in rows and (self.folder is None or first_time(self.folder, row)):
                if self.log is not None:
                    with open(self.log, "ab") as file:
                        file.write(b"x")
                ACTS[self.act](row)
        return (rows,)


class Several:
    """Several faults in one map.

    Args:
        faults: Each is given the rows.
    """

    def __init__(self, *faults: Callable[[np.ndarray], Any]) -> None:
        self.faults = faults

    def __call__(self, rows: np.ndarray) -> Any:
        for fault in self.faults:
            fault(rows)
        return (rows,)


def acts(log: str) -> int:
    """Return how often an :class:`AtRows` with that log did its act, in whichever process."""
    return Path(log).stat().st_size


class InRows:
    """Changes the result of each batch that holds one of certain rows.

    Args:
        rows: The rows.
        make: Returns what stands in the place of such a batch, given the row numbers.
    """

    def __init__(self, rows: Collection[int], make: Callable[[np.ndarray], Any]) -> None:
        self.rows = sorted(rows)
        self.make = make

    def __call__(self, rows: np.ndarray, *others: Any) -> Any:
        return self.make(rows) if np.isin(self.rows, rows).any() else (rows, *others)


# -- ways to end -------------------------------------------------------------------------------------------------


def segfault(_: int) -> None:
    """Read from address zero."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # no report of the fault handler's
    ctypes.string_at(0)


def exit_with(code: int) -> Callable[[int], None]:
    """Return what ends the process at once with that code."""
    return lambda _: os._exit(code)


def kill_oneself(_: int) -> None:
    """Be killed, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


# -- ways to hang ------------------------------------------------------------------------------------------------

FOREVER = 3600.0


def sleep(_: int) -> None:
    """Sleep for ever."""
    time.sleep(FOREVER)


def busy(_: int) -> None:
    """Run for ever in Python."""
    end = time.monotonic() + FOREVER
    while time.monotonic() < end:
        pass


def hold_the_gil(_: int) -> None:
    """Be for ever in a call of C that does not let go of the interpreter's lock."""
    ctypes.PyDLL(None).usleep(int(FOREVER * 1e6))


def backtrack(_: int) -> None:
    """Search for ever for a pattern that backtracks, inside the interpreter's lock."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def stop_oneself(_: int) -> None:
    """Be stopped, as by a debugger."""
    os.kill(os.getpid(), signal.SIGSTOP)


def lock_for_ever(_: int) -> None:
    """Wait for a lock that nobody lets go of."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def raise_lookup_error(row: int) -> None:
    """Raise an exception that names the row."""
    raise LookupError(f"row {row} is bad")


ACTS: dict[str, Callable[[int], Any]] = {
    "segfault": segfault,
    "exit 7": exit_with(7),
    "exit 0": exit_with(0),
    "SIGKILL": kill_oneself,
    "sleep": sleep,
    "busy": busy,
    "C call": hold_the_gil,
    "backtrack": backtrack,
    "SIGSTOP": stop_oneself,
    "lock": lock_for_ever,
    "raise": raise_lookup_error,
}
