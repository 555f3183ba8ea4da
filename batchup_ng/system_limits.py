"""How much memory this process may still use.

The least of what the machine has free, what the control groups of a container leave, what the limits on the process
leave. Pages of files that were read and may be dropped count as free, as ``MemAvailable`` counts them.
"""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from pathlib import Path

from . import cgroup


def available() -> float:
    """Return the bytes that this process may still use; infinity where nothing is known."""
    return min([math.inf, *_machine(), *_groups(), *_process()])


def _machine() -> Iterator[float]:
    found = kilobytes(_text(Path("/proc/meminfo")), "MemAvailable")
    if found is not None:
        yield found


def _groups() -> Iterator[float]:
    for folder in cgroup.folders("memory"):
        left = left_in_group(folder)
        if left is not None:
            yield left


def left_in_group(folder: Path) -> float | None:
    """Return what the limit of one group leaves; None where it has no limit."""
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, now = cgroup.number_in(folder / limit), cgroup.number_in(folder / used)
        if most is not None and now is not None:
            can_go = cgroup.entry_in(_text(folder / "memory.stat"), cache)
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
