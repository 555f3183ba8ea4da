"""The name of the part of a value that cannot travel.

It is looked for only after the value as a whole was refused: part by part, each tried by itself, down to the innermost
that is refused. Trying copies no large array, and after :data:`AT_MOST` seconds what was found so far is told.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...data_source.base import AbstractDataSource
from ...error_context import function_name

AT_MOST = 0.05
"""Seconds to look for a name that is more exact."""

DEEPEST = 16
"""Steps from the value to a part, beyond which none is named."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def culprit(name: str, value: Any, travels: Callable[[Any], bool]) -> str:
    """Return the name of the innermost part of `value`, which cannot travel, that is to blame.

    Args:
        name: What `value` is called.
        value: It cannot travel.
        travels: Returns whether something can.

    >>> import threading
    >>> culprit("the task", {"x": 1, "guard": threading.Lock()}, lambda part: part == 1)
    "the task['guard'], a _thread.lock,"
    """
    deadline = time.monotonic() + AT_MOST
    direct = False
    for _ in range(DEEPEST):
        for step, part in _parts(name, value):
            if time.monotonic() > deadline:
                break
            if not isinstance(part, _PLAIN) and not travels(part):
                direct, name, value = inspect.isfunction(value), step, part
                break
        else:
            break
        if time.monotonic() > deadline:
            break
    if direct:  # "... closes over lock" reads better by what it is
        said, _, last = name.rpartition(" ")
        return f"{said} {_kind(value)} ({last}), which"
    return f"{name}, {_kind(value)},"


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    return f"{'an' if name.lstrip('_')[0].lower() in 'aeiou' else 'a'} {name}"


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what `value` is made of, each part with what it is called."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield f"{name}[{key!r:.40}]", part
            yield f"a key of {name}", key
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f"an element of {name}", part) for part in list(value))
    elif inspect.isfunction(value):
        yield from _parts_of_function(name, value)
    elif inspect.ismethod(value):
        yield f"{name}.__self__", value.__self__
        yield name, value.__func__
    elif isinstance(value, functools.partial):
        yield name, value.func
        yield from ((f"{name}, argument {i}", part) for i, part in enumerate(value.args))
        yield from ((f"{name}, argument {key}", part) for key, part in value.keywords.items())
    elif isinstance(value, type):
        yield from ((f"{name}.{key}", part) for key, part in vars(value).items() if not key.startswith("__"))
    else:
        yield from _parts_of_object(name, value)


def _parts_of_function(name: str, function: Any) -> Iterator[tuple[str, Any]]:
    if not name.startswith("map fn") or " " in name.removeprefix("map fn "):
        name = f"{name}, which"
    found = inspect.getclosurevars(function)
    yield from ((f"{name} closes over {key}", part) for key, part in found.nonlocals.items())
    yield from ((f"{name} refers to {key}", part) for key, part in found.globals.items())
    for i, part in enumerate(function.__defaults__ or ()):
        yield f"{name} has as default {i}", part
    for key, part in (function.__kwdefaults__ or {}).items():
        yield f"{name} has as default {key}", part


def _parts_of_object(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    attributes = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot):
                attributes.setdefault(slot, getattr(value, slot))
    for key, part in attributes.items():
        yield _name_of_attribute(name, value, key, part), part


def _name_of_attribute(name: str, value: Any, key: str, part: Any) -> str:
    """Return what an attribute is called; one of a source's by itself, for the way to the source is of no use."""
    if not isinstance(value, AbstractDataSource):
        return f"{name}.{key}"
    if isinstance(part, AbstractDataSource):
        return f"the {type(part).__name__}"
    if callable(part) and "fn" in key:
        return f"map fn {function_name(part)!r}"
    return key.lstrip("_") if key == "data" else f"the {type(value).__name__}.{key}"


def name_of_array(value: Any, besides: set[int], smallest: int = 1 << 16) -> str:
    """Return the name of the largest array in `value` that has `smallest` bytes or more, but for those `besides`.

    Args:
        value: Where to look.
        besides: Identities (``id``) of arrays that are not meant.
        smallest: Bytes.
    """
    deadline = time.monotonic() + AT_MOST
    largest, name = 0, f"a large array in {_kind(value)}"
    todo: list[tuple[str, Any, int]] = [("the " + type(value).__name__, value, 0)]
    seen: set[int] = set()
    while todo and time.monotonic() < deadline:
        called, part, depth = todo.pop()
        if id(part) in seen or isinstance(part, _PLAIN) or depth > DEEPEST:
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            if part.nbytes >= max(smallest, largest + 1) and id(part) not in besides:
                largest, name = part.nbytes, f"{called}, an array of {part.nbytes} bytes,"
        else:
            todo.extend((step, inner, depth + 1) for step, inner in _parts(called, part))
    return name
