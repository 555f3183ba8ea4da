"""The arrays of a column of rows of different lengths: one dtype, and one shape but for the length.

An empty list has neither dtype nor inner shape. Beside other rows it takes theirs. If all rows of a batch are empty
lists, only the user can know both, by ``shape=`` and ``dtype=``. Without these there is a warning, since dtype and
number of axes would depend on the batch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .batch import refuse_masked
from .display import counted
from .errors import ArgumentError, ArgumentTypeError, SampleWarning
from .warn import warn_consumer

MOST_EXACT = 1 << 53
"""The largest whole number up to which float64 has all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowArrays:
    """Makes arrays of the rows of a column.

    Args:
        axes: In how many axes, the first ones, rows may differ.
        shape: The shape of a row, None for each of these axes. None if the user does not give it.
        dtype: The dtype of the results. None for the dtype of the rows.

    Raises:
        ArgumentError: `shape` does not begin with None for each of `axes`, or goes on with anything but lengths.
        ArgumentTypeError: `shape` is no tuple, or `dtype` is no dtype of numbers or text.
    """

    axes: int = 1
    shape: Sequence[int | None] | None = None
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.shape is not None:
            asked = ", ".join(["None"] * self.axes)
            if not isinstance(self.shape, (tuple, list)):
                raise ArgumentTypeError(f"shape must be the shape of a row, not {self.shape!r}; pass ({asked}, 4)")
            whole = all(isinstance(length, (int, np.integer)) and length >= 0 for length in self.shape[self.axes :])
            if list(self.shape[: self.axes]) != [None] * self.axes or not whole:
                raise ArgumentError(
                    f"shape must be {asked} where rows differ in length, and then lengths, not {self.shape!r}; pass "
                    f"({asked}, 4)"
                )
        if self.dtype is not None:
            try:
                known: np.dtype[Any] = np.dtype(self.dtype)
            except TypeError:
                known = np.dtype(object)
            if known.kind not in "biufcUS":
                raise ArgumentTypeError(f"dtype must be a dtype of numbers or text, not {self.dtype!r}; pass 'float32'")

    def of(self, rows: Any, empty: Any) -> tuple[list[np.ndarray], tuple[int, ...], np.dtype[Any]]:
        """Return the rows as arrays, the shape of a row after its first `axes`, and the dtype of all rows.

        Each array has its own dtype, and can be written to an array of the dtype of all. `empty` is the dtype of lists
        without a value if nobody knows another.

        Raises:
            ArgumentError: rows differ in dtype, or in another axis than the first `axes`, or a list holds values that
                its array would change.
            ArgumentTypeError: `rows` holds no arrays.
        """
        given = _listed(rows)
        arrays = [_array(i, row) for i, row in enumerate(given)]
        pairs = zip(given, arrays, strict=True)
        bare = [isinstance(row, (list, tuple)) and array.shape == (0,) for row, array in pairs]
        inner: tuple[int, ...] = ()
        if self.shape is not None:
            inner = tuple([int(length or 0) for length in self.shape[self.axes :]])
        elif not all(bare):
            inner = arrays[bare.index(False)].shape[self.axes :]
        for i, array in enumerate(arrays):
            if bare[i] or (self.shape is not None and array.shape == (0,)):
                arrays[i] = np.zeros((*[0] * self.axes, *inner), array.dtype)
            elif array.ndim < self.axes or array.shape[self.axes :] != inner:
                raise self._of_another_shape(i, arrays, 0 if self.shape is not None else bare.index(False))
        dtype = self._dtype_of(given, arrays)
        if arrays and (dtype is None or (self.shape is None and all(bare))):
            warn_consumer(
                f"all {counted(len(arrays), 'row')} of a batch are empty lists, whose array may differ from others in "
                f"dtype and number of axes; pass both, as shape=(None, 4), dtype='float32', or make the rows arrays: "
                f"numpy.zeros((0, 4), 'float32')",
                SampleWarning,
            )
        return arrays, inner, np.dtype(empty) if dtype is None else dtype

    def _dtype_of(self, given: Sequence[Any], arrays: Sequence[np.ndarray]) -> np.dtype[Any] | None:
        """Return the dtype of all rows; None if they are lists without a value. Other empty rows do not matter."""
        filled = [array for array in arrays if array.size]
        if self.dtype is not None:
            wanted: np.dtype[Any] = np.dtype(self.dtype)
            for i, array in enumerate(arrays):
                _check_fits(i, array, wanted)
            return np.result_type(wanted, *filled) if wanted.kind in "US" else wanted
        if not filled and arrays:
            return next((array.dtype for row, array in zip(given, arrays, strict=True) if hasattr(row, "dtype")), None)
        return _common_dtype(arrays)

    def _of_another_shape(self, i: int, arrays: Sequence[np.ndarray], first: int) -> ArgumentError:
        """Return the error for row `i`, which does not fit to `shape` or to row `first`."""
        shape, other = arrays[i].shape, arrays[first].shape
        if self.shape is not None:
            return ArgumentError(
                f"arrays[{i}] is of shape {shape}, and must be of shape={self.shape}; transpose or cut it"
            )
        several = "a first axis, and may only differ in length along that" if self.axes == 1 else (
            f"{self.axes} axes or more, and may only differ in length along the first {self.axes}"
        )
        remedy = "transpose or cut them, or pass axes="
        if (0,) in (shape, other) and shape != other:
            filled = (shape if other == (0,) else other)[self.axes :]
            rows = (*[None] * self.axes, *filled)
            remedy = f"make empty rows numpy.zeros({(*[0] * self.axes, *filled)}), or pass shape={rows}"
        if i == first:
            return ArgumentError(f"arrays[{i}] is of shape {shape}, and must have {several}; leave numbers out")
        return ArgumentError(
            f"arrays[{i}] is of shape {shape}, and arrays[{first}] of {other}: they must have {several}; {remedy}"
        )


def _listed(rows: Any) -> list[Any]:
    try:
        return list(iter(rows))
    except TypeError:
        raise ArgumentTypeError(
            f"arrays must be arrays to be padded to one, in a list or an array of objects, not {rows!r} of type "
            f"{type(rows).__name__}"
        ) from None


def _array(i: int, row: Any) -> np.ndarray:
    refuse_masked(f"arrays[{i}]", row)
    try:
        array = np.asarray(row)
    except ValueError as error:  # lists of different lengths
        raise ArgumentError(
            f"arrays[{i}] must be an array, and is a list whose own lists differ in length; pad these first, "
            f"pad_batch(...)"
        ) from error
    if isinstance(row, (list, tuple)) and not holds(array, row, truth_values=True):
        raise ArgumentError(
            f"arrays[{i}] holds values that an array of {array.dtype} would change, or of several kinds; convert them "
            f"to one kind, or pass arrays"
        )
    return array


def _types_in(values: Any) -> set[type]:
    """Return the types of the values in a list, or in its lists."""
    while (kinds := set(map(type, values))) and kinds <= {list, tuple}:
        values = list(itertools.chain.from_iterable(values))
    return kinds


def holds(array: np.ndarray, row: Any, *, truth_values: bool = False) -> bool:
    """Return whether an array holds the values of a list unchanged: no number as text, no long integer as a float, no
    text that ends with NUL, which NumPy drops; no truth value as a number, unless `truth_values`.
    """
    kind, kinds = array.dtype.kind, _types_in([row])  # a row may be a tensor
    if (kinds == {int} and kind in "iu") or (kinds == {float} and kind == "f"):
        return True
    if kinds <= {int, float} and kind == "f" and not (np.abs(array) >= MOST_EXACT).any():
        return True
    values = np.array(row, object).reshape(-1).tolist()
    if kind in "US":
        of_text = str if kind == "U" else bytes
        return all(isinstance(value, of_text) and value[-1:] not in ("\0", b"\0") for value in values)
    if kind not in "iufc":  # an array is of truth values only if all values are
        return True
    same = all(own == value or value != value for own, value in zip(array.reshape(-1).tolist(), values, strict=True))
    return same and (truth_values or not any(isinstance(value, (bool, np.bool_)) for value in values))


def _common_dtype(arrays: Sequence[np.ndarray]) -> np.dtype[Any]:
    """Return the dtype of all arrays with a value; float64 without arrays."""
    dtypes = {array.dtype: i for i, array in reversed(list(enumerate(arrays))) if array.size}
    of_text = {dtype.kind for dtype in dtypes} in ({"U"}, {"S"})  # texts may differ in length
    if len(dtypes) > 1 and not of_text:
        listed = ", ".join(f"arrays[{i}] of {dtype}" for dtype, i in sorted(dtypes.items(), key=lambda item: item[1]))
        raise ArgumentError(f"arrays must have one dtype, and there are {listed}; convert them, x.astype(...)")
    return np.result_type(*dtypes or [np.dtype(np.float64)])


def _check_fits(i: int, array: np.ndarray, dtype: np.dtype[Any]) -> None:
    """Refuse a row whose values `dtype` cannot hold. Floats are rounded."""
    kind, own = dtype.kind, array.dtype.kind
    if kind in "biu" and own in "biu":
        fits = np.can_cast(array.dtype, dtype) or bool((array.astype(dtype) == array).all())
    elif kind in "fc" and own in "biu":
        fits = not array.size or (array.min() >= -MOST_EXACT and array.max() <= MOST_EXACT)
        with np.errstate(over="ignore"):
            fits = bool(fits and (array.astype(dtype) == array).all())  # as float64, which is exact up to there
    else:
        fits = own == kind if "U" in (own, kind) or "S" in (own, kind) else np.can_cast(array.dtype, dtype, "same_kind")
    if array.size and not fits:
        raise ArgumentError(f"arrays[{i}] must hold values of dtype={dtype}, and is {array.dtype}; pass another dtype=")
