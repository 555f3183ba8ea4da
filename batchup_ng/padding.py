"""Arrays of different lengths, padded to one array.

The names of the options are those of PyTorch's ``pad_sequence`` and of the tokenizers of Hugging Face; lengths and
masks are NumPy arrays, as all that a batch holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import validation
from .errors import ArgumentError, ArgumentTypeError


def pad_batch(
    arrays: Any,
    *,
    padding_value: Any = 0,
    padding: str = "longest",
    max_length: int | None = None,
    truncation: bool = False,
    pad_to_multiple_of: int | None = None,
    padding_side: str = "right",
    axes: int | Sequence[int] = 0,
    return_lengths: bool = False,
    return_mask: bool = False,
) -> Any:
    """Return arrays of different lengths in one array, padded to the longest of them.

    It is a function of a module, so that ``source.map`` takes it with ``functools.partial``; for single columns of a
    batch there is :class:`PadColumns`.

    Args:
        arrays: A list, or an array of objects or of equal lengths: n arrays ``(length, ...)`` of one dtype.
        padding_value: What to pad with; the dtype of the arrays, which is kept, must be able to hold it.
        padding: ``"longest"``: pad to the longest of the arrays. ``"max_length"``: always to `max_length`, which gives
            all batches one shape.
        max_length: The most that an array may have, also after padding.
        truncation: Whether to cut the end of what is longer than `max_length`, which otherwise is an error.
        pad_to_multiple_of: Pad on until the length is a multiple of this, for devices that like that.
        padding_side: ``"right"``: behind the values. ``"left"``: before them.
        axes: Along which axes of the arrays lengths may differ; in the others they agree. All options hold for each.
        return_lengths: Whether to return the lengths before padding, of what was kept, too: ``(n,) int64``; of several
            axes ``(n, n_axes)``.
        return_mask: Whether to return a mask too that is True for values, False for padding: ``(n, longest) bool``,
            with several axes ``(n, longest, longest, ...)``. It is what Hugging Face calls an attention mask; the
            ``key_padding_mask`` of PyTorch is its opposite.

    Returns:
        The padded array, ``(n, longest, ...)``, a copy. With lengths or a mask, a tuple: array, lengths, mask. Of no
        arrays, a ``float64`` array of length 0.

    Raises:
        ArgumentError: the arrays differ in dtype, dimensions or another axis, an array is longer than `max_length`, the
            dtype cannot hold `padding_value`, or options contradict each other.
        ArgumentTypeError: an option is of another kind.

    >>> pad_batch([[1, 2, 3], [4]], padding_value=-1)
    array([[ 1,  2,  3],
           [ 4, -1, -1]])
    >>> x, lengths = pad_batch([[1.0, 2.0], [3.0]], padding_side="left", pad_to_multiple_of=4, return_lengths=True)
    >>> x.tolist(), lengths.tolist()
    ([[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 3.0]], [2, 1])
    """
    options = _Options(
        padding_value, padding, max_length, truncation, pad_to_multiple_of, padding_side, axes, return_lengths,
        return_mask,
    )  # fmt: skip
    parts = _padded(arrays, options, "arrays")
    return parts[0] if len(parts) == 1 else parts


class PadColumns:
    """A function of a batch that pads some of its columns, for ``source.map``; any pool takes it.

    Lengths and mask of a column, where they are asked for, stand right behind it. For columns that are padded in
    different ways, one is mapped after the other.

    Args:
        *columns: Which arrays of the batch, from 0, or from -1 at the end.
        **options: Those of :func:`pad_batch`, with its defaults.

    Raises:
        ArgumentError: there are no columns, one is named twice, or options contradict each other.
        ArgumentTypeError: a column is no whole number, there is no such option, or one is of another kind.

    >>> pad = PadColumns(0, padding_value=-1, return_lengths=True)
    >>> [column.tolist() for column in pad([np.array([7]), np.array([8, 9])], np.array([0, 1]))]
    [[[7, -1], [8, 9]], [1, 2], [0, 1]]
    """

    def __init__(self, *columns: int, **options: Any) -> None:
        self.columns = tuple([validation.integer(f"columns[{i}]", column) for i, column in enumerate(columns)])
        if not columns or len(set(self.columns)) < len(columns):
            raise ArgumentError(f"columns must be at least one column, each once, not {columns!r}; 0 is the first")
        defaults: dict[str, Any] = pad_batch.__kwdefaults__ or {}
        validation.no_unknown("PadColumns", options, defaults)
        self._options = _Options(**{**defaults, **options})

    def __call__(self, *batch: Any, **named: Any) -> tuple[Any, ...]:
        """Return the batch with its columns padded."""
        if named:
            raise ArgumentTypeError(
                f"PadColumns pads columns by number, and this batch has them by name: {', '.join(named)}; map a "
                f"function that pads them with pad_batch and returns a dict"
            )
        n = len(batch)
        for column in self.columns:
            if not -n <= column < n:
                raise ArgumentError(
                    f"PadColumns was given column {column}, and the batch has {n}; name one that it has"
                )
        wanted = {column % n for column in self.columns}
        result: list[Any] = []
        for place, column in enumerate(batch):
            result.extend(_padded(column, self._options, f"column {place}") if place in wanted else [column])
        return tuple(result)


@dataclasses.dataclass(frozen=True)
class _Options:
    """The options of :func:`pad_batch`, checked when they are given."""

    padding_value: Any
    padding: str
    max_length: int | None
    truncation: bool
    pad_to_multiple_of: int | None
    padding_side: str
    axes: Any
    return_lengths: bool
    return_mask: bool

    def __post_init__(self) -> None:
        validation.one_of("padding", self.padding, ("longest", "max_length"))
        validation.one_of("padding_side", self.padding_side, ("right", "left"))
        for name in ("truncation", "return_lengths", "return_mask"):
            validation.true_or_false(name, getattr(self, name))
        for name in ("max_length", "pad_to_multiple_of"):
            if getattr(self, name) is not None:
                validation.positive_int(name, getattr(self, name))
        if self.max_length is None and (self.truncation or self.padding == "max_length"):
            raise ArgumentError("max_length must be given with truncation=True or padding='max_length', and is None")
        if self.max_length is not None and self.max_length % (self.pad_to_multiple_of or 1):
            raise ArgumentError(
                f"max_length must be a multiple of pad_to_multiple_of, {self.pad_to_multiple_of}, not {self.max_length}"
            )
        if np.ndim(self.padding_value) != 0:
            raise ArgumentTypeError(f"padding_value must be a single value, not {self.padding_value!r}")
        given = (self.axes,) if np.ndim(self.axes) == 0 else self.axes
        axes = tuple([validation.integer("axes", axis) for axis in given])
        if not axes or len(set(axes)) < len(axes) or min(axes) < 0:
            raise ArgumentError(
                f"axes must be at least one axis, each once, counted from 0, not {self.axes!r}; 0 is the first"
            )
        object.__setattr__(self, "axes", axes)

    def target(self, longest: int) -> int:
        """Return the length to pad to."""
        least = self.max_length or 0 if self.padding == "max_length" else longest
        multiple = self.pad_to_multiple_of or 1
        return -(-least // multiple) * multiple


def _padded(arrays: Any, options: _Options, name: str) -> tuple[np.ndarray, ...]:
    """Return the padded array, with lengths and mask as the options ask for them."""
    listed, axes = _as_arrays(arrays, name), options.axes
    shape = _common_shape(listed, axes, name) if listed else [0] * len(axes)
    lengths = np.array([[array.shape[axis] for axis in axes] for array in listed], np.int64).reshape(-1, len(axes))
    if options.max_length is not None:
        too_long = np.flatnonzero(lengths.max(axis=1, initial=0) > options.max_length)
        if len(too_long) and not options.truncation:
            raise ArgumentError(
                f"max_length is {options.max_length}, and {name}[{too_long[0]}] has length "
                f"{lengths[too_long[0]].max()}; raise it, or pass truncation=True"
            )
        lengths = np.minimum(lengths, options.max_length)
    for i, axis in enumerate(axes):
        shape[axis if listed else i] = options.target(int(lengths[:, i].max(initial=0)))
    dtype = _common_dtype(listed, name) if listed else np.dtype(np.float64)
    out = np.full((len(listed), *shape), _as_value(options.padding_value, dtype) if listed else 0, dtype)
    mask = np.zeros((len(listed), *[shape[axis] for axis in axes]) if listed else out.shape, bool)
    for array, own, row, row_mask in zip(listed, lengths.tolist(), out, mask, strict=True):
        into, taken, spans = [slice(None)] * array.ndim, [slice(None)] * array.ndim, []
        for axis, n, size in zip(axes, own, row_mask.shape, strict=True):
            spans.append(slice(size - n, None) if options.padding_side == "left" else slice(n))
            into[axis], taken[axis] = spans[-1], slice(n)
        row[tuple(into)] = array[tuple(taken)]
        row_mask[tuple(spans)] = True
    told = [lengths[:, 0] if len(axes) == 1 else lengths] * options.return_lengths
    return (out, *told, *[mask] * options.return_mask)


def _as_arrays(arrays: Any, name: str) -> list[np.ndarray]:
    try:
        listed = list(iter(arrays))
    except TypeError:
        raise ArgumentTypeError(
            f"{name} must be arrays to be padded to one, in a list or an array of objects, not {arrays!r} of type "
            f"{type(arrays).__name__}"
        ) from None
    for i, array in enumerate(listed):
        try:
            listed[i] = np.asarray(array)
        except ValueError as error:  # lists of different lengths
            raise ArgumentError(
                f"{name}[{i}] must be an array, and is a list whose own lists differ in length; pad these first, "
                f"pad_batch(...)"
            ) from error
    return listed


def _common_shape(arrays: list[np.ndarray], axes: tuple[int, ...], name: str) -> list[int]:
    """Return the shape of the arrays, which they share but for `axes`."""
    first = arrays[0]
    others = [axis for axis in range(first.ndim) if axis not in axes]
    for i, array in enumerate(arrays):
        if array.ndim <= max(axes):
            raise ArgumentError(f"{name}[{i}] is of shape {array.shape}, which has no axis {max(axes)}; pass arrays")
        if array.ndim != first.ndim or any(array.shape[axis] != first.shape[axis] for axis in others):
            raise ArgumentError(
                f"{name}[{i}] is of shape {array.shape}, and {name}[0] of {first.shape}: they may only differ in "
                f"length along axes={axes if len(axes) > 1 else axes[0]}; name the axes along which to pad"
            )
    return list(first.shape)


def _common_dtype(arrays: list[np.ndarray], name: str) -> np.dtype[Any]:
    """Return the dtype of all arrays; empty ones, which may come from empty lists, do not matter."""
    dtypes = {array.dtype: i for i, array in reversed(list(enumerate(arrays))) if array.size} or {arrays[0].dtype: 0}
    of_text = {dtype.kind for dtype in dtypes} in ({"U"}, {"S"})  # which may be of any length
    if len(dtypes) > 1 and not of_text:
        listed = ", ".join(f"{name}[{i}] of {dtype}" for dtype, i in sorted(dtypes.items(), key=lambda item: item[1]))
        raise ArgumentError(f"{name} must have one dtype, and there are {listed}; convert them, x.astype(...)")
    return np.result_type(*dtypes)


def _as_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the padding value, if the dtype can hold it; a float is rounded."""
    given = np.array(value)  # whose dtype is its own: a plain number would be compared in that of the arrays
    kind, own = dtype.kind, given.dtype.kind
    # NumPy would read a number from text, and drop a part of a complex one.
    fits = kind == "O" or ((own in "US") == (kind in "US") and (own != "c" or kind == "c"))
    with np.errstate(all="ignore"):
        try:
            held = given.astype(dtype) if fits else given
            if fits and dtype.kind in "fc":
                fits = bool(np.isclose(held, given, rtol=float(np.finfo(dtype).eps), atol=0.0, equal_nan=True))
            elif fits:
                fits = bool(held == given)
        except (TypeError, ValueError, OverflowError):
            fits = False
    if not fits:
        raise ArgumentError(f"padding_value must be one that {dtype} can hold, not {value!r}; convert the arrays")
    return held
