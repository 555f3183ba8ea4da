"""The accessor protocol, and functions that read from accessors."""

from __future__ import annotations

import contextlib
import hashlib
import operator
import os
import sys
import types
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import cloudpickle
import numpy as np

from ..batch import refuse_masked
from ..batch_layout import finished, of_its_own
from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentError, ArgumentTypeError
from ..memory.leases import Buffers
from ..memory.paging import announce_rows, exceeds_memory
from ..randomness import BatchKey
from ..tensors import is_any_tensor


@runtime_checkable
class Accessor(Protocol):
    """An array-like over storage: ``len(a)``, ``a[int]``, ``a[slice]``, ``a[1-D integer array]``.

    The last two return rows in the order asked for, in memory of their own; the library passes arrays of rows
    read-only. Negative rows count from the end; other rows out of range are an ``IndexError``. For processes, an
    accessor is pickled; with threads, several may ask it for rows at once. NumPy arrays and memmaps are accessors as
    they are; ``batchup_ng.testing.AccessorContract`` tests others. An accessor may have more members:

    - ``read_into(rows, out)``, with the properties ``shape`` (of all the data; the first axis counts the rows) and
      ``dtype``, writes rows of one shape into given memory, ``out: (len(rows), *shape[1:])`` of `dtype`, in C order.
      This saves a copy of each batch.
    - ``sample_name(row)`` returns the path or key of a row, exactly as it was given, for errors; None if it has none.

    - ``natural_block`` is how many neighbouring rows are as cheap to read together as one, for example the rows of a
      chunk in a compressed file. ``natural_window`` is how many such blocks may be mixed and still be read once each.
    - ``file_paths(rows)`` returns the files of the rows. A pool on other machines looks for them there.

    An accessor with random rows has ``draws = True``; its ``read_into(rows, out, rng)`` also gets the
    :class:`~batchup_ng.SampleRng` of the batch. :class:`~batchup_ng.Cached` keeps rows in a file only if the accessor
    has ``fingerprint()``. It returns everything that the rows depend on, as strings, numbers, lists and dicts with
    string keys: options; path, size and modification time of each file.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Any: ...


def sample_name(accessor: Any, row: int) -> str | None:
    """Return the name of `row` in `accessor`; None if it has none."""
    name: str | None = accessor.sample_name(row) if hasattr(accessor, "sample_name") else None
    return name


def fingerprint_of(accessor: Any) -> Any:
    """Return the fingerprint of an accessor. It identifies a file of the accessor's rows.

    Raises:
        ArgumentTypeError: the accessor has no ``fingerprint()``.
    """
    if not callable(getattr(accessor, "fingerprint", None)):
        raise ArgumentTypeError(
            f"a file of rows is believed by the fingerprint() of the accessor, and {type(accessor).__name__} has none; "
            f"define one that returns what its rows depend on (options; path, size and time of each file), or keep "
            f"rows in memory: where=None"
        )
    return accessor.fingerprint()


def function_told(function: Any) -> str:
    """Return a fingerprint of a function: module, name, bytecode and defaults. Functions that it calls do not count.

    An object with a method ``fingerprint`` counts by its result. Callables of other kinds, and functions with a
    closure, count by module and name; if they cannot be found by these, by a digest of their pickle.

    Raises:
        ArgumentTypeError: it, or one of its defaults, cannot be pickled.
    """
    try:
        if isinstance(function, types.FunctionType) and not function.__closure__:
            code = hashlib.sha256(repr(_code_told(function.__code__, function.__globals__)).encode())
            if function.__defaults__ or function.__kwdefaults__:
                code.update(cloudpickle.dumps((function.__defaults__, function.__kwdefaults__)))
            return f"{function.__module__}.{function.__qualname__} {code.hexdigest()}"
        if callable(own := getattr(function, "fingerprint", None)) and not isinstance(function, type):
            return repr(own())
        with contextlib.suppress(AttributeError, KeyError):
            if operator.attrgetter(function.__qualname__)(sys.modules[function.__module__]) is function:
                return f"{function.__module__}.{function.__qualname__}"
        return hashlib.sha256(cloudpickle.dumps(function)).hexdigest()
    except Exception as error:
        raise ArgumentTypeError(
            f"what {function!r:.80} makes of rows is told by its name, or by its pickle, and it has neither ({error}); "
            f"define it in a module, or keep rows in memory: where=None"
        ) from error


def _code_told(code: types.CodeType, names: dict[str, Any]) -> list[Any]:
    """Return a function's code, regardless of its place in the file, with the global numbers and texts that it uses.
    """
    plain = [(name, names[name]) for name in code.co_names if isinstance(names.get(name), (int, float, str, bytes))]
    constants = [
        _code_told(each, names) if isinstance(each, types.CodeType)
        else sorted(map(repr, each)) if isinstance(each, frozenset) else repr(each)
        for each in code.co_consts
    ]  # fmt: skip
    return [code.co_code, code.co_names, constants, plain]


def files_digest(paths: Iterable[str]) -> str:
    """Return a digest of paths, with the size and modification time of each file, or the fact that it is missing."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            found = os.stat(path)
            facts = f"{found.st_size} {found.st_mtime_ns}"
        except OSError as error:
            raise_if_of_signal_handler(error)
            facts = "cannot be found"
        digest.update(f"{path}\0{facts}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def gather(accessor: Any, rows: np.ndarray | slice, buffers: Buffers, key: BatchKey | None = None) -> Any:
    """Return `rows` of an array or accessor, in memory from `buffers` if that saves an allocation.

    The rows are a 1-D integer array, with negative entries counted from the end, or a slice. `key` identifies the
    randomness of the batch.
    """
    if key is not None and getattr(accessor, "draws", False):
        numbers = np.arange(len(accessor))[rows] if isinstance(rows, slice) else np.asarray(rows)
        out = buffers.empty((len(numbers), *accessor.shape[1:]), np.dtype(accessor.dtype))
        accessor.read_into(numbers, out, key.sample_rng(len(numbers)))
        return out
    if isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu":
        if isinstance(accessor, np.ndarray):
            return _gather_array(accessor, rows, buffers)
        if hasattr(accessor, "read_into") and hasattr(accessor, "shape"):
            out = buffers.empty((len(rows), *accessor.shape[1:]), np.dtype(accessor.dtype))
            accessor.read_into(rows, out)
            return out
        if is_any_tensor(accessor):
            return accessor[np.array(rows)]  # PyTorch would warn: `rows` is read-only
    if isinstance(rows, slice) and isinstance(accessor, np.ndarray):
        return accessor[rows].copy()  # a batch may be written to; the data may not
    if type(accessor).__module__.startswith(_OURS):
        return accessor[rows]
    return of_its_own(accessor[rows])  # it may be a view, or memory that the accessor keeps


_OURS = f"{__package__.partition('.')[0]}."


def _gather_array(array: np.ndarray, rows: np.ndarray, buffers: Buffers) -> Any:
    if array.dtype.hasobject:
        return finished(array[rows], buffers)  # a batch's objects may be written to; the data's may not
    if type(array) not in (np.ndarray, np.memmap) or array.ndim == 0:
        return array[rows]
    n = len(array)
    if n and array.nbytes // n * len(rows) < buffers.smallest and not exceeds_memory(array):
        return array[rows]
    rows = checked_rows(rows, n)
    out = buffers.empty((len(rows), *array.shape[1:]), array.dtype)
    fill_rows(array, rows, out)
    return out


def fill_rows(array: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Write `rows` of `array`, checked by :func:`checked_rows`, into `out`: in C order, no objects."""
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        announce_rows(array, rows)
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] - rows[:-1] == 1).all():
            out[...] = array[rows[0] : rows[-1] + 1]  # take() would copy them row by row
            return
        # mode="clip" writes straight into `out`; "raise" would go through a second buffer. The rows were checked.
        array.take(rows, 0, out, "clip")
    else:
        # np.take would first copy the whole array into C order, or to aligned memory.
        out[...] = array[rows]


def checked_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Return `rows` with negative entries counted from the end of `n` rows; ``IndexError`` beyond [-n, n)."""
    if len(rows) == 0:
        return rows.astype(np.intp)
    if rows.dtype == np.int64 and rows.view(np.uint64).max() < n:  # nearly always; negative rows exceed n, too
        return rows
    low, high = int(rows.min()), int(rows.max())
    if low < -n or high >= n:
        raise IndexError(f"row {high if high >= n else low} is out of range for {n} rows")
    if low < 0:
        rows = np.where(rows < 0, rows.astype(np.int64) + n, rows)
    return rows.astype(np.int64, copy=False)


def chosen_rows(key: Any, length: int) -> int | np.ndarray:
    """Return the rows of an index: an ``int`` for one row, a 1-D ``intp`` array for several; none negative.

    `key` is an integer, a slice, a 1-D array or list of integers, or a boolean mask of `length`. ``IndexError`` if a
    row is out of range, or a mask has another length.
    """
    if isinstance(key, slice):
        return np.arange(*key.indices(length), dtype=np.intp)
    if not isinstance(key, bool) and getattr(key, "ndim", 0) == 0:  # an array with one entry is not one row
        with contextlib.suppress(TypeError):
            return int(checked_rows(np.array([operator.index(key)]), length)[0])
    refuse_masked("an index", key)
    rows = np.asarray(key) if isinstance(key, (list, range)) or hasattr(key, "__array__") else np.empty((0, 0))
    if rows.ndim == 1 and rows.dtype == bool:
        if len(rows) != length:
            raise IndexError(f"a boolean mask must have one entry for each of the {length} rows, not {len(rows)}")
        return np.flatnonzero(rows)
    if rows.ndim == 1 and (rows.dtype.kind in "iu" or rows.size == 0):
        return checked_rows(rows, length).astype(np.intp, copy=False)
    raise ArgumentTypeError(
        f"an index must be a whole number, a slice, a 1-D array or list of whole numbers, or a boolean mask, "
        f"not {key!r:.80} of type {type(key).__name__}"
    )


def rows_of(accessor: Any, key: Any) -> Any:
    """Return ``accessor[key]``, for an accessor with `read_into`, `shape` and `dtype`."""
    chosen = chosen_rows(key, len(accessor))
    several = np.atleast_1d(chosen)
    out = np.empty((len(several), *accessor.shape[1:]), accessor.dtype)
    accessor.read_into(several, out)
    return out[0] if isinstance(chosen, int) else out


def check_out(accessor: Any, rows: np.ndarray, out: np.ndarray) -> None:
    """Refuse an `out` that is not ``(len(rows), *shape[1:])`` of the accessor's dtype, or is read-only."""
    if out.shape != (len(rows), *accessor.shape[1:]) or out.dtype != accessor.dtype:
        wanted = f"{(len(rows), *accessor.shape[1:])} {accessor.dtype}"
        raise ArgumentError(f"out must be {wanted}, not {out.shape} {out.dtype}; allocate it from shape and dtype")
    if not out.flags.writeable:
        raise ArgumentError("out must be memory that may be written to, and it is read-only; pass a copy")
