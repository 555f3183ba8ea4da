"""Workers that are processes. Programs with another pool never load them."""

from typing import TYPE_CHECKING

from ...lazy_names import on_first_use

__all__ = ["WorkerProcessPool"]

if TYPE_CHECKING:
    from . import fork_server as fork_server
    from . import serialization as serialization
    from . import trial_copy as trial_copy
    from .pool import WorkerProcessPool
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".fork_server": ["fork_server"],
            ".pool": ["WorkerProcessPool"],
            ".serialization": ["serialization"],
            ".trial_copy": ["trial_copy"],
        },
    )
