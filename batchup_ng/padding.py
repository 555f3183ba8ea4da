"""Makes one array of arrays of different lengths: padded, or one after the other.

The options of padding have the names of PyTorch's ``pad_sequence`` and of Hugging Face's tokenizers. Lengths and masks
are NumPy arrays, like everything in a batch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import batch as nests
from . import validation
from .columns import Places, column_names, keys_in
from .errors import ArgumentError, ArgumentTypeError, MapResultError
from .row_arrays import RowArrays

NAMES_IN_PAD = {
    "padding_value": "value", "max_length": "length", "truncation": "truncate", "pad_to_multiple_of": "to_multiple",
    "padding_side": "side", "return_lengths": "lengths", "return_mask": "mask",
}  # fmt: skip
"""The names of options of :func:`pad_batch` in the method ``pad`` of a source."""


@validation.known_names({new: f"pass it as {old}=" for old, new in NAMES_IN_PAD.items()})
def pad_batch(
    arrays: Any,
    *,
    padding_value: Any = 0,
    padding: str = "longest",
    max_length: int | Sequence[int] | None = None,
    truncation: bool = False,
    pad_to_multiple_of: int | None = None,
    padding_side: str = "right",
    axes: int = 1,
    return_lengths: bool = False,
    return_mask: bool = False,
    shape: Sequence[int | None] | None = None,
    dtype: Any = None,
) -> Any:
    """Return one array from arrays of different lengths, padded to the longest of them.

    It is a module-level function: ``source.map`` takes it with ``functools.partial``. To pad single columns of a batch,
    use :class:`PadColumns`, or the method ``pad`` of a source.

    Args:
        arrays: A list, or an array of objects or of equal lengths: n arrays ``(length, ...)`` of one dtype. Empty lists
            take dtype and shape of the others.
        padding_value: Value to pad with. The dtype of the arrays is kept and must be able to hold it.
        padding: ``"longest"``: pad to the longest of the arrays. ``"max_length"``: always pad to `max_length`; then all
            batches have one shape.
        max_length: The greatest length of an array, also after padding; one number for each of several `axes`, or one
            for all.
        truncation: Whether to cut the end of arrays longer than `max_length`; otherwise they are an error.
        pad_to_multiple_of: Pad further to a multiple of this length, for devices that prefer it.
        padding_side: ``"right"``: after the values. ``"left"``: before them.
        axes: In how many axes, the first ones, the arrays may differ: 2 for images ``(height, width, channels)``.
        return_lengths: Whether to also return the lengths before padding, after truncation: ``(n,) int64``; ``(n, axes)
            int64`` if there are several `axes`.
        return_mask: Whether to also return a mask, True for values and False for padding: ``(n, longest) bool``, with
            an axis for each of several `axes`. Hugging Face calls it an attention mask; PyTorch's ``key_padding_mask``
            is its opposite.
        shape: The shape of an array, with None for the first `axes`: ``(None, 4)`` for boxes. Arrays of shape ``(0,)``
            take it.
        dtype: The dtype of the result. Whole numbers must fit, floats are rounded. Default: the dtype of the arrays.

    Returns:
        The padded array, ``(n, longest, ...)``, a copy. With lengths or a mask, a tuple: array, lengths, mask. For no
        arrays, a ``float64`` array of length 0. If all are empty lists, ``(n, 0)`` of the dtype of `padding_value`, and
        a :class:`~batchup_ng.SampleWarning` unless `shape` and `dtype` are given.

    Raises:
        ArgumentError: the arrays differ in dtype or in any axis but the first `axes`, an array is longer than
            `max_length`, the dtype cannot hold `padding_value` or an array, NumPy would change values of a list, as of
            ``[1, "a"]``, or options contradict each other.
        ArgumentTypeError: an option is of the wrong kind.

    >>> pad_batch([[1, 2, 3], [4]], padding_value=-1)
    array([[ 1,  2,  3],
           [ 4, -1, -1]])
    >>> x, lengths = pad_batch([[1.0, 2.0], [3.0]], padding_side="left", pad_to_multiple_of=4, return_lengths=True)
    >>> x.tolist(), lengths.tolist()
    ([[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 3.0]], [2, 1])
    >>> pad_batch([np.ones((2, 3, 3)), np.ones((4, 1, 3))], axes=2).shape
    (2, 4, 3, 3)
    """
    return Padding(
        padding_value=padding_value, padding=padding, max_length=max_length, truncation=truncation,
        pad_to_multiple_of=pad_to_multiple_of, padding_side=padding_side, axes=axes, return_lengths=return_lengths,
        return_mask=return_mask, shape=shape, dtype=dtype,
    )(arrays)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Padding:
    """The checked options of :func:`pad_batch`, as a function of the arrays.

    Attributes:
        more: How many times `pad_to_multiple_of` to pad beyond the longest: see :meth:`PadColumns.wider`.
        names: The names by which the caller knows options, for errors. Options that are not in it have their own.
    """

    padding_value: Any
    padding: str
    max_length: Any
    truncation: bool
    pad_to_multiple_of: int | None
    padding_side: str
    axes: int
    return_lengths: bool
    return_mask: bool
    shape: Any
    dtype: Any
    more: int = 0
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self._name
        validation.one_of("padding", self.padding, ("longest", "max_length"))
        validation.one_of(name("padding_side"), self.padding_side, ("right", "left"))
        validation.true_or_false(name("return_lengths"), self.return_lengths)
        validation.true_or_false(name("return_mask"), self.return_mask)
        validation.true_or_false(name("truncation"), self.truncation)
        validation.positive_int("axes", self.axes)
        self._rows()  # checks them
        multiple, most = self._multiple(), self._most()
        if most is None and (self.truncation or self.padding == "max_length"):
            why = f"{name('truncation')}=True" if self.truncation else "padding='max_length'"
            raise ArgumentError(f"{name('max_length')} must be given with {why}, and is None")
        if most is not None and (most % multiple).any():
            raise ArgumentError(
                f"{name('max_length')} must be a multiple of {name('pad_to_multiple_of')}, {multiple}, not "
                f"{self.max_length}"
            )
        if np.ndim(self.padding_value) != 0:
            raise ArgumentTypeError(f"{name('padding_value')} must be a single value, not {self.padding_value!r}")

    def __call__(self, arrays: Any) -> Any:
        """Return what :func:`pad_batch` returns."""
        axes, multiple, most = self.axes, self._multiple(), self._most()
        listed, inner, dtype = self._rows().of(arrays, np.asarray(self.padding_value).dtype)
        lengths = np.array([array.shape[:axes] for array in listed], np.int64).reshape(len(listed), axes)
        if most is not None:
            if not self.truncation:
                self._check_lengths(lengths, most)
            lengths = np.minimum(lengths, most)
        longest = most if most is not None and self.padding == "max_length" else lengths.max(axis=0, initial=0)
        widths = ((-(-longest // multiple) + self.more) * multiple).tolist()
        fill = _as_value(self._name("padding_value"), self.padding_value, dtype) if listed else 0
        out = np.full((len(listed), *widths, *inner), fill, dtype)
        mask = np.zeros((len(listed), *widths), bool)
        for array, own, row, row_mask in zip(listed, lengths.tolist(), out, mask, strict=True):
            sides = zip(own, widths, strict=True)
            place = tuple([slice(width - n, None) if self.padding_side == "left" else slice(n) for n, width in sides])
            row[place] = array[tuple(map(slice, own))]
            row_mask[place] = True
        if not self.return_lengths and not self.return_mask:
            return out
        return (out, *[lengths if axes > 1 else lengths[:, 0]] * self.return_lengths, *[mask] * self.return_mask)

    def _rows(self) -> RowArrays:
        return RowArrays(axes=self.axes, shape=self.shape, dtype=self.dtype)

    def _name(self, option: str) -> str:
        return self.names.get(option, option)

    def _multiple(self) -> int:
        if self.pad_to_multiple_of is None:
            return 1
        return validation.positive_int(self._name("pad_to_multiple_of"), self.pad_to_multiple_of)

    def _most(self) -> np.ndarray | None:
        """Return the greatest length in each axis, ``(axes,) int64``, or None."""
        name, given = self._name("max_length"), self.max_length
        if given is None:
            return None
        each = list(given) if isinstance(given, (list, tuple)) else [given] * self.axes
        if len(each) != self.axes:
            raise ArgumentError(f"{name} must be one number, or one for each of {self.axes} axes, not {given!r}")
        return np.array([validation.positive_int(name, most) for most in each], np.int64)

    def _check_lengths(self, lengths: np.ndarray, most: np.ndarray) -> None:
        too_long = np.argwhere(lengths > most)
        if len(too_long):
            which, axis = too_long[0].tolist()
            raise ArgumentError(
                f"{self._name('max_length')} is {most[axis]}, and arrays[{which}] has length {lengths[which, axis]}; "
                f"raise it, or pass {self._name('truncation')}=True"
            )


class PadColumns:
    """A function that pads some columns of a batch, for ``source.map``; any pool takes it.

    Lengths and mask of a column, if requested, come right after it. In a dict they are ``"ids_lengths"`` and
    ``"ids_mask"`` for the column ``"ids"``. To pad columns in different ways, map one ``PadColumns`` after the other.

    Args:
        *columns: Names of columns, or their places in a tuple, from 0, or from -1 at the end.
        **options: Options of :func:`pad_batch`, with its defaults.

    Raises:
        ArgumentError: there are no columns, one is named twice, or options contradict each other; in a call: the batch
            has no such column, or it has one with the name of a mask or lengths.
        ArgumentTypeError: a column is neither name nor place, an option does not exist, or is of the wrong kind.

    >>> pad = PadColumns(0, padding_value=-1, return_lengths=True)
    >>> [column.tolist() for column in pad([np.array([7]), np.array([8, 9])], np.array([0, 1]))]
    [[[7, -1], [8, 9]], [1, 2], [0, 1]]
    """

    def __init__(self, *columns: int | str, **options: Any) -> None:
        defaults = inspect.unwrap(pad_batch).__kwdefaults__ or {}
        advice = {new: f"pass it as {old}=" for old, new in NAMES_IN_PAD.items()}
        validation.no_unknown("PadColumns", options, defaults, advice)
        self._hold(columns, Padding(**{**defaults, **options}))

    @classmethod
    def of_padding(cls, columns: Sequence[Any], padding: Padding) -> PadColumns:
        """Return the function for options that are checked already."""
        made = cls.__new__(cls)
        made._hold(columns, padding)
        return made

    def wider(self) -> PadColumns | None:
        """Return this function with wider padding; None if the width does not depend on the batch."""
        if self._padding.padding == "max_length":
            return None
        return self.of_padding(self.columns, dataclasses.replace(self._padding, more=self._padding.more + 1))

    def columns_after(self, form: Any) -> Any:
        """Return the form of the results for batches of `form`, with None for columns that this function makes.

        Raises:
            ArgumentError: such batches lack a column, or have one with the name of a mask or lengths.
        """
        further = [None] * len(self._further)
        plain = tuple(form) if isinstance(form, Places) else form  # batches show no names of places
        made = _replaced(plain, self.columns, lambda _: (None, *further) if further else None, self._further)
        if not isinstance(form, Places):
            return made
        after = {place: i for i, place in enumerate(made) if place is not None}
        wanted = keys_in(plain, self.columns)
        for place in wanted:
            after[place] = place + len(further) * sum(other < place for other in wanted)
        return Places.named(made, {name: after[place] for name, place in form.names.items()})

    def _hold(self, columns: Sequence[Any], padding: Padding) -> None:
        self.columns = tuple(column_names("columns", list(columns)))
        self._padding = padding
        self._further = [*["lengths"] * padding.return_lengths, *["mask"] * padding.return_mask]

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Return the batch with the chosen columns padded."""
        return _replaced(named or batch, self.columns, self._padding, self._further)


@validation.known_names({})
def flat_batch(
    arrays: Any, *, shape: Sequence[int | None] | None = None, dtype: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays of different lengths one after the other, and where each begins.

    PyTorch's nested tensors and :class:`~batchup_ng.Ragged` have this form. To do this with columns of a batch, use
    :class:`FlatColumns`.

    Args:
        arrays: As for :func:`pad_batch`.
        shape: The shape of an array, ``(None, 4)``, as for :func:`pad_batch`.
        dtype: The dtype of the values, as for :func:`pad_batch`.

    Returns:
        The values, ``(total, ...)``, and the offsets, ``(n + 1,) int64``: array i is ``values[offsets[i]:offsets[i +
        1]]``. For no arrays, ``float64`` values of length 0. If all are empty lists, so too, with a
        :class:`~batchup_ng.SampleWarning` unless `shape` and `dtype` are given.

    Raises:
        ArgumentError: the arrays differ in dtype or in any axis but the first, or do not fit `shape` or `dtype`, or
            NumPy would change values of a list, as of ``[1, "a"]``.
        ArgumentTypeError: `arrays` holds no arrays, or an option is of the wrong kind.

    >>> flat_batch([[1, 2, 3], [], [4]])
    (array([1, 2, 3, 4]), array([0, 3, 3, 4]))
    """
    return _flat(RowArrays(shape=shape, dtype=dtype), arrays)


def _flat(rows: RowArrays, arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    listed, inner, dtype = rows.of(arrays, np.float64)
    offsets = np.zeros(len(listed) + 1, np.int64)
    np.cumsum([len(array) for array in listed], out=offsets[1:])
    values = np.empty((int(offsets[-1]), *inner), dtype)
    for array, start, end in zip(listed, offsets.tolist(), offsets[1:].tolist(), strict=False):
        values[start:end] = array
    return values, offsets


class FlatColumns:
    """A function that puts the rows of some columns one after the other, for ``source.collate``; any pool takes it.

    The offsets of a column come right after it. In a dict they are ``"boxes_offsets"`` for the column ``"boxes"``. Such
    a column does not have one row for each sample, so no map may follow, and ``source[i]`` is not available.

    Args:
        *columns: Names of columns, or their places in a tuple, from 0, or from -1 at the end.
        shape: The shape of a row of each column, ``(None, 4)``, as for :func:`pad_batch`.
        dtype: The dtype of the values of each column, as for :func:`pad_batch`.

    Raises:
        ArgumentError: there are no columns, or one is named twice; in a call: the batch has no such column, it has one
            with the name of the offsets, or its rows differ in dtype or in any axis but the first.
        ArgumentTypeError: a column is neither name nor place, or an option is of the wrong kind.

    >>> import batchup_ng as bu
    >>> boxes = bu.Ragged(np.arange(12).reshape(3, 4), offsets=[0, 2, 2, 3])
    >>> source = bu.ArrayDataSource({"boxes": boxes, "image": np.arange(3)}).collate(FlatColumns("boxes"))
    >>> batch = next(source.batch_iterator(3))
    >>> {name: column.shape for name, column in batch.items()}, batch["boxes_offsets"]
    ({'boxes': (3, 4), 'boxes_offsets': (4,), 'image': (3,)}, array([0, 2, 2, 3]))
    """

    @validation.known_names({})
    def __init__(
        self, *columns: int | str, shape: Sequence[int | None] | None = None, dtype: Any = None
    ) -> None:
        self.columns = tuple(column_names("columns", list(columns)))
        self._rows = RowArrays(shape=shape, dtype=dtype)

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch of `samples`, tuples or dicts, with the chosen columns flat."""
        return _replaced(nests.batch_of(samples), self.columns, functools.partial(_flat, self._rows), ["offsets"])


def _replaced(batch: Any, columns: Sequence[Any], make: Callable[[Any], Any], further: Sequence[str]) -> Any:
    """Return a batch with ``make(column)`` in place of each of `columns`: a column, or a tuple with `further` ones."""
    wanted = set(keys_in(batch, columns))
    named = isinstance(batch, Mapping)
    result: list[tuple[Any, Any]] = []
    for key, column in batch.items() if named else enumerate(batch):
        if key not in wanted:
            result.append((key, column))
            continue
        try:
            made = make(column)
        except (ArgumentError, ArgumentTypeError) as error:
            raise type(error)(f"column {key!r}: {error}") from error
        names = [key, *(f"{key}_{what}" for what in further)]
        result += zip(names, made if type(made) is tuple else [made], strict=True)
    if not named:
        return tuple([column for _, column in result])
    if len(dict(result)) < len(result):
        names = [name for name, _ in result]
        twice = next(name for name in names if names.count(name) > 1)
        raise MapResultError(f"column {twice!r} would be added, and the batch has one of that name; rename it")
    return dict(result)


def _as_value(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the padding value, the argument `name`, if the dtype can hold it; a float is rounded."""
    given = np.array(value)  # keeps its own dtype: a plain number would be compared in the dtype of the arrays
    kind, own = dtype.kind, given.dtype.kind
    # NumPy would read a number from text, and drop a part of a complex one.
    fits = kind == "O" or ((own in "US") == (kind in "US") and (own != "c" or kind == "c"))
    held = given
    try:
        with np.errstate(all="ignore"):
            held = given.astype(dtype) if fits else given
            fits = fits and bool(np.isfinite(held) == np.isfinite(given) if kind in "fc" else held == given)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ArgumentError(f"{name} must be one that {dtype} can hold, not {value!r}; convert the arrays")
    return held
