"""The pickling of values between the pool and its workers.

Large arrays of a constant are kept apart: :class:`Packed` is a pickle, with dtype, shape and strides of each array, and
a list of their memory, uncopied. A refusal is cheap, because a value that cannot be pickled fails before a process is
started. Every array of 64 KiB or more arrives in memory of its own. The worker may write to it if the original is
writable. An array over a file is sent as the name of the file, a long list of samples as one array.

cloudpickle sends objects of the main module by value, and all others by name. Some modules cannot be imported by a
worker: they were made by hand, or loaded from a file that no import would find, as notebook tools, plug-ins and test
runners do. Such modules are registered with cloudpickle for the life of the program. A class that was sent by value
comes back with its instances. :func:`load_result` then uses this program's class unchanged, while cloudpickle would
give it the attributes that it has in the worker.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import io
import os
import pickle
import sys
import time
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from ... import tensors
from ...accessors.map_style import MapStyle
from ...error_context import function_name, raise_if_of_signal_handler, unless_of_signal_handler
from ...errors import MADE_BY_PYTHON, SerializationError, set_state, state_of, without_init
from ...graph.arrays import ArraysNode
from ...graph.node import Node
from ...private_apis import CLASS_SETSTATE, classes_by_value, goes_by_name, set_class_state
from .protocol import SMALLEST_OUTSIDE
from .shared_arrays import FilePart, file_part, memory_of, reopened

SMALLEST_APART = 1 << 16
"""Bytes. A smaller array is sent in the frame, because a mapping of its own would cost more than a copy."""

CACHED_FUNCTION = type(functools.lru_cache(len))

_seen: dict[str, Any] = {}
"""The modules that were checked, by name."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    """Pickles tensors by their memory, cached functions and NewTypes by a call, exceptions in a form that loads."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is CACHED_FUNCTION and not goes_by_name(obj):
            options = obj.cache_parameters()
            return _cached, (obj.__wrapped__, options["maxsize"], options["typed"])
        if kind is typing.NewType and not goes_by_name(obj):
            return typing.NewType, (obj.__name__, obj.__supertype__), {"__module__": obj.__module__}
        if kind.__name__ == "Tensor" and tensors.is_tensor(obj):
            return _reduced_tensor(obj)
        if kind.__module__ == "multiprocessing.managers" and hasattr(obj, "_authkey"):
            return _proxy, (bytes(obj._authkey), *obj.__reduce__())
        if isinstance(obj, BaseException) and _skips_init(kind):
            state = state_of(obj)
            if isinstance(obj, AttributeError):
                state.pop("obj", None)  # the object without the attribute, which Python does not pickle either
            return without_init, (kind, obj.args), state, None, None, set_state
        return super().reducer_override(obj)


def dumps(value: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Return the pickle of `value` by :class:`Pickler`."""
    with io.BytesIO() as file:
        Pickler(file, protocol=5, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


def dump(obj: Any) -> tuple[bytes, list[memoryview]]:
    """Return the pickle of `obj`, and the memory of its large arrays."""
    buffers: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= SMALLEST_OUTSIDE:
            buffers.append(raw)
        return raw.nbytes < SMALLEST_OUTSIDE

    return dumps(obj, is_small), buffers


def load_result(pickled: bytes, buffers: Iterable[Any] = ()) -> Any:
    """Load a value that a worker has sent. Classes that this process has do not change."""
    return _Loader(io.BytesIO(pickled), buffers=buffers).load()


class _Loader(pickle.Unpickler):
    """Does not change classes that were known before it met the first class sent by value."""

    _known: frozenset[type] | None = None

    def find_class(self, module: str, name: str) -> Any:
        if module == CLASS_SETSTATE[0]:
            if self._known is None:
                self._known = classes_by_value()
            if name == CLASS_SETSTATE[1]:
                return self._set_state
        return super().find_class(module, name)

    def _set_state(self, kind: type, state: Any) -> type:
        if self._known is None or kind not in self._known:
            set_class_state(kind, state)
        return kind


# -- constants: large arrays apart -------------------------------------------------------------------------------


class Packed(NamedTuple):
    """A packed value: its pickle, the uncopied memory of its arrays, the files of its mapped arrays."""

    pickled: bytes
    buffers: list[memoryview]
    mapped: list[str]


def pack(value: Any, packer: type[Packer] | None = None) -> Packed:
    """Pack `value`, or raise a :class:`SerializationError` that names the part that cannot be sent."""
    try:
        return _packed(value, packer or Packer)
    except Exception as error:
        raise_if_of_signal_handler(error)
        raise SerializationError(
            f"{culprit('the ' + type(value).__name__, value, can_travel)} cannot be sent to a worker process: {error}; "
            f"{remedy(error) or 'use WorkerThreadPool, or let the worker open such things itself'}"
        ) from error


def remedy(error: Exception) -> str:
    """Return the remedy for an object of multiprocessing that cannot be sent; empty for any other object."""
    if "through inheritance" not in str(error):
        return ""
    return (
        "that is, only with processes that multiprocessing starts; take one of multiprocessing.Manager() in its place, "
        "use WorkerThreadPool, or return as a column what is to come back"
    )


def can_travel(value: Any) -> bool:
    """Return whether `value` can be packed."""
    try:
        _packed(value, Packer)
    except Exception as error:
        raise_if_of_signal_handler(error)
        return False
    return True


def _packed(value: Any, kind: type[Packer]) -> Packed:
    with io.BytesIO() as file:
        packer = kind(file)
        packer.dump(value)
        return Packed(file.getvalue(), packer.buffers, packer.mapped)


class Packer(Pickler):
    """Pickles one value and puts large arrays aside."""

    def __init__(self, file: io.BytesIO) -> None:
        self.buffers = buffers = list[memoryview]()  # a local name, otherwise the callback would make a cycle
        super().__init__(file, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
        self.mapped: list[str] = []
        self._lists: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            reduced = self._reduce_array(obj)
            if reduced is not None:
                return reduced
        elif isinstance(obj, ArraysNode):  # it only takes items from its lists
            self._lists.update(id(each) for each in obj.data if type(each) is MapStyle)
        elif id(obj) in self._lists and type(obj.dataset) in (list, tuple):
            items = packed_list(obj.dataset)
            if items is not None:
                return MapStyle, (items,)
        elif isinstance(obj, (types.FunctionType, types.ModuleType, type, CACHED_FUNCTION, typing.NewType)):
            _send_by_value_if_need_be(obj)
        return super().reducer_override(obj)

    def _reduce_array(self, array: np.ndarray) -> Any:
        """Return the call that makes a large array again; None leaves it to NumPy."""
        kind = type(array)
        # NumPy would change a small array of a foreign byte order to the native order, unless it is contiguous.
        small = array.nbytes < SMALLEST_APART and array.dtype.isnative
        if small or array.dtype.hasobject or not _pickles_like_an_array(kind):
            return None
        kind = np.ndarray if kind is np.memmap else kind
        where: Any = self.file_part(array) if array.nbytes >= SMALLEST_APART else None
        if where is not None:
            self.mapped.append(where.path)
            strides, start = array.strides, where.start
        else:
            memory, strides, start = memory_of(array)
            where = pickle.PickleBuffer(memory)  # type: ignore[arg-type]  # NumPy's arrays are buffers
        return arrive, (where, kind, array.shape, array.dtype, strides, start, array.flags.writeable)

    def file_part(self, array: np.ndarray) -> FilePart | None:
        """Return the part of a file that an array lies over, for the worker to find it."""
        return file_part(array)


def _pickles_like_an_array(kind: type) -> bool:
    """Return whether a pickle of an array of this type has only dtype, shape and contents."""
    names = ("__reduce__", "__reduce_ex__", "__setstate__")
    return all(getattr(kind, name) is getattr(np.ndarray, name) for name in names)


def arrive(
    where: Any, kind: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...], start: int, writable: bool
) -> np.ndarray:
    """Return an array over memory that has arrived in a worker, or over a file, which this call opens."""
    memory = reopened(where) if isinstance(where, FilePart) else where
    array: np.ndarray = np.ndarray(shape, dtype, memory, start, strides)
    if not writable:
        array.flags.writeable = False
    return array if kind is np.ndarray else array.view(kind)


# -- long lists --------------------------------------------------------------------------------------------------

SHORTEST_PACKED_LIST = 1000
"""Items. A shorter list is not packed."""

LARGEST_PACKED_ITEM = 512
"""Largest mean bytes of an item. Larger items gain little, and packing would multiply objects that they share."""

_IMPORTABLE = sys.stdlib_module_names | {"numpy"}


@dataclasses.dataclass(eq=False)
class PackedList:
    """A long list of small objects for workers: the pickles of all items in one array, which the workers share.

    A list of a million ``(path, label)`` would cost each worker 150 bytes or more per item. This is for lists of data
    sets (:class:`~batchup_ng.MapStyle`) whose items consist only of types of Python and NumPy. `pickles` has the
    pickles one after the other, ``(n,) uint8``; `ends` is the end of each, ``(items,) int64``.
    """

    pickles: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: int) -> Any:
        place = range(len(self))[place]
        start = self.ends[place - 1] if place else 0
        return pickle.loads(self.pickles[start : self.ends[place]].data)


def packed_list(items: Sequence[Any]) -> PackedList | None:
    """Pack a list of small plain objects. Return None if the list is short or an item is large or not plain."""
    if len(items) < SHORTEST_PACKED_LIST:
        return None
    file, ends = io.BytesIO(), np.empty(len(items), np.int64)
    pickler = _PlainPickler(file, protocol=5)
    try:
        for place, item in enumerate(items):
            pickler.dump(item)
            pickler.clear_memo()
            ends[place] = file.tell()
            if ends[place] > LARGEST_PACKED_ITEM * (place + 1):
                return None
    except Exception as error:  # pickling the whole list raises it again, or succeeds
        raise_if_of_signal_handler(error)
        return None
    return PackedList(np.frombuffer(file.getbuffer(), np.uint8), ends)


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Refuse objects that a worker might not be able to import."""
        module = getattr(obj, "__module__", None) or type(obj).__module__
        if module.partition(".")[0] not in _IMPORTABLE or isinstance(obj, np.memmap):
            raise pickle.PicklingError("not plain")
        return NotImplemented


# -- what travels by value ---------------------------------------------------------------------------------------


def _send_by_value_if_need_be(obj: Any) -> None:
    """Have a function, class or module sent by value if a worker could not import its module."""
    name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name in ("__main__", "__mp_main__") or _seen.get(module.__name__) is module:
        return
    _seen[module.__name__] = module
    if str(getattr(module, "__file__", None) or ".py").endswith(".py") and not _can_be_imported(module):
        cloudpickle.register_pickle_by_value(module)


def _can_be_imported(module: types.ModuleType) -> bool:
    """Return whether another process with the same ``sys.path`` finds the module by its name."""
    package, _, _ = module.__name__.rpartition(".")
    if not _is_found(module.__name__.partition(".")[0], None):
        return False
    file = getattr(module, "__file__", None)
    if not package or type(module) is not types.ModuleType or not file or not os.path.isabs(file):
        return True  # a library made it at its import, and will make it again
    path = getattr(sys.modules.get(package), "__path__", None)
    return path is not None and _is_found(module.__name__, path)


def _is_found(name: str, path: Any) -> bool:
    for finder in sys.meta_path:
        with unless_of_signal_handler():  # a finder of another library
            if finder.find_spec(name, path) is not None:
                return True
    return False


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _proxy(key: bytes, make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return a proxy of a :mod:`multiprocessing` manager, in a process that multiprocessing did not start."""
    from multiprocessing.process import current_process

    current_process().authkey = key
    return make(*args)


def _skips_init(kind: type[BaseException]) -> bool:
    """Return whether exceptions of a type are loaded without ``__init__``, which may need other arguments.

    Python's own exceptions load as usual, and so does an exception that defines its pickling.
    """
    own = [vars(each) for each in kind.__mro__ if each.__flags__ & MADE_BY_PYTHON]
    names = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    return bool(own) and kind not in copyreg.dispatch_table and not any(name in each for each in own for name in names)


def _reduced_tensor(tensor: Any) -> Any:
    """Return the call that makes a PyTorch tensor again from an array of its bytes. Its memory is sent like an array's.

    For a slice, only its own elements are sent.
    """
    if not tensors.is_dense(tensor):
        tensor = tensor.clone().resolve_conj().resolve_neg()
    memory = tensors.bytes_of(tensor)
    return tensors.over, (memory, tensors.dtype_name(tensor), tuple(tensor.shape), tensor.stride())


# -- the name of the part that cannot travel ---------------------------------------------------------------------

MAX_SECONDS, MAX_DEPTH = 0.05, 16
"""Limits of the search for a part: seconds of CPU time (a busy machine names it too), and steps to the part."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def culprit(name: str, value: Any, can_travel: Callable[[Any], bool]) -> str:
    """Return the name and type of the innermost part of `value` that alone cannot be sent. `value` is called `name`.

    >>> import threading
    >>> culprit("the task", {"x": 1, "guard": threading.Lock()}, lambda part: part == 1)
    "the task['guard'] of type _thread.lock"
    """
    deadline = time.thread_time() + MAX_SECONDS
    for _ in range(MAX_DEPTH):
        for step, part in _parts(name, value):
            if time.thread_time() > deadline:
                break
            if not isinstance(part, _PLAIN) and not can_travel(part):
                name, value = step, part
                break
        else:
            break
    kind = type(value)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"{name} of type {module}{kind.__qualname__}"


_INSIDE: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__self__", "__func__"), functools.partial: ("func", "args", "keywords")
}  # fmt: skip
"""Attributes of types whose parts are not in a ``__dict__``."""


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each part of `value`."""
    if hasattr(type(value), "named_parts"):
        yield from value.named_parts().items()
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r:.40}]", part) for key, part in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
    elif inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        defaults = {each.name: each.default for each in inspect.signature(value).parameters.values()}
        variables = {**found.nonlocals, **found.globals, **defaults}
        yield from ((f"{name}, variable {key}", part) for key, part in variables.items())
    elif not isinstance(value, (type, types.ModuleType)):
        kind: Any = type(value)
        names: Sequence[str] = _INSIDE.get(kind, ())
        if kind.__reduce__ is object.__reduce__:  # otherwise it is not pickled by its attributes
            slots: list[str] = copyreg._slotnames(kind)  # type: ignore[attr-defined]  # pickle goes by it
            names = [*getattr(value, "__dict__", ()), *slots]
        for key in names:
            part, step = getattr(value, key, None), name if key == "_node" else f"{name}.{key}"
            if isinstance(value, Node):  # name the source or function, because the path does not help
                if isinstance(part, Node):
                    step = f"the {part.name}"
                elif callable(part) and "fn" in key:
                    step = f"map fn {function_name(part)!r}"
            yield step, part
