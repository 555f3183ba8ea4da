"""Which functions travel by value, because a worker could not import them.

cloudpickle sends by value what the main module defines; all else it sends by name. A name is of no use to a worker
where the module was made by hand, or loaded from a file that no import would find, as notebooks' tools, plug-ins,
test runners do it. Such modules are registered with cloudpickle, for the life of the program: no other process could
import them either.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from typing import Any

import cloudpickle

_known: dict[str, Any] = {}
"""The modules that were looked at, by name."""


def send_by_value_if_need_be(obj: Any) -> None:
    """Have a function, class or module sent by value if a worker could not import its module."""
    name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name in ("__main__", "__mp_main__") or _known.get(module.__name__) is module:
        return
    _known[module.__name__] = module
    if str(getattr(module, "__file__", None) or ".py").endswith(".py") and not _can_be_imported(module):
        cloudpickle.register_pickle_by_value(module)


def _can_be_imported(module: types.ModuleType) -> bool:
    """Return whether another process with the same ``sys.path`` finds the module by its name."""
    package, _, _ = module.__name__.rpartition(".")
    if not package:
        return _is_found(module.__name__, None)
    top = module.__name__.partition(".")[0]
    if not _is_found(top, None):
        return False
    file = getattr(module, "__file__", None)
    if type(module) is not types.ModuleType or not file or not os.path.isabs(file) or not file.endswith(".py"):
        return True  # a library made it when it was imported, and will make it again
    path = getattr(sys.modules.get(package), "__path__", None)
    return path is not None and _is_found(module.__name__, path)


def _is_found(name: str, path: Any) -> bool:
    if name in sys.builtin_module_names:
        return True
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # a finder of somebody else's
            if finder.find_spec(name, path) is not None:
                return True
    return False
