"""``python -m batchup_ng top PID``: what the loaders of a running program do, as a table that is drawn every second.

:mod:`.answers` says how the program answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import validation
from .._version import __version__
from ..display import in_bytes, printable
from ..errors import ArgumentError, BatchupError
from ..live.answers import FolderRefused, folders, opened
from ..platforms import system

DRAWN_EVERY = 1.0
"""Seconds from one table to the next, and from one request to the next."""

READ_EVERY = 0.05
"""Seconds between two looks for the first answer."""

MOST_BYTES = 1 << 22
"""Size of an answer in bytes above which it is none."""

COLUMNS = ("", "epoch", "batch", "batches/s", "samples/s", "waits", "ready", "memory", "workers", "busy", "last")
"""The heads of the columns. In a terminal of 80 characters all of them have room."""


class NoAnswer(BatchupError):
    """The program does not answer, or its answers cannot be read."""


def top(pid: int, *, once: bool = False, timeout: float = 3.0, say: Callable[[str], object] = print) -> None:
    """Show the figures of the loaders of a running program, until it ends.

    Args:
        pid: The number of its process.
        once: Whether to print one table as plain text, and return.
        timeout: Seconds to wait for the first answer.
        say: Prints a text.

    Raises:
        ArgumentError: there is no such process, it is of another user, or `timeout` is not above 0.
        NoAnswer: it has not answered in time, or the folder for its answers cannot be used.
        ImportError: rich is not installed, the output is a terminal, and `once` is false.
    """
    program = Program(validation.positive_int("PID", pid))
    timeout = validation.number_between("--timeout", timeout, 0.0, 1e6)
    live = None if once else _live()
    with program.asked():
        told = _first(program, timeout)
        if live is None:
            say(plain(told))
            return
        with live(say) as draw:
            while program.runs():
                draw(told)
                time.sleep(DRAWN_EVERY)
                program.ask()
                told = program.answer() or told
    say(f"process {pid} has ended")


def _first(program: Program, timeout: float) -> dict[str, Any]:
    """Wait for the first answer."""
    began = asked = time.monotonic()
    while (told := program.answer()) is None:
        now = time.monotonic()
        if not program.runs():
            raise NoAnswer(f"process {program.pid} ended before it answered")
        if now - began > timeout:
            raise NoAnswer(
                f"process {program.pid} has not answered for {timeout:g} s: no loop over a Loader of it has got a "
                f"batch since; if its steps take longer, pass --timeout 60. Loops with measure=False and over sources "
                f"that only stream do not answer, and neither does a worker: pass the PID of the program itself"
            )
        if now - asked >= DRAWN_EVERY:
            program.ask()
            asked = now
        time.sleep(READ_EVERY)
    return told


class Program:
    """A running program of this user, and the files by which it is asked.

    Raises:
        ArgumentError: there is none, or it is of another user.
    """

    def __init__(self, pid: int) -> None:
        if not system.HAS_LIVE_FIGURES:
            raise ArgumentError("top needs /proc, which only Linux has; print loader.metrics() in the program instead")
        self.pid = pid
        self._began, owner = _began(pid), _owner(pid)
        if self._began is None or owner is None:
            raise ArgumentError(f"PID must be the number of a running process, and there is no process {pid}")
        if owner != os.getuid():
            raise ArgumentError(
                f"PID must be the number of a process of yours, and process {pid} is of user {owner}, not "
                f"{os.getuid()}; run the command as that user"
            )
        theirs = folders(_environment(pid))
        self._made: set[str] = set()  # folders that were not there
        self._folders = [*theirs, *(each for each in folders(os.environ) if each not in theirs)]

    def runs(self) -> bool:
        """Return whether it has not ended."""
        return _began(self.pid) == self._began

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """Ask in the block. At its end, remove the files, and the folders that were made for them, if they are empty.

        Files of programs that have ended are removed, too.
        """
        self._remove(lambda name, pid: not os.path.exists(f"/proc/{pid}") or name == f"{self.pid}.json")
        try:
            self.ask()
            yield
        finally:
            self._remove(lambda name, pid: pid == str(self.pid) and not name.endswith(".part"))
            for folder in self._made:
                with contextlib.suppress(OSError):  # it has files of others
                    os.rmdir(folder)

    def ask(self) -> None:
        """Touch the file that the program looks for, in each folder that can be used.

        Raises:
            NoAnswer: there is none.
        """
        refused: list[str] = []
        for folder in self._folders:
            with contextlib.suppress(OSError):  # it is there, or opening it says why not
                os.mkdir(folder, 0o700)
                self._made.add(folder)
            try:
                with opened(folder) as handle:
                    how = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                    file = os.open(f"{self.pid}.ask", how, 0o600, dir_fd=handle)
                    try:
                        os.utime(file)
                    finally:
                        os.close(file)
            except (OSError, FolderRefused) as error:
                refused.append(str(error))
        if len(refused) == len(self._folders):
            raise NoAnswer(f"process {self.pid} cannot be asked: {'; '.join(refused)}")

    def answer(self) -> dict[str, Any] | None:
        """Return the latest answer; None if there is none.

        Raises:
            NoAnswer: the program has another version of the library.
        """
        found: list[dict[str, Any]] = []
        for folder in self._folders:
            with contextlib.suppress(OSError, FolderRefused, ValueError), opened(folder) as handle:
                file = os.open(f"{self.pid}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
                with os.fdopen(file, encoding="utf-8") as reader:
                    found.append(json.loads(reader.read(MOST_BYTES)))
        for told in found:
            if told["version"] != __version__:
                raise NoAnswer(
                    f"process {self.pid} runs batchup_ng {told['version']}, and this is {__version__}; run top with "
                    f"the Python of that program"
                )
        return max(found, key=lambda told: told["now"], default=None)

    def _remove(self, wanted: Callable[[str, str], bool]) -> None:
        """Remove the files in the folders whose name and PID are `wanted`."""
        for folder in self._folders:
            with contextlib.suppress(OSError, FolderRefused), opened(folder) as handle:
                for name in os.listdir(handle):
                    of = re.fullmatch(r"(\d+)\.(ask|json|\d+\.part)", name)
                    if of is not None and wanted(name, of[1]):
                        with contextlib.suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=handle)


def _began(pid: int) -> str | None:
    """Return when a process began, in the system's terms; None if it has ended or there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *rest = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state in (b"Z", b"X") else rest[18].decode()


def _owner(pid: int) -> int | None:
    """Return the user of a process; None if it has ended or there is none."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _environment(pid: int) -> dict[str, str]:
    """Return the environment variables with which a process was started."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        pairs = [os.fsdecode(line).partition("=") for line in file.read().split(b"\0")]
        return {name: value for name, _, value in pairs}
    return {}


# -- the table ---------------------------------------------------------------------------------------------------------


def heading(told: dict[str, Any]) -> list[str]:
    """Return the lines above the table: the program, and what each loader is."""
    names = [f"{number}: {loader['name']}, {loader['pool']}" for number, loader in enumerate(told["loaders"])]
    return [f"process {told['pid']}: batchup_ng holds {in_bytes(told['bytes'])}", *map(printable, names)]


def rows(told: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of the table: its head, then a row for each loader."""
    return [COLUMNS, *[_row(number, loader) for number, loader in enumerate(told["loaders"])]]


def _row(number: int, loader: dict[str, Any]) -> tuple[str, ...]:
    recent, ready = loader["recent"], loader.get("ready")
    of = "" if loader.get("batches") is None else f"/{loader['batches']}"
    return (
        str(number),
        str(loader["epoch"]),
        f"{loader['batch']}{of}",
        _shown(recent.get("batches_per_second"), "{:,.1f}"),
        _shown(recent.get("samples_per_second"), "{:,.0f}"),
        _shown(recent.get("wait_share"), "{:.0%}"),
        "" if ready is None else f"{ready}/{loader['buffer']}",
        "" if ready is None else in_bytes(loader["bytes"]),
        _shown(loader.get("workers"), "{}"),
        _shown(loader["metrics"].get("busy_share"), "{:.0%}"),
        f"{max(0.0, time.monotonic() - loader['last']):.0f} s ago",
    )


def _shown(value: Any, how: str) -> str:
    return "" if value is None else how.format(value)


def plain(told: dict[str, Any]) -> str:
    """Return the heading and the table as text."""
    table = rows(told)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join([cell.rjust(width) for cell, width in zip(row, widths, strict=True)]) for row in table]
    return "\n".join([*heading(told), *lines])


Draw = Callable[[dict[str, Any]], object]


@contextlib.contextmanager
def _printed(say: Callable[[str], object]) -> Iterator[Draw]:
    yield lambda told: say(f"{plain(told)}\n")


def _live() -> Callable[[Callable[[str], object]], contextlib.AbstractContextManager[Draw]]:
    """Return what gives a function that draws figures: over those before, or below them if this is no terminal.

    Raises:
        ImportError: this is a terminal, and rich is not installed.
    """
    if not sys.stdout.isatty():
        return _printed
    try:
        from rich.console import Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError as error:
        raise ImportError("top needs rich: pip install 'batchup_ng[top]'; or pass --once") from error

    @contextlib.contextmanager
    def drawn(say: object) -> Iterator[Draw]:
        with Live(auto_refresh=False) as live:

            def draw(told: dict[str, Any]) -> None:
                table = Table(box=None, pad_edge=False, collapse_padding=True)
                head, *cells = rows(told)
                for name in head:
                    table.add_column(name, justify="right", no_wrap=True)
                for row in cells:
                    table.add_row(*map(Text, row))  # not as markup
                live.update(Group(*map(Text, heading(told)), table), refresh=True)

            yield draw

    return drawn
