"""An accessor over anything that returns its samples one at a time.

The first sample of a batch decides the structure. Nothing is guessed from lists: a sample ``[1, 2]`` stays a list,
because only its owner knows whether it means two columns or a vector. The thread that asks reads the data set, with no
lock: the data set must be as thread-safe as the pool requires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import is_masked
from ..batch_layout import copied, finished, settled
from ..display import rows_in_words
from ..errors import ArgumentTypeError, SampleReadError
from ..memory.leases import FRESH
from ..meters.stopwatch import READ, in_groups, name_slowest
from .base import checked_rows, chosen_rows

SCALARS = (bool, int, float, complex, np.generic)
"""Types that count as a number."""


class MapStyle:
    """A data set with ``__len__`` and ``__getitem__(int)`` (of torch or Hugging Face, say) as an accessor.

    ``m[i]`` is ``dataset[i]``, unchanged. A slice, a 1-D array or list of row numbers, or a boolean mask gives the
    samples of those rows stacked:

    - arrays, tensors and numbers of one shape: one array with a new first axis, of NumPy's common dtype;
    - arrays of several shapes: the list of them, as arrays;
    - tuples: a tuple of such columns; mappings: a ``dict`` of them, keys in the order of the first sample;
    - strings, ``None``, lists, pictures, all other objects: the list of them.

    If there are no rows, row 0 is read to learn the structure. If the data set has ``__getitems__(list of int)`` (a
    convention of torch), it gets all rows in one call. In an ``ArrayDataSource``, the columns of samples ``(x, y)`` are
    put next to the other columns: batches of ``ArrayDataSource([MapStyle(dataset), weights])`` are ``(x, y, weights)``.

    >>> squares = MapStyle([(i, i * i) for i in range(5)])
    >>> squares[1:4]
    (array([1, 2, 3]), array([1, 4, 9]))

    Args:
        dataset: The data set. It is kept as ``.dataset``, never copied.

    Raises:
        ArgumentTypeError: `dataset` lacks one of the two methods, has no length, or is indexed by key (a mapping).
    """

    def __init__(self, dataset: Any) -> None:
        _check_dataset(dataset)
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, rows: Any) -> Any:
        """Return one sample unchanged, or the samples of several rows stacked, in the order asked for.

        Raises:
            IndexError: a row is out of range, or a mask has another length than the data set.
            SampleReadError: a sample has another structure than the others; ``.source`` is its row.
        """
        chosen = chosen_rows(rows, len(self))
        if isinstance(chosen, int):
            return self.dataset[chosen]
        if len(chosen) > 0 or len(self) == 0:
            copies = _Copies(len(chosen))
            return _stack(self._samples(chosen.tolist(), copies.of), chosen.tolist(), copies)
        return _without_rows(_stack([self.dataset[0]], [0], _Copies(0)))

    def samples(self, rows: np.ndarray) -> list[Any]:
        """Return the samples of some rows, ``(n,) int``, as the data set gives them; copies of samples it keeps."""
        return list(finished(self._samples(checked_rows(rows, len(self)).tolist()), FRESH))

    def __repr__(self) -> str:
        return f"MapStyle({type(self.dataset).__name__} of {len(self)} samples)"

    def _samples(self, rows: list[int], *copy_of: Callable[[np.ndarray], np.ndarray]) -> Sequence[Any]:
        at_once = getattr(self.dataset, "__getitems__", None)
        if at_once is None or not rows:
            groups = in_groups(rows, len(rows), READ)
            found = [settled(self.dataset[row], (), *copy_of) for group in groups for row in group]
            name_slowest(lambda first, end, _: rows_in_words(rows[first:end]))
            return found
        samples = at_once(rows)
        if not isinstance(samples, (list, tuple)) or len(samples) != len(rows):
            what = f"{len(samples)} samples" if isinstance(samples, (list, tuple)) else f"a {type(samples).__name__}"
            raise ArgumentTypeError(
                f"__getitems__ of {type(self.dataset).__name__} must return a list of one sample for each of the "
                f"{len(rows)} rows asked for, not {what}; mend it or leave it out"
            )
        return samples


def _check_dataset(dataset: Any) -> None:
    name = type(dataset).__name__
    for method in ("__len__", "__getitem__"):
        if not callable(getattr(type(dataset), method, None)):
            raise ArgumentTypeError(
                f"dataset must have __len__ and __getitem__(int); {name} has no {method}; "
                f"give a stream of batches to IteratorDataSource instead"
            )
    if isinstance(dataset, Mapping):
        raise ArgumentTypeError(
            f"dataset must be indexed by row number; {name} is a mapping with the keys "
            f"{', '.join(map(repr, list(dataset)[:5]))}; pass one of its values, as in MapStyle(dataset['train'])"
        )


class _Copies:
    """Copies of arrays that the data set keeps.

    Copies of the first kind are rows of one array. If a column has only these, it needs no second copy to be stacked.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self.column: np.ndarray | None = None
        self._places = iter(range(n))

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of an array."""
        if type(array) is not np.ndarray or not array.dtype.isnative:
            return array.copy("K")
        column = self.column
        if column is None:
            column = self.column = np.empty((self._n, *array.shape), array.dtype)
        is_alike = array.shape == column.shape[1:] and array.dtype == column.dtype
        place = next(self._places, None) if is_alike else None
        if place is None:
            return array.copy("K")
        column[place] = array
        return column[place, ...]

    def are_all(self, arrays: Sequence[np.ndarray]) -> bool:
        """Return whether the rows of the column are these arrays, in this order."""
        return len(arrays) == self._n and all(array.base is self.column for array in arrays)


def _stack(samples: Sequence[Any], rows: list[int], copies: _Copies) -> Any:
    """Stack the samples of `rows` into columns."""
    if not samples:
        return []
    form = _form(samples[0])
    for sample, row in zip(samples, rows, strict=True):
        if _form(sample) != form:
            raise SampleReadError(
                f"the samples of a batch must have one structure: row {row} holds {_in_words(_form(sample))}, "
                f"row {rows[0]} holds {_in_words(form)}; make the data set return samples alike",
                row,
            )
    if form[0] == "tuple":
        return tuple(_stack(column, rows, copies) for column in zip(*samples, strict=True))
    if form[0] == "mapping":
        return {key: _stack([sample[key] for sample in samples], rows, copies) for key in samples[0]}
    if form[0] == "array":
        return _stack_arrays(samples, rows, copies)
    return [copied(sample) for sample in samples]  # the data set may keep them, and a map may write to them


def _form(sample: Any) -> tuple[str, Any]:
    """Return the form of `sample`, equal for samples that can share a batch."""
    if isinstance(sample, tuple):
        return "tuple", len(sample)
    if isinstance(sample, Mapping):
        return "mapping", frozenset(sample)
    of_array = isinstance(sample, SCALARS) or hasattr(type(sample), "__array__")
    return "array" if of_array and not isinstance(sample, (str, bytes)) else "object", None


def _in_words(form: tuple[str, Any]) -> str:
    kind, detail = form
    keys = sorted(map(repr, detail)) if kind == "mapping" else ""
    return {
        "tuple": f"a tuple of {detail}", "mapping": f"a mapping with the keys {keys}", "array": "a number or array",
    }.get(kind, "a string or other object")  # fmt: skip


def _as_array(sample: Any, row: int) -> np.ndarray:
    if is_masked(sample):
        why = "a masked array, whose mask would be lost; make the data set return x.filled(value), and x.mask if needed"
        raise SampleReadError(f"row {row} has {why}", row)
    try:
        return np.asarray(sample)
    except Exception as error:
        raise SampleReadError(
            f"row {row} has a {type(sample).__name__} that NumPy cannot take as an array ({error}); make the data set "
            f"return arrays, or tensors in main memory without gradients and of a dtype that NumPy has",
            row,
        ) from error


def _stack_arrays(samples: Sequence[Any], rows: list[int], copies: _Copies) -> np.ndarray | list[np.ndarray]:
    if all(isinstance(sample, SCALARS) for sample in samples):
        return np.asarray(samples)
    arrays = [_as_array(sample, row) for sample, row in zip(samples, rows, strict=True)]
    if any(array.shape != arrays[0].shape for array in arrays):
        return [copied(array) for array in arrays]
    return copies.column if copies.column is not None and copies.are_all(arrays) else np.stack(arrays)


def _without_rows(column: Any) -> Any:
    """Return the same structure without rows."""
    if isinstance(column, tuple):
        return tuple(map(_without_rows, column))
    if isinstance(column, dict):
        return {key: _without_rows(value) for key, value in column.items()}
    return column[:0]
