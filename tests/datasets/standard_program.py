"""A program that fetches MNIST from a server, as tests start it: ``python -m tests.datasets.standard_program JSON``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.datasets.standard import table
from tests import small_disk

MODULES = ("parsing.py", "converting.py", "keeping.py", "fetching.py")
"""Where a kill may come."""


def digest(root: str) -> str:
    """Fetch the set, and return a digest of all that it holds."""
    found = bu.datasets.mnist(root, progress=False)
    parts = [np.concatenate(column) for part in (found.train, found.test)
             for column in zip(*part.batch_iterator(16), strict=True)]  # fmt: skip
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def killed_at(root: str, moment: int) -> bool:
    """Fetch the set in a child that is killed at its `moment`-th step. Return whether it came to its end before."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    seen = 0

    def count(frame: Any, *event: Any) -> None:
        nonlocal seen
        seen += frame.f_code.co_filename.endswith(MODULES)
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    try:
        bu.datasets.mnist(root, progress=False)
    finally:
        sys.setprofile(None)
        os._exit(0)


def killed_anywhere(folder: str, step: int) -> Any:
    """Kill at every `step`-th step, each in a new folder; return the number of kills, and all digests afterwards."""
    digests, moment = set(), step // 2
    while not killed_at(os.path.join(folder, str(moment)), moment):
        root = os.path.join(folder, str(moment))
        digests.add(digest(root))
        assert not list(Path(root, "downloads").iterdir())
        moment += step
    return moment // step, sorted(digests)


def on_full_disks(folder: str, step: int) -> Any:
    """Fetch to ever larger disks until one has room; on those that are full fetch again when they have more."""
    try:
        small_disk.own_mounts()
    except OSError as error:
        return str(error), []
    digests, full = set(), 0
    for nbytes in range(step, 1 << 24, step):
        with small_disk.small_disk(Path(folder), nbytes) as resize:
            try:
                digests.add(digest(folder))
                break
            except bu.WriteError as error:
                if not re.search("No space left on device.*; make room", str(error)) or Path(folder, "mnist").exists():
                    raise
            full += 1
            resize(1 << 26)
            digests.add(digest(folder))
    return full, sorted(digests)


def main() -> None:
    told = json.loads(sys.argv[1])
    table.FILES["mnist"] = tuple(table.RemoteFile(name, tuple(urls), *rest) for name, urls, *rest in told["files"])
    print(json.dumps(globals()[told["function"]](told["root"], *told.get("arguments", []))))


if __name__ == "__main__":
    main()
