"""The limits that a container, or another control group, sets on this process.

A process is in a group of groups; each level may set a limit. Version 2 has one tree, version 1 one for each resource.
Inside a container the path that the system tells may not be seen; then the root of what is seen is the container's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def paths_of(text: str, controller: str) -> tuple[str | None, str | None]:
    """Return the path of the group in version 2 and that for `controller` in version 1, from ``/proc/self/cgroup``.

    >>> paths_of("4:cpu,memory:/a/b\\n0::/c\\n", "memory")
    ('/c', '/a/b')
    """
    second = first = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            second = path
        elif controller in controllers.split(","):
            first = path
    return second, first


def folders(controller: str, root: Path = ROOT, text: str | None = None) -> Iterator[Path]:
    """Yield the folders whose files have limits on this process, the innermost first, of both versions.

    Args:
        controller: ``"memory"`` or ``"cpu"``.
        root: Where the groups are mounted.
        text: What ``/proc/self/cgroup`` says; None reads it.
    """
    if text is None:
        try:
            text = Path("/proc/self/cgroup").read_text(encoding="utf-8")
        except OSError:
            return
    second, first = paths_of(text, controller)
    for base, path in ((root, second), (root / "unified", second), (root / controller, first)):
        if path is None or not base.is_dir():
            continue
        folder = base / path.lstrip("/")
        if ".." in folder.parts or not folder.is_dir():
            folder = base  # its place in the tree is not seen from here
        while True:
            yield folder
            if folder == base:
                break
            folder = folder.parent


def memory_limit() -> float:
    """Return the bytes of memory that this process and the others of its groups may use; infinity without a limit."""
    files = [folder / name for folder in folders("memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min([math.inf, *[limit for limit in map(number_in, files) if limit is not None]])


def number_in(file: Path) -> int | None:
    """Return the number that a file holds; None where there is no such file, or no limit."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def entry_in(text: str, name: str) -> int:
    """Return the number that follows `name` in a file of names and numbers; 0 where it has none.

    >>> entry_in("anon 7\\ninactive_file 4096\\n", "inactive_file")
    4096
    """
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0
