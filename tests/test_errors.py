"""The tree of exceptions."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from batchup_ng import errors

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
