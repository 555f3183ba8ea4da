"""Each figure names its command, the date, and the version of the library with its commit."""

from __future__ import annotations

import re
import subprocess
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pytest

from batchup_ng import __version__
from benchmarks import conditions
from benchmarks.own import OWN
from benchmarks.studies import STUDIES


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of one commit, with a version of its own."""
    (tmp_path / "batchup_ng").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "batchup_ng" / "_version.py").write_text('"""Text."""\n\n__version__ = "3.4.5"\n')
    (tmp_path / "docs" / "page.md").write_text("text")
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "All"]):
        try:
            subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("there is no git")
    return tmp_path


def test_a_version_has_its_commit_and_says_what_is_in_none(checkout: Path) -> None:
    assert re.fullmatch(r"3\.4\.5 \([0-9a-f]{7,}\)", conditions.version(checkout))
    (checkout / "docs" / "page.md").write_text("figures that a run has written")
    assert re.fullmatch(r"3\.4\.5 \([0-9a-f]{7,}\)", conditions.version(checkout))
    assert conditions.uncommitted(checkout)
    with (checkout / "batchup_ng" / "_version.py").open("a") as file:
        file.write("# another line\n")
    assert re.fullmatch(r"3\.4\.5 \([0-9a-f]{7,}-dirty\)", conditions.version(checkout))


def test_a_folder_that_is_no_checkout_has_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "batchup_ng").mkdir()
    (tmp_path / "batchup_ng" / "_version.py").write_text('__version__ = "3.4.5"\n')
    assert conditions.version(tmp_path) == "3.4.5 (of no known commit)"
    assert not conditions.uncommitted(tmp_path)


def test_the_line_names_all_but_folders() -> None:
    output = Path("some/where")
    found = conditions.conditions(["limits", "--quick", "--output", str(output), "--against", "/a/b"], output)
    line = conditions.line(found)
    command = "`python -m benchmarks limits --quick --against <path>`"
    assert line.startswith(f"{command}, {date.today().isoformat()}: batchup_ng {__version__} (")
    assert re.search(r"\), \d+ CPUs, \w+ \w+, Python 3\.\d+\.\d+\.$", line)


def test_commands_with_their_own_options_are_modules_and_no_other_study() -> None:
    assert not OWN.keys() & STUDIES.keys()
    for module in OWN.values():
        assert find_spec(module) is not None
