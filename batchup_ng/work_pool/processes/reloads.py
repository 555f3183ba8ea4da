"""Notices that a module was reloaded which workers have imported: they go on with its old code.

Functions of modules travel by name, and a worker imports each module once. After ``importlib.reload`` (``%autoreload``)
the program has new code, and the workers of a pool that was used before have the old one. Which modules they have
imported is not known here, for one imports others; so a reload of any counts.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import cloudpickle

from ...errors import WorkerWarning
from ...warn import warn_consumer


class Reloads:
    """Knows the modules that the program had when its workers were last given something new.

    `newest` is the highest number of a stream that there was; one with a higher number is new.
    """

    def __init__(self) -> None:
        self._specs: dict[str, Any] = {}
        self.newest = -1

    def look(self, stream_id: int) -> None:
        """Warn of modules that were reloaded; called before the first task of each stream."""
        self.newest = stream_id
        before, self._specs = self._specs, _specs()
        found = {name for name, spec in self._specs.items() if before.get(name, spec) is not spec}
        found -= {"__main__"} | cloudpickle.list_registry_pickle_by_value()  # they travel anew
        if found:
            warn_consumer(
                f"{', '.join(sorted(found))} was reloaded after this pool was first used, and workers that have "
                f"imported it go on with its old code; make a new pool, and the source anew",
                WorkerWarning,
            )


def _specs() -> dict[str, Any]:
    """Return the spec of each module, which is another one after a reload."""
    found = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType):
            # Not by getattr(), at which a module that is imported lazily would be loaded.
            found[name] = types.ModuleType.__getattribute__(module, "__dict__").get("__spec__")
    return found
