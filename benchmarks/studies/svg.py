"""Plots as SVG files that are the same for the same figures.

Text stays text. Nothing in the file depends on the day or the run, or on the settings of whoever draws it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

INK, PAPER, GRID = "#1d2530", "#fcfcfa", "#d5d8dc"


class NoPlot(RuntimeError):
    """matplotlib is not installed."""


def svg(name: str, title: str, told: str, draw: Callable[[Any], None], size: tuple[float, float] = (9.6, 5.4)) -> str:
    """The text of an SVG file.

    Args:
        name: Of the file, from which the names within it are made.
        title: For those who do not see it.
        told: What they would see.
        draw: Draws on a figure of matplotlib's.
        size: Inches.

    Raises:
        NoPlot: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlot("the plot needs matplotlib; install it with: pip install 'batchup_ng[plot]'") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's own settings are
        matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 11})
        figure = Figure(figsize=size, facecolor=PAPER, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    words = f"<title>{escape(title)}</title>\n <desc>{escape(told)}</desc>"
    return re.sub(r"(<svg [^>]*)>", rf'\1 role="img">\n {words}', file.getvalue(), count=1)
