"""Command line of the benchmarks.

    python -m benchmarks arrays --peers ours,torch --rounds 5 --output results

The exit code is 1 if a variant of ours failed, 2 if the command line is wrong or the data cannot be made.
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

from benchmarks import campaign
from benchmarks.case import Result
from benchmarks.data import MissingPhotographs
from benchmarks.harness import Options
from benchmarks.peers.base import Variant
from benchmarks.report import pages
from benchmarks.studies import STUDIES
from benchmarks.studies.base import Study
from benchmarks.studies.svg import NoPlot


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the page, write the files."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    choice = parser.parse_args(arguments)
    study = STUDIES[choice.study]
    choice.rounds = study.rounds if choice.rounds is None else choice.rounds
    try:
        options = Options(rounds=choice.rounds, workers=choice.workers, timeout=choice.timeout)
        study = study.only(choice.parts)
        names = study.names(choice.peers)
    except ValueError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            results = campaign.run(study, names, options, Path(folder), quick=choice.quick, say=_say)
        except MissingPhotographs as error:
            parser.error(str(error))
    _publish(study, _setting(study, choice, arguments, study.variants(names)), results, choice.output)
    outcomes = [outcome for result in results for outcome in result.outcomes]
    return int(any(outcome.family == "ours" and outcome.status == "failed" for outcome in outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare loaders side by side.")
    parser.add_argument("study", choices=tuple(STUDIES), help="what to measure")
    parser.add_argument("--peers", help="families or variants, comma-separated (default: the usual ones)")
    parser.add_argument("--parts", help="parts of the study, comma-separated, as its JSON calls them (default: all)")
    parser.add_argument("--rounds", type=int, help="turns of each variant after its first (default: the study's own)")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes of a variant (default: 2)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that one turn may take (default: 300)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the harness itself")
    parser.add_argument("--output", type=Path, help="folder for STUDY.json, STUDY.md and a plot, if there is one")
    return parser


def _leave(signum: int, frame: Any) -> NoReturn:
    """Turn a polite kill into an exception, so that processes and files are cleared away."""
    sys.exit(128 + signum)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _publish(study: Study, setting: pages.Setting, results: Sequence[Result], output: Path | None) -> None:
    page = pages.page(setting, results, study.tell, study.summary(results))
    print(page)
    if output is None:
        return
    fields = json.dumps(pages.to_json(setting, results), indent=2)
    files = {f"{study.name}.md": page, f"{study.name}.json": fields + "\n", **_drawn(study, results)}
    output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (output / name).write_text(text, encoding="utf-8")


def _drawn(study: Study, results: Sequence[Result]) -> dict[str, str]:
    try:
        return study.draw(results)
    except NoPlot as error:
        _say(str(error))
        return {}


def _setting(
    study: Study, choice: argparse.Namespace, arguments: Sequence[str], variants: Sequence[Variant]
) -> pages.Setting:
    return pages.Setting(
        study=study.name,
        title=study.title,
        command=pages.without_paths(shlex.join(["python", "-m", "benchmarks", *_without_output(arguments)])),
        date=date.today().isoformat(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        libraries=_versions(variants),
        workers=choice.workers,
        rounds=choice.rounds,
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
