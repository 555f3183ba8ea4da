"""Every figure of the docs, made anew: ``python -m benchmarks all --into docs/figures``.

Each study runs in a process of its own. As soon as it is done, its files replace the old ones, each at once. So a run
that is broken off leaves whole files. A study that fails ends no other. The exit code is 1 if a study failed or was
left out, 2 if the command line is wrong. ``--since 2026-11-28`` goes on with a run that was broken off: it leaves
out the studies whose pages are of that day or later.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.arguments import day, names_in, positive
from benchmarks.conditions import LINE, uncommitted
from benchmarks.peer_process import ROOT
from benchmarks.report import compared
from benchmarks.report.pages import table


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A row of the table: a command that makes files of the docs.

    Attributes:
        name: Name of the study, and of its files.
        minutes: About how long it takes on two CPUs.
        options: Options of the command, as the figure names them.
        quick: Options instead of these with ``--quick``.
        module: The module that is run with the folder as its argument, if it is no command of ``benchmarks``.
        files: Names of its files, if they do not begin with the name of the study.
    """

    name: str
    minutes: float
    options: str = ""
    quick: str = "--quick --rounds 1"
    module: str = ""
    files: tuple[str, ...] = ()

    def command(self, folder: Path, *, quick: bool) -> list[str]:
        """Return the command line that writes the files into a folder."""
        if self.module:
            return [sys.executable, "-m", self.module, str(folder)]
        options = shlex.split(self.quick if quick else self.options)
        return [sys.executable, "-m", "benchmarks", self.name, *options, "--output", str(folder)]

    def makes(self, file: str) -> bool:
        """Return whether a file of the docs is one of its files."""
        return file in self.files if self.files else Path(file).parts[0].partition(".")[0] == self.name

    def is_since(self, first: date, into: Path) -> bool:
        """Return whether its page in the folder was measured on a day or later; False if no page names a day."""
        page = into / f"{self.name}.md"
        found = LINE.search(page.read_text(encoding="utf-8")) if page.exists() else None
        return found is not None and date.fromisoformat(found[3]) >= first


FIGURES = (
    Figure(name="arrays", minutes=5, options="--rounds 5"),
    Figure(name="images", minutes=3, options="--rounds 3"),
    Figure(name="python", minutes=4, options="--rounds 3"),
    Figure(name="sizes", minutes=7, options="--rounds 2"),
    Figure(name="startup", minutes=14, options="--rounds 2"),
    Figure(name="overhead", minutes=6, options="--rounds 3"),
    Figure(name="consumer", minutes=11, options="--rounds 2"),
    Figure(name="storage", minutes=20, options="--rounds 2"),
    Figure(name="memory", minutes=3),
    Figure(name="order", minutes=2),
    Figure(name="dataloader", minutes=4, options="--rounds 3"),
    Figure(name="ray", minutes=13, options="--rounds 2"),
    Figure(name="resume", minutes=9, options="--rounds 2"),
    Figure(name="crash", minutes=8),
    Figure(name="limits", minutes=2, quick="--quick threads"),
    Figure(name="bottlenecks", minutes=4, quick="'a serial pool that computes'"),
    Figure(name="tuning", minutes=6, options="--rounds 3", quick="--rounds 1 'a map in NumPy'"),
    Figure(name="neighbour", minutes=6, options="--rounds 2", quick="--rounds 1 --seconds 1"),
    Figure(name="cluster", minutes=3, quick="--actors 8 --seconds 1"),
    Figure(name="adapters", minutes=3, options="--rounds 2"),
    Figure(name="images-large", minutes=7, options="--rounds 2"),
    Figure(name="images-epoch-2", minutes=5, options="--rounds 2"),
    Figure(name="augment", minutes=3, options="--rounds 3"),
    Figure(name="imports", minutes=1, quick="--rounds 2"),
    Figure(name="meters", minutes=3, options="--rounds 25", quick="--rounds 3 'a quick map'"),
    Figure(
        name="looking", minutes=1, module="benchmarks.report.sheets",
        files=("looking_columns.png", "looking_digits.png", "looking_stages.jpg"),
    ),
    Figure(name="augmentation", minutes=1, module="benchmarks.report.pictures", files=("augmentation.jpg",)),
)  # fmt: skip
"""Every command whose figures the docs show, in the order in which they run."""

BY_HAND = ("data_path.svg",)
"""Files of the docs that no command makes."""

DONE = "made"
TO_END = 20.0
"""Seconds that a study has to end when it is told to."""


def main(arguments: Sequence[str]) -> int:
    """Run the studies, and print a table of their seconds and outcomes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks all", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="folder of the figures")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the commands themselves")
    parser.add_argument("--only", metavar="NAMES", help="studies, comma-separated (default: all)")
    parser.add_argument("--budget", type=positive, default=3.0, metavar="HOURS", help="default: %(default)g")
    parser.add_argument("--since", type=day, metavar="DATE", help="only studies whose pages are older than this day")
    choice = parser.parse_args(arguments)
    try:
        named = names_in(choice.only, "--only", [figure.name for figure in FIGURES])
    except ValueError as error:
        parser.error(str(error))
    # Figures that an earlier run wrote do not count.
    if not choice.quick and uncommitted(ROOT, ".", f":(exclude,top){_inside(choice.into)}"):
        parser.error("the checkout has changes that are in no commit: commit them, or pass --quick to try the commands")
    if choice.quick and choice.into.resolve().is_relative_to(ROOT / "docs"):
        parser.error("--quick makes figures that mean nothing: give a folder outside docs")
    figures = [figure for figure in FIGURES if named is None or figure.name in named]
    if choice.since:
        figures = [figure for figure in figures if not figure.is_since(choice.since, choice.into)]
    _say(f"all: {expected(figures)}" if not choice.quick else "all: tiny sizes, the figures mean nothing")
    choice.into.mkdir(parents=True, exist_ok=True)
    rows, began = [], time.monotonic()
    for figure in figures:
        left = 3600 * choice.budget - (time.monotonic() - began)
        started = time.monotonic()
        outcome = made(figure, choice.into, quick=choice.quick, most=left)
        seconds = time.monotonic() - started
        _say(f"all: {figure.name}: {outcome}, {seconds:.0f} s")
        rows.append([figure.name, f"{seconds:.0f}", f"{60 * figure.minutes:.0f}", outcome])
    compared.draw(choice.into)
    print(table(("study", "s", "expected, s", "outcome"), rows))
    return int(any(not row[-1].startswith(DONE) for row in rows))


def expected(figures: Sequence[Figure]) -> str:
    """Return in words how long the studies take."""
    minutes = sum(figure.minutes for figure in figures)
    parts = ", ".join(f"{figure.name} {figure.minutes:g}" for figure in figures)
    return f"about {int(minutes // 60)} h {minutes % 60:.0f} min on two CPUs; in minutes: {parts}"


def made(figure: Figure, into: Path, *, quick: bool, most: float) -> str:
    """Run one study and put its files into the folder; return the outcome, which begins with `DONE` if all is well."""
    if most < (0 if quick else 60 * figure.minutes):
        return "left out: it does not fit into --budget"
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name, "made")
        folder.mkdir()
        code = finished(figure.command(folder, quick=quick), most)
        if code is None:
            return "failed: ended, as it went beyond --budget"
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in files:
            place(path, into / path.relative_to(folder))
        absent = missing(folder / f"{figure.name}.json")
    if code:
        return f"failed: exit code {code}" + (", its page is written" if files else "")
    return f"{DONE}{absent}" if files else "skipped: it wrote nothing"


def finished(command: Sequence[str], most: float) -> int | None:
    """Run a command, at most so many seconds; return its exit code, or None. Nothing that it started goes on."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(most)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its peers, each in a session of its own
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TO_END)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def place(path: Path, target: Path) -> None:
    """Put a copy of a file into the place of another, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(path, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def missing(path: Path) -> str:
    """Return which variants of a study were absent or failed; empty if none."""
    if not path.exists():
        return ""
    cases = json.loads(path.read_text(encoding="utf-8")).get("cases", ())
    lacking = {
        f"{one['name']} ({one['detail'] if one['status'] == 'absent' else one['status']})"
        for case in cases
        for one in case["variants"]
        if one["status"] != "measured"
    }
    return f" without {', '.join(sorted(lacking))}" if lacking else ""


def _inside(folder: Path) -> str:
    """Return a folder as seen from the checkout."""
    return os.path.relpath(folder.resolve(), ROOT)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
