"""Functions that end what the package has started, called when the program ends.

The modules of pools load on first use, which may come late: in a function that the program itself has registered with
:mod:`atexit`. Python no longer calls what is registered then. So the package registers one function when it is
imported, and the modules add theirs to its list. What a program registers after the import runs before, and may use
pools.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable

_functions: list[Callable[[], object]] = []


def at_exit(function: Callable[[], object]) -> None:
    """Call `function` when the program ends, before those that were added earlier."""
    _functions.append(function)


@atexit.register
def _call_all() -> None:
    with contextlib.ExitStack() as stack:  # if one raises, the others are called all the same
        for function in _functions:
            stack.callback(function)
