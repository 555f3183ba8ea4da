"""The table of ``python -m benchmarks limits``: the peak of all processes of some programs under a limit on memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.limits.settings import MB, SETTINGS
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table

HEAD = ("program", "limit, MB", "peak above the baseline, MB", "of the limit, %", "most counted, MB",
        "holders at the peak, MB", "baseline, MB", "s")  # fmt: skip
QUICK = 0.1
"""Scale of a quick run."""

HOLDERS_NAMED = 4
"""Holders that a row names."""


def main(arguments: Sequence[str]) -> int:
    """Run each program in a fresh process and print the table; return 1 if one failed or had a wrong row."""
    study = OwnStudy("limits", __doc__)
    study.add("settings", nargs="*", metavar="SETTING", help=f"{', '.join(SETTINGS)} (default: all)")
    study.add("--quick", action="store_true", help="a tenth of the data and of the limits")
    choice = study.parse(arguments)
    if unknown := set(choice.settings) - set(SETTINGS):
        study.parser.error(f"no such setting: {', '.join(sorted(unknown))}; choose from {', '.join(SETTINGS)}")
    found = [measured(name, QUICK if choice.quick else 1.0) for name in choice.settings or SETTINGS]
    study.publish(page(study.line, found), found)
    return int(any(figures["wrong"] for figures in found))


def measured(name: str, scale: float) -> dict[str, Any]:
    """Return the figures of one program; raise ``CalledProcessError`` if it fails."""
    print(f"limits: {name}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        (small := Path(folder) / "small").mkdir()
        SETTINGS[name].make(Path(folder), scale)
        SETTINGS[name].make(small, 0.0)
        command = [sys.executable, "-m", "benchmarks.limits.program", name, folder, str(scale)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def page(told: str, found: Sequence[dict[str, Any]]) -> str:
    """Return the page of some figures, below the line of their conditions."""
    rows = table(HEAD, [row(figures) for figures in found])
    return f"## limits: programs under a limit on memory\n\n{told}\n\n<!-- table -->\n\n{rows}\n"


def row(figures: dict[str, Any]) -> list[str]:
    """Return the row of one program."""
    largest = sorted(figures["held"].items(), key=lambda each: -each[1])[:HOLDERS_NAMED]
    held = ", ".join(f"{kind} {nbytes / MB:.0f}" for kind, nbytes in largest if nbytes >= MB)
    numbers = [f"{figures[key] / MB:.0f}" for key in ("limit", "peak", "counted", "baseline")]
    share = f"{100 * figures['peak'] / figures['limit']:.0f}"
    title = SETTINGS[figures["name"]].title
    return [title, numbers[0], numbers[1], share, numbers[2], held, numbers[3], f"{figures['seconds']:.0f}"]
