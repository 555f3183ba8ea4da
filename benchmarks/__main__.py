"""Command line of the benchmarks.

    python -m benchmarks arrays sizes --peers ours,plain --against ../before --output results

The exit code is 1 if a variant of this library failed, 2 if the command line is wrong or the data cannot be made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from benchmarks.arguments import checkout, count, names_in, positive
from benchmarks.conditions import conditions, version
from benchmarks.harness import Options, measure
from benchmarks.own import OWN, run
from benchmarks.peer_process import PACKAGE, ROOT
from benchmarks.peers import known
from benchmarks.peers.base import BEFORE, OURS, Variant
from benchmarks.plan import Part, Result, Study
from benchmarks.report import pages, plots
from benchmarks.studies import STUDIES
from benchmarks.workloads import make
from benchmarks.workloads.base import Workload


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all data, then run each study; print its page and write its files as soon as it is done."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and arguments[0] in OWN:
        return run(arguments[0], arguments[1:])
    parser = _parser()
    choice = parser.parse_args(arguments)
    everything: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            plan = _plan(choice)
            made = _made(plan, Path(folder), quick=choice.quick)
        except ValueError as error:
            parser.error(str(error))
        except ModuleNotFoundError as error:
            parser.error(f"the data cannot be made: {error}; install it with: pip install 'batchup_ng[benchmarks]'")
        for study, parts in plan:
            options = Options(
                rounds=choice.rounds or study.rounds, workers=choice.workers, timeout=choice.timeout, say=_say
            )
            results = []
            for part, variants in parts:
                _say(f"{study.name}: {part.title}")
                workload = part.adapt(made[part.kind])
                results.append(measure(part.sized(quick=choice.quick), variants, workload, options))
            taken_part = [variant for _, variants in parts for variant in variants]
            _publish(study, _setting(choice, options, arguments, taken_part), results, choice.output)
            everything += results
    if len(plan) > 1:
        print(pages.changes(everything))
    return int(any(one.family == OURS and one.status == "failed" for result in everything for one in result.outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare loaders side by side.")
    parser.epilog = (
        f"Some commands have options of their own, python -m benchmarks NAME --help: {', '.join(OWN)}"
    )
    add = parser.add_argument
    add("studies", nargs="+", choices=tuple(STUDIES), metavar="STUDY", help=", ".join(STUDIES))
    add("--peers", help="families or variants, comma-separated (default: the usual ones)")
    add("--parts", help="parts of the studies, comma-separated, by their JSON names (default: all)")
    add("--against", type=checkout, help="another checkout of ours, to take part as NAME@before")
    add("--rounds", type=count, help="turns of each variant after its first (default: the study's own)")
    add("--workers", type=count, default=2, help="threads or processes of a variant (default: %(default)s)")
    add("--timeout", type=positive, default=300.0, help="seconds that one turn may take (default: %(default)s)")
    add("--quick", action="store_true", help="tiny sizes, to try the harness itself")
    add("--output", type=Path, help="folder for STUDY.json, STUDY.md and a plot, if there is one")
    return parser


Plan: TypeAlias = "list[tuple[Study, list[tuple[Part, tuple[Variant, ...]]]]]"
"""Studies, each with the parts that have at least one variant."""


def _plan(choice: argparse.Namespace) -> Plan:
    """Return the plan that the command line asks for; raise ValueError if a part or peer is unknown."""
    studies = [STUDIES[name] for name in choice.studies]
    parts = [part for study in studies for part in study.parts]
    able = [variant for part in parts for variant in known(part.kind)]
    named = names_in(choice.parts, "parts", (part.name for part in parts))
    peers = names_in(choice.peers, "peers", (*(each.family for each in able), *(each.name for each in able)))
    plan: Plan = []
    for study in studies:
        if not choice.quick and (lack := study.lack()):
            print(f"{study.name}: skipped, {lack}")
            continue
        chosen = [part for part in study.parts if named is None or part.name in named]
        pairs = [(part, part.variants(peers, str(choice.against or ""))) for part in chosen]
        if taking_part := [(part, variants) for part, variants in pairs if variants]:
            plan.append((study, taking_part))
    return plan


def _made(plan: Plan, folder: Path, *, quick: bool) -> dict[str, Workload]:
    """Make the data of all parts, each kind once."""
    kinds = dict.fromkeys(part.kind for _, parts in plan for part, _ in parts)
    for kind in kinds:
        (folder / kind).mkdir()
    return {kind: make(kind, folder / kind, quick=quick) for kind in kinds}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _publish(study: Study, setting: Mapping[str, Any], results: Sequence[Result], output: Path | None) -> None:
    page = pages.page(study, setting, results)
    print(page)
    if output is None:
        return
    output.mkdir(parents=True, exist_ok=True)
    fields = {"study": study.name, "setting": setting, "cases": list(map(pages.case, results))}
    (output / f"{study.name}.md").write_text(page, encoding="utf-8")
    (output / f"{study.name}.json").write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    if study.across and any(result.told for result in results):
        (output / f"{study.name}.svg").write_text(plots.curves(study, results), encoding="utf-8")


def _setting(
    choice: argparse.Namespace, options: Options, arguments: Sequence[str], variants: Sequence[Variant]
) -> dict[str, Any]:
    """Return the conditions of the measurement, without names of hosts and folders."""
    return {
        **conditions(arguments, choice.output),
        "libraries": _versions(variants, choice.against),
        "workers": options.workers,
        "rounds": options.rounds,
        "quick": choice.quick,
    }


def _versions(variants: Sequence[Variant], against: Path | None) -> dict[str, str]:
    """Return the versions of the libraries that took part, found without importing them; for checkouts the commit."""
    versions = {}
    for name in dict.fromkeys(["numpy", "pillow", *(module for variant in variants for module in variant.needs)]):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    checkouts = {PACKAGE: ROOT, f"{PACKAGE}@{BEFORE}": against}
    return versions | {name: version(folder) for name, folder in checkouts.items() if folder is not None}


def _leave(signum: int, frame: Any) -> NoReturn:
    """Turn SIGTERM into an exception, which cleans up processes and files."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main())
