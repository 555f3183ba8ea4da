"""What the task that runs in this worker may ask of the pool."""

from __future__ import annotations

import threading
from typing import Any


class _Current(threading.local):
    """The task that runs on this thread."""

    task: Any = None


CURRENT = _Current()
