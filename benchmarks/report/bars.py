"""Bars of the variants of a part, drawn from the JSON of its study: ours in one colour, the best on top.

An SVG file depends only on the figures. It has a white ground, so it can be read on light and dark pages.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.peers.base import OURS
from benchmarks.records import Epoch, Reading
from benchmarks.report.columns import number

OUR_COLOUR, THEIR_COLOUR = "#1f6fd0", "#a9adb3"
DETAIL = 120
"""Characters of the text of an error."""


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One panel: a figure of each variant of a part.

    Attributes:
        study: Name of the JSON file.
        part: Name of the part in it.
        title: What is measured, with its unit.
        reading: The figure.
        less_is_better: Whether the shortest bar is the best.
        first: Whether the figure is of the first epoch, not of the rounds.
    """

    study: str
    part: str
    title: str
    reading: Reading
    less_is_better: bool = False
    first: bool = False

    def values(self, fields: Mapping[str, Any]) -> list[Value]:
        """Return the figures of all measured variants, the best first; empty if the part is not there."""
        cases = [case for case in fields["cases"] if case["name"] == self.part]
        variants = [one for case in cases for one in case["variants"] if one["status"] == "measured"]
        found = []
        for one in variants:
            epochs = [one["first"]] if self.first else one["rounds"]
            told = [value for epoch in epochs if epoch and (value := self.reading(Epoch(**epoch))) == value]
            if told:
                found.append(Value(one["name"], one["family"] == OURS, median(told), min(told), max(told)))
        return sorted(found, key=lambda each: each.median, reverse=not self.less_is_better)

    def missing(self, fields: Mapping[str, Any]) -> list[str]:
        """Return why the other variants have no figure."""
        cases = [case for case in fields["cases"] if case["name"] == self.part]
        others = [one for case in cases for one in case["variants"] if one["status"] != "measured"]
        return [f"`{one['name']}`: {one['status']}, {one['detail'][:DETAIL]}" for one in others]

    def remarks(self, fields: Mapping[str, Any]) -> list[str]:
        """Return how each variant ended, where the study notes it, and the rows that it lost or delivered twice."""
        found = []
        for one in (one for case in fields["cases"] if case["name"] == self.part for one in case["variants"]):
            told = [epoch["notes"].get("end", "") for epoch in one["rounds"]]
            for name, words in (("lost", "rows lost"), ("twice", "rows twice")):
                most = max((epoch["figures"].get(name, 0.0) for epoch in one["rounds"]), default=0.0)
                told += [f"{most:g} {words}"] if most else []
            if one["status"] == "measured" and any(told):
                found.append(f"`{one['name']}`: {'; '.join(dict.fromkeys(filter(None, told)))}")
        return found


@dataclass(frozen=True)
class Value:
    """The figure of one variant: its median and range over the rounds."""

    name: str
    ours: bool
    median: float
    low: float
    high: float


def svg(name: str, panels: Sequence[tuple[Bars, Sequence[Value]]]) -> str:
    """Return the panels side by side, as the text of an SVG file."""
    import matplotlib
    from matplotlib.figure import Figure

    # The file ignores the user's settings and contains no date. Text stays text.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9})
        rows = max(len(values) for _, values in panels)
        figure = Figure(figsize=(8.0, 0.8 + 0.26 * rows), layout="constrained", facecolor="white")
        for place, (bars, values) in enumerate(panels, 1):
            _draw(figure.add_subplot(1, len(panels), place), bars, values)
        file = io.StringIO()
        title = "; ".join(bars.title for bars, _ in panels)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    return file.getvalue()


def _draw(axes: Any, bars: Bars, values: Sequence[Value]) -> None:
    """Draw the bars of a panel, with a line from the lowest round to the highest."""
    shown = list(reversed(values))  # the first bar is at the bottom
    medians = [each.median for each in shown]
    colours = [OUR_COLOUR if each.ours else THEIR_COLOUR for each in shown]
    spread = [[each.median - each.low for each in shown], [each.high - each.median for each in shown]]
    drawn = axes.barh([each.name for each in shown], medians, color=colours, xerr=spread, ecolor="#55585c")
    axes.bar_label(drawn, [number(value) for value in medians], padding=3, fontsize=8)  # to the right of the lines
    axes.margins(x=0.15)
    axes.set_title(f"{bars.title}: {'less' if bars.less_is_better else 'more'} is better", fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    for label, each in zip(axes.get_yticklabels(), shown, strict=True):
        label.set_color(OUR_COLOUR if each.ours else "black")
