"""The context of an exception: its map and its sample, in its message, and whether a signal handler raised it.

The name of the map is kept as an attribute of the exception, which pickles carry along. An exception that cannot hold
the attribute goes without.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from .errors import BatchError, BatchupError, RemoteTraceback, batch_error
from .signals import InterruptsHeld

MAX_TEXT_CHARS = 1 << 16
"""The most characters of an exception's own text, or of a traceback, that are kept."""

_PACKAGE = os.path.dirname(__file__) + os.sep
_MAP = "__batchup_map__"


def function_name(function: Callable[..., Any]) -> str:
    """Return the usual name of a function: ``augment``, ``Reader.read``; the class of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name.rpartition("<locals>.")[2] if isinstance(name, str) else type(function).__name__


def note_map(error: BaseException, name: str) -> None:
    """Note on `error` the name of the map that raised it."""
    with unless_of_signal_handler():
        BaseException.__setattr__(error, _MAP, name)


def map_of(error: BaseException) -> str | None:
    """Return the name of the map that raised `error`, here or in another process, or None."""
    try:
        name = getattr(error, _MAP, None)
    except Exception:
        name = None
    if name is None and isinstance(error.__cause__, RemoteTraceback):
        name = error.__cause__.op
    return name if isinstance(name, str) else None


def text_of(error: BaseException) -> str:
    """Return the text of `error`, cut to :data:`MAX_TEXT_CHARS`."""
    try:
        text = str(error)
    except Exception as raised:
        raise_if_of_signal_handler(raised)
        return f"an exception of type {type(error).__name__} without a text"
    return shortened(text) or type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of `error` as text, from the worker process if it was raised there."""
    if isinstance(error.__cause__, RemoteTraceback):
        return shortened(error.__cause__.text)
    try:
        lines = traceback.format_exception(type(error), error, error.__traceback__)
    except Exception as raised:  # from methods of `error` that this calls, such as bool() and getattr()
        raise_if_of_signal_handler(raised)
        lines = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__)]
        lines.append(f"{type(error).__name__}: {text_of(error)}\n")
    return shortened("".join(lines))


def shortened(text: str, most: int = MAX_TEXT_CHARS) -> str:
    """Return `text`; if it has more than `most` characters, leave out its middle."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most - most // 4]}… ({left_out} characters are left out) …{text[-(most // 4) :]}"


def described(error: BaseException, which: str, when: str, attributes: dict[str, Any]) -> BatchError:
    """Return the :class:`~batchup_ng.errors.BatchError` for `error`, with its cause.

    `which` names the sample of the error, `when` its epoch and batch; `attributes` are attributes of the result.
    Signals wait, because much of the code below, Python's included, suppresses any exception.
    """
    with InterruptsHeld():
        return _described(error, which, when, attributes)


def _described(error: BaseException, which: str, when: str, attributes: dict[str, Any]) -> BatchError:
    attributes = {**attributes, "op": map_of(error), "traceback": traceback_of(error)}
    made_by = "" if attributes["op"] is None else f", map {attributes['op']!r}"
    result = batch_error(error, f"{text_of(error)} ({which}{made_by}, {when})", **attributes)
    result.__cause__ = error
    if isinstance(error.__cause__, RemoteTraceback) or len(attributes["traceback"]) >= MAX_TEXT_CHARS:
        result.__cause__ = RemoteTraceback(attributes["traceback"])  # Python would print a long traceback in full
    return result


def of_signal_handler(error: BaseException) -> BaseException | None:
    """Return the exception that a signal handler raised in the middle of other code, if `error` is or wraps it.

    Python calls a handler with the number of the signal and the frame that it interrupted; a signal that was held back
    arrives when the hold ends. Our own errors wrap it, because readers of files and the pickling of tasks catch any
    exception.
    """
    while error.__cause__ is not None and isinstance(error, BatchupError):
        error = error.__cause__
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        interrupted, step = step.tb_frame, step.tb_next
        if interrupted.f_code is InterruptsHeld.__exit__.__code__ or _interrupts(step.tb_frame, interrupted):
            return error
    return None


def _interrupts(frame: Any, interrupted: Any) -> bool:
    """Return whether a frame belongs to a signal handler, or to a debugger's trace function, called in another frame.

    Many functions have the frame of their caller in a variable, such as ``numexpr.evaluate``; these two have it in
    arguments ``(signal, frame)`` or ``(frame, event, ...)``.
    """
    code, values = frame.f_code, frame.f_locals
    args = [None, *(values.get(name) for name in code.co_varnames[: code.co_argcount])]
    if code.co_flags & inspect.CO_VARARGS:
        args += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    beside = zip(args, args[1:], [*args[2:], None], strict=False)
    return any(each is interrupted and (isinstance(a, int) or isinstance(b, str)) for a, each, b in beside)


def raise_if_of_signal_handler(error: BaseException) -> None:
    """Raise the exception of a signal handler, if `error` is or wraps one."""
    raised = of_signal_handler(error)
    if raised is not None:
        raise raised


@contextlib.contextmanager
def unless_of_signal_handler(*kinds: type[Exception]) -> Iterator[None]:
    """Suppress exceptions, of `kinds` if given, but not the exceptions of signal handlers."""
    try:
        yield
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            raise
        raise_if_of_signal_handler(error)


def map_in_words(error: BatchError) -> str:
    """Return the map that raised `error` with its line, ``"map 'fn', train.py:4"``; "" if no map did."""
    if error.op is None:
        return ""
    where, before = "", _PACKAGE
    for path, line in re.findall(r'^  File "(.*)", line (\d+)', error.traceback, re.MULTILINE):
        if before.startswith(_PACKAGE) and not path.startswith(_PACKAGE):
            where = f", {os.path.basename(path)}:{line}"
        before = path
    return f"map {error.op!r}{where}"


def without_frames(error: BaseException) -> None:
    """Release the frames that an exception, its causes and contexts hold, with all the memory in them."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        BaseException.with_traceback(one, None)
        todo += [one.__cause__, one.__context__, getattr(one, "error", None) if isinstance(one, BatchError) else None]
