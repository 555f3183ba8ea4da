"""Names at top level."""

from __future__ import annotations

import builtins
from typing import Any

import batchup_ng as bu


def test_a_star_import_hides_nothing_of_python() -> None:
    names: dict[str, Any] = {}
    exec("from batchup_ng import *\nfrom batchup_ng.data_source import *", names)
    assert not {name for name in names if hasattr(builtins, name)} - {"__builtins__", "__doc__", "__name__"}
    assert bu.zip is bu.data_source.zip is not zip  # type: ignore[comparison-overlap]


def test_what_users_catch_and_write_is_there() -> None:
    assert {"Accessor", "NotReproducible", "StateError"} < set(bu.__all__)
    assert isinstance(bu.ImageFiles(["a.png"]), bu.Accessor)
