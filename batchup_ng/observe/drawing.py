"""Draws panels on a figure of matplotlib, in pixels from its upper left corner.

No function of ``pyplot`` is called: the figure has a canvas of Agg, which needs no display, and the program's own
figures and its choice of a backend stay. Texts are drawn as they are: ``$`` begins no formula.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..extras import library
from .panels import Heat, Line, Panel, Picture, Text
from .values import shortened

DPI = 100
"""Pixels of the figure in an inch."""

FONT_SIZE = 6.0
"""Size of the characters, in points."""

CHAR, LINE = 5.1, 11
"""Width of a character and height of a line, in pixels: those of DejaVu Sans Mono of this size, and a little more."""

COLOURS = (
    "#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#f032e6", "#9a6324", "#808000", "#000075",
)  # fmt: skip
"""Colours of classes, in turn; of objects without a class in turn, too."""

INK, GREY, RED = "#000000", "#9a9a9a", "#c00000"

OVERLAY = 0.45
"""Opacity of a mask over an image."""

MOST_PIXELS = 60_000
"""The largest side of a figure: Agg draws fewer than 2^16."""


def new_figure(width: int, height: int) -> Any:
    """Return an empty white figure of so many pixels, which belongs to no window.

    Raises:
        ImportError: matplotlib is not installed.
    """
    backend = library("matplotlib.backends.backend_agg", "show needs matplotlib", "plot")
    made_by = library("matplotlib.figure", "show needs matplotlib", "plot")
    figure = made_by.Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    figure.set_layout_engine("none")  # the rcParams of the program may name another
    backend.FigureCanvasAgg(figure)
    return figure


def file_of(figure: Any, kind: str) -> bytes:
    """Return the content of a file of the figure, in a format such as ``"png"``. Settings of the program do not count.

    Raises:
        ValueError: matplotlib does not know the format.
    """
    made = io.BytesIO()
    whole = {"dpi": DPI, "facecolor": "white", "transparent": False, "bbox_inches": figure.bbox_inches}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # of a file name in another script
        figure.savefig(made, format=kind, **whole)
    return made.getvalue()


class Canvas:
    """A figure to draw on, with places in pixels from the upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = new_figure(width, height)

    def write(self, x: float, y: float, text: str, colour: str = INK, weight: str = "normal") -> None:
        """Write one line whose upper left corner is at (x, y)."""
        self.figure.text(x / self.width, 1 - y / self.height, text, va="top", **_font(colour), weight=weight)

    def draw(self, panel: Panel, x: float, y: float, side: int) -> None:
        """Draw a panel in the square of `side` pixels whose upper left corner is at (x, y)."""
        if isinstance(panel, Picture):
            self._picture(panel, x, y, side)
        elif isinstance(panel, Heat):
            self._heat(panel, x, y, side)
        elif isinstance(panel, Line):
            self._line(panel, x, y, side)
        else:
            self._text(panel, x, y, side)

    @staticmethod
    def height_of(panel: Panel, side: int) -> int:
        """Return how many pixels of the square a panel needs."""
        if isinstance(panel, Line):
            return side // 2
        if isinstance(panel, Text):
            return LINE * (1 + max([line for line, *_ in _flowed_in(panel, side)], default=0))
        return _size(_shape_drawn(panel), side)[1]

    def _axes(self, x: float, y: float, width: float, height: float) -> Any:
        place = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(place)
        axes.set_axis_off()
        return axes

    def _picture(self, panel: Picture, x: float, y: float, side: int) -> None:
        height, width = panel.pixels.shape[:2]
        axes = self._axes(x, y, *_size((height, width), side))
        drawn: dict[str, Any] = {"extent": (0, width, height, 0), "aspect": "auto", "origin": "upper"}
        large = max(height, width) > side
        axes.imshow(panel.pixels, interpolation="antialiased" if large else "nearest", **drawn)
        for mask, number in panel.masks:
            layer = np.zeros((height, width, 4), np.uint8)
            layer[mask] = [*_rgb(number), round(OVERLAY * 255)]
            axes.imshow(layer, interpolation="nearest", **drawn)
        for (left, top, right, bottom), number, words in panel.boxes:
            from matplotlib.patches import Rectangle

            edge: dict[str, Any] = {"fill": False, "linewidth": 1.5, "edgecolor": _colour(number)}
            axes.add_patch(Rectangle((left, top), right - left, bottom - top, **edge))
            if words:
                axes.text(
                    min(max(left, 0), width), min(max(top, 0), height), shortened(words, 16), va="top", clip_on=True,
                    bbox={"facecolor": _colour(number), "edgecolor": "none", "pad": 0.6}, **_font("white"),
                )  # fmt: skip
        for points, number in panel.points:
            axes.plot(points[:, 0], points[:, 1], "o", markersize=3.5, color=_colour(number), markeredgecolor="white",
                      markeredgewidth=0.5)  # fmt: skip
        axes.set_xlim(0, width)  # boxes and points may lie outside
        axes.set_ylim(height, 0)

    def _heat(self, panel: Heat, x: float, y: float, side: int) -> None:
        height, width = panel.values.shape
        axes = self._axes(x, y, *_size(_shape_drawn(panel), side))
        finite = np.where(np.isfinite(panel.values), panel.values, np.nan)
        axes.imshow(
            finite, cmap="viridis", interpolation="nearest", aspect="auto", origin="upper", extent=(0, width, height, 0)
        )
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)

    def _line(self, panel: Line, x: float, y: float, side: int) -> None:
        axes = self._axes(x, y, side, side // 2)
        axes.plot(np.where(np.isfinite(panel.values), panel.values, np.nan), linewidth=0.8, color=COLOURS[2])
        axes.margins(x=0)

    def _text(self, panel: Text, x: float, y: float, side: int) -> None:
        for line, column, word, kind in _flowed_in(panel, side):
            self.write(x + column * CHAR, y + line * LINE, word, {"padding": GREY, "error": RED}.get(kind, INK))


def flowed(words: Sequence[tuple[str, str]], width: int, height: int) -> list[tuple[int, int, str, str]]:
    """Return words in lines of `width` characters, at most `height` lines: line, column, word and kind of each.

    The word ``"\\n"`` ends a line. If words are left out, the last one is ``"…"``.

    >>> flowed([("one", ""), ("two", "padding"), ("three", "")], 8, 9)
    [(0, 0, 'one', ''), (0, 4, 'two', 'padding'), (1, 0, 'three', '')]
    """
    placed: list[tuple[int, int, str, str]] = []
    line = column = 0
    for word, kind in words:
        if word == "\n":
            line, column = line + 1, 0
            continue
        text = shortened(word, width)
        if column and column + len(text) > width:
            line, column = line + 1, 0
        if line >= height:
            placed.append((height - 1, max(width - 1, 0), "…", ""))
            break
        placed.append((line, column, text, kind))
        column += len(text) + 1
    return placed


def _flowed_in(panel: Text, side: int) -> list[tuple[int, int, str, str]]:
    return flowed(panel.words, int(side / CHAR), max(1, side // LINE))


def _shape_drawn(panel: Picture | Heat) -> tuple[int, int]:
    """Return the height and width to draw with: of a heat map, the longer is at most 8 times the shorter."""
    if isinstance(panel, Picture):
        return panel.pixels.shape[0], panel.pixels.shape[1]
    height, width = panel.values.shape
    return max(height, width // 8), max(width, height // 8)


def _size(shape: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height in pixels of an image of this height and width, whose longer side takes `side`."""
    height, width = shape
    scale = side / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _font(colour: str) -> dict[str, Any]:
    """Return the options of a text: no formulas, and a font whose characters all have one width."""
    family, plain = ["DejaVu Sans Mono"], {"parse_math": False, "usetex": False}
    return {"family": family, "fontsize": FONT_SIZE, "color": colour, **plain}


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _rgb(number: int) -> list[int]:
    return [int(_colour(number)[place : place + 2], 16) for place in (1, 3, 5)]
