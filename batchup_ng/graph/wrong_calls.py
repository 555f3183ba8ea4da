"""The errors of functions that do not take the columns of a batch, or are no functions of a batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import leaves
from ..error_context import function_name
from ..errors import ArgumentTypeError, MapCallError

COLLATE = "collate function"
"""The kind of function that is called with a list of samples."""

SAMPLE_MAP = "map of samples"

LOADER_MAP = "map of a loader"
"""The kind of function that always gets all columns. The others, but for `COLLATE`, have ``on=``."""

RNG = {
    "map": 'pass rng="sample", or rng="batch" to draw for the whole batch',
    SAMPLE_MAP: 'pass rng="sample"',
}  # fmt: skip
"""The remedy if the function takes random numbers, for the kinds of functions that can have them."""

OTHERS = "others"
"""The keyword with the companions, a list of batches or of samples."""

OPTIONS = {OTHERS: "companions"}
"""The options of a map that give a function keywords of another name."""

CHOSEN = ": pass on= with as many columns as it takes"
"""The remedy if ``on=`` gives a function too many or too few columns."""


TORCHVISION = "torchvision.transforms"
"""The package of transforms of tensors. They return an array as it is, without an error."""


def check_function(fn: Any) -> None:
    """Raise :class:`~batchup_ng.errors.ArgumentTypeError` if `fn` is no function of a batch."""
    if isinstance(fn, type) and hasattr(fn, "default_rng"):
        name = fn.__name__
        raise ArgumentTypeError(f"fn must be an operation, and augment.{name} makes one; call it: augment.{name}()")
    if not callable(fn):
        raise ArgumentTypeError(f"fn must be callable, not a {type(fn).__name__}; pass a function of a batch")


def takes_tensors(fn: Any) -> bool:
    """Return whether `fn` is a transform of torchvision's, which takes tensors or one picture."""
    return f"{type(fn).__module__}.".startswith(f"{TORCHVISION}.")


def check_tensors(fn: Any, batch: Any) -> None:
    """Raise :class:`~batchup_ng.errors.ArgumentTypeError` if the batch of a transform of torchvision's has an array."""
    if any(isinstance(each, np.ndarray) for each in leaves(batch)):
        raise ArgumentTypeError(
            f"{function_name(fn)} of torchvision takes tensors, not a batch of arrays, which it may leave as they are; "
            f"pass augment.torchvision(transform)"
        )


def check_call(
    fn: Callable[..., Any], placed: tuple[Any, ...], named: dict[str, Any], keywords: dict[str, Any], kind: str
) -> None:
    """Raise :class:`~batchup_ng.errors.MapCallError` if `fn` refuses these arguments."""
    try:
        signature = inspect.signature(fn)
    except ValueError:  # it has none
        return
    if named.keys().isdisjoint(keywords) and _binds(signature, placed, {**named, **keywords}):
        return
    parameters = [each for each in signature.parameters.values() if each.name not in keywords]
    noun = "map" if kind in (SAMPLE_MAP, LOADER_MAP) else kind
    taken = f"{noun} {function_name(fn)} takes ({', '.join(each.name for each in parameters)})"
    if kind == COLLATE:
        raise MapCallError(f"{taken}, and is called with the list of samples alone") from None
    n = len(placed) + len(named)
    if wrong := _wrong_keyword(signature, parameters, named, keywords):
        remedy = chosen = f"; {wrong}"
    elif kind in RNG and "rng" not in keywords and _binds(signature, placed, {"rng": None, **named, **keywords}):
        remedy = chosen = f": {RNG[kind]}"
    elif kind == LOADER_MAP:
        on = _fitting(parameters, named)
        call = f"source.map(fn, on={'...' if on is None else repr(on)})"
        remedy = chosen = f": let it take each, or map the source, {call}"
    elif kind in RNG and "rng" in signature.parameters and "rng" not in {**named, **keywords}:
        others = [each for each in parameters if each.name != "rng"]
        remedy, chosen = (f"{on} and {RNG[kind].removeprefix('pass ')}" for on in (_remedy(others, named), CHOSEN))
    else:
        remedy, chosen = _remedy(parameters, named), CHOSEN
    error = MapCallError(f"{taken}, the batch has {', '.join(named) or _columns(n)}{remedy}")
    error.refused = id(fn), taken, n, chosen
    raise error from None


def _binds(signature: inspect.Signature, placed: tuple[Any, ...], named: dict[str, Any]) -> bool:
    try:
        signature.bind(*placed, **named)
    except TypeError:
        return False
    return True


def _wrong_keyword(
    signature: inspect.Signature, parameters: list[inspect.Parameter], named: Any, keywords: Any
) -> str:
    """Return the remedy for a further argument that the function does not take; "" if it takes them all."""
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in keywords:
        if name in named:
            return f"it is also called with {name}=, so rename that column"
        if name not in signature.parameters and not takes_any:
            option = OPTIONS.get(name, name)
            return f"it is also called with {name}=: let it take that, or leave {option}= out"
    return ""


def _remedy(parameters: list[inspect.Parameter], named: Any) -> str:
    on = _fitting(parameters, named)
    if on is None and len(named) == 1 and len(parameters) == 1:
        return f": pass on={next(iter(named))!r}"
    if on is None:
        such_as = "names" if named else "places"
        return f": pass on= with the {such_as} of the columns to call it with" + ", such as on=0" * (not named)
    return f": pass on={on!r}"


def _fitting(parameters: list[inspect.Parameter], named: Any) -> Any:
    """Return the columns that a function needs, one or a list, if the batch has them by name. Else None."""
    named_ones = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    needed = [each.name for each in named_ones if each.default is each.empty]
    if not needed or not named.keys() >= set(needed):
        return None
    return needed[0] if len(needed) == 1 else needed


def with_on(error: MapCallError, on: Any, batch: Any, fns: Sequence[Any]) -> MapCallError:
    """Return the error of a call of one of `fns` with the columns `on`. It names them, and all columns of the batch."""
    refused, taken, n, remedy = error.refused or (0, "", 0, "")
    if refused not in map(id, fns):  # it is the error of a call inside of the function
        return error
    has = f"the columns {', '.join(batch)}" if isinstance(batch, Mapping) else _columns(len(batch))
    how = "is called with" if on is None else f"on={on!r} passes it"  # None: views of the images
    return MapCallError(f"{taken}, and {how} {_columns(n)}; the batch has {has}{remedy}")


def _columns(n: int) -> str:
    return f"{n} column{'s' * (n != 1)}"
