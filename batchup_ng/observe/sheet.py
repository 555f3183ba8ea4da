"""A contact sheet of samples."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import validation
from ..accessors.base import chosen_rows
from ..augment.boxes import BOX_FORMATS
from ..columns import column_names
from ..data_source.batch_sizes import checked_batch_size
from ..data_source.epoch.opening import prepare
from ..data_source.epoch_options import EPOCH_0, draws_seed, epoch_options, with_seed, without_blocks
from ..data_source.looking import key_in_order
from ..display import counted
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.node import Node, nodes_of, numbered_length
from ..loader import Loader
from ..private_apis import GLOBAL_RNG
from ..randomness import numpy_rng
from ..replaced_file import replace_bytes
from ..sampling.plans.epoch import PlannedBatch
from .drawing import CHAR, DPI, GREY, LINE, MOST_PIXELS, Canvas, file_of
from .panels import Options, Panel, check_columns, panels_of
from .samples import Sample, Stage, read_epoch, read_planned, source_or_batch
from .values import file_in_words, shortened

GAP = 8
"""Pixels between two panels."""

MOST_HEADER_LINES = 4
"""Lines of words above the panels of a sample."""


class ContactSheet:
    """A picture of samples, as :func:`batchup_ng.show` makes it; a notebook shows it.

    Attributes:
        figure: The ``Figure`` of matplotlib, which belongs to no window and not to ``pyplot``.
        names: The name of each sample: its file or key, or the number of its row.
    """

    def __init__(self, figure: Any, names: Sequence[str]) -> None:
        self.figure, self.names = figure, list(names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file, in the format that the ending of its name says: ``.png``, ``.pdf``, ``.svg``.

        Raises:
            OSError: the file cannot be written. A file that was there is unchanged.
            ValueError: matplotlib does not know the ending.
        """
        where = validation.path_text("path", path)
        kind = os.path.splitext(where)[1].lower().removeprefix(".") or "png"
        content = file_of(self.figure, kind)
        if os.path.exists(where) and not os.path.isfile(where):  # a device or a pipe, which cannot be replaced
            with open(where, "wb") as file:
                file.write(content)
        else:
            replace_bytes(where, content)

    def _repr_png_(self) -> bytes:
        return file_of(self.figure, "png")

    def __repr__(self) -> str:
        width, height = (self.figure.get_size_inches() * DPI).round().astype(int).tolist()
        return f"<ContactSheet: {counted(len(self.names), 'sample')}, {width} x {height} pixels>"


@validation.known_names({})
def show(
    data: Any, n: int = 16, *, stages: bool = False, rows: Any = None, shuffle: Any = None, epoch: int | None = None,
    batch_size: int | None = None, columns: Any = None, box_format: str = "xyxy",
    decode: Mapping[Any, Any] | None = None, side: int = 160, path: str | os.PathLike[str] | None = None,
) -> ContactSheet:  # fmt: skip
    """Return a contact sheet: a picture of samples with their labels and file names. It needs matplotlib, no display.

    The sheet has samples of an epoch, and random maps draw the same numbers as in that epoch: you see the samples that
    training gets. `show` draws nothing from NumPy's global state or from a generator that you pass. It calls copies of
    the functions of maps, if they can be pickled. If a sample cannot be made, the sheet shows its error.

    How each column is drawn:

    - images, ``(height, width)`` or with 1, 3 or 4 channels in the first or last axis: as images. Values other than
      ``uint8`` are scaled; the title has their range. Of more axes, the first image.
    - annotations, over the first image of a sample: columns ``"boxes"``, ``"labels"``, ``"masks"``, ``"mask"``,
      ``"keypoints"``, named as the readers name them, also in a dict (:class:`~batchup_ng.DetectionTargets`). Rows
      that pad are left out if ``pad(mask=True)`` or ``pad(lengths=True)`` of the source marks them.
    - other arrays of two axes: as heat maps; long ones of one axis: as line plots.
    - tokens: as text, with the padding grey if a mask or lengths mark it. Tokens are 1-D integers that `decode` names,
      that have such a mask, or whose column is ``"ids"``, ``"input_ids"`` or ``"tokens"``.
    - numbers, texts and all else: as words. Labels get the class names that the source knows.

    Args:
        data: A source, or any data that a :class:`~batchup_ng.Loader` takes; a batch; or a loader, which stays as it
            is: the sheet has the first samples of its next iteration. This thread reads whole batches for them.
            Functions of ``loader.map`` are left out.
        n: Number of samples.
        stages: Whether to show each sample before and after each map of the source, side by side, one line a sample.
            Maps of the parts of ``concat``, ``zip`` and the like belong to the first stage.
        rows: Which samples of the unshuffled epoch to show, as in ``source[rows]``: a number, a slice, a list of
            numbers or a mask. Then `n` is not used.
        shuffle: Order of the epoch, as for ``batch_iterator``. For True, the order that the next epoch would have.
        epoch: Number of the epoch. Default: 0; of a loader, its next one.
        batch_size: Samples in a batch of the epoch, for maps that need several samples or draw by batch. Default: that
            of a sampler of whole batches, else `n`; a loader has its own.
        columns: Names or places of the columns to show. Default: all.
        box_format: Format of boxes: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``.
        decode: For columns of tokens, by name or place: a list of words, or a function that takes a list of ints and
            returns a list of words, such as ``convert_ids_to_tokens`` of a tokenizer.
        side: Pixels of the longer side of a panel.
        path: A file to write, such as ``"sheet.png"``.

    Raises:
        ArgumentError: there is no sample, no such column, or the picture would be too large; `stages` of maps that
            change the number of samples.
        ArgumentTypeError: an argument is of the wrong kind, or does not fit `data`.
        ImportError: matplotlib is not installed.
        MapCallError, MapResultError, NameError: an error of the program in a map, and no sample is to blame.

    Example::

        chain = augment.compose(augment.flip(), augment.random_crop(64), boxes="boxes")
        bu.show(bu.from_coco("photos", "instances.json").map(chain), 8, shuffle=7, stages=True, path="sheet.png")
    """
    n = validation.positive_int("n", n)
    side = validation.positive_int("side", side)
    options = _options(columns, box_format, decode)
    with_stages = validation.true_or_false("stages", stages)
    given = {"rows": rows, "shuffle": shuffle, "epoch": epoch, "batch_size": batch_size}
    if isinstance(data, Loader):
        found, samples = _of_loader(data, n, with_stages, given)
    else:
        found, samples = _of_source(source_or_batch(data).node, n, with_stages, given)
    if not samples:
        raise ArgumentError("data must have samples to show, and the first batches of this epoch have none")
    made = [sample.values[-1] for sample in samples if not isinstance(sample.values[-1], BaseException)]
    if made:
        check_columns(made[0], found[-1], options)
    sheet = _Sheet(found, samples, options, side).drawn()
    if path is not None:
        sheet.save(path)
    return sheet


def _options(columns: Any, box_format: Any, decode: Any) -> Options:
    chosen = None if columns is None else column_names("columns", columns)
    ways = decode.values() if isinstance(decode, Mapping) else [decode] if decode is not None else []
    if not all(isinstance(decode, Mapping) and (callable(way) or isinstance(way, (list, tuple))) for way in ways):
        raise ArgumentTypeError(
            f"decode must be a dict of columns with a function or a list of words each, not {decode!r:.80}; pass "
            f"{{'ids': tokenizer.convert_ids_to_tokens}}"
        )
    return Options(chosen, validation.one_of("box_format", box_format, BOX_FORMATS), decode or {})


def _of_loader(loader: Loader, n: int, with_stages: bool, given: Mapping[str, Any]) -> tuple[list[Stage], list[Sample]]:
    """Return the stages and the first samples of the next iteration of a loader, or of another epoch."""
    for name in ("rows", "shuffle", "batch_size"):
        if given[name] is not None:
            raise ArgumentTypeError(f"{name} must be left out for a loader, which has its own; show its source instead")
    shared = loader._shared
    number, state = shared.upcoming()
    if given["epoch"] is not None:
        number, state = validation.not_negative("epoch", given["epoch"]), None
    options = loader._options_of(number)
    if options.generator is not None:
        raise ArgumentTypeError(
            "data must be a loader whose order is a function of a seed, because showing it would draw from its "
            "RandomState; pass shuffle=<int> to the loader, or show its source"
        )
    return read_epoch(prepare(shared.source.node, options, state), n, with_stages)


def _of_source(node: Node, n: int, with_stages: bool, given: Mapping[str, Any]) -> tuple[list[Stage], list[Sample]]:
    """Return the stages and samples of a source."""
    rows, shuffle, epoch, batch_size = (given[name] for name in ("rows", "shuffle", "epoch", "batch_size"))
    number = EPOCH_0 if epoch is None else validation.not_negative("epoch", epoch)
    if rows is None:
        has_own = any(each.own_batch_size is not None for each in nodes_of(node, below_orders=False))
        size = checked_batch_size(node, n if batch_size is None and not has_own else batch_size)
        epoch_of = prepare(node, epoch_options(size, _without_draws(shuffle), number))
        return read_epoch(epoch_of, n, with_stages)
    for name in ("shuffle", "batch_size"):
        if given[name] is not None:
            raise ArgumentError(f"{name} must be left out with rows=, which number the samples of the unshuffled epoch")
    positions = np.atleast_1d(chosen_rows(rows, numbered_length("data", node)))
    if not len(positions):
        raise ArgumentError(f"rows must choose at least one sample, and {rows!r:.80} chooses none")
    key = key_in_order(positions)._replace(epoch=int(number))
    return read_planned(node, [PlannedBatch(0, node.rows_at(positions), key)], len(positions), with_stages)


def _without_draws(shuffle: Any) -> Any:
    """Return a `shuffle` that gives the same order, and draws nothing from the generators of the user."""
    if draws_seed(shuffle):
        order = without_blocks(shuffle)[0]
        seed = numpy_rng.seed_draw(copy.deepcopy(order if isinstance(order, np.random.Generator) else GLOBAL_RNG))
        return with_seed(shuffle, seed)
    if shuffle is None or isinstance(shuffle, (int, np.integer, np.bool_, tuple)):
        return shuffle
    return copy.deepcopy(numpy_rng.check_rng(shuffle))


@dataclasses.dataclass
class _Block:
    """A sample at one stage: its panels, and the words above them."""

    panels: list[Panel]
    words: list[str]


class _Sheet:
    """Lays out samples: without stages in a grid, with stages one line a sample."""

    def __init__(self, stages: Sequence[Stage], samples: Sequence[Sample], options: Options, side: int) -> None:
        self._stages, self._samples, self._side = stages, samples, side
        self._step = side + GAP
        self._blocks = [
            [_Block(*panels_of(value, stage, options)) for value, stage in zip(sample.values, stages, strict=True)]
            for sample in samples
        ]
        columns = zip(*self._blocks, strict=True)
        self._widths = [max(len(block.panels) for block in column) for column in columns]  # panels of each stage
        if len(stages) == 1:
            self._per_line = max(1, min(len(samples), math.ceil(math.sqrt(len(samples) / self._widths[0]))))
        else:
            self._per_line = 1
        self._n_header = min(MOST_HEADER_LINES, max(len(block.words) for each in self._blocks for block in each))
        panels = [panel for each in self._blocks for block in each for panel in block.panels]
        self._n_title = max(len(panel.title.split("\n")) for panel in panels)
        self._top = GAP + (LINE if len(stages) > 1 else 0)

    def drawn(self) -> ContactSheet:
        """Return the sheet."""
        n, each = len(self._samples), self._per_line
        lines = [self._blocks[start : start + each] for start in range(0, n, each)]
        tops = list(itertools.accumulate(map(self._height_of_line, lines), initial=self._top))
        width, height = sum(self._widths) * each * self._step + GAP, tops[-1]
        if max(width, height) > MOST_PIXELS:
            raise ArgumentError(
                f"n must be small enough for a picture of at most {MOST_PIXELS:,} pixels a side, and "
                f"{counted(n, 'sample')} need {width:,} x {height:,}; pass a smaller n, or a smaller side"
            )
        canvas = Canvas(width, height)
        self._write_titles(canvas)
        for number, (sample, blocks) in enumerate(zip(self._samples, self._blocks, strict=True)):
            line, place = divmod(number, each)
            x, y = GAP + place * sum(self._widths) * self._step, tops[line]
            canvas.write(x, y, file_in_words(sample.name, self._chars(self._widths[0])), weight="bold")
            for block, panels in zip(blocks, self._widths, strict=True):
                self._draw(canvas, block, x, y + LINE, self._chars(panels))
                x += panels * self._step
        return ContactSheet(canvas.figure, [sample.name for sample in self._samples])

    def _height_of_line(self, samples: Sequence[Sequence[_Block]]) -> int:
        """Return the pixels of a line of samples, with the gap below it."""
        panels = [panel for blocks in samples for block in blocks for panel in block.panels]
        highest = max(Canvas.height_of(panel, self._side) for panel in panels)
        return (1 + self._n_header + self._n_title) * LINE + highest + GAP

    def _chars(self, panels: int) -> int:
        """Return how many characters fit above so many panels."""
        return int((panels * self._step - GAP) / CHAR)

    def _write_titles(self, canvas: Canvas) -> None:
        """Write the names of the stages."""
        if len(self._stages) > 1:
            lefts = itertools.accumulate(self._widths, initial=0)
            for stage, panels, left in zip(self._stages, self._widths, lefts, strict=False):
                title = shortened(stage.title, self._chars(panels))
                canvas.write(GAP + left * self._step, GAP // 2, title, weight="bold")

    def _draw(self, canvas: Canvas, block: _Block, x: float, y: float, chars: int) -> None:
        """Draw one block, whose words begin at (x, y)."""
        for line, words in enumerate(block.words[: self._n_header]):
            canvas.write(x, y + line * LINE, shortened(words, chars))
        y += self._n_header * LINE
        for panel in block.panels:
            for line, title in enumerate(panel.title.split("\n") if panel.title else ()):
                canvas.write(x, y + line * LINE, shortened(title, self._chars(1)), GREY)
            canvas.draw(panel, x, y + self._n_title * LINE, self._side)
            x += self._step
