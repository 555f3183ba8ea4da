"""A folder for programs that leave others running for a while, which still write to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def short_folder(patience: float = 120.0) -> Iterator[Path]:
    """Give a folder whose name is short enough for the sockets of PyTorch and Ray in it; remove it with all in it.

    The agents of Ray live on for a minute. What they write while the folder is removed is removed then.
    """
    folder = tempfile.mkdtemp(prefix="")
    try:
        yield Path(folder)
    finally:
        until = time.monotonic() + patience
        while os.path.exists(folder):
            shutil.rmtree(folder, ignore_errors=time.monotonic() < until)
            time.sleep(0.01)
