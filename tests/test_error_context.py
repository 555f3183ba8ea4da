"""Errors that name the sample, made from exceptions of every kind."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import sys
import threading
import traceback
from fractions import Fraction
from typing import Any

import pytest

from batchup_ng import BatchError, SampleReadError, WorkerDied
from batchup_ng.error_context import described, function_name, map_of, note_map, without_frames
from batchup_ng.errors import RemoteTraceback


def told(error: BaseException) -> BatchError:
    """Return the error for `error` in the way that pools make it."""
    return described(error, "row 3, position 5", "epoch 1, batch 2", {"row": 3, "position": 5, "epoch": 1, "batch": 2})


def raised(error: BaseException) -> BaseException:
    """Return `error` with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


class WantsMuch(Exception):
    """An exception whose constructor wants arguments that it does not keep."""

    def __init__(self, one: int, *, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.one = one


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """An exception whose attributes cannot be set."""

    code: int


class Slotted(Exception):
    """An exception without a dict of its own."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class NewWantsMuch(OSError):
    """An exception that is made by a method of its own."""

    def __new__(cls, path: str) -> NewWantsMuch:
        return super().__new__(cls, 2, "gone", path)

    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)


class TakesNothing(ValueError):
    """An exception that refuses attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("frozen")


class HasProperties(ValueError):
    """An exception that has names of ours for its own, which cannot be set."""

    @property
    def row(self) -> int:
        return -1

    @property
    def source(self) -> str:
        return "another"


class HidesItsAttributes(ValueError):
    def __getattribute__(self, name: str) -> Any:
        if name in ("args", "__dict__", "__batchup_map__"):
            raise RuntimeError("not for you")
        return super().__getattribute__(name)


ODD = [
    (WantsMuch(1, two="b"), "1 and b"),
    (Slotted(7), "code 7"),
    (Frozen(7), "7"),
    (NewWantsMuch("a.png"), "[Errno 2] gone: 'a.png'"),
    (TakesNothing("frozen"), "frozen"),
    (HasProperties("mine"), "mine"),
    (KeyError("no key"), "'no key'"),
    (MemoryError("none left"), "none left"),
    (FileNotFoundError(2, "No such file", "b.png"), "[Errno 2] No such file: 'b.png'"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "'utf-8' codec can't decode byte 0xff"),
    (SyntaxError("odd", ("f.py", 3, 1, "x = = 1")), "odd"),
    (AssertionError(), "AssertionError"),
    (SampleReadError("cannot read c.png", "c.png"), "cannot read c.png"),
    (WorkerDied("a worker ended"), "a worker ended"),
]


@pytest.mark.parametrize(("error", "text"), ODD, ids=lambda value: type(value).__name__)
def test_an_exception_keeps_its_type_text_and_attributes(error: Exception, text: str) -> None:
    made = told(raised(error))
    assert isinstance(made, BatchError)
    assert isinstance(made, type(error))
    assert str(made).startswith(text)
    assert str(made).endswith("(row 3, position 5, epoch 1, batch 2)")
    assert made.args == error.args
    assert (made.row, made.position, made.epoch, made.batch, made.error) == (3, 5, 1, 2, error)
    assert f"raised\n    raise {'error'}" in made.traceback
    for name in ("one", "code", "errno", "filename", "start", "lineno"):
        if hasattr(error, name):
            assert getattr(made, name) == getattr(error, name)
    assert "row 3" in "".join(traceback.format_exception(made))


@pytest.mark.parametrize(("error", "text"), ODD, ids=lambda value: type(value).__name__)
def test_it_can_be_pickled_and_copied(error: Exception, text: str) -> None:
    made = told(raised(error))
    for one in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert isinstance(one, BatchError)
        assert str(one) == str(made)
        assert (one.row, one.traceback, one.epoch) == (3, made.traceback, 1)


def test_what_cannot_travel_stays_behind() -> None:
    error = ValueError("with a lock", threading.Lock())
    made = told(error)
    assert made.args[1] is error.args[1]
    one = pickle.loads(pickle.dumps(made))
    assert type(one) is BatchError
    assert (one.row, str(one), one.error) == (3, str(made), None)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of Python 3.11")
def test_a_group_stays_a_group() -> None:
    group: Any = eval("ExceptionGroup")("several", [ValueError("a"), KeyError("b")])
    made: Any = told(raised(group))
    assert isinstance(made, type(group))
    assert made.exceptions == group.exceptions
    assert made.split(ValueError)[0].exceptions == (group.exceptions[0],)
    assert str(pickle.loads(pickle.dumps(made))) == str(made)
    of_interrupts: Any = eval("BaseExceptionGroup")("several", [KeyboardInterrupt()])
    assert type(told(of_interrupts)) is BatchError


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_the_program_gets_a_stand_in(kind: type[BaseException]) -> None:
    made = told(raised(kind("now")))
    assert type(made) is BatchError
    assert not isinstance(made, kind)
    assert str(made).startswith("now")


def test_the_end_of_an_iterator_becomes_a_runtime_error() -> None:
    for kind in (StopIteration, StopAsyncIteration):
        made = told(raised(kind("early")))
        assert isinstance(made, RuntimeError)
        assert not isinstance(made, kind)


def test_types_without_subclasses_get_a_stand_in() -> None:
    class Final(ValueError):
        def __init_subclass__(cls) -> None:
            raise TypeError("no subclasses")

    made = told(Final("last"))
    assert type(made) is BatchError
    assert str(made).startswith("last (row 3")
    assert type(told(HidesItsAttributes("shy"))) is BatchError


def test_an_exception_without_a_text_is_described() -> None:
    class Mute(ValueError):
        def __str__(self) -> str:
            raise KeyError("no text")

    made = told(raised(Mute("x")))
    assert isinstance(made, Mute)
    assert str(made).startswith("an exception of type Mute without a text (row 3")


@pytest.mark.parametrize("odd", ["__getattr__", "__len__", "__bool__", "__notes__"])
def test_an_exception_whose_traceback_python_cannot_write_is_named(odd: str) -> None:
    def fail(self: Any, *args: Any) -> Any:
        raise KeyError(odd)

    kind = type("Odd", (ValueError,), {odd: property(fail) if odd == "__notes__" else fail})
    made = told(raised(kind("no")))
    assert type(made).__name__ == "BatchError[Odd]"
    assert str(made) == "no (row 3, position 5, epoch 1, batch 2)"
    assert "    raise error\n" in made.traceback
    # Python 3.13 writes such a traceback itself, and adds a line on what it could not get.
    assert made.traceback.partition("    raise error\n")[2].splitlines()[0] in ("Odd: no", f"{__name__}.Odd: no")


def test_a_long_text_is_cut_wherever_it_shows() -> None:
    made = told(raised(ValueError("x" * 10_000_000)))
    assert len(str(made)) < 66_000
    assert "characters are left out" in str(made)
    assert str(made).endswith("(row 3, position 5, epoch 1, batch 2)")
    assert len("".join(traceback.format_exception(made))) < 140_000


def test_the_cause_is_the_original_or_its_remote_traceback() -> None:
    error = raised(ValueError("here"))
    assert told(error).__cause__ is error
    error.__cause__ = RemoteTraceback("there, line 3")
    made = told(error)
    assert str(made.__cause__) == str(error.__cause__)
    assert made.traceback == "there, line 3"


def test_an_error_of_an_inner_pool_is_told_once_more() -> None:
    inner = told(KeyError("deep"))
    outer = told(inner)
    assert isinstance(outer, KeyError)
    assert type(outer) is type(inner)
    assert str(outer).count("row 3") == 2


def test_the_map_is_noted_where_it_can_be() -> None:
    error = ValueError("x")
    note_map(error, "augment")
    assert map_of(pickle.loads(pickle.dumps(error))) == "augment"
    assert "map 'augment', epoch 1" in str(told(error))
    assert told(error).op == "augment"
    for other, noted in ((TakesNothing("x"), "augment"), (HidesItsAttributes("x"), None)):
        note_map(other, "augment")
        assert map_of(other) == noted


def test_a_map_is_called_what_people_call_it() -> None:
    def augment() -> None: ...

    class Crop:
        def __call__(self) -> None: ...

        def read(self) -> None: ...

    names = {
        "augment": augment,
        "<lambda>": lambda: None,
        "Crop": Crop(),
        "Crop.read": Crop().read,
        "Fraction.limit_denominator": functools.partial(Fraction.limit_denominator, Fraction(1)),
        "len": len,
    }
    assert [function_name(made) for made in names.values()] == list(names)


def test_frames_are_let_go() -> None:
    class Held:
        pass

    def fail() -> None:
        held = Held()
        assert held
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first

    try:
        fail()
    except ValueError as caught:
        made = told(caught)
    without_frames(made)
    without_frames(TakesNothing("x"))
    assert made.error is not None
    assert made.error.__traceback__ is None
    assert made.error.__cause__ is not None
    assert made.error.__cause__.__traceback__ is None
    assert "in fail" in made.traceback
