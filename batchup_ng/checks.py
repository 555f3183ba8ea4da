"""Checks of arguments, each of which names the argument, the rule, the value and the remedy."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import ArgumentError, ArgumentTypeError


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an ``int`` of at least 1.

    Raises:
        ArgumentTypeError: `value` is not an integer.
        ArgumentError: `value` is below 1.
    """
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


def true_or_false(name: str, value: Any) -> bool:
    """Return `value` as a ``bool``; NumPy's are welcome, numbers are not.

    Raises:
        ArgumentTypeError: it is no ``bool``.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ArgumentTypeError(f"{name} must be True or False, not {value!r}")


def number_between(name: str, value: Any, above: float, most: float) -> float:
    """Return `value` as a ``float`` above `above`, at most `most`.

    Raises:
        ArgumentTypeError: `value` is not a number.
        ArgumentError: it is not in range.
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{name} must be a number, not {value!r} of type {type(value).__name__}; pass a float")
    number = float(value)
    if not above < number <= most:
        bounds = f"above {above:g}" if most > 1e300 else f"above {above:g} and at most {most:g}"
        raise ArgumentError(f"{name} must be {bounds}, not {number:g}")
    return number


def repeats(value: Any) -> int:
    """Return a number of repeats: at least 1, or -1 for ever."""
    number = integer("repeats", value)
    if number == 0 or number < -1:
        raise ArgumentError(
            f"Invalid number of repeats; should be >= 1 or -1, not {number}; pass -1 to repeat for ever"
        )
    return number


def one_of(name: str, value: Any, options: Iterable[Any]) -> Any:
    """Return `value` if it is one of `options`.

    Raises:
        ArgumentError: it is not; the message lists the options and the closest one.
    """
    options = list(options)
    if value in options:
        return value
    close = difflib.get_close_matches(str(value), [str(option) for option in options], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ArgumentError(f"{name} must be one of {', '.join(map(repr, options))}, not {value!r}{hint}")


def no_unknown(
    where: str, given: Mapping[str, Any], known: Iterable[str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Refuse options that `where` does not have.

    Args:
        where: Name of the function.
        given: Options by name.
        known: Names of those that it has.
        elsewhere: What to do instead of options that others have, in words.

    Raises:
        ArgumentTypeError: naming the first unknown option and the closest known one.
    """
    known = sorted(known)
    for name in given:
        if name not in known and elsewhere is not None and name in elsewhere:
            raise ArgumentTypeError(f"{where} has no option {name!r}; {elsewhere[name]}")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it takes {', '.join(known)}"
            raise ArgumentTypeError(f"{where} got an unexpected option {name!r}{hint}")
