"""What an exception says about the map and the sample that it was raised for.

The name of the map that raised it is kept as an attribute of the exception, which pickles carry along; an
exception that takes no attributes goes without.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import traceback
from collections.abc import Callable
from typing import Any

from .errors import BatchError, RemoteTraceback, batch_error

MAX_TEXT = 1 << 16
"""Characters of an exception's own text, or of a traceback, that are kept."""

_MAP = "__batchup_map__"


def function_name(function: Callable[..., Any]) -> str:
    """Return what people call a function: ``augment``, ``Reader.read``; an object that is called, by its class."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else type(function).__name__


def note_map(error: BaseException, name: str) -> None:
    """Note on `error` the name of the map that raised it."""
    with contextlib.suppress(Exception):
        setattr(error, _MAP, name)


def map_of(error: BaseException) -> str | None:
    """Return the name of the map that raised `error`, here or in another process, or None."""
    try:
        name = getattr(error, _MAP, None)
    except Exception:
        name = None
    if name is None and isinstance(error.__cause__, RemoteTraceback):
        name = error.__cause__.op
    return name if isinstance(name, str) else None


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal's handler raised `error`: Ctrl-C, or a handler of the program's own written in Python."""
    if isinstance(error, KeyboardInterrupt):
        return True
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)) if handlers else False


def _code_of(handler: Any) -> Any:
    """Return the code that runs when `handler` is called; None if it is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and callable(handler):
        handler = getattr(handler, "__func__", getattr(type(handler), "__call__", None))
    return getattr(handler, "__code__", None)


def text_of(error: BaseException) -> str:
    """Return the text of `error`, cut to :data:`MAX_TEXT`."""
    try:
        text = str(error)
    except Exception:
        return f"an exception of type {type(error).__name__} without a text"
    return shortened(text) or type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of `error` as text, that of the worker process where it was raised in one."""
    if isinstance(error.__cause__, RemoteTraceback):
        return shortened(error.__cause__.text)
    return shortened("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def shortened(text: str, most: int = MAX_TEXT) -> str:
    """Return `text`, of which the middle is left out if it has more than `most` characters."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most - most // 4]}… ({left_out} characters are left out) …{text[-(most // 4) :]}"


def described(error: BaseException, which: str, when: str, told: dict[str, Any]) -> BatchError:
    """Return the :class:`~batchup_ng.errors.BatchError` for `error`, with its cause.

    `which` says for which sample it was raised, `when` in which epoch and batch; `told` are attributes of the result.
    """
    told = {**told, "op": map_of(error), "traceback": traceback_of(error)}
    made_by = "" if told["op"] is None else f", map {told['op']!r}"
    result = batch_error(error, f"{text_of(error)} ({which}{made_by}, {when})", **told)
    result.__cause__ = error
    if isinstance(error.__cause__, RemoteTraceback) or len(told["traceback"]) >= MAX_TEXT:
        result.__cause__ = RemoteTraceback(told["traceback"])  # Python would print the whole of a long one
    return result


def without_frames(error: BaseException) -> None:
    """Let go of the frames that an exception, its causes and contexts hold, with all the memory in them."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        BaseException.with_traceback(one, None)
        todo += [one.__cause__, one.__context__, getattr(one, "error", None) if isinstance(one, BatchError) else None]
