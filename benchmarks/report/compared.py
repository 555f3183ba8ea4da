"""The plots and the text of docs/compared_speed.md, made anew from the JSON files in a folder: ``plots``.

    python -m benchmarks plots docs/figures
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.records import Reading
from benchmarks.report.bars import Bars, Value, svg
from benchmarks.report.columns import number, times


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One file, made from the JSON of one study.

    Attributes:
        name: Name of the file, without its ending.
        heading: Heading of its section on the page; empty for a plot of another page.
        what: What is measured, in a sentence or two.
        panels: The panels, all of one study.
    """

    name: str
    heading: str = ""
    what: str = ""
    panels: tuple[Bars, ...]

    @property
    def study(self) -> str:
        """The study whose JSON it draws."""
        return self.panels[0].study


FIRST_BATCH = Reading("first_batch_seconds")
PLOTS = (
    Plot(
        name="compared_arrays", heading="Arrays",
        what="20,000 images of 128×128×3 bytes in memory, shuffled, in batches of 64.",
        panels=(Bars(study="arrays", part="arrays", title="GB/s", reading=Reading("bytes", "seconds", 1e-9)),),
    ),
    Plot(
        name="compared_jpeg", heading="JPEG files",
        what="2,000 JPEG files, decoded to 224×224 RGB. The variants decode by several libraries.",
        panels=(Bars(study="images", part="images", title="images/s", reading=Reading("samples", "seconds")),),
    ),
    Plot(
        name="compared_storage", heading="Storage",
        what="A file of 983 MB in HDF5, one image of 49 kB at a random place after the other, and the same images in "
        "tar shards, in order.",
        panels=tuple(
            Bars(
                study="storage", part=part, title=title, reading=Reading("seconds", "batches", 1e3),
                less_is_better=True,
            )
            for part, title in (("hdf5-random", "HDF5, random, ms a batch"), ("tar-contiguous", "tar, ms a batch"))
        ),
    ),
    Plot(
        name="compared_start", heading="Start-up",
        what="A new loader with two workers and next to no data: the time to its first batch.",
        panels=(Bars(study="startup", part="new", title="s", reading=FIRST_BATCH, less_is_better=True),),
    ),
    Plot(
        name="compared_first_batch", heading="First batch",
        what="A new loader with two workers over 983 MB in memory: the time to its first batch.",
        panels=(Bars(study="startup", part="memory", title="s", reading=FIRST_BATCH, less_is_better=True),),
    ),
    Plot(
        name="compared_worker", heading="Memory of a worker",
        what="The private memory of the largest process that was started, over the same 983 MB, after two epochs.",
        panels=(
            Bars(
                study="startup", part="memory", title="MB", reading=Reading("worker_private_bytes", times=1e-6),
                less_is_better=True,
            ),
        ),
    ),
    Plot(
        name="compared_empty", heading="Empty batches",
        what="Batches of 64 numbers and a map that does nothing: what a batch costs beside its work.",
        panels=(Bars(study="overhead", part="empty", title="batches/s", reading=Reading("batches", "seconds")),),
    ),
    Plot(
        name="compared_resume", heading="Resume",
        what="8,000 rows; each keeps a worker for 0.5 ms. A new loader goes on from a state of mid-epoch: the time to "
        "its first batch.",
        panels=(Bars(study="resume", part="resume-50", title="s", reading=FIRST_BATCH, less_is_better=True),),
    ),
    Plot(
        name="compared_crash", heading="Crash",
        what="The same rows. A worker process is killed in mid-epoch: the time until the loop gets an error, or, "
        "where the loader goes on, the batch that the worker was making. An error ends the training, so the shortest "
        "bar is not always the best: the list says how each ends.",
        panels=(
            Bars(
                study="crash", part="crash-kill", title="s", reading=Reading("reaction_seconds"), less_is_better=True,
            ),
        ),
    ),
    Plot(
        name="order",
        panels=(
            Bars(study="order", part="rows", title="first batch, s", reading=FIRST_BATCH, less_is_better=True),
            Bars(
                study="order", part="rows", title="growth of memory, MB", reading=Reading("growth_bytes", times=1e-6),
                less_is_better=True,
            ),
        ),
    ),
)  # fmt: skip

FILES = ("compared.md", *(f"{plot.name}.svg" for plot in PLOTS))
"""Names of the files that `draw` writes."""


def main(arguments: Sequence[str]) -> int:
    """Draw the plots of a folder again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plots", description=main.__doc__)
    parser.add_argument("folder", type=Path, help="with the JSON files of the studies")
    draw(parser.parse_args(arguments).folder)
    return 0


def draw(folder: Path) -> None:
    """Draw each plot whose study has a JSON file in the folder, and write the text of the page."""
    sections = []
    for plot in PLOTS:
        path = folder / f"{plot.study}.json"
        fields = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        panels = [(bars, bars.values(fields)) for bars in plot.panels] if fields else []
        panels = [(bars, values) for bars, values in panels if values]
        if panels:
            (folder / f"{plot.name}.svg").write_text(svg(plot.name, panels), encoding="utf-8")
        if plot.heading:
            body = drawn(plot, fields, panels) if fields and panels else [undrawn(plot, folder)]
            sections.append("\n\n".join([f"## {plot.heading}", plot.what, *body]))
    (folder / "compared.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def drawn(plot: Plot, fields: dict[str, Any], panels: Sequence[tuple[Bars, Sequence[Value]]]) -> list[str]:
    """Return the section of a plot: the figure, our place in words, what is missing, and the conditions."""
    setting = fields["setting"]
    figure = f"```{{figure}} figures/{plot.name}.svg\n:alt: {plot.heading}: a bar for each variant.\n:width: 100%\n```"
    missing = ["\n".join(f"- {line}" for bars, _ in panels for line in (*bars.remarks(fields), *bars.missing(fields)))]
    versions = ", ".join(f"{name} {version}" for name, version in setting["libraries"].items())
    conditions = "`{command}`, {date}: {cpus} CPUs, {system}, Python {python}; ".format(**setting)
    quick = ["Tiny sizes (`--quick`): the figures mean nothing."] if setting["quick"] else []
    return [figure, *(standing(*panel) for panel in panels), *filter(None, missing), f"{conditions}{versions}.", *quick]


def standing(bars: Bars, values: Sequence[Value]) -> str:
    """Return the place of our best variant in words, also if it is not the first.

    A hand-written loop counts as a competitor, too.
    """
    ours = next((each for each in values if each.ours), None)
    others = [each for each in values if not each.ours]
    if ours is None or not others:
        return f"{bars.title}: nothing to compare."
    best = others[0]
    share = ours.median / best.median if best.median else float("nan")
    told = f"`{ours.name}` {number(ours.median)}, `{best.name}` {number(best.median)}, {times(share)} times as much"
    won = ours.median <= best.median if bars.less_is_better else ours.median >= best.median
    verdict = "Ours is the best" if won else f"**Ours loses**: place {values.index(ours) + 1} of {len(values)}"
    return f"{bars.title}: {verdict}. {told}."


def undrawn(plot: Plot, folder: Path) -> str:
    """Return what the section says as long as the study has no JSON file."""
    page = folder / f"{plot.study}.md"
    found = re.search(r", (\d{4}-\d\d-\d\d):", page.read_text(encoding="utf-8")) if page.exists() else None
    where = f"the table of {found[1]} is under [Figures](benchmarks.md#figures)" if found else "there is no figure yet"
    return f"Not drawn yet: {where}. `python -m benchmarks {plot.study}` measures it."
