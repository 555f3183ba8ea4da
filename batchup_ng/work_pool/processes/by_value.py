"""Which functions travel by value, because a worker could not import them.

cloudpickle sends by value what the main module defines; all else it sends by name. A name is of no use to a worker
where the module was made by hand, or loaded from a file that no import would find, as notebooks' tools, plug-ins,
test runners do it. Such modules are registered with cloudpickle, for the life of the program: no other process could
import them either. :class:`Pickler` adds the kinds of objects that cloudpickle would send by name from anywhere.

A class that travelled by value comes back with its instances. :func:`load_result` then uses the class that this
program has, as it is: cloudpickle would set its attributes to those that it has in the worker.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import os
import pickle
import sys
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals  # what it has no public names for: the same since version 3.0

from ... import tensors
from ...errors import MADE_BY_PYTHON, set_state, state_of, without_init
from .tensors import reduced

CACHED = type(functools.lru_cache(len))

_known: dict[str, Any] = {}
"""The modules that were looked at, by name."""


def send_by_value_if_need_be(obj: Any) -> None:
    """Have a function, class or module sent by value if a worker could not import its module."""
    name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name in ("__main__", "__mp_main__") or _known.get(module.__name__) is module:
        return
    _known[module.__name__] = module
    if str(getattr(module, "__file__", None) or ".py").endswith(".py") and not _can_be_imported(module):
        cloudpickle.register_pickle_by_value(module)


def _can_be_imported(module: types.ModuleType) -> bool:
    """Return whether another process with the same ``sys.path`` finds the module by its name."""
    package, _, _ = module.__name__.rpartition(".")
    if not package:
        return _is_found(module.__name__, None)
    top = module.__name__.partition(".")[0]
    if not _is_found(top, None):
        return False
    file = getattr(module, "__file__", None)
    if type(module) is not types.ModuleType or not file or not os.path.isabs(file) or not file.endswith(".py"):
        return True  # a library made it when it was imported, and will make it again
    path = getattr(sys.modules.get(package), "__path__", None)
    return path is not None and _is_found(module.__name__, path)


def _is_found(name: str, path: Any) -> bool:
    if name in sys.builtin_module_names:
        return True
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # a finder of somebody else's
            if finder.find_spec(name, path) is not None:
                return True
    return False


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no annotations
    """Pickles tensors by their memory, cached functions and new types as functions, exceptions so that they load."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is CACHED and not _goes_by_name(obj):
            options = obj.cache_parameters()
            return _cached, (obj.__wrapped__, options["maxsize"], options["typed"])
        if kind is typing.NewType and not _goes_by_name(obj):
            return _new_type, (obj.__name__, obj.__supertype__, obj.__module__)
        if tensors.is_tensor(obj) or tensors.is_quantized(obj):
            return reduced(obj)
        if isinstance(obj, BaseException) and _is_rebuilt(kind):
            state = state_of(obj)
            if isinstance(obj, AttributeError):
                state.pop("obj", None)  # what lacks the attribute, which Python leaves behind as well
            return without_init, (kind, obj.args), state, None, None, set_state
        return super().reducer_override(obj)


def dumps(value: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Return the pickle of `value`, as :class:`Pickler` makes it."""
    with io.BytesIO() as file:
        Pickler(file, protocol=5, buffer_callback=buffer_callback).dump(value)
        return file.getvalue()


def _goes_by_name(obj: Any) -> bool:
    """Return whether a worker finds `obj` under its name, by the rule that cloudpickle has for functions."""
    found = internals._lookup_module_and_qualname(obj)
    return found is not None and not internals._is_registered_pickle_by_value(found[0])


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _new_type(name: str, supertype: Any, module: str) -> Any:
    made: Any = vars(typing)["NewType"](name, supertype)  # mypy wants a literal name
    made.__module__ = module
    return made


def _is_rebuilt(kind: type[BaseException]) -> bool:
    """Return whether exceptions of a type are loaded without a call of ``__init__``, which may want other arguments.

    Those of Python itself need no such thing; one that says itself how it is pickled is believed.
    """
    own = [vars(each) for each in kind.__mro__ if each.__flags__ & MADE_BY_PYTHON]
    says = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    return bool(own) and kind not in copyreg.dispatch_table and not any(name in each for each in own for name in says)


def load_result(pickled: bytes, buffers: Iterable[Any] = ()) -> Any:
    """Return what a worker has sent; classes that this process has stay as they are."""
    return _Loader(io.BytesIO(pickled), buffers=buffers).load()


class _Loader(pickle.Unpickler):
    """Leaves alone classes that were known before it met the first that travels by value."""

    _known: frozenset[type] | None = None

    def find_class(self, module: str, name: str) -> Any:
        if module == internals.__name__:
            if self._known is None:
                self._known = frozenset(internals._DYNAMIC_CLASS_TRACKER_BY_CLASS)
            if name == "_class_setstate":
                return self._set_state
        return super().find_class(module, name)

    def _set_state(self, kind: type, state: Any) -> type:
        if self._known is None or kind not in self._known:
            internals._class_setstate(kind, state)
        return kind
