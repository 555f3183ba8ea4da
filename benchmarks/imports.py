"""Seconds that imports take, compared with NumPy alone: ``python -m benchmarks imports``.

Each import runs in a fresh interpreter, which measures it itself. The programs take turns, so that all see the same
machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.arguments import count
from benchmarks.own import OwnStudy
from benchmarks.report.pages import table

_LOADER = """import numpy, batchup_ng
with batchup_ng.Loader([numpy.arange(8)], 4, pool={!r}, workers={}) as loader:
    next(iter(loader))"""

NUMPY = "import numpy"
"""The name of the program with which the others are compared."""

PROGRAMS = {
    NUMPY: "import numpy",
    "import batchup_ng": "import batchup_ng",
    "the first use of batchup_ng.Loader": "import batchup_ng; batchup_ng.Loader",
    "the first batch of a serial loader": _LOADER.format("serial", None),
    "the first batch of a loader with one thread": _LOADER.format("threads", 1),
}
"""What is measured, from the start of each program to its end, without the start of the interpreter."""

HEAD = ("program", "ms", "quartiles", "times NumPy")


def main(arguments: Sequence[str]) -> int:
    """Run the programs in turn, and print the table."""
    study = OwnStudy("imports", __doc__)
    study.add("--rounds", type=count, default=21, metavar="N", help="default: %(default)s")
    choice = study.parse(arguments)
    found: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for number in range(choice.rounds + 1):
        for name, program in PROGRAMS.items():
            taken = seconds(program)
            if number:  # the first round compiles what has no bytecode yet
                found[name].append(taken)
    study.publish(page(study.line, found), found)
    return 0


def seconds(program: str) -> float:
    """Return the seconds of a program in a fresh interpreter."""
    timed = f"import time; began = time.perf_counter()\n{program}\nprint(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True)
    return float(done.stdout)


def page(told: str, found: Mapping[str, Sequence[float]]) -> str:
    """Return the page of the seconds of each program, below the line of their conditions."""
    rows = [row(name, each, found[NUMPY]) for name, each in found.items()]
    summary = (
        f"NumPy {np.__version__}, {len(found[NUMPY])} rounds: the median of the fresh processes, and the median of the "
        "ratios to `import numpy` in the same round."
    )
    return f"## imports: beside NumPy's\n\n{told}\n\n{summary}\n\n<!-- table -->\n\n{table(HEAD, rows)}\n"


def row(name: str, found: Sequence[float], of_numpy: Sequence[float]) -> list[str]:
    """Return the row of a program."""
    low, median, high = (1e3 * value for value in statistics.quantiles(found, n=4))
    ratio = statistics.median(own / other for own, other in zip(found, of_numpy, strict=True))
    return [name, f"{median:.0f}", f"{low:.0f} to {high:.0f}", f"{ratio:.2f}"]
