"""The conditions of a measurement: command, date, version with commit, CPUs, system, Python. Each figure names them."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.peer_process import PACKAGE, ROOT
from benchmarks.report.pages import without_paths

MEASURED = ("batchup_ng", "benchmarks")
"""Folders of a checkout whose uncommitted changes make its commit ``-dirty``. Pages and figures do not count."""


LINE = re.compile(r"`(python -m benchmarks (\S+)[^`]*)`(?:, in two runs one after the other)?, (\d{4}-\d\d-\d\d): ")
"""The begin of the first line of a page: the command, in it the study, and the day."""


def command(words: Sequence[str], output: Path | None) -> str:
    """Return the command line with these arguments, without ``--output`` and without names of folders."""
    kept = [word for word in words if word not in ("--output", str(output))]
    return without_paths(shlex.join(["python", "-m", "benchmarks", *kept]))


def conditions(words: Sequence[str], output: Path | None) -> dict[str, Any]:
    """Return the conditions, without names of hosts and folders."""
    return {
        "command": command(words, output),
        "date": date.today().isoformat(),
        "version": version(ROOT),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def line(found: dict[str, Any]) -> str:
    """Return the conditions as the first line of a page."""
    told = "`{command}`, {date}: batchup_ng {version}, {cpus} CPUs, {system}, Python {python}."
    return told.format(**found)


def version(checkout: Path) -> str:
    """Return the version of the library in a checkout, with its commit: ``0.1.0 (383ee8c)``."""
    text = (checkout / PACKAGE / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    commit = _git(checkout, "rev-parse", "--short", "HEAD") or "of no known commit"
    dirty = "-dirty" if uncommitted(checkout, *MEASURED) else ""
    return f"{found[1] if found else 'of no known version'} ({commit}{dirty})"


def uncommitted(checkout: Path, *paths: str) -> bool:
    """Return whether tracked files of a checkout have changes that are in no commit."""
    return bool(_git(checkout, "status", "--porcelain", "--untracked-files=no", "--", *paths))


def _git(checkout: Path, *words: str) -> str:
    """Return what git prints; empty if there is no git, or the folder is no checkout."""
    asks = ["git", "-C", str(checkout), *words]
    try:
        return subprocess.run(asks, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
