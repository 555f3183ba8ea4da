"""Whatever can travel does, the rest is refused at once: F18."""

from __future__ import annotations

from pathlib import Path

import pytest

from .accounting import PROCESSES
from .scenes import travel
from .settings import kinds, quick
from .stage import play


@pytest.mark.parametrize("kind", kinds())
def test_f18_functions_of_every_sort_work_in_workers(kind: str) -> None:
    assert play(travel.travels, kind=kind) == list(travel.FUNCTIONS)


@pytest.mark.parametrize("kind", quick([], PROCESSES))
def test_f18_functions_of_the_cells_of_ipython_work_in_workers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    environment = {"IPYTHONDIR": str(tmp_path)}
    assert play(travel.in_ipython, kind=kind, environment=environment) == len(travel.CELLS) + 1


@pytest.mark.parametrize("kind", kinds())
def test_f18_what_cannot_travel_is_refused_by_name_before_anything_is_started(kind: str) -> None:
    assert list(play(travel.refused, kind=kind)) == list(travel.REFUSED)
