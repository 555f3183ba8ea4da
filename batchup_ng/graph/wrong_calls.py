"""The error of a function that does not take the columns of a batch."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from ..error_context import function_name
from ..errors import MapCallError

WHAT = {"on": "map", "columns": "predicate"}
"""Names of functions, by the option of the user that chooses the columns to call them with."""


def check_call(
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
        taken = f"{function_name(fn)} takes ({', '.join(each.name for each in parameters)})"
        if not chooses:
            raise MapCallError(f"collate function {taken}, and is called with the list of samples alone") from None
        given = ", ".join(named) if named else f"{len(placed)} column{'s' * (len(placed) != 1)}"
        told = f"{WHAT[chooses]} {taken}, the batch has {given}"
        raise MapCallError(told + _remedy(signature, parameters, named, keywords, chooses)) from None


def _remedy(
    signature: inspect.Signature, parameters: list[inspect.Parameter], named: Any, keywords: Any, chooses: str
) -> str:
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in keywords:
        if name in named:
            return f"; it is also called with {name}=, so rename that column"
        if name not in signature.parameters and not takes_any:
            return f"; it is also called with {name}=: let it take that, or leave {name}= out"
    named_ones = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    needed = [each.name for each in named_ones if each.default is each.empty]
    if needed and named.keys() >= set(needed):
        return f": pass {chooses}={(needed[0] if len(needed) == 1 else needed)!r}"
    return f": pass {chooses}= with the {'names' if named else 'places'} of the columns to call it with"
