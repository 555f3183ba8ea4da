"""The public names with their signatures, as text. To write them anew: ``python -m tests.public_api``.

A section for each public module. Annotations are left out, because type checkers look after those. The text is the
same on each Python: values without a short literal stand as their type.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".txt")

CORE = (
    "batchup_ng", "batchup_ng.accessors", "batchup_ng.augment", "batchup_ng.data_source", "batchup_ng.datasets",
    "batchup_ng.errors", "batchup_ng.image.utils", "batchup_ng.sampling", "batchup_ng.testing", "batchup_ng.work_pool",
)  # fmt: skip
FRAMEWORKS = (
    "batchup_ng.frameworks.jax", "batchup_ng.frameworks.keras", "batchup_ng.frameworks.tensorflow",
    "batchup_ng.frameworks.torch",
)  # fmt: skip
"""The modules whose ``__all__``, or else whose own public names, programs may rely on."""

PROTOCOL = (
    "__aiter__", "__array__", "__call__", "__contains__", "__enter__", "__eq__", "__exit__", "__getitem__", "__hash__",
    "__iter__", "__len__", "__next__", "__setitem__",
)  # fmt: skip
"""Methods by which statements and other libraries use an object."""


def sections(*names: str) -> dict[str, list[str]]:
    """Return the lines of each of these modules that can be imported here."""
    modules = {}
    for name in names:
        with contextlib.suppress(ImportError):  # of a library that is not installed
            modules[name] = importlib.import_module(name)
    public: dict[int, str] = {}
    for name, module in modules.items():
        for each in _names(module):
            public.setdefault(id(getattr(module, each)), f"{name}.{each}")
    found = {}
    for name, module in modules.items():
        values = {each: getattr(module, each) for each in _names(module)}
        found[name] = [line for each, value in values.items() for line in _lines(f"{name}.{each}", value, public)]
    return found


def read() -> dict[str, list[str]]:
    """Return the lines of each module in the file."""
    found: dict[str, list[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            own = found.setdefault(line.removeprefix("# "), [])
        elif line:
            own.append(line)
    return found


def written(found: Mapping[str, list[str]]) -> str:
    """Return the text of the file."""
    return "\n".join("\n".join([f"# {name}", *lines, ""]) for name, lines in sorted(found.items()))


def _names(module: types.ModuleType) -> list[str]:
    own = getattr(module, "__all__", None)
    if own is None:
        own = [name for name, each in vars(module).items() if getattr(each, "__module__", None) == module.__name__]
    hidden = {"batchup_ng": ["KeepState", "zip"], "batchup_ng.data_source": ["zip"]}.get(module.__name__, [])
    names = [name for name in [*own, *hidden] if not name.startswith("_") and name != "KeepState"]
    return sorted(set(names))


def _is_ours(value: Any) -> bool:
    return getattr(value, "__module__", "").startswith("batchup_ng") and hasattr(value, "__qualname__")


def _lines(path: str, value: Any, public: Mapping[int, str]) -> Iterator[str]:
    """Yield the line of a name, and of a class those of its members."""
    name = path.rpartition(".")[2]
    if _is_ours(value) and public[id(value)] != path:
        yield f"{name} = {public[id(value)]}"
    elif isinstance(value, types.ModuleType):
        yield f"module {name}"
    elif isinstance(value, type):
        bases = _bases(value, public)
        made = _signature(value) if _is_made_here(value) else ""
        yield f"class {name}{made}" + f" of {', '.join(bases)}" * bool(bases)
        for member, told in sorted(_members(value, public).items()):
            yield f"    {member}{told}"
    elif callable(value):
        yield f"def {name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _bases(cls: type, public: Mapping[int, str]) -> list[str]:
    """Return the names of the nearest classes above that are public, or not ours."""
    found: list[str] = []
    for base in cls.__bases__:
        own = base.__module__.startswith("batchup_ng")
        if id(base) in public or not own:
            found += [base.__name__] * (base not in (object,) and base.__module__ not in ("typing", "abc"))
        else:
            found += _bases(base, public)
    return list(dict.fromkeys(found))


def _is_made_here(cls: type) -> bool:
    """Return whether a class has a constructor of ours: those of Python have other signatures in each version."""
    of = next(each for each in cls.__mro__ if "__init__" in vars(each) or "__new__" in vars(each))
    return of.__module__.startswith("batchup_ng") and "_is_protocol" not in vars(of)


def _members(cls: type, public: Mapping[int, str]) -> dict[str, str]:
    """Return what follows the name of each public member, without those of other public classes above."""
    found: dict[str, str] = {}
    for each in cls.__mro__:
        if not each.__module__.startswith("batchup_ng") or (each is not cls and id(each) in public):
            continue
        fields = [field.name for field in dataclasses.fields(each)] if dataclasses.is_dataclass(each) else []
        for name, value in (dict.fromkeys(fields) | dict(vars(each))).items():
            if name not in found and (not name.startswith("_") or name in PROTOCOL) and _is_chosen(each, name, value):
                found[name] = ": attribute" if name in fields else _told(value)
    return found


def _is_chosen(cls: type, name: str, value: Any) -> bool:
    generated = name in ("__eq__", "__hash__") and (value is None or dataclasses.is_dataclass(cls))
    return not generated


def _told(value: Any) -> str:
    if isinstance(value, property):
        return ": property" + ", can be set" * (value.fset is not None)
    if isinstance(value, functools.cached_property):
        return ": property"
    kind = {staticmethod: " (static)", classmethod: " (of the class)"}.get(type(value), "")
    value = getattr(value, "__func__", value) if kind else value
    return _signature(value) + kind if inspect.isroutine(value) else ": attribute"


def _signature(value: Any) -> str:
    """Return the parameters with their kinds and defaults."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # of a function in C
        return "(...)"
    given = signature.parameters.values()
    bare = [each.replace(annotation=each.empty, default=_default(each.default)) for each in given]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(value: Any) -> Any:
    """Return an object whose ``repr`` is the same on each Python."""
    if value is inspect.Parameter.empty or value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if type(value) in (tuple, list):
        return type(value)(map(_default, value))
    return _Text(getattr(value, "__name__", f"<{type(value).__name__}>"))


def main(names: Sequence[str]) -> None:
    """Write the file, or print the lines of some modules."""
    if names:
        print(json.dumps(sections(*names)))
        return
    known = read() if FILE.exists() else {}  # of libraries that are not installed
    FILE.write_text(written(known | sections(*CORE, *FRAMEWORKS)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
