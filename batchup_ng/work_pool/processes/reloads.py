"""Notices that a module was reloaded which workers have imported: they go on with its old code.

Functions of modules travel by name, and a worker imports each module once. After ``importlib.reload`` (``%autoreload``)
the program has new code, and the workers of a pool that was used before have the old one. Which modules they have
imported is not known here, for one imports others; so a reload of any counts.
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
INSTALLED = (*_FOLDERS, os.path.abspath(f"{__file__}/../../.."))
"""Folders of modules that nobody reloads: there may be thousands, and looking at all would take a millisecond."""


class Reloads:
    """Knows the user's modules that the program had when its workers were last given something new.

    `newest` is the highest number of a stream that there was; one with a higher number is new.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()  # the names of all modules that were looked at
        self._specs: dict[str, Any] = {}  # of the user's
        self.newest = -1

    def look(self, stream_id: int) -> None:
        """Warn of modules that were reloaded; called before the first task of each stream."""
        self.newest = stream_id
        found = set()
        for name in [*self._specs]:
            spec = _spec_of(name)
            if spec is not self._specs[name] and spec is not None:
                found.add(name)
                self._specs[name] = spec
        for name in [*(sys.modules.keys() - self._known)]:
            self._known.add(name)
            spec = _spec_of(name)
            origin = getattr(spec, "origin", None)  # the file; None of a folder without __init__.py
            if origin is not None and os.path.isabs(origin) and not origin.startswith(INSTALLED):
                self._specs[name] = spec
        found -= {"__main__"} | cloudpickle.list_registry_pickle_by_value()  # they travel anew
        if found:
            warn_consumer(
                f"{', '.join(sorted(found))} was reloaded after this pool was first used, and workers that have "
                f"imported it go on with its old code; make a new pool, and the source anew",
                WorkerWarning,
            )


def _spec_of(name: str) -> Any:
    """Return the spec of a module, which is another one after a reload; None if there is none."""
    module = sys.modules.get(name)
    # Not by getattr(), at which a module that is imported lazily would be loaded.
    own = types.ModuleType.__getattribute__(module, "__dict__") if isinstance(module, types.ModuleType) else {}
    return own.get("__spec__")
