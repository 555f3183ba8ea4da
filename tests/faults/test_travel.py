"""Whatever can travel does, the rest is refused at once: F18."""

from __future__ import annotations

from pathlib import Path

import pytest

from .books import PROCESSES
from .scenes import travel
from .settings import thorough
from .stage import play


@pytest.mark.parametrize("what", travel.FUNCTIONS)
@pytest.mark.parametrize("kind", ["forkserver", "spawn", thorough("fork")])
def test_f18_functions_of_every_sort_work_in_workers(kind: str, what: str) -> None:
    assert play(travel.travels, kind=kind, what=what)


@pytest.mark.parametrize("kind", ["forkserver", "spawn", thorough("fork")])
def test_f18_functions_of_the_cells_of_ipython_work_in_workers(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    environment = {"IPYTHONDIR": str(tmp_path)}
    assert play(travel.in_ipython, kind=kind, environment=environment) == len(travel.CELLS) + 1


@pytest.mark.parametrize("what", travel.REFUSED)
@pytest.mark.parametrize("kind", ["forkserver", *map(thorough, PROCESSES[1:])])
def test_f18_what_cannot_travel_is_refused_at_once_by_name(kind: str, what: str) -> None:
    found = play(travel.refused, kind=kind, what=what)
    assert not found["missing"], found["message"]
    assert found["started"] == 0
    assert found["seconds"] <= 0.1
