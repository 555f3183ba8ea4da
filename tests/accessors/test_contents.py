"""Facts by which another program recognises columns and functions."""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.contents import column_facts, value_facts
from batchup_ng.accessors.packed_texts import PackedTexts
from batchup_ng.accessors.uint8_to_float32 import ImageArrayUInt8ToFloat32
from tests.messages import raises


def told(value: Any) -> str:
    """Return the facts about a value as text: JSON can hold them."""
    return json.dumps(value_facts(value), allow_nan=False)


def function(code: str, **names: Any) -> Any:
    """Return the function ``f`` that a program defines, with other names of that program."""
    names = {"__name__": "program", "np": np, **names}
    exec(code, names)
    return names["f"]


CODE = "def f(x):\n    return x < LIMIT and helper(x) in KNOWN"
NAMES: dict[str, Any] = {"LIMIT": 3, "helper": abs, "KNOWN": {"a", "b", "c"}}

OTHERS: dict[str, Any] = {
    "code": function(CODE.replace("<", ">"), **NAMES),
    "a constant": function(CODE.replace("in KNOWN", "in (1, 2)"), **NAMES),
    "a global number": function(CODE, **{**NAMES, "LIMIT": 4}),
    "a global set": function(CODE, **{**NAMES, "KNOWN": {"a", "b"}}),
    "a global array": function(CODE, **{**NAMES, "KNOWN": np.arange(3)}),
    "a function that it calls": function(CODE, **{**NAMES, "helper": len}),
    "a default": function(CODE.replace("(x)", "(x, y=2)", 1), **NAMES),
}


@pytest.mark.parametrize("what", OTHERS)
def test_functions_differ_by_all_that_they_refer_to(what: str) -> None:
    assert told(OTHERS[what]) != told(function(CODE, **NAMES))


def test_equal_functions_are_told_alike_wherever_they_stand() -> None:
    assert told(function(CODE, **NAMES)) == told(function("\n\n" + CODE, **{**NAMES, "unused": 8}))
    nested = "def f(xs):\n    return [x < LIMIT for x in xs]"
    assert told(function(nested, LIMIT=1)) == told(function(nested, LIMIT=1)) != told(function(nested, LIMIT=2))
    double = "def g(x):\n    return x * {}\n\ndef f(x):\n    return g(x)"
    assert told(function(double.format(2))) != told(function(double.format(3)))
    again = "def f(x):\n    return f(x - 1) if x else g()\n\ndef g():\n    return f(0)"
    assert told(function(again)) == told(function(again)), "functions that call one another have facts, too"


def below(limit: Any) -> Any:
    return lambda x: x < limit


class Below:
    """A predicate with a state."""

    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def __call__(self, x: Any) -> bool:
        return bool(x < self.limit)

    def method(self, x: Any) -> bool:
        return not self(x)


class NotBelow(Below):
    def __call__(self, x: Any) -> bool:
        return not super().__call__(x)


@functools.cache
def cached(x: Any) -> Any:
    return x + LATER


LATER = 3


@pytest.mark.parametrize(
    "make",
    [
        below, Below, NotBelow, lambda limit: Below(limit).method, lambda limit: functools.partial(below(7), limit),
        lambda limit: functools.partial(int, base=limit), lambda limit: [limit, {"x": (limit, {limit, "x"})}],
        lambda limit: np.array([limit, None], object), lambda limit: below(np.full(9, limit)),
        lambda limit: below(below(limit)), lambda limit: below(re.compile(str(limit))),
        lambda limit: below(Path(str(limit))),
    ],
)  # fmt: skip
def test_values_count_by_what_they_hold(make: Any) -> None:
    assert told(make(3)) == told(make(3)) != told(make(4))


def test_a_class_counts_by_the_code_of_its_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = told(NotBelow(3)), told(cached)
    assert told(Below(3)) != before
    monkeypatch.setattr(Below, "__call__", lambda self, x: True)
    assert told(NotBelow(3)) != before
    monkeypatch.setattr(sys.modules[__name__], "LATER", 4)
    assert told(cached) != other


PROGRAMS = {
    "a parameter of a lambda": "f = lambda {a}, **r: {a} > 2",
    "the kind of a parameter": "def f(x, {star}y=1):\n    return x",
    "an attribute of a class": "class CFG:\n    limit = {n}\ndef f(x):\n    return x > CFG.limit",
    "a static method": "class C:\n    @staticmethod\n    def g():\n        return {n}\ndef f(x):\n    return x > C.g()",
    "a class method": "class C:\n    @classmethod\n    def g(cls):\n        return {n}\n"
    "def f(x):\n    return x > C.g()",
    "a property": "class C:\n    @property\n    def g(self):\n        return {n}\ndef f(x):\n    return x > C().g",
    "a member": "import enum\nclass E(enum.Enum):\n    A = {n}\ndef f(x):\n    return x > E.A.value",
    "a member itself": "import enum\nclass E(enum.IntEnum):\n    A = {n}\nA = E.A\ndef f(x):\n    return x > A",
    "a method of a member": "import enum\nclass E(enum.Enum):\n    A = 1\n    def g(self):\n        return {n}\n"
    "A = E.A\ndef f(x):\n    return x > A.g()",
    "a subclass of list": "class L(list):\n    pass\nV = L([{n}])\ndef f(x):\n    return x in V",
    "a subclass of dict": "class D(dict):\n    pass\nV = D(a={n})\ndef f(x):\n    return x > V['a']",
    "a subclass of set": "class S(set):\n    pass\nV = S([{n}])\ndef f(x):\n    return x in V",
    "an attribute of a list": "class L(list):\n    pass\nV = L()\nV.n = {n}\ndef f(x):\n    return x > V.n",
    "an attribute of an int": "class I(int):\n    pass\nV = I(1)\nV.n = {n}\ndef f(x):\n    return x > V.n",
    "a method of an int": "class I(int):\n    def g(self):\n        return {n}\nV = I(1)\n"
    "def f(x):\n    return x > V.g()",
    "a text": "class T(str):\n    pass\nV = T({n})\ndef f(x):\n    return x == V",
    "an attribute of an array": "class A(np.ndarray):\n    pass\nV = np.zeros(2).view(A)\nV.n = {n}\n"
    "def f(x):\n    return x > V.n",
    "a slot": "class C:\n    __slots__ = ('n',)\nV = C()\nV.n = {n}\ndef f(x):\n    return x > V.n",
    "a function in a queue": "import collections\nV = collections.deque([lambda: {n}])\n"
    "def f(x):\n    return x > V[0]()",
    "an object that wraps": "import functools\nclass W:\n    def __init__(self, n):\n        self.n = n\n"
    "        functools.update_wrapper(self, abs)\n    def __call__(self, x):\n        return x > self.n\nf = W({n})",
    "an attribute of a function": "def f(x):\n    return x > f.n\nf.n = {n}",
    "a method of a set": "f = {{1, {n}}}.__contains__",
    "a function of a library": "import contextlib\n@contextlib.contextmanager\ndef g():\n    yield {n}\n"
    "def f(x):\n    with g() as n:\n        return x > n",
    "the shape of objects": "V = np.full((2, {n}), None)[:, :0]\nV = np.array([None] * 12).reshape(-1, {n})\n"
    "def f(x):\n    return len(V) > x",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_all_that_a_function_uses_counts(what: str) -> None:
    made = [function(PROGRAMS[what].format(**names)) for names in ({"n": 3, "a": "a", "star": ""},) * 2]
    other = function(PROGRAMS[what].format(n=4, a="b", star="*, "))
    assert told(made[0]) == told(made[1]) != told(other)


def test_functions_that_a_library_made_count_by_what_they_hold() -> None:
    made = [collections.namedtuple("Made", "a", defaults=[each]) for each in (3, 3, 4)]
    assert told(made[0]) == told(made[1]) != told(made[2])
    assert told(re.RegexFlag.I) != told(re.RegexFlag.M)


def test_what_is_installed_counts_by_name() -> None:
    for each in (bool, len, str.isdigit, np.isfinite, np.linalg.norm, json.loads, os.path.exists, bu.PadColumns):
        assert len(told(each)) < 400
        assert told(each) != told(print)
    assert told(bu.PadColumns(0)) == told(bu.PadColumns(0)) != told(bu.PadColumns(1))


def test_another_program_tells_the_same() -> None:
    program = (
        "import json, numpy as np\nfrom batchup_ng.accessors.contents import value_facts\nLIMIT = {'a', 'b', 'c', 2}\n"
        "def f(x, y=('d', 5.5), *, z={'k': {'m', 'n'}}):\n    return x in LIMIT or np.any(x == y)\n"
        "facts = json.dumps(value_facts(f))"
    )
    here: dict[str, Any] = {"__name__": "__main__"}
    exec(program, here)
    env = {**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    there = subprocess.run([sys.executable, "-c", f"{program}\nprint(facts)"], env=env, capture_output=True, check=True)
    assert there.stdout.decode().strip() == here["facts"] != ""


def test_what_cannot_be_pickled_is_refused() -> None:
    with raises(bu.ArgumentTypeError):
        value_facts(below(threading.Lock()))


# -- columns ---------------------------------------------------------------------------------------------------------


class Accessor:
    """An accessor that says what its rows depend on."""

    def __init__(self, version: int) -> None:
        self.version = version

    def fingerprint(self) -> list[int]:
        return [self.version]


def test_columns_count_by_their_contents() -> None:
    numbers, others = np.arange(9), np.arange(9) + np.eye(9, dtype=int)[7]
    floats = ImageArrayUInt8ToFloat32
    for make in (
        lambda x: x, lambda x: np.stack([x, x])[:, 1::2], lambda x: x.astype(str), lambda x: x.astype("M8[s]"),
        lambda x: x.astype(object), lambda x: PackedTexts([str(each) for each in x]), lambda x: bu.Ragged(x, [0, 4, 9]),
        lambda x: bu.MapStyle([(int(each), "text") for each in x]), lambda x: floats(x.astype(np.uint8)),
        lambda x: bu.Cached(floats(x.astype(np.uint8))), lambda x: Accessor(int(x.sum())),
        lambda x: bu.MapStyle(Accessors(int(x.sum()))), lambda x: x.reshape(3, 3).T,
    ):  # fmt: skip
        given: Any = make
        made = [json.dumps(column_facts(given(x))) for x in (numbers, numbers.copy(), others)]
        assert made[0] == made[1] != made[2]
    forms = [numbers, numbers.astype(np.int32), numbers[::-1], numbers.reshape(3, 3), numbers[:8], np.zeros((0, 3))]
    assert len({json.dumps(column_facts(each)) for each in forms}) == len(forms)


class Accessors(Accessor):
    """A map-style data set with a fingerprint."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> int:
        return row


def test_arrays_over_files_count_by_the_file_and_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(90).reshape(9, 10))

    def facts(view: Any = lambda x: x) -> str:
        return json.dumps(column_facts(view(np.load(path, mmap_mode="r"))))

    views: list[Any] = [lambda x: x, lambda x: x[1:], lambda x: x[:, 1:], lambda x: x[::2], lambda x: np.asarray(x)[:8]]
    with monkeypatch.context() as patch:
        patch.setattr("batchup_ng.accessors.contents._bytes_digest", None)
        assert [facts(view) for view in views] == [facts(view) for view in views]
        assert len({facts(view) for view in views}) == len(views)
        before = facts()
        os.utime(path, ns=(1, 1))
        assert facts() != before
    mapped = np.load(path, mmap_mode="r")
    path.unlink()
    assert json.dumps(column_facts(mapped)) != before, "its file is gone, so its bytes count"


def test_arrays_over_files_that_may_be_written_to_count_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(9))
    array = np.load(path, mmap_mode="c")
    before = json.dumps(column_facts(array))
    array[3] = 7
    assert json.dumps(column_facts(array)) != before


def test_a_column_that_does_not_say_what_it_depends_on_is_refused() -> None:
    class Silent:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, rows: Any) -> Any:
            return np.arange(3)[rows]

    for column in (Silent(), bu.MapStyle(Silent())):
        with raises(bu.ArgumentTypeError):
            column_facts(column)
