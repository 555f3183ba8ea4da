"""Facts about columns and functions, for another program to recognise them: JSON values, equal if the contents are.

A column counts by its contents: an array by its bytes, an array over a file by path, size and modification time of the
file, an accessor by its ``fingerprint()``. A function counts by its bytecode and by the values that it refers to:
defaults, closure and globals, with the functions and classes among them. Functions and classes of Python, of this
package and of installed libraries count by name. So do modules: the value of ``module.name`` in a function does not
count.

Facts may differ although nothing has changed, for example with the version of Python. Then work is only done again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import types
from typing import Any

import cloudpickle
import numpy as np

from ..error_context import raise_if_of_signal_handler
from ..errors import ArgumentTypeError
from ..tensors import is_any_tensor
from .cached import Cached
from .map_style import MapStyle
from .packed_texts import PackedTexts
from .ragged import Ragged
from .uint8_to_float32 import ImageArrayUInt8ToFloat32

BYTES_AT_ONCE = 1 << 24
"""Bytes of an array that are digested at once."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)

_PACKAGE = __name__.partition(".")[0]


def column_facts(column: Any) -> Any:
    """Return facts that change whenever the rows of a column do.

    Raises:
        ArgumentTypeError: the column is of a class without ``fingerprint()``.
    """
    kind = type(column)
    if kind is Cached:
        return column_facts(column.accessor)
    if kind is ImageArrayUInt8ToFloat32:
        return [kind.__name__, repr(column.scale), repr(column.offset), column_facts(column.arr_u8)]
    if kind is PackedTexts:
        return [kind.__name__, column._decoded, _array_facts(column._joined), _array_facts(column._ends)]
    if kind is Ragged:
        return [kind.__name__, column_facts(column.values), _array_facts(column.offsets)]
    if kind is MapStyle:
        of_items = isinstance(column.dataset, (list, tuple))
        return [kind.__name__, value_facts(column.dataset) if of_items else column_facts(column.dataset)]
    if callable(getattr(column, "fingerprint", None)):
        return [f"{kind.__module__}.{kind.__qualname__}", column.fingerprint()]
    if isinstance(column, np.ndarray) or is_any_tensor(column):
        return value_facts(column)
    raise no_fingerprint(kind.__name__)


def no_fingerprint(name: str) -> ArgumentTypeError:
    """Return the error for a class of columns or sources that does not say what its samples depend on."""
    return ArgumentTypeError(
        f"cache needs to know what the samples depend on, and {name} has no fingerprint(); define one that returns it "
        f"(options; path, size and time of each file), name columns that have one by columns=, or leave cache= out"
    )


def value_facts(value: Any) -> Any:
    """Return facts about a value, such as a function.

    Raises:
        ArgumentTypeError: it refers to an object that cannot be pickled.
    """
    return _Facts().of(value)


class _Facts:
    """Collects facts about one value and all that it refers to."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}  # by id; keeps the values, or an id might be used again

    def of(self, value: Any) -> Any:
        """Return facts about a value. A value that was met before, also in a cycle, counts by its number."""
        if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        if id(value) in self._met:
            return ["again", self._met[id(value)][0]]
        self._met[id(value)] = len(self._met), value
        return [type(value).__qualname__, self._of_object(value)]

    def _of_object(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return [self.of(item) for item in value]
        if type(value) is dict:
            return [[self.of(key), self.of(item)] for key, item in value.items()]
        if type(value) in (set, frozenset):  # their order differs from program to program
            return sorted(json.dumps(value_facts(item)) for item in value)
        if type(value) in (np.ndarray, np.memmap):
            return self.of(value.reshape(-1).tolist()) if value.dtype.hasobject else _array_facts(value)
        if is_any_tensor(value):
            return [str(value.dtype), list(value.shape), _bytes_digest(_bytes_of_tensor(value))]
        if isinstance(value, types.ModuleType):
            return value.__name__
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, types.MethodType):
            return [self.of(value.__func__), self.of(value.__self__)]
        if isinstance(value, functools.partial):
            return [self.of(value.func), self.of(value.args), self.of(value.keywords)]
        if callable(value) and hasattr(value, "__wrapped__"):  # functools.lru_cache
            return self.of(value.__wrapped__)
        if _has_plain_state(value):
            return [self.of(type(value)), self.of(vars(value))]
        return [self.of(type(value)), _pickle_digest(value)]

    def _of_function(self, function: types.FunctionType) -> Any:
        if _is_installed(function.__module__):
            return [function.__module__, function.__qualname__]
        known = function.__globals__
        used = [[name, self.of(known[name])] for name in _names(function.__code__) if name in known]
        cells = [self._of_cell(cell) for cell in function.__closure__ or ()]
        defaults = [self.of(function.__defaults__), self.of(function.__kwdefaults__)]
        return [self._of_code(function.__code__), defaults, cells, used]

    def _of_cell(self, cell: types.CellType) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # it is empty
            return None

    def _of_code(self, code: types.CodeType) -> Any:
        constants = code.co_consts
        inner = [self._of_code(each) if isinstance(each, types.CodeType) else self.of(each) for each in constants]
        return [code.co_code.hex(), list(code.co_names), inner]

    def _of_class(self, kind: type) -> Any:
        name = [kind.__module__, kind.__qualname__]
        if _is_installed(kind.__module__):
            return name
        methods = sorted((key, each) for key, each in vars(kind).items() if isinstance(each, types.FunctionType))
        return [name, [self.of(base) for base in kind.__bases__], [[key, self.of(each)] for key, each in methods]]


def _names(code: types.CodeType) -> dict[str, None]:
    """Return the names that a function's code refers to, and the code of functions inside it, each once."""
    names = dict.fromkeys(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            names.update(_names(each))
    return names


def _is_installed(module: str | None) -> bool:
    """Return whether a module is part of Python, of this package or of an installed library."""
    top = str(module).partition(".")[0]
    if top == "__main__":
        return False
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    folders = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
    return top == _PACKAGE or top in sys.stdlib_module_names or any(folder in file for folder in folders)


def _has_plain_state(value: Any) -> bool:
    """Return whether the attributes of an object are all that pickle would store of it."""
    kind: Any = type(value)
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    plain = all(getattr(kind, name, None) is getattr(object, name, None) for name in names)
    return plain and hasattr(value, "__dict__") and not any("__slots__" in vars(each) for each in kind.__mro__)


def _pickle_digest(value: Any) -> str:
    try:
        return hashlib.sha256(cloudpickle.dumps(value)).hexdigest()
    except Exception as error:
        raise_if_of_signal_handler(error)
        raise ArgumentTypeError(
            f"cache needs to know what the predicate and the maps depend on, and a {type(value).__name__} that they "
            f"use cannot be pickled ({error}); make it inside the function, or leave cache= out"
        ) from error


def _array_facts(array: np.ndarray) -> Any:
    """Return facts about an array: its form, and the file that it lies over, or a digest of its bytes."""
    return [repr(array.dtype), list(array.shape), _file_facts(array) or _bytes_digest(array)]


def _file_facts(array: np.ndarray) -> list[Any] | None:
    """Return path, size and time of the file that an array is mapped from, and its place there; None if it is not."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None:
        return None
    path = os.path.abspath(os.fspath(root.filename))
    try:
        found = os.stat(path)
    except OSError as error:
        raise_if_of_signal_handler(error)
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0] + root.offset
    return [path, found.st_size, found.st_mtime_ns, start, list(array.strides)]


def _bytes_digest(array: np.ndarray) -> str:
    """Return a digest of the values of an array, in C order."""
    digest, rows = hashlib.blake2b(digest_size=16), np.atleast_1d(array)
    at_once = max(1, BYTES_AT_ONCE * len(rows) // max(1, array.nbytes))
    for start in range(0, len(rows), at_once):
        digest.update(rows[start : start + at_once].tobytes())
    return digest.hexdigest()


def _bytes_of_tensor(tensor: Any) -> np.ndarray:
    import torch

    flat: np.ndarray = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return flat
