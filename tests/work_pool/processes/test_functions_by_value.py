"""What travels by value: things of a script there, instances of its classes and exceptions back."""

from __future__ import annotations

import builtins
import functools
import pickle
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from batchup_ng.work_pool.processes import serialization
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import one, ran

PROGRAM = """
import functools, typing
import numpy as np
import batchup_ng as bu

class Box:
    made = 0
    def __init__(self, value):
        self.value = value

class DecodeError(ValueError):
    seen = 0
    def __init__(self, path, offset):
        super().__init__(f"{path} at {offset}")
        self.path, self.offset = path, offset

class Table:
    @functools.cache
    def twice(self, x):
        return 2 * x

@functools.lru_cache(maxsize=100)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

UserId = typing.NewType("UserId", int)
table = Table()

def work(x):
    Box.made, DecodeError.seen = Box.made + 1, DecodeError.seen + 1
    if 7 in x:
        raise DecodeError("a.jpg", 7)
    return x, [Box(UserId(fib(int(n)))) for n in x], [table.twice(int(n)) for n in x], [UserId] * len(x)

source = bu.ArrayDataSource([np.arange(8)]).map(work)
with bu.WorkerProcessPool(1) as pool:
    batches = pool.parallel_data_source(source).batch_iterator(2)
    Box.made, Box.later, init = 10, "kept", Box.__init__
    _ = next(batches)
    x, boxes, doubled, types = next(batches)
    print(x, [box.value for box in boxes], doubled, {type(box) is Box for box in boxes}, types[0].__module__)
    print(Box.made, Box.later, Box.__init__ is init)
    try:
        list(batches)
    except DecodeError as error:
        print(error.path, error.offset, error.args, error.row, type(error.error) is DecodeError, DecodeError.seen)
"""


def test_a_script_gets_its_own_classes_and_exceptions_back(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = ran("program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == textwrap.dedent(
        """\
        [2 3] [1, 2] [4, 6] {True} __main__
        10 kept True
        a.jpg 7 ('a.jpg at 7',) 7 True 0
        """
    )


class Slotted(Exception):
    """Made of other arguments than it has, with an attribute in a slot."""

    __slots__ = ("place",)

    def __init__(self, path: str, *, place: int) -> None:
        super().__init__(f"{path}, {place}")
        self.path, self.place = path, place


class Gone(FileNotFoundError):
    """Of a built-in type with attributes of its own."""

    def __init__(self, path: str) -> None:
        super().__init__(2, "it is gone", path)


class Lacks(AttributeError):
    """It holds the object that lacks an attribute, which stays behind."""


class Told(Exception):
    """It says itself how it is made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("told")
        self.numbers = one, two

    def __reduce__(self) -> Any:
        return Told, self.numbers


def again(error: BaseException) -> Any:
    return serialization.load_result(serialization.dumps(error))


def test_exceptions_are_rebuilt_without_their_constructor() -> None:
    slotted = again(Slotted("a", place=3))
    assert (type(slotted), slotted.args, slotted.path, slotted.place) == (Slotted, ("a, 3",), "a", 3)
    gone = again(Gone("b"))
    assert (type(gone), str(gone), gone.errno, gone.filename) == (Gone, "[Errno 2] it is gone: 'b'", 2, "b")
    assert again(Told(1, 2)).numbers == (1, 2)
    noted = Slotted("c", place=1)
    noted.__dict__["__notes__"] = ["a note"]
    assert again(noted).__notes__ == ["a note"]
    holding = Lacks("lacks it", name="x", obj=sys.stdin)
    assert (again(holding).args, again(holding).name) == (("lacks it",), "x")
    with raises(TypeError):
        serialization.dumps(Slotted("a", place=threading.Lock()))  # type: ignore[arg-type]  # on purpose


def test_the_exceptions_of_a_group_are_rebuilt_too() -> None:
    group_type = getattr(builtins, "ExceptionGroup", None)
    if group_type is None:
        pytest.skip("Python has groups of exceptions since version 3.11")
    (inner,) = again(group_type("some", [Slotted("a", place=1)])).exceptions
    assert (type(inner), inner.place) == (Slotted, 1)


@functools.lru_cache(maxsize=3)
def importable(x: int) -> int:
    return x


def test_cached_functions_go_by_name_where_they_have_one() -> None:
    assert serialization.load_result(serialization.dumps(importable)) is importable

    @functools.lru_cache(maxsize=7, typed=True)
    def local(x: int) -> int:
        return x + 1

    arrived = pickle.loads(serialization.dumps(local))
    assert arrived is not local
    assert (arrived(1), arrived.cache_parameters()) == (2, {"maxsize": 7, "typed": True})


def test_a_class_that_is_new_here_arrives_whole(pools: Any) -> None:
    def make() -> Any:
        class Made:
            number = 3

        return Made()

    made = one(pools[1], make)
    assert (type(made).__name__, made.number, type(made).number) == ("Made", 3, 3)
