"""Detects that the program reloaded a module whose old code workers still run.

Functions of modules are pickled by name, and a worker imports each module once. After ``importlib.reload``
(``%autoreload``) the program has the new code, but workers of a pool that was used before have the old code. The pool
does not know which modules the workers have imported, because modules import others. A reload of any module counts.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from typing import Any

import cloudpickle

from ...errors import WorkerWarning
from ...warn import warn_consumer

_FOLDERS = [path for name, path in sysconfig.get_paths().items() if name.endswith("lib")]
INSTALLED_FOLDERS = (*_FOLDERS, os.path.abspath(f"{__file__}/../../.."))
"""Folders of modules that nobody reloads: there may be thousands, and checking all would take a millisecond."""


class Reloads:
    """The user's modules that the program had when its workers last got something new.

    `newest` is the highest number of a flow so far. A flow with a higher number is new.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()  # the names of all modules that were checked
        self._specs: dict[str, Any] = {}  # of the user's modules
        self._old_code = False
        self.newest = -1

    def look(self, flow_id: int) -> None:
        """Warn of modules that were reloaded. Called before the first task of each flow."""
        self.newest = flow_id
        found = self._reloaded()
        self._specs.update({name: _spec_of(name) for name in found})
        self._old_code = self._old_code or bool(found)
        for name in [*(sys.modules.keys() - self._known)]:
            self._known.add(name)
            spec = _spec_of(name)
            origin = getattr(spec, "origin", None)  # the file; None for a folder without __init__.py
            if origin is not None and os.path.isabs(origin) and not origin.startswith(INSTALLED_FOLDERS):
                self._specs[name] = spec
        if found:
            warn_consumer(
                f"{', '.join(sorted(found))} was reloaded after this pool was first used, and workers that have "
                f"imported it go on with its old code; make a new pool, and the source anew",
                WorkerWarning,
            )

    def old_code(self) -> bool:
        """Return whether workers may have old code of a module."""
        return self._old_code or bool(self._reloaded())

    def _reloaded(self) -> set[str]:
        """Return the names of the modules that were reloaded since the last look."""
        specs = [(name, old, _spec_of(name)) for name, old in [*self._specs.items()]]
        found = {name for name, old, spec in specs if spec is not old and spec is not None}
        by_value: set[str] = cloudpickle.list_registry_pickle_by_value()
        return found - {"__main__"} - by_value  # these are pickled each time


def _spec_of(name: str) -> Any:
    """Return the spec of a module; None if there is none. A reload makes a new spec."""
    module = sys.modules.get(name)
    # Not by getattr(), which would load a module that is imported lazily.
    own = types.ModuleType.__getattribute__(module, "__dict__") if isinstance(module, types.ModuleType) else {}
    return own.get("__spec__")
