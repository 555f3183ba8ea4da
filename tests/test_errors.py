"""The tree of exceptions."""

from __future__ import annotations

import abc
import copy
import pickle
import re
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from batchup_ng import errors
from tests.messages import raises

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
DRAWING = Path(__file__).parents[1].joinpath("docs", "api", "base.md").read_text()
NAMES = sorted({kind.__name__ for kind in KINDS} - {"BatchupError", "RemoteTraceback"})


@pytest.mark.parametrize("name", NAMES)
def test_each_is_one_of_ours_and_stands_in_the_drawing(name: str) -> None:
    assert issubclass(getattr(errors, name), RuntimeWarning if name.endswith("Warning") else errors.BatchupError)
    assert re.search(rf"── {name}\b", DRAWING)


def test_errors_travel() -> None:
    for error in (
        errors.SampleReadError("cannot read a.png", "a.png"),
        errors.TooManyErrors("many", ["one"]),
        errors.NotReproducible("other", setting="was shuffled", epoch=2, culprit="augment"),
        errors.ArgumentError("bad"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert vars(copy) == vars(error)


def test_a_remote_traceback_shows_its_text() -> None:
    assert "line 3" in str(errors.RemoteTraceback("line 3"))


class Two(Exception):
    """One that a single argument does not make."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


class Abstract(Exception, metaclass=abc.ABCMeta):
    pass


TRAVEL = [
    lambda each: pickle.loads(pickle.dumps(each)),
    lambda each: cloudpickle.loads(cloudpickle.dumps(each)),
    lambda each: ForkingPickler.loads(ForkingPickler.dumps(each)),
]
TRAVEL_NAMES = ["pickle", "cloudpickle", "multiprocessing"]
ORIGINALS = [
    KeyError("x"),
    OSError(2, "gone", "f"),
    Two(1, 2),
    MemoryError(),
    Abstract(),
    UnicodeDecodeError("utf8", b"x", 0, 1, "y"),
]


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, *TRAVEL], ids=["copy", "deepcopy", *TRAVEL_NAMES])
def test_a_batch_error_travels_and_so_does_its_class(original: Exception, how: Any) -> None:
    error = errors.batch_error(original, "a text (row 3)", row=3, batch=1)
    there = how(error)
    assert isinstance(there, type(original))
    assert (str(there), there.row, there.batch, there.args) == ("a text (row 3)", 3, 1, original.args)
    assert getattr(there, "filename", None) == getattr(original, "filename", None)
    assert how(type(error)) is type(error)


def test_a_batch_error_arrives_from_a_worker_of_torch() -> None:
    torch_utils = pytest.importorskip("torch._utils", reason="torch is not installed")
    try:
        raise errors.batch_error(KeyError("x"), "'x' (row 3)")
    except errors.BatchError:
        sent = torch_utils.ExceptionWrapper(where="in DataLoader worker process 0")
    with raises(KeyError) as found:
        ForkingPickler.loads(ForkingPickler.dumps(sent)).reraise()
    assert isinstance(found.value, errors.BatchError)


def test_a_timeout_is_what_torchs_is() -> None:
    assert issubclass(errors.SampleTimeout, RuntimeError)
    assert issubclass(errors.SampleTimeout, TimeoutError)
