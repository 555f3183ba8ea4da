"""How much memory this process may still use, and which limits a container or another control group sets on it.

What is free is the least of what the machine has free, what the control groups of a container leave, what the limits on
the process leave. Pages of files that were read and may be dropped count as free, as ``MemAvailable`` counts them.

A process is in a group of groups; each level may set a limit. Version 2 has one tree, version 1 one for each resource.
Inside a container the path that the system tells may not be seen; then the root of what is seen is the container's own.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def available() -> float:
    """Return the bytes that this process may still use; infinity where nothing is known."""
    return min([math.inf, *_machine(), *_groups(), *_process()])


def _machine() -> Iterator[float]:
    found = kilobytes(_text(Path("/proc/meminfo")), "MemAvailable")
    if found is not None:
        yield found


def _groups() -> Iterator[float]:
    for folder in group_folders("memory"):
        left = left_in_group(folder)
        if left is not None:
            yield left


def left_in_group(folder: Path) -> float | None:
    """Return what the limit of one group leaves; None where it has no limit."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = number_in(folder / limit), number_in(folder / used)
        if most is not None and now is not None:
            can_go = entry_in(_text(folder / "memory.stat"), cache)
            return max(0.0, most - max(0, now - can_go))
    return None


def _process() -> Iterator[float]:
    status = _text(Path("/proc/self/status"))
    for kind, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield max(0.0, limit - (kilobytes(status, name) or 0.0))


def kilobytes(text: str, name: str) -> float | None:
    """Return, in bytes, an entry of a file like ``/proc/meminfo``; None where it has none.

    >>> kilobytes("MemTotal:  24 kB\\nMemAvailable:   2 kB\\n", "MemAvailable")
    2048.0
    """
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            number = value.split()[0] if value.split() else ""
            return float(number) * 1024 if number.isdigit() else None
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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


def group_folders(controller: str, root: Path = ROOT, text: str | None = None) -> Iterator[Path]:
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
    files = [folder / name for folder in group_folders("memory") for name in ("memory.max", "memory.limit_in_bytes")]
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
