"""Checks of arguments. Each error names the argument, the rule, the value and the remedy."""

from __future__ import annotations

import functools
import inspect
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .errors import ArgumentError, ArgumentTypeError

P = ParamSpec("P")
R = TypeVar("R")
Class = TypeVar("Class", bound=type)

SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kmgt]?)(i?)b)?", re.IGNORECASE)
"""A size in bytes, with an optional unit; an i in the unit means powers of 1,024."""


class NotGiven:
    """The type of :data:`NOT_GIVEN`."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = NotGiven()
"""Default of an argument that gives None a meaning."""

TO_BATCH_ITERATOR = "pass it to batch_iterator or epochs of the source that this returns"

ELSEWHERE = {
    "seed": "pass it as shuffle=, which takes an int seed, and the number of the epoch as epoch=",
    "generator": "pass it as shuffle=, which takes generators of NumPy's, or an int seed",
    **dict.fromkeys(["sampler", "batch_sampler"], "give a sampler to the source: source.sample(sampler)"),
    **dict.fromkeys(["rank", "world_size", "num_replicas"], "pass the rank and their number as shard=(rank, world)"),
    "num_workers": "make a pool: WorkerProcessPool(n).parallel_data_source(source).batch_iterator(...)",
    **dict.fromkeys(
        ["prefetch", "prefetch_factor"],
        "say how far ahead a pool works: pool.parallel_data_source(source, buffer=...)",
    ),
    **{
        name: f"give it to a pool: pool.parallel_data_source(source, {name}=...)"
        for name in ("buffer", "batch_buffer_size", "buffer_bytes", "timeout")
    },
    "persistent_workers": "a pool keeps its workers until it is closed: WorkerProcessPool(n)",
    "multiprocessing_context": "give the way to start workers to the pool: WorkerProcessPool(n, start_method=...)",
    "worker_init_fn": "seeds are set for each batch; what a map needs, make when it is first called",
    "collate_fn": "make it part of the source: source.collate(fn)",
    "pin_memory": "copy in a map behind the pool: pool.parallel_data_source(source).map(fn), whose fn pins",
    **dict.fromkeys(["shuffle", "batch_size", "drop_last", "epoch", "shard", "state"], TO_BATCH_ITERATOR),
}
"""Remedies for options of PyTorch's ``DataLoader``, and for our own options in the wrong place."""


def known_names(
    elsewhere: Mapping[str, str] = ELSEWHERE,
    unless: Callable[[Any], bool] | None = None,
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes functions refuse unknown keywords, with a better message than Python's.

    The function keeps its signature, without its ``**`` parameter. If ``unless(self)``, that parameter takes any
    keyword. `elsewhere` has remedies, in words, for options that belong elsewhere. `renamed` has the present names by
    the names of earlier versions, which work with a ``DeprecationWarning``.
    """

    def decorator(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__
        known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - {"self"}
        where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
        makes = function.__name__ == "__init__"

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in renamed.keys() & kwargs.keys():
                if renamed[old] not in kwargs:
                    told = f"{where}({old}=) is {where}({renamed[old]}=) now; the old name will go"
                    warnings.warn(told, DeprecationWarning, stacklevel=2)
                    kwargs[renamed[old]] = kwargs.pop(old)
            if not known.issuperset(kwargs) and not (unless is not None and unless(args[0])):
                no_unknown(type(args[0]).__name__ if makes else where, kwargs, known, elsewhere)
            return function(*args, **kwargs)

        function.__qualname__ = where  # for Python's own messages; the class's own name may be an internal one
        if code.co_flags & inspect.CO_VARKEYWORDS:  # else inspect reads the signature of the function itself
            signature = inspect.signature(function)
            named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
            checked.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return checked

    return decorator


def known_options(cls: Class) -> Class:
    """Make a dataclass refuse unknown options, as :func:`known_names` does with a function."""
    cls.__init__ = known_names({})(cls.__init__)  # type: ignore[misc]
    return cls


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an ``int`` of at least 1, or raise an error that names it, like all functions here."""
    number = integer(name, value)
    if number < 1:
        raise ArgumentError(f"{name} must be at least 1, not {number}; pass a positive whole number")
    return number


def integer(name: str, value: Any) -> int:
    """Return `value` as an ``int``; NumPy integers are welcome, floats and booleans are not."""
    if isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be a whole number, not {value!r}; pass an int")
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentTypeError(
            f"{name} must be a whole number, not {value!r} of type {type(value).__name__}; pass an int"
        ) from None


def not_negative(name: str, value: Any) -> int:
    """Return `value` as an ``int`` of at least 0."""
    number = integer(name, value)
    if number < 0:
        raise ArgumentError(f"{name} must not be negative, and is {number}; pass 0 or more")
    return number


def true_or_false(name: str, value: Any, remedy: str = "") -> bool:
    """Return `value` as a ``bool``; NumPy's are welcome, numbers are not. `remedy` ends the error."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(f"{name} must be True or False, not {value!r}{remedy}")


def number_between(name: str, value: Any, above: float, most: float) -> float:
    """Return `value` as a ``float`` above `above`, at most `most`."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r} of type {type(value).__name__}; pass a float")
    number = float(value)
    if not above < number <= most:
        bounds = f"above {above:g}" if most > 1e300 else f"above {above:g} and at most {most:g}"
        raise ArgumentError(f"{name} must be {bounds}, not {number:g}")
    return number


def height_and_width(size: Any) -> tuple[int, int]:
    """Return a size in pixels, ``(height, width)`` or one int for a square, as a pair."""
    if isinstance(size, str):
        raise ArgumentTypeError(f"size must be an int or (height, width), not {size!r}; pass two whole numbers")
    if not isinstance(size, (tuple, list)):
        side = positive_int("size", size)
        return side, side
    if len(size) != 2:
        raise ArgumentError(f"size must be an int or (height, width), not {size!r}; pass two whole numbers")
    return positive_int("size[0], the height,", size[0]), positive_int("size[1], the width,", size[1])


def repeats(value: Any) -> int:
    """Return a number of repeats: at least 1, or -1 without end."""
    number = integer("repeats", value)
    if number == 0 or number < -1:
        raise ArgumentError(
            f"Invalid number of repeats; should be >= 1 or -1, not {number}; pass -1 to repeat without end"
        )
    return number


def one_of(name: str, value: Any, options: Iterable[Any]) -> Any:
    """Return `value` if it is one of `options`; otherwise the error lists the options and the closest one."""
    options = list(options)
    if value in options:
        return value
    close = closest(str(value), [str(option) for option in options])
    hint = "" if close is None else f"; did you mean {close!r}?"
    raise ArgumentError(f"{name} must be one of {', '.join(map(repr, options))}, not {value!r}{hint}")


def closest(name: str, options: Iterable[str]) -> str | None:
    """Return the option that `name` probably is: one with the same letters, else the most similar one, if any is.

    >>> closest("lable", ["table", "label"]), closest("labl", ["table", "label"]), closest("x", ["table", "label"])
    ('label', 'label', None)
    """
    import difflib  # here, because only an error needs it

    options = list(options)
    same = [option for option in options if sorted(option) == sorted(name)]
    close = difflib.get_close_matches(name, same or options, n=1, cutoff=0.0 if same else 0.6)
    return next(iter(close), None)


def no_unknown(
    where: str, given: Mapping[str, Any], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse options in `given` that the function `where` does not have; the error names the closest of `known`.

    `elsewhere` has remedies, in words, for options that belong elsewhere.
    """
    known = sorted(known)
    for name in [each for each in given if each not in known]:
        if elsewhere is not None and name in elsewhere:
            raise ArgumentTypeError(f"{where} has no option {name!r}; {elsewhere[name]}")
        close = closest(name, known)
        hint = f"; it takes {', '.join(known) or 'no options'}" if close is None else f"; did you mean {close!r}?"
        raise ArgumentTypeError(f"{where} got an unexpected option {name!r}{hint}")


def size_in_bytes(name: str, value: Any) -> int:
    """Return a size as a number of bytes: an int, or a string such as ``"500MB"``, ``"8GiB"``.

    >>> size_in_bytes("limit", "1.5 kB"), size_in_bytes("limit", "8GiB")
    (1500, 8589934592)
    """
    if not isinstance(value, str):
        return not_negative(name, value)
    found = SIZE_TEXT.fullmatch(value.strip())
    if found is None:
        raise ArgumentError(f'{name} must be a size in bytes, not {value!r}; pass an int, or a string such as "8GB"')
    number, unit, binary = found.groups(default="")
    return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(unit.lower() or " "))


def path_text(name: str, path: object) -> str:
    """Return a path as text; it may be a ``str``, or an ``os.PathLike`` of text."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{name} must be a str or an os.PathLike, not {path!r:.80}; see os.fsdecode for bytes")
    return text
