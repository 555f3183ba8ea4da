"""Command line of the benchmarks.

    python -m benchmarks arrays --peers ours,torch --rounds 5 --output results

The exit code is 1 if a variant of ours failed, 2 if the command line is wrong or the workload cannot be made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from benchmarks import report, workloads
from benchmarks.harness import Options, measure
from benchmarks.outcome import Outcome
from benchmarks.peers import choose
from benchmarks.peers.base import Variant


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the files."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    choice = parser.parse_args(arguments)
    try:
        options = Options(rounds=choice.rounds, workers=choice.workers, timeout=choice.timeout)
        variants = choose(choice.workload, choice.peers)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            workload = workloads.make(choice.workload, Path(folder), quick=choice.quick)
        except workloads.MissingPhotographs as error:
            parser.error(str(error))
        outcomes = measure(variants, workload, options, _say)
    setting = _setting(choice, arguments, variants, workload)
    _publish(setting, outcomes, choice.output)
    return int(any(outcome.family == "ours" and outcome.status == "failed" for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare loaders side by side.")
    parser.add_argument("workload", choices=workloads.KINDS)
    parser.add_argument("--peers", help="families or variants, comma-separated (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="steady-state epochs of each variant (default: 5)")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes of a variant (default: 2)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one epoch may take (default: 300)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the harness itself")
    parser.add_argument("--output", type=Path, help="folder for WORKLOAD.json and WORKLOAD.md")
    return parser


def _leave(signum: int, frame: Any) -> NoReturn:
    """Turn a polite kill into an exception, so that processes and files are cleared away."""
    sys.exit(128 + signum)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _publish(setting: report.Setting, outcomes: Sequence[Outcome], output: Path | None) -> None:
    page = report.to_markdown(setting, outcomes)
    print(page)
    if output is None:
        return
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{setting.kind}.md").write_text(page, encoding="utf-8")
    fields = json.dumps(report.to_json(setting, outcomes), indent=2)
    (output / f"{setting.kind}.json").write_text(fields + "\n", encoding="utf-8")


def _setting(
    choice: argparse.Namespace, arguments: Sequence[str], variants: Sequence[Variant], workload: workloads.Workload
) -> report.Setting:
    return report.Setting(
        kind=workload.kind,
        command=report.without_paths(shlex.join(["python", "-m", "benchmarks", *_without_output(arguments)])),
        date=date.today().isoformat(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        libraries=_versions(variants),
        samples=workload.samples,
        batch_size=workload.batch_size,
        workers=choice.workers,
        quick=choice.quick,
    )


def _without_output(arguments: Sequence[str]) -> list[str]:
    """The arguments but for the output folder, which is nobody's business.

    >>> _without_output(["arrays", "--output", "x", "--quick"])
    ['arrays', '--quick']
    """
    kept = [word for word in arguments if not word.startswith("--output=")]
    if "--output" in kept:
        place = kept.index("--output")
        del kept[place : place + 2]
    return kept


def _versions(variants: Sequence[Variant]) -> dict[str, str]:
    """Versions of the installed libraries that took part; found without importing them."""
    names = dict.fromkeys(["numpy", "pillow", *(module for variant in variants for module in variant.needs)])
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            if find_spec(name) is not None:
                versions[name] = "from the checkout"
    return versions


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
