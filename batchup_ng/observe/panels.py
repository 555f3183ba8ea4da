"""The columns of a sample as panels of a sheet: which kind of picture each column is.

Columns with the names of the readers are annotations, and are drawn over the first image of the sample: ``"boxes"``
``(k, 4)``, ``"masks"`` ``(k, height, width)``, ``"mask"`` ``(height, width)``, ``"keypoints"`` ``(k, m, 3)``, with
``"labels"`` ``(k,)``; in a dict inside the sample, such as the targets of torchvision's models, too. Rows that only pad
are left out, if a column ``"boxes_mask"`` or ``"boxes_lengths"`` names them, as from ``source.pad``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..augment.boxes import box_convert
from ..display import counted, printable
from ..errors import ArgumentError
from ..graph.node import Classes
from .samples import Stage, flat_items
from .values import MOST_CHARS, MOST_NUMBERS, array_of, class_in_words, in_words, number_in_words

BOXES, MASKS, MASK, KEYPOINTS, LABELS = "boxes", "masks", "mask", "keypoints", "labels"
"""Names of the columns of annotations."""

LABEL, IMAGE = "label", "image"

TOKENS = ("ids", "input_ids", "tokens")
"""Names of columns of tokens. Others are tokens if `decode` names them or a mask of their padding is there."""

MOST_WORDS = 40
"""Characters of a text that stands above the pictures. A longer one has a panel."""


class Picture(NamedTuple):
    """An image, ``(height, width, 3 or 4) uint8``, with its annotations."""

    title: str
    pixels: np.ndarray
    masks: Sequence[tuple[np.ndarray, int]] = ()  # (height, width) bool, and the number of the colour
    boxes: Sequence[tuple[np.ndarray, int, str]] = ()  # left, top, right, bottom; colour, words
    points: Sequence[tuple[np.ndarray, int]] = ()  # (m, 2): x and y, counted from the edges of the image


class Heat(NamedTuple):
    """A heat map: ``(rows, columns)``."""

    title: str
    values: np.ndarray


class Line(NamedTuple):
    """A line plot: ``(n,)``."""

    title: str
    values: np.ndarray


class Text(NamedTuple):
    """Words in a frame; `kind` of each is ``""``, ``"padding"`` or ``"error"``."""

    title: str
    words: Sequence[tuple[str, str]]


Panel = Picture | Heat | Line | Text


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of ``show`` that decide how columns look."""

    columns: Sequence[Any] | None
    box_format: str
    decode: Mapping[Any, Any]


def panels_of(sample: Any, stage: Stage, options: Options) -> tuple[list[Panel], list[str]]:
    """Return the panels of a sample, or of its exception, and the words that stand above them."""
    if isinstance(sample, BaseException):
        return [Text("", [*[(word, "error") for word in f"{type(sample).__name__}: {sample}".split()]])], []
    items = [(name, value, key) for name, value, key in flat_items(sample, stage.form) if _is_shown(name, key, options)]
    return _Panels(items, stage.classes, options).made()


def check_columns(sample: Any, stage: Stage, options: Options) -> None:
    """Raise an error if `columns` or `decode` name a column that `sample` does not have."""
    known = [(name, key) for name, _, key in flat_items(sample, stage.form)]
    for option, wanted in (("columns", options.columns or ()), ("decode", options.decode)):
        for column in wanted:
            if not any(_named(column, *each) for each in known):
                listed = ", ".join(repr(name) for name, _ in known)
                raise ArgumentError(f"{option} must name columns of the samples, not {column!r}; they are {listed}")


def _named(column: Any, name: str, key: Any) -> bool:
    return column == key or name == str(column) or name.startswith(f"{column}.")


def _is_shown(name: str, key: Any, options: Options) -> bool:
    return options.columns is None or any(_named(column, name, key) for column in options.columns)


class _Panels:
    """Makes the panels of one sample."""

    def __init__(self, items: Sequence[tuple[str, Any, Any]], classes: Classes | None, options: Options) -> None:
        self._items, self._classes, self._options = items, classes, options
        self._values = {name: value for name, value, _ in items}
        self._used: set[str] = set()  # names of columns that are drawn over an image, or mark padding

    def made(self) -> tuple[list[Panel], list[str]]:
        """Return the panels and the words."""
        image = self._first_image()
        found: list[tuple[str, Panel | None, str]] = []
        for name, value, key in self._items:
            panel = image[1] if image is not None and name == image[0] else self._panel(name, value, key)
            found.append((name, panel, f"{printable(name)} {self._words(name, value, key)}" if panel is None else ""))
        left = [(panel, words) for name, panel, words in found if name not in self._used]
        panels = [panel for panel, _ in left if panel is not None]
        words = [words for panel, words in left if panel is None]
        if not panels:
            return [Text("", [(word, "") for line in words for word in (*line.split(), "\n")])], []
        return panels, words

    def _words(self, name: str, value: Any, key: Any) -> str:
        classes = self._classes
        return class_in_words(value, classes) if classes and is_label(name, key, classes) else in_words(value)

    def _panel(self, name: str, value: Any, key: Any) -> Panel | None:
        """Return the panel of a column; None if words are enough."""
        if isinstance(value, str):
            words = [(printable(word), "") for word in value[:MOST_CHARS].split()]
            return Text(printable(name), words) if len(value) > MOST_WORDS else None
        array = array_of(value)
        if array is None or array.ndim == 0 or array.size == 0:
            return None
        if array.ndim == 1 and array.dtype.kind in "iu" and (tokens := self._tokens(name, key, array)) is not None:
            return tokens
        if array.ndim == 1:
            is_shares = self._classes is not None and is_label(name, key, self._classes)
            return None if len(array) <= MOST_NUMBERS or is_shares else Line(_title(name, array), _real(array))
        cut, which = _first_of(name, array)
        picture = _pixels(name, cut)
        if picture is not None:
            return Picture(_title(name, array, which, picture[1]), picture[0])
        return Heat(_title(name, array, which, _range(cut)), _real(cut))

    # -- tokens --------------------------------------------------------------------------------------------------

    def _tokens(self, name: str, key: Any, ids: np.ndarray) -> Text | None:
        """Return the words of a column of tokens; None if it is none."""
        decode = next((fn for column, fn in self._options.decode.items() if _named(column, name, key)), None)
        real = self._real_rows(name, len(ids))
        if decode is None and real is None and _last(name) not in TOKENS:
            return None
        words = _decoded(name, ids.tolist(), decode)
        kept = np.ones(len(ids), bool) if real is None else real
        marked = [(printable(str(word)), "" if keep else "padding") for word, keep in zip(words, kept, strict=True)]
        return Text(_title(name, ids), marked)

    def _real_rows(self, name: str, n: int) -> np.ndarray | None:
        """Return which of the `n` rows of a padded column are not padding, ``(n,) bool``; None if nothing says it."""
        prefix = name[: len(name) - len(_last(name))]
        for mask in (f"{name}_mask", f"{prefix}attention_mask"):
            found = array_of(self._values.get(mask))
            if found is not None and found.shape == (n,) and mask != name:
                self._used.add(mask)
                return found.astype(bool)
        length = array_of(self._values.get(f"{name}_lengths"))
        if length is not None and length.shape == () and length.dtype.kind in "iu":
            self._used.add(f"{name}_lengths")
            return np.arange(n) < int(length)
        return None

    # -- images --------------------------------------------------------------------------------------------------

    def _first_image(self) -> tuple[str, Picture] | None:
        """Return the first image with its annotations, and note which columns these are."""
        for name, value, key in self._items:
            if _last(name) in (BOXES, MASKS, MASK, KEYPOINTS):
                continue
            panel = self._panel(name, value, key)
            if isinstance(panel, Picture):
                masks = [one for each, given, _ in self._items for one in self._masks(each, given, panel.pixels.shape)]
                boxes = [one for each, given, _ in self._items for one in self._boxes(each, given)]
                points = [one for each, given, _ in self._items for one in self._points(each, given)]
                return name, panel._replace(masks=masks, boxes=boxes, points=points)
        return None

    def _boxes(self, name: str, value: Any) -> list[tuple[np.ndarray, int, str]]:
        boxes = array_of(value)
        if _last(name) != BOXES or boxes is None or boxes.ndim != 2 or boxes.shape[1] != 4 or boxes.dtype.kind == "c":
            return []
        self._used.add(name)
        corners = box_convert(boxes.astype(np.float64), self._options.box_format, "xyxy")
        real = self._real_rows(name, len(boxes))
        numbers, words = self._labels_of(name, len(boxes))
        found = zip(corners, numbers, words, np.ones(len(boxes), bool) if real is None else real, strict=True)
        return [(box, number, word) for box, number, word, keep in found if keep and (box[2:] > box[:2]).all()]

    def _labels_of(self, name: str, n: int) -> tuple[list[int], list[str]]:
        """Return for each of `n` boxes the number of its colour, and the words of its label."""
        labels = f"{name[: len(name) - len(_last(name))]}{LABELS}"
        found = array_of(self._values.get(labels))
        if found is None or found.shape != (n,) or found.dtype.kind not in "iub":
            return list(range(n)), [""] * n
        self._used |= {labels, f"{labels}_mask", f"{labels}_lengths"}
        names = () if self._classes is None else self._classes.names
        numbers = [int(each) for each in found]
        return numbers, [printable(names[each]) if 0 <= each < len(names) else str(each) for each in numbers]

    def _masks(self, name: str, value: Any, shape: tuple[int, ...]) -> list[tuple[np.ndarray, int]]:
        masks = array_of(value) if _last(name) in (MASK, MASKS) else None
        if masks is not None and masks.ndim == 3 and masks.shape[2] == 1:
            masks = masks[..., 0]
        if masks is None or masks.shape[-2:] != shape[:2] or masks.ndim > 3 or masks.dtype.kind not in "biuf":
            return []
        self._used.add(name)
        if _last(name) == MASKS and masks.ndim == 3:
            numbers, _ = self._labels_of(name, len(masks))
            return [(mask > 0.5, number) for mask, number in zip(masks, numbers, strict=True)]
        whole = masks if masks.ndim == 2 else masks[0]
        return [(whole == each, int(each)) for each in np.unique(whole[np.isfinite(whole)]).tolist() if each]

    def _points(self, name: str, value: Any) -> list[tuple[np.ndarray, int]]:
        points = array_of(value) if _last(name) == KEYPOINTS else None
        if points is None or points.ndim not in (2, 3) or points.shape[-1] not in (2, 3):
            return []
        self._used.add(name)
        real = self._real_rows(name, len(points)) if points.ndim == 3 else None
        groups = points if points.ndim == 3 else points[None]
        found = []
        for number, group in enumerate(groups):
            if real is None or real[number]:
                seen = group[:, 2] > 0 if group.shape[1] == 3 else np.ones(len(group), bool)
                found.append((group[seen, :2].astype(np.float64) + 0.5, number))  # they count centres of pixels
        return found


def _last(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2]


def _decoded(name: str, ids: list[int], decode: Any) -> Sequence[Any]:
    """Return a word for each token. A number that the list of words lacks stays a number."""
    if not callable(decode):
        return [decode[i] if decode is not None and 0 <= i < len(decode) else i for i in ids]
    words = list(decode(ids))
    if len(words) != len(ids):
        raise ArgumentError(
            f"decode must give a word for each token of column {name!r}, {len(ids)} here, not {len(words)}; pass a "
            f"function such as tokenizer.convert_ids_to_tokens"
        )
    return words


def is_label(name: str, key: Any, classes: Classes) -> bool:
    """Return whether a column has the numbers of the classes, or the share of each."""
    if classes.column is not None:
        return bool(key == classes.column)
    return _last(name) == LABEL or (key == 1 and name == "1")


def _real(array: np.ndarray) -> np.ndarray:
    return np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)


def _title(name: str, array: np.ndarray, *notes: str) -> str:
    """Return the lines above a panel: name, dtype and shape of the column, and notes."""
    what = f"{printable(name)} {array.dtype} {'x'.join(map(str, array.shape))}"
    return "\n".join(filter(None, [what, *notes]))


def _range(array: np.ndarray) -> str:
    """Return the least and the greatest finite value, in words."""
    values = np.abs(array) if array.dtype.kind == "c" else array
    finite = values[np.isfinite(values)]
    if not finite.size:
        return "no finite value"
    return f"{number_in_words(finite.min())} to {number_in_words(finite.max())}"


def _first_of(name: str, array: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the first part of an array that can be drawn, and which it is, in words."""
    which = ""
    while array.ndim > 2 and _channels_last(array) is None:
        which = f"{which}first of {len(array)}" if not which else f"{which}, {len(array)}"
        array = array[0]
    return array, which


def _channels_last(array: np.ndarray) -> np.ndarray | None:
    """Return an image with its channels along the last axis, ``(height, width, 1, 3 or 4)``; None if it is none."""
    if array.ndim != 3:
        return None
    first, last = array.shape[0] in (1, 3, 4), array.shape[2] in (1, 3, 4)
    if first and (not last or array.shape[1] == array.shape[2]):
        return array.transpose(1, 2, 0)
    return array if last else None


def _pixels(name: str, array: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Return an image as ``uint8`` to draw, and a note on how it was scaled; None if the array is no image."""
    if array.dtype.kind == "c":
        return None
    if array.ndim == 2:
        image = array if array.dtype in (np.uint8, bool) or _last(name) == IMAGE else None
    else:
        image = _channels_last(array)
    if image is None:
        return None
    image = np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2) if image.shape[2:] in ((), (1,)) else image
    if image.dtype == np.uint8:
        return image, ""
    values = image.astype(np.float64)
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 1.0)
    note = "" if image.dtype == bool else f"scaled from {_range(image)}"
    if image.dtype.kind in "fb" and low >= 0 and high <= 1:
        low, high, note = 0.0, 1.0, "scaled from 0 to 1" if image.dtype.kind == "f" else ""
    scaled = np.where(finite, (values - low) / (high - low or 1.0), 0.0)
    n_wrong = int(np.count_nonzero(~finite.all(axis=2)))
    return (scaled * 255).round().astype(np.uint8), note + f"\n{counted(n_wrong, 'pixel')} not finite" * bool(n_wrong)
