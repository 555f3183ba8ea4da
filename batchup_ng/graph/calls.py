"""Calls of a user's function with the parts of a batch or a sample."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..error_context import function_name
from ..errors import MapCallError


def call(fn: Callable[..., Any], batch: Any, keywords: Mapping[str, Any] | None = None, *, chooses: str = "on") -> Any:
    """Call a function with the parts of a batch or sample, by name for a dict.

    Args:
        fn: The function.
        batch: A tuple, a dict, or a list that stands for a tuple.
        keywords: Further arguments.
        chooses: The user's option that chooses columns, for an error.

    Raises:
        MapCallError: the function does not take these parts.
    """
    placed, named = ((), batch) if isinstance(batch, Mapping) and type(batch) is not tuple else (batch, {})
    try:
        return fn(*placed, **named, **(keywords or {}))
    except TypeError as error:
        if type(error) is TypeError and error.__traceback__ is not None and error.__traceback__.tb_next is None:
            _check_call(fn, tuple(placed), {**named}, {**(keywords or {})}, chooses)
        raise  # an error inside of `fn`


def _check_call(
    fn: Callable[..., Any], placed: tuple[Any, ...], named: dict[str, Any], keywords: dict[str, Any], chooses: str
) -> None:
    """Raise :class:`~batchup_ng.errors.MapCallError` if `fn` refuses these arguments."""
    with contextlib.suppress(ValueError):  # `fn` has no signature
        signature = inspect.signature(fn)
        try:
            if named.keys().isdisjoint(keywords):
                signature.bind(*placed, **named, **keywords)
                return
        except TypeError:
            pass
        parameters = [each for each in signature.parameters.values() if each.name not in keywords]
        raise MapCallError(f"{_told(fn, parameters, placed, named)}{_remedy(signature, parameters, named, keywords, chooses)}")


def _told(fn: Callable[..., Any], parameters: list[inspect.Parameter], placed: tuple[Any, ...], named: Any) -> str:
    given = ", ".join(named) if named else f"{len(placed)} column{'s' * (len(placed) != 1)}"
    return f"map {function_name(fn)} takes ({', '.join(each.name for each in parameters)}), the batch has {given}"


def _remedy(
    signature: inspect.Signature, parameters: list[inspect.Parameter], named: Any, keywords: Any, chooses: str
) -> str:
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in keywords:
        if name in named:
            return f"; it is also called with {name}=, so rename that column"
        if name not in signature.parameters and not takes_any:
            return f"; it is also called with {name}=: let it take that, or leave {name}= out"
    needed = [each.name for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    if needed and named.keys() >= set(needed):
        return f": pass {chooses}={(needed[0] if len(needed) == 1 else needed)!r}"
    return f": pass {chooses}= with the {'names' if named else 'places'} of the columns to call it with"
