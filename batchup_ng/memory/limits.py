"""The memory that this process may still use, and the limits of its container or other control group.

Free memory is the least of three: the free memory of the machine, the rest in the control groups of a container
(:func:`available`), and the rest in the limits on the process. Cached pages of files that may be dropped count as free,
as in ``MemAvailable``.

A process is in a group of groups; each level may set a limit. Version 2 has one tree, version 1 has one tree for each
resource. Inside a container the path in ``/proc/self/cgroup`` may not be visible; then the visible root is the
container's own group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path

from ..platforms import system
from ..signals import InterruptsHeld

CGROUP_ROOT = Path("/sys/fs/cgroup")

SHARE_TO_SPARE = 1 / 10
"""Part of the memory that caches leave free, for the remaining program and its processes."""

MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""For each version: the file of a group's limit, the file of its use, and the entry in ``memory.stat`` for files that
may be dropped."""


def available() -> float:
    """Return the bytes that the machine, the groups and ``ulimit -d`` leave; infinity if nothing is known.

    Signals wait: otherwise an exception of a handler, such as ``TimeoutError``, would pass for a missing file.
    """
    with InterruptsHeld():
        return min([left for left, _ in (*_of_all(), *_of_process(system.limit_on("RLIMIT_DATA"), "VmData"))])


def addresses_left() -> float:
    """Return the bytes that may still be mapped (``ulimit -v``); infinity without a limit. Mapped files count."""
    with InterruptsHeld():
        return min([left for left, _ in _of_process(system.limit_on("RLIMIT_AS"), "VmSize")], default=math.inf)


def can_spare() -> bool:
    """Return whether more than a :data:`SHARE_TO_SPARE` of the memory is free, of the machine and of each group."""
    with InterruptsHeld():
        return all(left > SHARE_TO_SPARE * most for left, most in _of_all())


def _of_all() -> Iterator[tuple[float, float]]:
    """Yield the rest and the whole of the memory of the machine, and of each group."""
    machine = entries(Path("/proc/meminfo"))
    yield machine.get("MemAvailable", math.inf), machine.get("MemTotal", 0)
    for most, (folder, used, cache) in memory_limits():
        if (now := number_in(folder / used)) is not None:
            yield max(0, most - max(0, now - entries(folder / "memory.stat").get(cache, 0))), most


def _of_process(limit: float, name: str) -> Iterator[tuple[float, float]]:
    """Yield the rest and the whole of a limit on this process, if there is one."""
    if limit < math.inf:
        yield max(0, limit - entries(Path("/proc/self/status")).get(name, 0)), limit


def memory_limits() -> Iterator[tuple[int, tuple[Path, str, str]]]:
    """Yield each limit on the memory of this process's groups, in bytes, and the names of the files for its use."""
    for folder, (limit, used, cache) in itertools.product(group_folders("memory"), MEMORY_FILES):
        if (most := number_in(folder / limit)) is not None:
            yield most, (folder, used, cache)


def group_folders(controller: str, root: Path = CGROUP_ROOT, text: str | None = None) -> Iterator[Path]:
    """Yield the folders of the limits on this process, the innermost first, of both versions.

    Args:
        controller: ``"memory"`` or ``"cpu"``.
        root: Mount point of the groups.
        text: Content of ``/proc/self/cgroup``; None reads it.
    """
    lines = (_text(Path("/proc/self/cgroup")) if text is None else text).splitlines()
    for _, controllers, path in sorted(line.split(":", 2) for line in lines if line.count(":") >= 2):
        base = root / controller if controllers else root  # version 2 has no names of controllers there
        if (controllers and controller not in controllers.split(",")) or not base.is_dir():
            continue
        folder = base / path.lstrip("/")
        if ".." in folder.parts or not folder.is_dir():
            folder = base  # its place in the tree is not visible from here
        yield from (around for around in (folder, *folder.parents) if around == base or base in around.parents)


def entries(file: Path) -> dict[str, int]:
    """Return the numbers of a file like ``/proc/meminfo`` or ``memory.stat``, by name, kB in bytes; {} if none."""
    lines = [line.split() for line in _text(file).splitlines()]
    numbers = [words for words in lines if (len(words) == 2 or words[2:] == ["kB"]) and words[1].isdecimal()]
    return {words[0].rstrip(":"): int(words[1]) << 10 * len(words[2:]) for words in numbers}


def number_in(file: Path) -> int | None:
    """Return the number that a file holds; None if there is no such file, or no limit."""
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
