"""The command line: ``python -m batchup_ng COMMAND``.

Exit codes: 0 done, 1 the command ran, with a result below what it promises or with files that cannot be read, 2 a wrong
option, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from typing import Any

from ._version import __version__
from .demo.job import WANTED_ACCURACY, Progress, run_demo
from .errors import BatchupError
from .inspection import inspected
from .loader import POOLS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, those of this process if they are None; return the exit code."""
    parser = argparse.ArgumentParser("batchup_ng", description="Mini-batches for neural networks.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"batchup_ng {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser("demo", help="train a small network on handwritten digits", allow_abbrev=False)
    pools = ("auto", *POOLS)
    demo.add_argument("--pool", choices=pools, default="auto", help="who makes the batches (default: %(default)s)")
    demo.add_argument("--workers", type=int, metavar="N", help="how many workers (default: one a CPU)")
    demo.add_argument("--epochs", type=int, metavar="N", default=20, help="default: %(default)s")
    demo.add_argument("--seed", type=int, metavar="N", default=1, help="default: %(default)s")
    demo.set_defaults(run=_demo)
    inspect = commands.add_parser("inspect", help="tell what a folder or table of pictures holds", allow_abbrev=False)
    inspect.add_argument("path", metavar="PATH", help="a folder, or a CSV file")
    inspect.add_argument("--image", metavar="COLUMN", default="path", help="of the paths (default: %(default)s)")
    inspect.add_argument("--label", metavar="COLUMN", help="of the labels (default: none)")
    inspect.add_argument("--separator", metavar="TEXT", help="between several labels of a picture")
    inspect.add_argument("--sample", type=int, metavar="N", default=1000, help="headers to read (default: %(default)s)")
    inspect.add_argument("--decode", action="store_true", help="decode all pictures instead, to find those that fail")
    inspect.add_argument("--write", metavar="FILE", help="of those that fail, a CSV file that exclude= takes")
    inspect.set_defaults(run=_inspect)
    options = vars(parser.parse_args(arguments))
    run = options.pop("run")
    try:
        return int(run(**options))
    except BatchupError as error:
        (demo if run is _demo else inspect).error(" ".join(str(error).split()))
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped", file=sys.stderr)
        return 130


def _demo(**options: Any) -> int:
    accuracy = run_demo(**options, say=functools.partial(print, flush=True), progress=progress_bar())
    reached = accuracy >= WANTED_ACCURACY
    verdict = "reached" if reached else "not reached; try more epochs"
    print(f"test accuracy {accuracy:.3f} ({WANTED_ACCURACY} {verdict})")
    return 0 if reached else 1


def _inspect(**options: Any) -> int:
    page, good = inspected(**options, progress=progress_bar())
    print(page)
    return 0 if good else 1


def progress_bar() -> Progress | None:
    """Return ``tqdm.tqdm`` where it is installed, else None."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm  # type: ignore[no-any-return,unused-ignore]  # typed only where tqdm's stubs are installed
