"""The method of a source that pads columns of arrays of different lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import validation
from ..columns import keys_in
from ..padding import NAMES_IN_PAD, PadColumns, Padding

if TYPE_CHECKING:
    from .planned import PlannedDataSource
    from .source import AbstractDataSource


@validation.known_names({old: f"pass it as {new}=" for old, new in NAMES_IN_PAD.items()})
def pad(
    source: AbstractDataSource,
    *columns: Any,
    value: Any = 0,
    length: Any = None,
    to_multiple: int | None = None,
    side: str = "right",
    truncate: bool = False,
    axes: int = 1,
    lengths: bool = False,
    mask: bool = False,
    shape: Any = None,
    dtype: Any = None,
) -> PlannedDataSource:
    """Return a source whose batches have one array in place of arrays of different lengths.

    Args:
        *columns: Names, or places if batches are tuples.
        value: Value to pad with.
        length: The length of every array after padding. Default: the longest of the batch.
        to_multiple: Pad further to a multiple of this length.
        side: ``"right"`` or ``"left"``: where to pad.
        truncate: Whether to cut arrays that are longer than `length`; otherwise they are an error.
        axes: In how many axes, the first ones, the arrays may differ: 2 for images.
        lengths: Whether a column of the lengths follows, ``"ids_lengths"`` for ``"ids"``: ``(n,) int64``.
        mask: Whether a column follows that is True for values, ``"ids_mask"`` for ``"ids"``: ``(n, longest) bool``.
        shape: The shape of a row of each column, with None for its length: ``(None, 4)`` for boxes. Without it, a batch
            of which all rows are empty lists has ``(n, 0)``, and there is a warning.
        dtype: The dtype of the results. Default: the dtype of the rows.

    Raises:
        ArgumentError: as :func:`~batchup_ng.pad_batch`, when a batch is made.

    >>> import numpy as np, batchup_ng as bu
    >>> words = bu.ArrayDataSource({"ids": [[1, 2, 3], [4]]})
    >>> words.pad("ids", mask=True)[0:2]["ids_mask"].tolist()
    [[True, True, True], [True, False, False]]
    """
    padding = Padding(
        padding_value=value, padding="longest" if length is None else "max_length", max_length=length,
        truncation=truncate, pad_to_multiple_of=to_multiple, padding_side=side, axes=axes, return_lengths=lengths,
        return_mask=mask, shape=shape, dtype=dtype, names=NAMES_IN_PAD,
    )  # fmt: skip
    fn, form = PadColumns.of_padding(columns, padding), source.node.form()
    if form is not None:  # it may have names that batches, which are tuples, do not show
        fn = PadColumns.of_padding(keys_in(form, fn.columns), padding)
    return source.map(fn)
