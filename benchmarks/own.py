"""The common part of studies with a command line of their own: options, the head of the page, the files.

Such a study is a module with ``main(arguments)``, named in `OWN`. The other studies are rows of ``studies.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import conditions

OWN = {
    "all": "benchmarks.everything",
    "bottlenecks": "benchmarks.bottlenecks.study",
    "cluster": "benchmarks.cluster.scenarios",
    "imports": "benchmarks.imports",
    "limits": "benchmarks.limits.study",
    "meters": "benchmarks.meters",
    "neighbour": "benchmarks.tuning.neighbour",
    "plots": "benchmarks.report.compared",
    "tuning": "benchmarks.tuning.study",
}
"""Modules of the commands with options of their own, by name. They import the library, which other studies must not."""


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a command of `OWN`; return its exit code."""
    code: int = import_module(OWN[name]).main(arguments)
    return code


class OwnStudy:
    """The command line and the output of one study.

    Args:
        name: Name of the study and of its files.
        description: Text for ``--help``.
        files: The files that ``--output`` gets, for ``--help``.
    """

    def __init__(self, name: str, description: str | None, files: str = "") -> None:
        self.name = name
        self.parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
        self.add = self.parser.add_argument
        self.add("--output", type=Path, help=f"folder for {files or f'{name}.md and {name}.json'}")
        self.arguments: Sequence[str] = ()

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read the command line, and remember it for the page."""
        self.arguments = arguments
        self.choice = self.parser.parse_args(arguments)
        return self.choice

    def add_parts(self) -> None:
        """Let the command line name parts of names."""
        self.add("parts", nargs="*", metavar="PART", help="of the names (default: all)")

    def chosen(self, names: Collection[str]) -> list[str]:
        """Return the names that have one of the parts on the command line; end the program if there are none."""
        found = [name for name in names if not self.choice.parts or any(part in name for part in self.choice.parts)]
        if not found:
            self.parser.error(f"no name has {' or '.join(self.choice.parts)}; the names are: {'; '.join(names)}")
        return found

    def say(self, *what: str) -> None:
        """Print a line of progress."""
        print(f"{self.name}: {', '.join(what)}", file=sys.stderr, flush=True)

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions of the measurement."""
        return conditions.conditions([self.name, *self.arguments], self.choice.output)

    @property
    def line(self) -> str:
        """The conditions in one line."""
        return conditions.line(self.conditions)

    def publish(self, page: str, figures: Any = None) -> None:
        """Print the page. With ``--output``, write it, and the figures as JSON unless they are None."""
        print(page)
        folder = self.choice.output
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(page, encoding="utf-8")
        if figures is not None:
            fields = {"study": self.name, "setting": self.conditions, "figures": figures}
            (folder / f"{self.name}.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
