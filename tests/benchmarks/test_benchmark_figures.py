"""The figures of the docs name command, date and version, and none is older than the release before this one."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from batchup_ng import __version__
from benchmarks.conditions import LINE
from benchmarks.everything import BY_HAND, FIGURES
from benchmarks.report import compared

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "figures"
VERSION = re.compile(r"batchup_ng (\d+)\.(\d+)\.\d+\S* \(")
UNNAMED = (0, 1)
"""The version of figures that were made before figures named theirs."""

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not run in a checkout")


def files() -> list[str]:
    """The files of the docs' figures, as paths in their folder."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())


def version_of(page: str) -> tuple[int, int]:
    """The major and minor version that a page names."""
    found = VERSION.search(page)
    return (int(found[1]), int(found[2])) if found else UNNAMED


def too_old(made: tuple[int, int], now: tuple[int, int]) -> bool:
    """Whether a figure is older than the code by more than one minor release. A major release begins anew."""
    return made[0] < now[0] or made[1] < now[1] - 1


@pytest.mark.parametrize("name", [file for file in files() if file.endswith(".md") and file != "compared.md"])
def test_a_figure_names_command_and_date_and_is_of_this_release_or_the_one_before(name: str) -> None:
    page = (FOLDER / name).read_text(encoding="utf-8")
    head = LINE.search(page)
    assert head is not None, "the figure must name its command and date"
    assert f"{head[2]}.md" == name
    assert date(2026, 1, 1) <= date.fromisoformat(head[3])
    major, minor, *_ = map(int, re.findall(r"\d+", __version__))
    assert not too_old(version_of(page), (major, minor)), f"make it anew: python -m benchmarks all --only {head[2]}"


def test_the_oldest_version_allowed_is_the_minor_release_before() -> None:
    assert version_of("`x`, 2026-11-28: batchup_ng 2.13.4 (383ee8c), 2 CPUs") == (2, 13)
    assert version_of("`x`, 2026-11-28: numpy 2.4.6, batchup_ng 0.2.0rc1 (383ee8c-dirty).") == (0, 2)
    assert version_of("`x`, 2026-11-21: batchup_ng from the checkout") == (0, 1)
    assert [too_old((2, minor), (2, 13)) for minor in (11, 12, 13)] == [True, False, False]
    assert too_old((1, 9), (2, 0))


@pytest.mark.parametrize("name", files())
def test_a_file_is_made_by_a_study_of_all(name: str) -> None:
    assert any(figure.makes(name) for figure in FIGURES) or name in compared.FILES or name in BY_HAND


def test_the_text_of_the_comparison_is_that_of_the_files(tmp_path: Path) -> None:
    for path in FOLDER.iterdir():
        if path.suffix in (".json", ".md"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    compared.draw(tmp_path)
    assert (tmp_path / "compared.md").read_text() == (FOLDER / "compared.md").read_text(encoding="utf-8")
