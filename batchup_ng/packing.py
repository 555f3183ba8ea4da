"""Puts the samples of a batch one after the other, with the arrays by which a network keeps them apart.

Attention within each segment needs to know where segments end. ``flash_attn_varlen_func`` and the ``cu_seq_lens``
of Hugging Face's models take the ends, ``cu_seqlens``; masks come from the numbers of the segments; rotary and learned
embeddings take positions that begin at 0 in each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from . import validation
from .columns import Places, column_names, keys_in
from .errors import ArgumentError, ArgumentTypeError, MapResultError
from .padding import Padding, flat_batch

IGNORED_LABEL = -100
"""The label that the cross-entropy of PyTorch and of Hugging Face's models leaves out."""


@validation.known_names({"padding": "pass padded=True"})
def pack(
    *columns: int | str,
    max_tokens: int | None = None,
    padded: bool = False,
    longer: str = "error",
    segments: bool = False,
    positions: bool = False,
    cu_seqlens: bool = False,
    labels: bool = False,
    padding_value: Any = 0,
    dtype: Any = None,
) -> Callable[..., Any]:
    """Return a function for ``source.map`` that puts the samples of a batch one after the other; any pool takes it.

    Use it with a :class:`~batchup_ng.PackSampler`, whose batches have at most `max_tokens` tokens, and after all maps
    of single samples. A sample becomes a segment of each of `columns`, which must have equally many tokens in it. Other
    columns keep one row for each sample. The arrays that are asked for come after all columns; in a dict by their names
    below. Only maps may follow, since columns no longer have one row for each sample. A map that changes the length of
    an array needs ``resizes=True``.

    Args:
        *columns: Names of columns of tokens, or their places in a tuple: a list of arrays ``(length, ...)``, one for
            each sample.
        max_tokens: The most tokens of a batch; None for any number.
        padded: Whether to pad to `max_tokens`. Then all batches have one shape.
        longer: What to do with a sample of more than `max_tokens`. ``"error"``: refuse it. ``"cut"``: keep its first
            `max_tokens` tokens.
        segments: Whether to add ``"segments"``: the number of each token's segment from 1, 0 for padding: ``int32``.
        positions: Whether to add ``"positions"``: the place of each token in its segment from 0, 0 for padding:
            ``int64``.
        cu_seqlens: Whether to add ``"cu_seqlens"``: where segments begin, and where the last ends: ``(n + 1,) int32``.
            Padding belongs to none.
        labels: Whether to add ``"labels"``: the tokens of the first of `columns`, but -100 for the first of each
            segment, which no token of the same text predicts, and for padding: ``int64``. The network shifts them, as
            Hugging Face's do.
        padding_value: Value to pad `columns` with: one, or a list of one for each.
        dtype: The dtype of `columns` in the result. Default: the dtype of the arrays.

    Returns:
        The function. Of each column it makes ``(total, ...)``, or ``(1, max_tokens, ...)`` with `padded`. ``segments``,
        ``positions`` and ``labels`` have the first axes of that.

    Raises:
        ArgumentError: there are no columns, or options contradict each other; in a call: the batch has more than
            `max_tokens` tokens, it has no such column, or a sample has another number of tokens in another column.
        ArgumentTypeError: an option is of the wrong kind.
        MapResultError: in a call: the batch has a column with the name of an array that is added.

    >>> import batchup_ng as bu
    >>> texts = bu.ArrayDataSource({"ids": [[5, 6, 7], [8, 9]]})
    >>> next(texts.map(pack("ids", segments=True, positions=True, cu_seqlens=True)).batch_iterator(2))
    {'ids': array([5, 6, 7, 8, 9]), 'segments': array([1, 1, 1, 2, 2], dtype=int32), \
'positions': array([0, 1, 2, 0, 1]), 'cu_seqlens': array([0, 3, 5], dtype=int32)}
    >>> next(texts.map(pack("ids", max_tokens=7, padded=True, labels=True)).batch_iterator(2))
    {'ids': array([[5, 6, 7, 8, 9, 0, 0]]), 'labels': array([[-100,    6,    7, -100,    9, -100, -100]])}
    """
    names = tuple(column_names("columns", list(columns)))
    values = list(padding_value) if isinstance(padding_value, (list, tuple)) else [padding_value] * len(names)
    if len(values) != len(names):
        raise ArgumentError(f"padding_value must be one value, or one for each of {len(names)} columns, not {values}")
    for value in values:
        if np.ndim(value) != 0:
            raise ArgumentTypeError(f"padding_value must be a single value for each column, not {value!r}")
    validation.one_of("longer", longer, ("error", "cut"))
    if max_tokens is None and (validation.true_or_false("padded", padded) or longer == "cut"):
        why = "padded=True" if padded else "longer='cut'"
        raise ArgumentError(f"max_tokens must be given with {why}, and is None; pass it as to the PackSampler")
    asked = {"segments": segments, "positions": positions, "cu_seqlens": cu_seqlens, "labels": labels}
    return PackedColumns(
        columns=names,
        max_tokens=None if max_tokens is None else validation.positive_int("max_tokens", max_tokens),
        padded=padded,
        cut=longer == "cut",
        added=tuple([name for name, wanted in asked.items() if validation.true_or_false(name, wanted)]),
        padding_values=tuple(values),
        dtype=dtype,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedColumns:
    """The checked options of :func:`pack`, as a function of a batch."""

    columns: tuple[Any, ...]
    max_tokens: int | None
    padded: bool
    cut: bool
    added: tuple[str, ...]
    padding_values: tuple[Any, ...]
    dtype: Any

    packs_samples: ClassVar[bool] = True
    """The arrays of a batch have lengths of their own, not one row for each sample."""

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Return the batch with the samples of the chosen columns one after the other."""
        given = named or batch
        keys = keys_in(given, self.columns)
        flat, offsets = {}, np.zeros(1, np.int64)
        for key in keys:
            flat[key], own = self._flat(key, given[key])
            if key != keys[0]:
                _check_lengths(keys[0], offsets, key, own)
            offsets = own
        self._check_total(keys[0], offsets)
        added = {name: self._added(name, flat[keys[0]], offsets) for name in self.added}
        if self.padded:
            added = {name: array if name == "cu_seqlens" else self._widened(array, IGNORED_LABEL * (name == "labels"))
                     for name, array in added.items()}  # fmt: skip
            for key, value in zip(keys, self.padding_values, strict=True):
                flat[key] = self._widened(flat[key], value)
        return self._joined(given, flat, added)

    def columns_after(self, form: Any) -> Any:
        """Return the form of the results for batches of `form`, with None for columns that this function makes.

        Raises:
            ArgumentError: such batches lack a column.
            MapResultError: they have one with the name of an array that is added.
        """
        plain = tuple(form) if isinstance(form, Places) else form  # batches show no names of places
        made = self._joined(plain, dict.fromkeys(keys_in(plain, self.columns)), dict.fromkeys(self.added))
        return Places.named(made, form.names) if isinstance(form, Places) else made

    def _joined(self, batch: Any, columns: Mapping[Any, Any], added: Mapping[str, Any]) -> Any:
        """Return a batch, or its form, with `columns` by key in place of its own, and with those added."""
        if not isinstance(batch, Mapping):
            return (*[columns.get(place, part) for place, part in enumerate(batch)], *added.values())
        for name in added:
            if name in batch:
                raise MapResultError(f"column {name!r} would be added, and the batch has one of that name; rename it")
        return {**{key: columns.get(key, part) for key, part in batch.items()}, **added}

    def _flat(self, key: Any, column: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples of a column one after the other, and where each begins."""
        try:
            values, offsets = flat_batch(column, dtype=self.dtype)
        except (ArgumentError, ArgumentTypeError) as error:
            raise type(error)(f"column {key!r}: {error}") from error
        if not self.cut or self.max_tokens is None:
            return values, offsets
        kept = np.cumsum([0, *np.minimum(np.diff(offsets), self.max_tokens)])
        return values[_positions(offsets) < self.max_tokens], kept

    def _check_total(self, key: Any, offsets: np.ndarray) -> None:
        total = int(offsets[-1])
        if self.max_tokens is not None and total > self.max_tokens:
            raise ArgumentError(
                f"max_tokens is {self.max_tokens}, and the samples of column {key!r} have {total} tokens; pack them by "
                f"source.sample(PackSampler(source.lengths({key!r}), {self.max_tokens})), or raise max_tokens"
            )

    def _added(self, name: str, tokens: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        lengths = np.diff(offsets)
        if name == "cu_seqlens":
            return offsets.astype(np.int32)
        if name == "segments":
            return np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths)
        if name == "positions":
            return _positions(offsets)
        if tokens.dtype.kind not in "iu":
            raise ArgumentTypeError(f"labels must be False for tokens that are no whole numbers, but {tokens.dtype}")
        labels = tokens.astype(np.int64)
        labels[offsets[:-1][lengths > 0]] = IGNORED_LABEL
        return labels

    def _widened(self, array: np.ndarray, value: Any) -> np.ndarray:
        """Return an array ``(total, ...)`` padded to ``(1, max_tokens, ...)``."""
        return np.asarray(self._padding(value)([array]))

    def _padding(self, value: Any) -> Padding:
        return Padding(
            padding_value=value, padding="max_length", max_length=self.max_tokens, truncation=False,
            pad_to_multiple_of=None, padding_side="right", axes=1, return_lengths=False, return_mask=False, shape=None,
            dtype=None,
        )  # fmt: skip


def _positions(offsets: np.ndarray) -> np.ndarray:
    """Return the place of each token in its segment: ``(total,) int64``."""
    return np.asarray(np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets)))


def _check_lengths(first: Any, offsets: np.ndarray, other: Any, own: np.ndarray) -> None:
    """Raise unless the samples of two columns have equally many tokens."""
    lengths, theirs = np.diff(offsets), np.diff(own)
    if len(lengths) != len(theirs) or (lengths != theirs).any():
        which = int(np.argmax(lengths != theirs)) if len(lengths) == len(theirs) else min(len(lengths), len(theirs))
        raise ArgumentError(
            f"columns must have equally many tokens for each sample, and sample {which} of the batch has "
            f"{lengths[which : which + 1].sum()} in {first!r}, {theirs[which : which + 1].sum()} in {other!r}; pack "
            f"only columns with one entry for each token"
        )
