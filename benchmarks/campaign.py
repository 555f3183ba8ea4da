"""Run a study: make the data of each part once, then measure part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.case import Result
from benchmarks.data import MissingPhotographs, make
from benchmarks.harness import Options, measure
from benchmarks.studies.base import Study
from benchmarks.workloads import Workload


def run(
    study: Study,
    names: Sequence[str] | None,
    options: Options,
    folder: Path,
    *,
    quick: bool,
    say: Callable[[str], None],
) -> list[Result]:
    """Measure all parts in which somebody takes part.

    Args:
        study: What to measure.
        names: Who takes part; None for the usual ones.
        options: Rounds, workers, deadline.
        folder: An empty one, for the data.
        quick: Tiny sizes.
        say: Told of progress, a line each.

    Raises:
        MissingPhotographs: The study needs them throughout. Where only some parts do, these are left out.
    """
    made: dict[str, Workload] = {}
    results = []
    for part in study.parts:
        if not part.variants(names):
            continue
        try:
            workload = made.get(part.kind) or _make(part.kind, folder, quick=quick)
        except MissingPhotographs as error:
            if len(study.parts) == 1:
                raise
            say(f"left out: {part.title}: {error}")
            continue
        made[part.kind] = workload
        say(part.title)
        results.append(measure(part.case(workload, names, quick=quick), options, say))
    return results


def _make(kind: str, folder: Path, *, quick: bool) -> Workload:
    place = folder / kind
    place.mkdir(exist_ok=True)
    return make(kind, place, quick=quick)
