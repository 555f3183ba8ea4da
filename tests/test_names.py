"""Names at top level."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import pytest

import batchup_ng as bu
from tests.messages import raises


def test_a_star_import_hides_nothing_of_python() -> None:
    names: dict[str, Any] = {}
    exec("from batchup_ng import *\nfrom batchup_ng.data_source import *", names)
    assert not {name for name in names if hasattr(builtins, name)} - {"__builtins__", "__doc__", "__name__"}
    assert bu.zip is bu.data_source.zip is not zip  # type: ignore[comparison-overlap]


def test_what_users_catch_and_write_is_there() -> None:
    assert {"Accessor", "NotReproducible", "StateError"} < set(bu.__all__)
    assert isinstance(bu.ImageFiles(["a.png"]), bu.Accessor)


def test_a_name_that_needs_a_library_which_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    monkeypatch.delitem(sys.modules, "batchup_ng.frameworks.keras", raising=False)
    assert "KeepState" not in bu.__all__
    with raises(ImportError):
        _ = bu.KeepState
    with raises(AttributeError):
        _ = bu.KeepStates  # type: ignore[attr-defined]
