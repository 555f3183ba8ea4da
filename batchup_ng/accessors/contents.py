"""Facts about columns and functions, for another program to recognise them: JSON values, equal if the contents are.

A column counts by its contents: an array by its bytes, an array over a file by path, size and modification time of the
file, an accessor by its ``fingerprint()`` and its function ``decode``. A function counts by its bytecode and the names
of its parameters, and by the values that it refers to: defaults, closure, globals and attributes, with the functions
and classes among them. A class counts by all that its body defines. Functions and classes that Python, this package and
installed libraries have by name count by name. So do modules: the value of ``module.name`` in a function does not
count.

Facts may differ although nothing has changed, for example with the version of Python. Then work is only done again.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import json
import operator
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
from .windows import Windows

BYTES_AT_ONCE = 1 << 24
"""Bytes of an array that are digested at once."""

_PLAIN = (type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes)

_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)  # "abc".find

_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)  # of slots

_PARTS = ("accessor", "arr_u8", "encoded", "pictures", "values")
"""Attributes of accessors with the accessor that they read from."""

_NOT_OF_THE_BODY = frozenset([
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__",
    "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__orig_bases__",
    "__parameters__", "__type_params__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__",
    "__slotnames__",
])  # fmt: skip
"""Attributes of a class that Python makes from others that count, or that change no result."""

_OF_ENUMS = frozenset([
    "_member_names_", "_member_map_", "_value2member_map_", "_unhashable_values_", "_hashable_values_",
    "_unhashable_values_map_", "_new_member_", "_use_args_", "_member_type_", "_value_repr_", "_boundary_",
    "_flag_mask_", "_singles_mask_", "_all_bits_", "_inverted_", "_generate_next_value_", "__new__",
    "__new_member__",
])  # fmt: skip
"""Attributes of a class of constants that stand for its members, which count."""

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
    if kind is Windows:
        places = [_array_facts(column.origins), _array_facts(column.ends)]
        return [kind.__name__, column_facts(column.values), column.length, column.stride, *places]
    if kind is MapStyle:
        of_items = isinstance(column.dataset, (list, tuple))
        return [kind.__name__, value_facts(column.dataset) if of_items else column_facts(column.dataset)]
    if callable(getattr(column, "fingerprint", None)):
        told = [f"{kind.__module__}.{kind.__qualname__}", column.fingerprint(), _decoders(column)]
        # A fingerprint of this package does not know what a user's subclass changes.
        inherited = not _is_installed(kind.__module__) and _is_ours(kind.fingerprint)
        return [*told, value_facts(kind)] if inherited else told
    if isinstance(column, np.ndarray) or is_any_tensor(column):
        return value_facts(column)
    raise no_fingerprint(kind.__name__)


def _decoders(column: Any) -> list[Any]:
    """Return facts about the functions that decode the rows of an accessor of this package, and of those inside it."""
    if not any(map(_is_ours, type(column).__mro__)):
        return []
    parts = [vars(column)[name] for name in _PARTS if name in vars(column)]
    decode = getattr(column, "decode", None)
    return [None if decode is None else value_facts(decode), *map(_decoders, parts)]


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == _PACKAGE


def no_fingerprint(name: str) -> ArgumentTypeError:
    """Return the error for a class of columns or sources that does not say what its samples depend on."""
    return ArgumentTypeError(
        f"cache needs to know what the samples depend on, and {name} has no fingerprint(); define one that returns it "
        f"(options; path, size and time of each file), name columns that have one by on= of filter, columns= of "
        f"statistics, or leave cache= out"
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
        if type(value) in _PLAIN:
            return [type(value).__name__, repr(value)]
        if isinstance(value, np.generic) and type(value).__module__ == "numpy" and not value.dtype.hasobject:
            return [type(value).__name__, repr(value.dtype), value.tobytes().hex()]
        if id(value) in self._met:
            return ["again", self._met[id(value)][0]]
        self._met[id(value)] = len(self._met), value
        return [type(value).__qualname__, self._of_object(value)]

    def _of_object(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return [self.of(item) for item in value]
        if type(value) is dict:
            return [[self.of(key), self.of(item)] for key, item in value.items()]
        if isinstance(value, (set, frozenset)):  # their order differs from program to program
            items = sorted(json.dumps(value_facts(item)) for item in frozenset(value))
            return [items, self.of(type(value)), self.of(getattr(value, "__dict__", None))]
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype.hasobject:
                return [repr(value.dtype), list(value.shape), self.of(value.reshape(-1).tolist())]
            return _array_facts(value)
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
        if isinstance(value, _BOUND) and not isinstance(value.__self__, (types.ModuleType, type, type(None))):
            return [value.__name__, self.of(value.__self__)]
        if isinstance(value, functools.partial):
            return [self.of(each) for each in (type(value), value.func, value.args, value.keywords, vars(value))]
        if isinstance(value, (staticmethod, classmethod)):
            return self.of(value.__func__)
        if isinstance(value, property):
            return [self.of(type(value)), *[self.of(each) for each in (value.fget, value.fset, value.fdel)]]
        if type(value) is functools.cached_property:  # it may have a lock
            return self.of(value.func)
        if isinstance(value, _DESCRIPTORS):
            return value.__name__
        if type(value) is functools._lru_cache_wrapper:
            return self.of(value.__wrapped__)
        if isinstance(value, enum.Enum):
            own = {name: each for name, each in vars(value).items() if name not in ("_sort_order_", "__objclass__")}
            return [self.of(type(value)), self.of(own)]
        return [self.of(type(value)), self._of_state(value)]

    def _of_state(self, value: Any) -> Any:
        """Return facts about what pickle would store of an object; functions in it count by their code."""
        kind: Any = type(value)
        plain = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
        if not plain and _is_installed(kind.__module__) and kind.__module__ != "collections":
            return _pickle_digest(value)
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:
            raise_if_of_signal_handler(error)
            return _pickle_digest(value)  # it may be known to pickle otherwise
        if isinstance(reduced, str):
            return [kind.__module__, reduced]
        make, given, state, *items = [*reduced, None, None, None, None][:5]
        if isinstance(value, (list, dict)) and plain:  # a subclass may iterate over something else
            items = [list.__iter__(value), None] if isinstance(value, list) else [None, dict.items(value)]
        listed = [None if each is None else list(each) for each in items]
        # A class that inherits from one of C with its own way to be pickled may have more attributes than that stores.
        more = None if plain or _is_installed(kind.__module__) else getattr(value, "__dict__", None)
        return [self.of(each) for each in (make, given, state, *listed, more)]

    def _of_function(self, function: types.FunctionType) -> Any:
        if _is_installed(function.__module__) and _is_found_by_name(function):
            return [function.__module__, function.__qualname__]
        known = function.__globals__
        used = [] if _is_installed(function.__module__) else _names(function.__code__)
        values = [[name, self.of(known[name])] for name in used if name in known]
        cells = [self._of_cell(cell) for cell in function.__closure__ or ()]
        others = [self.of(each) for each in (function.__defaults__, function.__kwdefaults__, vars(function) or None)]
        return [self._of_code(function.__code__), others, cells, values]

    def _of_cell(self, cell: types.CellType) -> Any:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # it is empty
            return None

    def _of_code(self, code: types.CodeType) -> Any:
        constants = code.co_consts
        inner = [self._of_code(each) if isinstance(each, types.CodeType) else self.of(each) for each in constants]
        kind = code.co_flags & 0xFFFF  # without the flags of "from __future__", which only change annotations
        counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, kind]
        several = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + several]
        handlers = getattr(code, "co_exceptiontable", b"").hex()
        return [code.co_code.hex(), list(code.co_names), inner, counts, list(parameters), handlers]

    def _of_class(self, kind: type) -> Any:
        name = [kind.__module__, kind.__qualname__]
        if _is_installed(kind.__module__):
            return name
        left_out = _NOT_OF_THE_BODY | (_OF_ENUMS if issubclass(kind, enum.Enum) else frozenset())
        body = [(key, vars(kind)[key]) for key in sorted(vars(kind)) if key not in left_out]
        members = list(kind.__members__.items()) if issubclass(kind, enum.Enum) else None
        made = [self.of(each) for each in (type(kind), *kind.__bases__)]
        return [name, made, [[key, self.of(each)] for key, each in body], self.of(members)]


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


def _is_found_by_name(function: types.FunctionType) -> bool:
    """Return whether a function is found by its name in its module. A function that another function made is not."""
    try:
        found = operator.attrgetter(function.__qualname__)(sys.modules[function.__module__])
    except (AttributeError, KeyError):
        return False
    return found is function


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
    """Return path, size and time of the file that an array is mapped from to be read, and its place there; or None."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or root.mode != "r":
        return None  # a write to the array may not be in the file, or not change its time
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
