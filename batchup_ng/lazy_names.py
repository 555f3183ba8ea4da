"""Names of a package whose modules load on first use (PEP 562).

A program that imports a package does not wait for rooms that it never uses, nor for the libraries that these import.
If a first use is interrupted, the next one imports again.

One lock for all names. Python itself has an import lock for each module. While a thread runs the ``__init__`` of a
package, another may import a module inside it. If both then wait for each other, Python gives one of them half a
module. A thread that has the one lock waits for no thread that wants it, because no module of ours uses such a name
while it is imported; ``tests/test_lazy_names.py`` tests that. A fork waits for the lock, or its child could find half a
module.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from .platforms import system

_LOCK = threading.RLock()
"""Held while a first use imports. Reentrant: a signal handler may be the first to use another name."""

system.held_in_forks(_LOCK)


def on_first_use(
    package: str, names: Mapping[str, Sequence[str]], hidden: Mapping[str, Sequence[str]] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: The name of the package.
        names: For each module, relative to the package, the names that it has. Its own name stands for the module.
        hidden: Further such names, which ``dir()`` does not list.
    """
    listed = {name: module for module, of_module in names.items() for name in of_module}
    modules = listed | {name: module for module, of_module in (hidden or {}).items() for name in of_module}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        with _LOCK:
            module = import_module(modules[name], package)
            value = module if modules[name] == f".{name}" else getattr(module, name)
        if name in listed:
            setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *listed})

    return __getattr__, __dir__
