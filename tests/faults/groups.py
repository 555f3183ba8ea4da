"""Control groups of this machine with a limit, for programs that are to run out of something.

Both versions are tried. In the second a controller must be handed down to the groups below, which the system may
refuse.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchup_ng.memory import limits


@contextlib.contextmanager
def group_with(controller: str, *files: str) -> Iterator[Path]:
    """Yield a new control group that has one of `files`; skips the test where none can be made.

    Args:
        controller: ``memory`` or ``pids``.
        files: Names of a limit, in the one version or the other.
    """
    made = _made(controller, files)
    if made is None:
        pytest.skip(f"no control group that limits {controller} can be made here")
    try:
        yield made
    finally:
        remove(made)


def remove(group: Path) -> None:
    """Remove a group once its last process is gone, for which it may still be counted a moment after its end."""
    deadline = time.monotonic() + 120
    while group.exists():
        assert time.monotonic() < deadline, f"left in the group: {(group / 'cgroup.procs').read_text().split()}"
        with contextlib.suppress(OSError):
            group.rmdir()
        time.sleep(0.02)


def _made(controller: str, files: tuple[str, ...]) -> Path | None:
    for folder in limits.group_folders(controller):
        made = folder / f"batchup_ng-faults-{os.getpid()}"
        if not (folder / "cgroup.procs").exists():
            continue
        with contextlib.suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")  # the second version
        try:
            made.mkdir()
        except OSError:
            continue
        if any((made / file).exists() for file in files):
            return made
        made.rmdir()
    return None
