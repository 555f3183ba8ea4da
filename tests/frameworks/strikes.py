"""Raises an exception at each line of some files in turn, as the handler of a signal may."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import batchup_ng as bu
from batchup_ng.errors import PoolClosed

VIEWS = Path(bu.__file__).parent / "data_source" / "epoch" / "iterator_views.py"


class Strike(Exception):
    """What a handler raises; it is of no type that anybody expects."""


class Interrupt(BaseException):
    """The same, and not even an Exception."""


def struck_at_each_line(
    run: Callable[[], object],
    files: set[str],
    step: int = 1,
    kinds: tuple[type[BaseException], ...] = (Strike, Interrupt),
) -> Iterator[bool]:
    """Call `run` again and again, each time with an exception at the next line of `files`, until none is left.

    With a `step` above 1 it is every so many lines. Lines of ``with`` are left out. Python calls trace functions before
    ``__exit__`` too, but no handlers of signals: an exception there would leave a lock held.
    Yields whether the exception came out of `run`. Only the caller's thread is struck, as by a signal.
    """
    for number in range(0, 1_000_000, step):
        tracer = Tracer(files, number, kinds[number // step % len(kinds)])
        before = sys.gettrace()
        out = False
        sys.settrace(tracer.call)
        try:
            run()
        except kinds:
            out = True
        finally:
            sys.settrace(before)
        yield out
        if not tracer.struck:
            return


class Tracer:
    """A trace function that raises at one line, after which Python calls it no more."""

    def __init__(self, files: set[str], at: int, kind: type[BaseException]) -> None:
        self._files = files
        self._left = at
        self._kind = kind
        self.struck = False

    def call(self, frame: Any, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename in self._files else None

    def line(self, frame: Any, event: str, arg: Any) -> Any:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            if not self._left:
                self.struck = True
                raise self._kind(f"{frame.f_code.co_qualname if sys.version_info >= (3, 11) else ''}:{frame.f_lineno}")
            self._left -= 1
        return self.line


def taken(iterator: Any, value: Callable[[Any], Any], seen: list[Any]) -> bool:
    """Append the value of each batch to `seen`, going on after each strike; return whether the end was reached."""
    while True:
        try:
            for batch in iterator:
                seen.append(value(batch))
            return True
        except (Strike, Interrupt):
            continue
        except PoolClosed:
            return False
