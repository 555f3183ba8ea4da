"""The plot of what an order costs: bars of time and of memory, both on scales of powers of ten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report.tables import number
from benchmarks.studies.svg import GRID, INK, PAPER, svg

TITLE = "A shuffled order, before its first batch and in memory"
OURS, OTHERS = "#0072b2", "#9aa0a6"
LEAST = 0.01
"""Where the bars begin."""


@dataclass(frozen=True)
class Bar:
    """The figures of one variant.

    Attributes:
        label: What stands beside it.
        ours: Whether it is one of ours.
        first_batch: Milliseconds until the first batch.
        memory: Megabytes that resident memory grew by.
    """

    label: str
    ours: bool
    first_batch: float
    memory: float


def plot(bars: Sequence[Bar]) -> str:
    """The text of an SVG file.

    Raises:
        NoPlot: matplotlib is not installed.
    """
    figures = "; ".join(f"{bar.label}: {number(bar.first_batch)} ms, {number(bar.memory)} MB" for bar in bars)
    told = f"Time to the first batch and growth of memory. {figures}."
    return svg("order", TITLE, told, lambda figure: _draw(figure, bars), size=(9.6, 4.0))


def _draw(figure: Any, bars: Sequence[Bar]) -> None:
    figure.suptitle(TITLE, x=0.01, ha="left", color=INK, fontweight="bold")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_bars(left, bars, [bar.first_batch for bar in bars], "first batch, ms")
    _draw_bars(right, bars, [bar.memory for bar in bars], "memory grew by, MB")
    left.set_yticks(range(len(bars)), [bar.label for bar in bars])
    left.invert_yaxis()


def _draw_bars(axes: Any, bars: Sequence[Bar], values: Sequence[float], what: str) -> None:
    axes.set_facecolor(PAPER)
    colours = [OURS if bar.ours else OTHERS for bar in bars]
    ends = [max(value, LEAST) for value in values]
    axes.set_xscale("log")
    axes.barh(range(len(bars)), [end - LEAST for end in ends], left=LEAST, color=colours, height=0.62)
    for place, (value, end) in enumerate(zip(values, ends, strict=True)):
        axes.annotate(number(value), (end, place), (4, 0), textcoords="offset points", va="center", color=INK)
    axes.set_xlim(LEAST, max(ends) * 12)
    axes.set_xticks([10.0**k for k in range(-2, 10, 2) if 10.0**k < max(ends) * 12])
    axes.minorticks_off()
    axes.set_xlabel(what, color=INK)
    axes.xaxis.set_major_formatter(lambda value, place: f"{value:,g}")
    axes.tick_params(colors=INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(which="major", axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_color(GRID if side in ("left", "bottom") else "none")
