"""The annotations of each image in one dict, as torchvision's models for detection take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import validation
from .augment.boxes import BOX_FORMATS, box_convert, boxes_of_image
from .columns import Places, column_names, keys_in
from .display import counted
from .errors import ArgumentError, ArgumentTypeError, MapResultError
from .validation import one_of


class DetectionTargets:
    """A function that joins columns to one of dicts, one dict for each image, for ``source.map``; any pool takes it.

    The dicts are the targets of torchvision's models: ``"boxes"`` become ``(k, 4) float32``, left, top, right, bottom,
    and ``"labels"`` become ``(k,) int64``. Other entries stay as they are: ``"masks"``, ``"keypoints"``,
    ``"image_id"``. The new column is the last one of the batch, in place of those that it is made of.

    For one array of all boxes, pad the columns (:class:`PadColumns`), or put them one after the other
    (:class:`FlatColumns`).

    >>> join = DetectionTargets("boxes", "labels", box_format="xywh")
    >>> batch = join(image=np.zeros((2, 8, 8, 3)), boxes=[[[1, 2, 3, 4]], []], labels=[[7], []])
    >>> list(batch), batch["target"][0]
    (['image', 'target'], {'boxes': array([[1., 2., 4., 6.]], dtype=float32), 'labels': array([7])})
    >>> batch["target"][1]["boxes"].shape
    (0, 4)

    Args:
        *columns: Names of columns. The entries of the dicts get the same names. For other names, or for batches that
            are tuples, pass one dict of the entries with their columns: ``{"boxes": 1, "labels": 2}``.
        box_format: The format of the column that becomes ``"boxes"``: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``, as in
            :func:`~batchup_ng.augment.box_convert`.
        target: Name of the new column, in a dict.

    Raises:
        ArgumentError: there are no columns, or `box_format` is another; in a call: the batch has no such column,
            columns differ in length, or boxes are not ``(k, 4)``.
        ArgumentTypeError: a column is neither name nor place; in a call: labels are not whole numbers.
    """

    @validation.known_names({})
    def __init__(
        self, *columns: str | Mapping[str, int | str], box_format: str = "xyxy", target: str = "target"
    ) -> None:
        self.columns = _entries(columns)
        self.box_format = one_of("box_format", box_format, BOX_FORMATS)
        if not isinstance(target, str):
            raise ArgumentTypeError(f"target must be the name of the new column, not {target!r}")
        self.target = target

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Return the batch with a list of dicts in place of the columns."""
        whole: Any = named or batch
        keys = keys_in(whole, self.columns.values())
        lengths = {len(whole[key]) for key in keys}
        if len(lengths) > 1:
            raise ArgumentError(f"columns must have one row for each image, and have {sorted(lengths)} rows; map them")
        targets = [
            {entry: self._value(i, entry, whole[key][i]) for entry, key in zip(self.columns, keys, strict=True)}
            for i in range(lengths.pop())
        ]
        for i, target in enumerate(targets):
            if "boxes" in target and "labels" in target and len(target["boxes"]) != len(target["labels"]):
                raise ArgumentError(
                    f"labels[{i}] must have one number for each of the {counted(len(target['boxes']), 'box', 'boxes')} "
                    f"of the image, and has {len(target['labels'])}"
                )
        return self._joined(whole, keys, targets)

    def columns_after(self, form: Any) -> Any:
        """Return the form of the results for batches of `form`, with None for the targets.

        Raises:
            ArgumentError: such batches lack a column, or have one with the name of the targets.
        """
        plain = tuple(form) if isinstance(form, Places) else form  # batches show no names of places
        keys = keys_in(plain, self.columns.values())
        made = self._joined(plain, keys, None)
        if not isinstance(form, Places):
            return made
        left = [place for place in range(len(form)) if place not in keys]
        return Places.named(made, {name: left.index(place) for name, place in form.names.items() if place in left})

    def _joined(self, batch: Any, keys: Sequence[Any], targets: Any) -> Any:
        """Return a batch, or its form, with `targets` in place of the columns `keys`."""
        if not isinstance(batch, Mapping):
            return (*[part for place, part in enumerate(batch) if place not in keys], targets)
        left = {name: part for name, part in batch.items() if name not in keys}
        if self.target in left:
            raise MapResultError(f"target must be a new name, and the batch has a column {self.target!r}; pass target=")
        return {**left, self.target: targets}

    def _value(self, i: int, entry: str, given: Any) -> Any:
        if entry == "boxes":
            return box_convert(boxes_of_image(i, given).astype(np.float32), self.box_format, "xyxy")
        if entry == "labels":
            labels = np.asarray(given)
            if labels.size and labels.dtype.kind not in "biu":
                raise ArgumentTypeError(f"labels[{i}] must be whole numbers, not {labels.dtype}; number the classes")
            return labels.astype(np.int64)
        return given

    def __repr__(self) -> str:
        return f"DetectionTargets({self.columns!r}, box_format={self.box_format!r}, target={self.target!r})"


def _entries(columns: Sequence[Any]) -> dict[str, int | str]:
    """Return the entries of a target with their columns."""
    if len(columns) == 1 and isinstance(columns[0], Mapping):
        entries = dict(columns[0])
    else:
        entries = {column: column for column in columns}
        if len(entries) < len(columns):
            raise ArgumentError(f"columns must be named once each, not {', '.join(map(repr, columns))}")
    for entry in entries:
        if not isinstance(entry, str):
            raise ArgumentTypeError(
                f"columns must be names, not {entry!r}; for places pass one dict: {{'boxes': 1, 'labels': 2}}"
            )
    column_names("columns", list(entries.values()))
    return entries
