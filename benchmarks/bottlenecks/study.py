"""The table of ``python -m benchmarks bottlenecks``: causes and gains by ``explain()``, and the true ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.bottlenecks.planted import PLANTED
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table

HEAD = ("planted", "cause found", "ms a batch", "wait, %", "first change", "predicted, ms", "measured, ms", "off by, %")
NEAR = 0.25
"""How far a prediction may be from what was measured when the advice was followed."""


def main(arguments: Sequence[str]) -> int:
    """Run each bottleneck in a fresh process and print the table; return 1 if a cause is wrong."""
    study = OwnStudy("bottlenecks", __doc__, files="bottlenecks.md, .json and what explain() printed")
    study.add_parts()
    choice = study.parse(arguments)
    found = [measured(name) for name in study.chosen(PLANTED)]
    study.publish(page(study.line, found), found)
    if choice.output is not None:
        screens = choice.output / "bottlenecks"
        screens.mkdir(exist_ok=True)
        for figures in found:
            (screens / f"{file_name(figures['name'])}.txt").write_text(figures["screen"] + "\n", encoding="utf-8")
    return int(not all(is_right(figures) for figures in found))


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one bottleneck; raise ``CalledProcessError`` if it fails."""
    print(f"bottlenecks: {name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.bottlenecks.program", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def file_name(name: str) -> str:
    """Return the name of a file for the text of an explanation."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def is_right(figures: dict[str, Any]) -> bool:
    """Return whether explain() found the planted cause."""
    return figures["cause"] in figures["causes"]


def off_by(figures: dict[str, Any]) -> float | None:
    """Return the error of the prediction as a share of the measured time; None if nothing was predicted."""
    measured = figures.get("measured")
    return None if measured is None else float(figures["predicted"] / measured - 1.0)


def page(told: str, found: Sequence[dict[str, Any]]) -> str:
    """Return the page of some figures, below the line of their conditions."""
    off = [share for figures in found if (share := off_by(figures)) is not None]
    near = sum(abs(share) <= NEAR for share in off)
    summary = (
        f"The cause is the planted one in {sum(map(is_right, found))} of {len(found)}. The prediction is within "
        f"{NEAR:.0%} of what was measured in {near} of {len(off)}, where the first change was made."
    )
    rows = table(HEAD, [row(figures) for figures in found])
    return f"## bottlenecks: what explain() says of them\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{rows}\n"


def row(figures: dict[str, Any]) -> list[str]:
    """Return the row of one bottleneck."""
    cause = figures["cause"] if is_right(figures) else f"{figures['cause']} (wrong: {' or '.join(figures['causes'])})"
    share = off_by(figures)
    return [
        figures["name"], f"{cause}, {figures['confidence']}", _ms(figures["seconds"]),
        f"{100 * figures['wait_share']:.0f}", figures.get("advice", ""), _ms(figures.get("predicted")),
        _ms(figures.get("measured")), "" if share is None else f"{100 * share:+.0f}",
    ]  # fmt: skip


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"
