"""Displays sources, samplers and pools at a prompt, in an error, in a notebook.

Nothing here reads data or raises: unknown facts are left out. A graph may hold one source in many places, so at most
:data:`MAX_NODES` of its nodes are shown.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .error_context import function_name, raise_if_of_signal_handler
from .errors import ArgumentTypeError

MAX_NODES = 40
"""The most nodes of a graph that are shown."""

MAX_ITEMS = 8
"""The most parts of a node, columns of a source, or numbers of a list that are shown."""

SHOWN_ROWS = 3
"""The most samples that are named."""

MAX_VALUE_CHARS = 60
"""The most characters of a name or value that are shown."""

BOX_STYLE = "border:1px solid #888;border-radius:4px;padding:2px 6px;margin:2px;display:inline-block;vertical-align:top"


def counted(n: int, what: str, several: str = "") -> str:
    """Return a count of something, in words.

    >>> counted(1, "row"), counted(1200, "class", "classes")
    ('1 row', '1,200 classes')
    """
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def printable(text: str) -> str:
    """Return a text, escaped if it holds characters that are not printable, such as commands of a terminal.

    >>> printable("two words"), printable("\x1b[31m")
    ('two words', "'\\\\x1b[31m'")
    """
    return text if text.isprintable() else repr(text)


def in_bytes(n: float) -> str:
    """Return a number of bytes in words.

    >>> in_bytes(12), in_bytes(983_040_000), in_bytes(999_950)
    ('12 bytes', '983 MB', '1 MB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def in_seconds(seconds: float) -> str:
    """Return a time with its unit.

    >>> in_seconds(0.00234), in_seconds(2.345)
    ('2.34 ms', '2.35 s')
    """
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def rows_in_words(rows: Sequence[Any], names: Iterable[str | None] = ()) -> str:
    """Return the names of some samples, or their rows if none has a name. Only the first ones are named.

    >>> rows_in_words([4, 9]), rows_in_words([4], ["cat.png"]), rows_in_words(range(5))
    ('rows 4, 9', 'cat.png', 'rows 0, 1, 2 and 2 more')
    """
    known = [name for name in itertools.islice(names, SHOWN_ROWS) if name]
    shown = known or [str(row) for row in rows[:SHOWN_ROWS]]
    more = f" and {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    return ("" if known else "row " if len(rows) == 1 else "rows ") + ", ".join(shown) + more


def progress_bar() -> Callable[..., Any] | None:
    """Return ``tqdm.tqdm`` if it is installed, else None."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm  # type: ignore[no-any-return,unused-ignore]  # typed only where tqdm's stubs are installed


def progress_of(progress: Any, what: str, unit: str) -> Callable[..., Any]:
    """Return the function that shows the progress of an iterator: the user's, tqdm's in a terminal, or one that shows
    nothing.

    Args:
        progress: The user's argument: True, False or a function like ``tqdm.tqdm``.
        what: The title of the display.
        unit: The noun for what is counted, after a space.
    """
    if callable(progress):
        given: Callable[..., Any] = progress
        return given
    if not isinstance(progress, (bool, np.bool_)):
        raise ArgumentTypeError(f"progress must be True, False or a function like tqdm.tqdm, not {progress!r:.80}")
    in_terminal = sys.stderr is not None and sys.stderr.isatty()  # elsewhere tqdm would start a thread to draw nothing
    bar = progress_bar() if progress and in_terminal else None
    if bar is None:
        return lambda iterator, **options: iterator
    return functools.partial(bar, desc=what, unit=unit)


class Shown:
    """A node of a graph that describes itself: ``repr``, and nested boxes in a notebook.

    Attributes:
        name: What it is called there.
    """

    name: str

    def children(self) -> tuple[Shown, ...]:
        """Return the nodes that this one is made of."""
        return ()

    def _facts(self) -> list[str]:
        """Return the facts of this node alone, in words."""
        return arguments(self)

    def __repr__(self) -> str:
        return _text(self, itertools.count())

    def _repr_html_(self) -> str:
        return _boxes(self, itertools.count())


def call_words(thing: Any) -> str:
    """Return the call that made `thing`: ``StandardSampler(length=5)``."""
    return f"{type(thing).__name__}({', '.join(_safely(arguments, thing))})"


def arguments(thing: Any) -> list[str]:
    """Return the arguments that `thing` was made with, as far as its attributes of the same names show them.

    Arguments with their default value are left out. So are sources, which are shown as parts. A required argument that
    was not kept is ``name=...``, or ``_name_in_words`` of the object.
    """
    words = []
    for parameter in inspect.signature(type(thing)).parameters.values():
        value = getattr(thing, parameter.name, ...)
        optional = parameter.default is not parameter.empty
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or _is_parts(value):
            continue
        if not optional or (value is not ... and value is not parameter.default and not _equal(value, parameter)):
            kept = getattr(thing, f"_{parameter.name}_in_words", None)
            words.append(f"{parameter.name}={kept or value_words(value)}")
    return words


def value_words(value: Any) -> str:
    """Return a value in few characters, without data."""
    if value is ...:
        return "..."
    if isinstance(value, (bool, int, float, str, range, type(None))):
        return _short(repr(value))
    if hasattr(value, "dtype"):
        return array_words(value)
    if isinstance(value, (list, tuple)):
        plain = len(value) <= MAX_ITEMS and all(isinstance(item, (bool, int, float)) for item in value)
        return repr(value) if plain else f"{type(value).__name__} of {len(value)}"
    if type(value).__module__.startswith("batchup_ng.") and not callable(value):
        return repr(value)
    return _short(function_name(value)) if callable(value) else type(value).__name__


def array_words(array: Any) -> str:
    """Return dtype and shape of an array, ``uint8 (100, 28, 28)``, or its class if it has none."""
    try:
        return f"{array.dtype} {tuple(array.shape)}"
    except Exception as error:
        raise_if_of_signal_handler(error)
        return type(array).__name__


def listed(words: Sequence[str]) -> str:
    """Return `words`, or the first few and the number of the others."""
    more = len(words) - MAX_ITEMS
    return ", ".join([*words[:MAX_ITEMS], *([f"and {more} more"] if more > 0 else [])])


def _is_parts(value: Any) -> bool:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return isinstance(first, Shown) or hasattr(type(first), "node")


def _text(node: Any, count: Iterator[int]) -> str:
    parts, left_out = _some(node, count)
    texts = [_text(part, count) for part in parts] + [f"{left_out} more"] * (left_out > 0)
    words = [*_safely(node._facts), *([f"of {', '.join(texts)}"] if texts else [])]
    return f"<{node.name}{': ' * bool(words)}{', '.join(words)}>"


def _boxes(node: Any, count: Iterator[int]) -> str:
    import html  # here, because it takes 2 ms

    parts, left_out = _some(node, count)
    inner = "".join([_boxes(part, count) for part in parts]) + f" and {left_out} more" * (left_out > 0)
    name, facts = html.escape(node.name), html.escape(", ".join(_safely(node._facts)))
    return f'<div style="{BOX_STYLE}"><b>{name}</b> <span>{facts}</span>{"<br>" * bool(inner)}{inner}</div>'


def _some(node: Shown, count: Iterator[int]) -> tuple[Sequence[Shown], int]:
    """Return the parts of a node that fit, and the number of the others."""
    parts = _safely(node.children)
    shown = [part for part in parts[:MAX_ITEMS] if next(count) < MAX_NODES]
    return shown, len(parts) - len(shown)


def _safely(make: Callable[..., Sequence[Any]], *args: Any) -> Sequence[Any]:
    try:
        return make(*args)
    except Exception as error:
        raise_if_of_signal_handler(error)
        return []


def _equal(value: Any, parameter: inspect.Parameter) -> bool:
    return type(value) is type(parameter.default) and not hasattr(value, "dtype") and bool(value == parameter.default)


def _short(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."
