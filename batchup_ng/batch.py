"""Pure functions on batches: tuples of arrays with the same first axis, perhaps nested or with dicts."""

from __future__ import annotations

import copy
import operator
import sys
from collections import UserDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .errors import ArgumentError, ArgumentTypeError, MapResultError
from .memory.leases import Buffers
from .tensors import is_any_tensor


class NothingLeft:
    """The type of :data:`NOTHING_LEFT`."""

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<a batch with no sample left>"

    def __reduce__(self) -> str:
        return "NOTHING_LEFT"


NOTHING_LEFT = NothingLeft()
"""Stands for a batch if lazy filters keep no sample of it. Maps are not called for it, and no loop gets it."""


PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, np.str_, np.int64, np.float32, np.float64))
"""Immutable types."""


def length(batch: Any) -> int:
    """Return the number of samples in `batch`, read from its first leaf."""
    while isinstance(batch, (tuple, Mapping)) and batch:
        batch = batch[0] if isinstance(batch, tuple) else next(iter(batch.values()))
    return len(batch)


def is_masked(value: Any) -> bool:
    """Return whether `value` is a masked array, without importing ``numpy.ma``, which takes 6 ms."""
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def refuse_masked(name: str, value: Any) -> None:
    """Raise :class:`~batchup_ng.errors.ArgumentTypeError` for a masked array: NumPy's functions would drop its mask."""
    if is_masked(value):
        raise ArgumentTypeError(
            f"{name} is a masked array, whose mask would be lost; pass x.filled(value), and x.mask as an array of its "
            f"own if it is needed"
        )


def as_batch(result: Any) -> Any:
    """Return a user function's result as a batch: a list stands for the tuple of its arrays."""
    return tuple(result) if type(result) is list else result


def lengths(batch: Any) -> set[int]:
    """Return the lengths of those leaves of `batch` with one entry a sample: arrays, tensors, lists.

    >>> sorted(lengths((np.zeros((3, 2)), [1, 2], {"scale": 5.0, "name": "a"})))
    [2, 3]
    """
    found: set[int] = set()
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple) else (batch,)
    for part in parts:
        if isinstance(part, (tuple, Mapping)):
            found |= lengths(part)
        elif type(part) is list or getattr(part, "ndim", None):
            found.add(_rows_of(part))
    return found


def _rows_of(part: Any) -> int:
    try:
        return len(part)
    except TypeError as error:
        raise MapResultError(
            f"a batch cannot hold a {type(part).__name__}, which has no length ({error}); return an array of it, such "
            f"as x.toarray()"
        ) from None


def map_leaves(fn: Callable[[Any], Any], batch: Any, *, classes: bool = False) -> Any:
    """Return `batch` with `fn` applied to each leaf; nested tuples and dicts keep their form.

    With `classes` they keep their class too, see :func:`of_class`; otherwise they become tuples and dicts.
    """
    if isinstance(batch, tuple):
        parts = [map_leaves(fn, part, classes=classes) for part in batch]
        return of_class(batch, parts) if classes else tuple(parts)
    if isinstance(batch, Mapping):
        named = {name: map_leaves(fn, part, classes=classes) for name, part in batch.items()}
        return of_class(batch, named) if classes else named
    return fn(batch)


def of_class(batch: Any, parts: Any) -> Any:
    """Return the parts of a batch, a list or dict, in the class of `batch`: a namedtuple, a class derived from dict.

    >>> from collections import OrderedDict
    >>> of_class(OrderedDict(a=1), {"a": 2}) == OrderedDict(a=2)
    True
    """
    if isinstance(batch, tuple):
        return batch._make(parts) if hasattr(batch, "_make") else tuple(parts)
    if type(batch) is dict or not isinstance(batch, (dict, UserDict)):
        return parts
    made = copy.copy(batch)
    made.clear()
    made.update(parts)
    return made


def leaves(batch: Any) -> Iterator[Any]:
    """Yield the leaves of `batch` from left to right."""
    if isinstance(batch, (tuple, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from leaves(part)
    else:
        yield batch


def trim(batch: Any, n: int) -> Any:
    """Return the first `n` samples of `batch`, as views; refuse leaves of different lengths.

    >>> trim((np.arange(4), [5, 6, 7, 8]), 2)
    (array([0, 1]), [5, 6])
    """
    found = sorted(lengths(batch))
    if len(found) > 1:
        raise ArgumentError(
            f"a batch whose arrays have {found[0]} and {found[-1]} rows cannot be cut to {n} samples; cut the sources "
            f"that it is made of"
        )
    return map_leaves(lambda leaf: leaf[:n], batch, classes=True)


def trim_to_shortest(batches: Sequence[Any], sizes: Sequence[int]) -> Sequence[Any]:
    """Cut `batches` to as many groups of their sizes as all leaves have; return the same object if they agree.

    >>> [part.tolist() for part in trim_to_shortest([np.arange(3), np.arange(5)], [1, 2])]
    [[0, 1], [0, 1, 2, 3]]
    """
    pairs = list(zip(batches, sizes, strict=True))
    arrays = [(leaf, size) for batch, size in pairs for leaf in leaves(batch)]
    groups = {divmod(len(a), n) for a, n in arrays if hasattr(a, "__len__") and getattr(a, "ndim", 1) > 0}
    if not groups or (len(groups) == 1 and min(groups)[1] == 0):
        return batches
    n = min(groups)[0]
    return tuple([trim(batch, n * size) for batch, size in pairs])


def scatter(
    parts: Sequence[Any], offsets: Sequence[np.ndarray], buffers: Buffers, stacked: Collection[Any] | bool = False
) -> Any:
    """Return one batch with the samples of ``parts[i]``, all of one structure, at ``offsets[i]``.

    The offsets together are every place from 0 to the number of samples, once. `stacked` are the keys of the columns
    that become a list if the arrays of the parts differ in the shape of a sample, or True for all columns. The batch
    has the class of the parts, if all have the same.
    """
    first = parts[0]
    of_one_class = len(set(map(type, parts))) == 1

    def has(key: Any) -> bool:
        return stacked if isinstance(stacked, bool) else key in stacked

    if isinstance(first, tuple):
        made = [scatter(each, offsets, buffers, has(i)) for i, each in enumerate(zip(*parts, strict=True))]
        return of_class(first, made) if of_one_class else tuple(made)
    if isinstance(first, Mapping):
        named = {name: scatter([part[name] for part in parts], offsets, buffers, has(name)) for name in first}
        return of_class(first, named) if of_one_class else named
    n = sum(len(places) for places in offsets)
    if any(not isinstance(part, np.ndarray) for part in parts):
        if all(map(is_any_tensor, parts)):
            return _scattered_tensors(parts, offsets, n)
        return _listed(parts, offsets, n)
    shapes, dtypes = {array.shape[1:] for array in parts}, {_native(array.dtype) for array in parts}
    if len(shapes) > 1 and has(None):
        return _listed(parts, offsets, n)
    if len(shapes) > 1 or len(dtypes) > 1:
        _check_one(shapes, dtypes)
    out = buffers.empty((n, *shapes.pop()), np.result_type(*dtypes))
    for part, places in zip(parts, offsets, strict=True):
        out[places] = part
    return out


def _listed(parts: Sequence[Any], offsets: Sequence[np.ndarray], n: int) -> list[Any]:
    """Return the list of the samples of ``parts[i]`` at ``offsets[i]``."""
    _check_lists(parts)
    samples: list[Any] = [None] * n
    for part, places in zip(parts, offsets, strict=True):
        for place, sample in zip(places, part, strict=True):
            samples[place] = sample
    return samples


def _scattered_tensors(parts: Sequence[Any], offsets: Sequence[np.ndarray], n: int) -> Any:
    """Return one tensor with the rows of ``parts[i]`` at ``offsets[i]``."""
    _check_one({tuple(part.shape[1:]) for part in parts}, {part.dtype for part in parts})
    out = parts[0].new_empty((n, *parts[0].shape[1:]))
    for part, places in zip(parts, offsets, strict=True):
        out[places] = part
    return out


def kind_of_samples(column: Any) -> tuple[Any, int] | None:
    """Return the dtype and the number of axes of the samples of a list, array or tensor.

    Return None unless the samples are arrays or tensors of one kind. Samples without values may have any dtype.

    >>> kind_of_samples([np.zeros(3), np.zeros(2), np.zeros(0, int)]), kind_of_samples(["a", "b"])
    ((dtype('float64'), 1), None)
    """
    if not isinstance(column, list):
        return None if 0 in column.shape else (_native(column.dtype), len(column.shape) - 1)
    found: set[tuple[Any, int]] = set()
    for sample in column:
        shape = getattr(sample, "shape", None)
        if shape is None:
            return None
        if 0 not in shape:
            found.add((sample.dtype, len(shape)))
    kinds = {(_native(dtype), axes) for dtype, axes in found}
    return kinds.pop() if len(kinds) == 1 else None


def _sort_of_samples(column: Any) -> str | None:
    """Return in words what the samples of a list, array or tensor are, or None if they are not all of one sort.

    >>> _sort_of_samples([1, np.zeros(2)]), _sort_of_samples(np.array(["a"])), _sort_of_samples(["a", None])
    ('numbers or arrays', 'text', None)
    """
    if isinstance(column, np.ndarray):
        return {"U": "text", "S": "bytes", "O": None}.get(column.dtype.kind, "numbers or arrays")
    found = {_sort(sample) for sample in column} if isinstance(column, list) else {_sort(column)}
    return found.pop() if len(found) == 1 else None


def _sort(sample: Any) -> str | None:
    if isinstance(sample, float) and sample != sample:  # NaN stands for a missing text in tables, as None does
        return None
    if isinstance(sample, np.ndarray):
        return _sort_of_samples(sample)
    if isinstance(sample, (str, bytes)):
        return "text" if isinstance(sample, str) else "bytes"
    if isinstance(sample, (bool, int, float, complex, np.generic)):
        return "numbers or arrays"
    return "tensors" if is_any_tensor(sample) else None


def _native(dtype: Any) -> Any:
    return dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype


def _check_lists(parts: Sequence[Any]) -> None:
    """Refuse parts whose samples are arrays of different dtypes, or of different sorts: numbers, tensors, text, bytes.

    Nothing else is compared. A map of samples gives an array for some batches and a list for others, and a list may
    hold None, or images with and without channels: these would be refused in some batches and not in others.
    """
    sorts = sorted({sort for part in parts if (sort := _sort_of_samples(part)) is not None})
    if len(sorts) > 1:
        raise MapResultError(
            f"the sources that were joined have samples that are {sorts[0]} and samples that are {sorts[1]}; map them "
            f"to one, as by torch.as_tensor(x) or x.numpy() for tensors, str(x) for text"
        )
    kinds = list(dict.fromkeys(kind for part in parts if (kind := kind_of_samples(part)) is not None and kind[1]))
    for dtype, _ in kinds[1:]:
        if dtype != kinds[0][0] and not as_text(kinds[0][0], dtype):
            raise MapResultError(
                f"the sources that were joined have samples of {kinds[0][0]} and of {dtype}; map them to one, as by "
                f"[x.astype(...) for x in column]"
            )


def _check_one(shapes: Collection[Any], dtypes: Collection[Any]) -> None:
    """Refuse arrays of several parts whose samples differ in shape or dtype. Texts may differ in length."""
    if len(shapes) > 1:
        raise MapResultError(
            f"the sources that were joined have samples of shapes {sorted(map(tuple, shapes))}; map them to one, or "
            f"join the sources before they are mapped: concat(a, b).map(fn)"
        )
    if len(dtypes) > 1:
        first, *others = dtypes
        if not all(as_text(first, dtype) for dtype in others):
            raise MapResultError(
                f"the sources that were joined have samples of dtypes {sorted(map(str, dtypes))}, so that batches "
                f"would change their dtype from one to the next; map them to one, as by x.astype(...)"
            )


def as_text(a: Any, b: Any) -> bool:
    """Return whether both dtypes are of NumPy's texts, or both of its bytes: they may differ in length.

    >>> as_text(np.dtype("U3"), np.dtype("U7")), as_text(np.dtype("U3"), np.dtype("S3"))
    (True, False)
    """
    return isinstance(a, np.dtype) and isinstance(b, np.dtype) and a.kind == b.kind and a.kind in "US"


def batch_of(samples: Sequence[Any]) -> Any:
    """Return a batch of single samples, each a tuple, a dict or one value: a tuple or dict of columns."""
    first = samples[0]
    if not isinstance(first, Mapping):
        stacked = stack(samples)
        return stacked if isinstance(stacked, tuple) else (stacked,)
    if any(not isinstance(sample, Mapping) or sample.keys() != first.keys() for sample in samples):
        raise ArgumentError(f"the samples of a batch must have the same names, those of the first: {sorted(first)}")
    return {name: stack([sample[name] for sample in samples]) for name in first}


def stack(samples: Sequence[Any]) -> Any:
    """Return a batch of single samples: numbers and arrays of one shape become an array.

    Tuples are stacked part by part. NumPy's strings become an array of strings again. Arrays of different shapes,
    Python's strings, and anything that NumPy would only hold as objects, stay a list. Tensors are arrays in it, as in a
    stacked array. Masked arrays stay a list too, to keep their masks.
    """
    first = samples[0]
    if isinstance(first, tuple):
        return tuple([stack(parts) for parts in zip(*samples, strict=True)])
    if isinstance(first, (np.str_, np.bytes_)) and all(type(sample) is type(first) for sample in samples):
        return np.array(samples)
    stackable = isinstance(first, (bool, int, float, complex)) or hasattr(first, "__array__")
    if isinstance(first, (str, bytes)) or not stackable or any(map(is_masked, samples)):
        return list(samples)
    arrays = [np.asarray(sample) for sample in samples]
    if any(array.shape != arrays[0].shape for array in arrays):
        return [array if is_any_tensor(sample) else sample for array, sample in zip(arrays, samples, strict=True)]
    return np.stack(arrays)


def samples_of(batch: Any) -> Iterator[Any]:
    """Yield the samples of `batch` one by one, each with the batch's nesting; refuse leaves of different lengths."""
    lengths = sorted({len(leaf) for leaf in leaves(batch)})
    if len(lengths) > 1:
        raise ArgumentError(
            f"a batch whose arrays have {lengths[0]} and {lengths[-1]} samples cannot be taken apart to samples; if "
            f"its CompositeDataSource has parts of different batch_size, apply it to the parts before, else give it "
            f"trim=True, which is the default"
        )
    for i in range(length(batch)):
        yield map_leaves(operator.itemgetter(i), batch)


def given_samples(batch: Any) -> list[Any]:
    """Return the samples of `batch` as a data set gives them: a sample that is only one dict, as that dict."""
    return [
        sample[0] if type(sample) is tuple and len(sample) == 1 and isinstance(sample[0], dict) else sample
        for sample in samples_of(batch)
    ]


def nbytes(batch: Any) -> int:
    """Return the bytes of the arrays in `batch`; other leaves count as nothing."""
    if isinstance(batch, np.ndarray):
        return batch.nbytes
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    elif not isinstance(batch, (tuple, list)):
        return int(getattr(batch, "nbytes", 0))
    if PLAIN.issuperset(map(type, batch)):  # numbers and texts, which are many
        return 0
    total = 0
    for part in batch:  # runs for each batch of a pool: a generator would take twice as long
        total += part.nbytes if isinstance(part, np.ndarray) else nbytes(part)
    return total
