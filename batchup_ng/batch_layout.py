"""The layout of a batch in every pool: C-contiguous, writable, native arrays, each on memory of its own.

Maps return views, constants, read-only arrays. One function brings them into this layout in every pool, and copies only
arrays that do not have it yet. To know whether memory is an array's own it needs no list of arrays in use. When a
source has returned a batch, only the batch refers to an array that was made for it, and only that array refers to the
memory below. Any further reference (from the data set, a global, another column, a batch that is kept) raises the
reference count, and costs a copy.
"""

from __future__ import annotations

import copy
import functools
import operator
import sys
from array import array as plain_array
from collections import deque
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from . import tensors
from .batch import PLAIN, is_masked, of_class
from .errors import MapResultError
from .interpreter import getrefcount
from .memory.leases import FRESH, Buffers, Lease
from .references import References, reaches
from .shared_columns import rows_share, sharing


def _counted(value: Any) -> int:
    return getrefcount(value)


# Measured by code of the same form as the counting code below: versions of Python differ in the references of a call
# and of a loop.
_PASSED = _counted([object()])
"""References to an object that is passed as an argument by the expression that made it."""

(_HELD,) = [getrefcount(part) for part in [object()]]
"""References to an object in a container, in a loop over the container."""


_CHANGEABLE = (list, deque, set, bytearray, plain_array)
"""Mutable types of Python, including derived classes."""


def finished(batch: Any, buffers: Buffers) -> Any:
    """Return a batch in the layout to hand out.

    Call it as ``finished(read(...), buffers)``: then no variable holds the batch.

    Arrays in tuples, lists, dicts and other mappings become C-contiguous, writable, of native byte order and of type
    ``numpy.ndarray``, on memory of their own. Dense tensors keep their strides. Other objects are handed out unchanged.

    A masked array is a :class:`MapResultError`, because its mask would be lost.

    Args:
        batch: Anything that a source or a map returned.
        buffers: Gives the memory for copies.
    """
    exclusive = getrefcount(batch) <= _PASSED
    if exclusive and type(batch) is tuple:  # nearly all batches, in half the time
        for part in batch:
            if type(part) is not np.ndarray or getrefcount(part) > _HELD or not _is_finished(part, buffers):
                break
        else:
            return batch
        part = None  # otherwise it would count as one more reference below
    return _finished(exclusive, batch, buffers)


def own_parts(batch: Any) -> tuple[Any, Collection[Any]]:
    """Return a batch, and the names or places of the arrays that may be written to: nothing else refers to them.

    Call it as ``own_parts(read(...))``, like :func:`finished`. These arrays are writable and C-contiguous.
    """
    own: list[Any] = []
    if getrefcount(batch) <= _PASSED and isinstance(batch, (tuple, dict)):
        for name in batch if isinstance(batch, dict) else range(len(batch)):
            part = batch[name]
            if type(part) is np.ndarray and getrefcount(part) <= _HELD and part.flags.carray and _owns(part, None):
                own.append(name)
    return batch, own


def of_its_own(read: Any) -> Any:
    """Return the result of a user's code for a map to write to: copied if anything else refers to it.

    Call it like :func:`finished`. Arrays keep their order, dtype and class.
    """
    return _of_its_own(getrefcount(read) <= _PASSED, read)


def _of_its_own(exclusive: bool, value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value if exclusive and _owns(value, None) else value.copy("K")
    if type(value) is tuple:
        return tuple([_of_its_own(exclusive and getrefcount(part) <= _HELD, part) for part in value])
    if type(value) is dict:
        held = {}
        for name in list(value):
            part = value[name]
            held[name] = _of_its_own(exclusive and getrefcount(part) <= _HELD, part)
        return held
    return _finished(exclusive, value, FRESH)


def _copy_of(array: np.ndarray) -> np.ndarray:
    return array.copy("K")


def settled(sample: Any, given: Any = (), copy_of: Callable[[np.ndarray], np.ndarray] = _copy_of) -> Any:
    """Return the result of a function for one sample, in memory that no later call of the function writes to.

    Call it as ``settled(fn(...), given)``, like :func:`finished`. A part is copied if anything else refers to its
    memory, such as an array that the function fills each time. Parts of the sample `given` and views of them are not
    copied. `copy_of` copies an array.
    """
    exclusive = getrefcount(sample) <= _PASSED
    if exclusive and (type(sample) is tuple or type(sample) is dict):  # nearly all samples
        parts: Any = sample if isinstance(sample, tuple) else sample.values()
        for part in parts:
            if type(part) is np.ndarray:
                if getrefcount(part) > _HELD or part.base is not None or part.dtype.hasobject:
                    break
            elif type(part) not in PLAIN:
                break
        else:
            return sample
        part = parts = None  # otherwise it would count as one more reference below
    return _settled(exclusive, sample, list(given.values()) if isinstance(given, Mapping) else given, copy_of)


def _settled(exclusive: bool, value: Any, given: Sequence[Any], copy_of: Callable[[np.ndarray], np.ndarray]) -> Any:
    if type(value) in PLAIN:
        return value
    for each in given:
        if value is each:
            return value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return _copy(value)
        if exclusive:
            for each in given:
                if type(each) is np.ndarray and each.base is not None and each.base is value.base:
                    return value
        return value if exclusive and _owns(value, None) else copy_of(value)
    if type(value) is list and PLAIN.issuperset(map(type, value)):
        return value if exclusive else list(value)
    if type(value) is list or isinstance(value, tuple):
        parts = [_settled(exclusive and getrefcount(part) <= _HELD, part, given, copy_of) for part in value]
        if type(value) is list:
            return parts
        return value if all(map(operator.is_, parts, value)) else of_class(value, parts)
    if isinstance(value, MutableMapping):
        held = value if exclusive else copy.copy(value)
        for name in list(held):
            part = held[name]
            new = _settled(exclusive and getrefcount(part) <= _HELD, part, given, copy_of)
            if new is not part:
                held[name] = new
        return held
    if tensors.is_tensor(value):
        return value if exclusive and _owns_tensor(value) else tensors.copied(value, FRESH)
    if isinstance(value, np.void):  # a row of a structured array is a view
        return value.copy()
    return value if exclusive else copied(value)


def copied(value: Any) -> Any:
    """Return a copy of a sample: arrays, tensors, images, and the lists and dicts around them, are new.

    So are byte arrays, sets and deques. An object of another class is not copied.
    """
    return _finished(False, value, FRESH)


def apart(batch: Any, before: Any, first: Any = ()) -> Any:
    """Return the result of a map for the next map, which may write to it.

    A column is copied if it shares memory with another column, if two rows of a list share memory, or if the map or
    anything else keeps its memory, such as a constant. No variable may hold a column of the batch.

    Args:
        batch: A tuple or mapping of columns. Anything else is returned unchanged.
        before: The batch that the map was called with. Its arrays are apart; the map may have changed its lists.
        first: Another batch, not `before`, that the caller holds and that may have some of the columns.
    """
    if not isinstance(batch, (tuple, Mapping)):
        return batch
    kept = _columns_of(before)
    known = set(map(id, kept))
    changed = _copies_of_kept(batch, known, kept, _columns_of(first))
    columns: dict[Any, Any] = {**(dict(enumerate(batch)) if isinstance(batch, tuple) else batch), **changed}
    arrays, filled, new = [], [], []  # old arrays and numbers, old lists and dicts of arrays, new columns
    for key, column in columns.items():
        if id(column) not in known:
            new.append(key)
        elif _may_be_filled(column):
            filled.append(key)
        else:
            arrays.append(key)
        known.discard(id(column))  # a second time it is a new column
    plain = not filled and all(_is_plain(columns[key]) for key in new)
    if not plain or len(set(map(id, columns.values()))) < len(columns):
        changed |= {key: _copy(columns[key]) for key in sharing(columns, arrays, [*filled, *new], set(filled))}
        for key in [*filled, *new]:
            if key not in changed and rows_share(columns[key]):
                changed[key] = _copy(columns[key])
    if not changed:
        return batch  # nearly always
    if isinstance(batch, tuple):
        made = [changed.get(place, column) for place, column in enumerate(batch)]
        return batch._make(made) if hasattr(batch, "_make") else tuple(made)
    if type(batch) is dict or not isinstance(batch, MutableMapping):
        return {**batch, **changed}
    own = copy.copy(batch)
    own.update(changed)
    return own


def unkept(made: list[Any], before: Any = (), first: Any = (), copies: Callable[[Any], bool] | None = None) -> Any:
    """Return the result of a user's code that is called again before the loop gets the result.

    An array, list or dict is copied if that code or anything else keeps it or its memory: the next call could write
    there. Others are handed out unchanged.

    Args:
        made: A list of the result alone. This function takes it out. No variable may hold the result.
        before: The batch that the code was called with.
        first: Another batch that the caller holds and that may have some of the columns.
        copies: Says of a value whether it is copied at once anyway. Then it is not copied here.
    """
    known = [*_columns_of(before), *_columns_of(first)]
    references = References()
    for part in [*known, *known, *made]:  # `known` and the batches hold the columns
        references.add(part)
    part = None
    held = references.kept(frozenset(map(_root, known)))
    return _unkept(made.pop(), held, copies) if held else made.pop()


def _unkept(value: Any, kept: Collection[int], copies: Callable[[Any], bool] | None) -> Any:
    if not reaches(value, kept) or (copies is not None and copies(value)):
        return value
    own = _copy if id(value) in kept else functools.partial(_unkept, kept=kept, copies=copies)
    if isinstance(value, tuple):
        return of_class(value, list(map(own, value)))
    if type(value) is list:
        return list(map(own, value))
    if type(value) is dict:
        return {name: own(part) for name, part in value.items()}
    return _copy(value)


def _root(value: Any) -> int:
    """Return the identity of the owner of an array's memory."""
    while isinstance(value, np.ndarray):
        value = value.base
    return id(value)


def _columns_of(batch: Any) -> list[Any]:
    return list(batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, tuple) else ())


def _copies_of_kept(
    batch: Any, known: Collection[int], before: Sequence[Any], first: Sequence[Any]
) -> dict[Any, Any]:
    """Return copies of the columns of a batch that share memory with anything but this batch and those before it.

    The columns of each batch before are held by it and by `before` or `first`.
    """
    keys = range(len(batch)) if isinstance(batch, tuple) else list(batch)
    firsts = set(map(id, first))
    for key in keys:
        column = batch[key]
        most = _HELD + 2 * (id(column) in known) + 2 * (id(column) in firsts)
        if type(column) not in PLAIN and (getrefcount(column) > most or not _is_simple(column)):
            break
    else:
        return {}  # nearly always
    column = None  # it would count as a reference
    references = References()
    for part in [*before, *before, *first, *first, *[batch[key] for key in keys]]:
        references.add(part)
    part = None
    held = references.kept()
    return {key: _copy(batch[key]) for key in keys if reaches(batch[key], held)}


def _is_simple(column: Any) -> bool:
    """Return whether a column that nothing else refers to is on memory that nothing else refers to."""
    if type(column) is np.ndarray:
        base: Any = column.base
        return (base is None or (isinstance(base, Lease) and getrefcount(base) <= _HELD)) and not column.dtype.hasobject
    return type(column) is list and PLAIN.issuperset(map(type, column))


def _is_plain(column: Any) -> bool:
    return type(column) is np.ndarray and column.base is None and not column.dtype.hasobject


def _may_be_filled(column: Any) -> bool:
    """Return whether a map can have put arrays or lists into a column that it returns as it was."""
    if isinstance(column, np.ndarray):
        return bool(column.dtype.hasobject)
    if isinstance(column, (list, deque)):
        return not PLAIN.issuperset(map(type, column))
    return isinstance(column, Mapping)


def _copy(value: Any) -> Any:
    """Return a copy of a column, of the same class and order, with copies of all that it holds."""
    if isinstance(value, np.ndarray):
        own = value.copy("K")
        if value.dtype.hasobject and value.dtype.names is None:
            for place in np.ndindex(value.shape):
                own[place] = _copy(value[place])
        return own
    if type(value) in (list, tuple):
        return type(value)(value if PLAIN.issuperset(map(type, value)) else map(_copy, value))
    if isinstance(value, np.void):  # a row of a structured array
        return value.copy()
    return np.array(value) if isinstance(value, memoryview) else copied(value)


def _finished(exclusive: bool, value: Any, buffers: Buffers) -> Any:
    """Return any part of a batch in the layout to hand out; `exclusive` if only its container refers to it.

    That flag is the first argument: an argument counts as a reference from its evaluation on.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return _finished_array(value, exclusive, buffers)
    if isinstance(value, tuple):
        parts = [_finished(exclusive and getrefcount(part) <= _HELD, part, buffers) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if type(value) is list:
        if PLAIN.issuperset(map(type, value)):  # texts and tokens, which are many
            return value if exclusive else list(value)
        return [_finished(exclusive and getrefcount(part) <= _HELD, part, buffers) for part in value]
    if isinstance(value, MutableMapping):
        held = value if exclusive else copy.copy(value)
        if PLAIN.issuperset(map(type, held.values())):
            return held
        for name in list(held):
            part = held[name]
            new = _finished(exclusive and getrefcount(part) <= _HELD, part, buffers)
            if new is not part:
                held[name] = new
        return held
    if tensors.is_tensor(value):
        return value if exclusive and _owns_tensor(value) else tensors.copied(value, buffers)
    if not exclusive and _is_picture(value):
        return value.copy()
    if not exclusive and isinstance(value, _CHANGEABLE):
        own: Any = copy.copy(value)
        if isinstance(own, (list, deque)):
            for i in range(len(own)):
                own[i] = _finished(False, own[i], buffers)
        return own
    return value


def _finished_array(array: np.ndarray, exclusive: bool, buffers: Buffers) -> np.ndarray:
    if is_masked(array):
        raise MapResultError(
            "a batch cannot hold a masked array, for its mask would be lost; return x.filled(value), and x.mask as an "
            "array of its own if it is needed"
        )
    if type(array) is np.ndarray and array.dtype == object:
        return _finished_objects(array, exclusive, buffers)
    if type(array) is np.ndarray and exclusive:
        if _is_finished(array, buffers):
            return array
        if array.size and array.flags.carray and array.dtype.isnative and _owns(array, buffers.common):
            return array.reshape(-1).reshape(array.shape)  # gives axes of length 1 the strides of any other array
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    if not array.size:
        return _empty(array.shape, dtype)
    out = np.empty(array.shape, dtype) if dtype.hasobject else buffers.empty(array.shape, dtype)
    np.copyto(out, array, casting="equiv")
    return out


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array to be written, with undefined contents: C order.

    NumPy gives an array without elements other strides on new memory than on given memory, as in a batch of a worker.
    """
    if 0 in shape and not dtype.hasobject:
        return np.ndarray(shape, dtype, np.empty(1, dtype))
    return np.empty(shape, dtype)


def _finished_objects(array: np.ndarray, exclusive: bool, buffers: Buffers) -> np.ndarray:
    """Return an array of objects on memory of its own; arrays among the objects get their own too."""
    exclusive = exclusive and _owns(array, None)
    flat = array.reshape(-1)
    out = np.empty(flat.size, object)
    for i in range(flat.size):
        part = flat[i]
        out[i] = _finished(exclusive and getrefcount(part) <= _HELD, part, buffers)
    return out.reshape(array.shape)


def _is_finished(array: np.ndarray, buffers: Buffers) -> bool:
    """Return whether an array of the batch alone already has the layout to hand out."""
    flags, dtype = array.flags, array.dtype
    if not flags.carray or not dtype.isnative or dtype.hasobject:
        return False
    if not flags.owndata and not _owns(array, buffers.common):
        return False
    # NumPy calls an array contiguous with any strides in axes of length 1; other libraries choose algorithms by them.
    shape = array.shape
    return (1 not in shape and 0 not in shape) or array.strides == _empty(shape, dtype).strides


def _owns(array: np.ndarray, common: Any) -> bool:
    """Return whether nothing else refers to the memory of an array; it may be part of `common`, the task's array."""
    while not array.flags.owndata:
        base: Any = array.base
        if type(base) is Lease:
            return getrefcount(base) <= _HELD
        if type(base) is not np.ndarray:
            return False
        if base is common:
            return True
        if getrefcount(base) > _HELD:
            return False
        array = base
    return True


def _owns_tensor(tensor: Any) -> bool:
    """Return whether a tensor is dense, on PyTorch's own memory, which no other tensor uses."""
    storage, base = tensor.untyped_storage(), tensor._base
    count = getattr(sys.modules["torch"]._C, "_storage_Use_Count", None)
    if count is None or (base is not None and getrefcount(base) > _HELD):
        return False
    # Two references to the memory are `storage` and the tensor; the base of a view is a third.
    shown = count(storage._cdata) > (2 if base is None else 3)
    return not shown and bool(storage.resizable()) and tensors.is_dense(tensor)


def _is_picture(value: Any) -> bool:
    """Return whether `value` is an image of Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)
