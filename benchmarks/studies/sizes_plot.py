"""The plot of rates by batch size.

Colours are those of Okabe and Ito, which people with any kind of colour vision tell apart; each curve also has its own
marker, and its name at its end instead of a legend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.svg import GRID, INK, PAPER, svg

TITLE = "Gigabytes delivered a second, by the bytes of a batch"
STYLES = {
    "plain": ("#000000", "o", ":"),
    "plain-threads": ("#000000", "x", "--"),
    "ours-processes": ("#0072b2", "s", "-"),
    "ours-one-process": ("#f0e442", "P", "-"),
    "ours-threads": ("#009e73", "^", "-"),
    "ours-serial": ("#56b4e9", "D", "-"),
    "torch-workers": ("#d55e00", "v", "--"),
    "torch-getitems": ("#e69f00", "X", "--"),
    "torch-none": ("#d55e00", "1", ":"),
    "torch-getitems-none": ("#e69f00", "2", ":"),
    "batchup-processes": ("#cc79a7", "<", "-."),
    "batchup-threads": ("#cc79a7", ">", "-."),
    "batchup-serial": ("#cc79a7", "h", "-."),
}
OTHER = ("#7f7f7f", ".", "-")
LABEL_GAP = 0.048
"""The least distance of two labels, as a part of the plot's height."""


@dataclass(frozen=True)
class Curve:
    """The figures of one variant.

    Attributes:
        name: The variant.
        points: Bytes of a batch with gigabytes a second, by rising bytes.
    """

    name: str
    points: tuple[tuple[float, float], ...]


def plot(curves: Sequence[Curve]) -> str:
    """The text of an SVG file.

    Raises:
        NoPlot: matplotlib is not installed.
    """
    return svg("sizes", TITLE, _told(curves), lambda figure: _draw(figure.add_subplot(), curves))


def _draw(axes: Any, curves: Sequence[Curve]) -> None:
    for curve in curves:
        colour, marker, line = STYLES.get(curve.name, OTHER)
        axes.plot(*zip(*curve.points, strict=True), color=colour, marker=marker, linestyle=line, linewidth=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    sizes = sorted({size for curve in curves for size, _ in curve.points})
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axes.set_title(TITLE, loc="left", color=INK, fontweight="bold")
    _set_axes(axes, sizes)
    _label(axes, curves)


def _set_axes(axes: Any, sizes: Sequence[float]) -> None:
    axes.set_facecolor(PAPER)
    axes.set_xticks(sizes, [human_bytes(size) for size in sizes])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel("a batch", color=INK)
    axes.set_ylabel("GB/s", color=INK)
    axes.tick_params(colors=INK)
    axes.grid(which="major", color=GRID, linewidth=0.8)
    for side, spine in axes.spines.items():
        spine.set_color(GRID if side in ("left", "bottom") else "none")


def _label(axes: Any, curves: Sequence[Curve]) -> None:
    """Write each name to the right of the plot, at the height of its curve's end or as near as there is room."""
    low, high = axes.get_ylim()
    to_place = axes.transScale.transform
    bottom, top = (to_place((1, value))[1] for value in (low, high))
    ends = [(to_place(curve.points[-1])[1] - bottom) / (top - bottom) for curve in curves]
    for curve, place in zip(curves, spaced(ends, LABEL_GAP), strict=True):
        colour = STYLES.get(curve.name, OTHER)[0]
        axes.annotate(
            curve.name, (1.01, place), xycoords="axes fraction", va="center", color=INK, annotation_clip=False,
            bbox={"boxstyle": "square,pad=0.12", "facecolor": "none", "edgecolor": colour, "linewidth": 1.2},
        )  # fmt: skip


def spaced(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved up where one would be closer than the gap to the next below.

    >>> spaced([0.5, 0.0, 0.51], 0.1)
    [0.5, 0.0, 0.6]
    """
    moved = list(places)
    lowest = float("-inf")
    for index in sorted(range(len(places)), key=lambda index: places[index]):
        moved[index] = max(places[index], lowest)
        lowest = moved[index] + gap
    return moved


def human_bytes(value: float) -> str:
    """Bytes in the unit that suits.

    >>> human_bytes(49160), human_bytes(1032360), human_bytes(67103400)
    ('49 kB', '1.0 MB', '67 MB')
    """
    if value < 1e6:
        return f"{value / 1e3:.0f} kB"
    return f"{value / 1e6:.1f} MB" if value < 1e7 else f"{value / 1e6:.0f} MB"


def _told(curves: Sequence[Curve]) -> str:
    """The plot in words."""
    ends = "; ".join(
        f"{curve.name} from {curve.points[0][1]:.2g} to {curve.points[-1][1]:.2g}" for curve in curves
    )
    return f"From the smallest batch to the largest, in GB/s: {ends}."
