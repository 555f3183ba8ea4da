"""One command makes all figures of the docs: whole files, whatever fails, and a table of the outcomes."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import everything, meters
from benchmarks.__main__ import main
from benchmarks.bottlenecks.planted import PLANTED
from benchmarks.everything import FIGURES, Figure
from benchmarks.limits.settings import SETTINGS
from benchmarks.own import OWN
from benchmarks.studies import STUDIES
from benchmarks.tuning.program import WORKLOADS


@dataclass(frozen=True, kw_only=True)
class Program(Figure):
    """A study whose command is a piece of Python; it gets the folder as ``folder``."""

    code: str

    def command(self, folder: Path, *, quick: bool) -> list[str]:
        head = "import pathlib, sys, time\nfolder = pathlib.Path(sys.argv[1])\n"
        return [sys.executable, "-c", head + self.code, str(folder)]


VARIANTS = [
    {"name": "plain", "status": "measured", "detail": ""},
    {"name": "litdata", "status": "absent", "detail": "x"},
]
FIELDS = {"cases": [{"name": "a", "variants": VARIANTS}]}
PROGRAMS = (
    Program(name="first", minutes=0.1, code="(folder / 'first.md').write_text('first')"),
    Program(name="broken", minutes=0.1, code="sys.exit(3)"),
    Program(name="wrong", minutes=0.1, code="(folder / 'wrong.md').write_text('wrong'); sys.exit(1)"),
    Program(name="silent", minutes=0.1, code=""),
    Program(name="screens", minutes=0.1, code="(folder / 'screens').mkdir(); (folder / 'screens/a').write_text('a')"),
    Program(name="last", minutes=0.1, code=f"(folder / 'last.json').write_text({json.dumps(FIELDS)!r})"),
)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "FIGURES", PROGRAMS)


def outcomes(text: str) -> dict[str, str]:
    """The outcome of each study in the printed table."""
    rows = [line.strip("| ").split("|") for line in text.splitlines()[2:]]
    return {row[0].strip(): row[-1].strip() for row in rows}


def test_a_failure_ends_no_other_study(
    programs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first.md").write_text("of an earlier run")
    assert main(["all", "--into", str(tmp_path), "--quick"]) == 1
    assert outcomes(capsys.readouterr().out) == {
        "first": "made", "broken": "failed: exit code 3", "wrong": "failed: exit code 1, its page is written",
        "silent": "skipped: it wrote nothing", "screens": "made", "last": "made without litdata (x)",
    }  # fmt: skip
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"first.md", "wrong.md", "screens/a", "last.json", "compared.md"}
    assert (tmp_path / "first.md").read_text() == "first"


def test_only_some_studies_run_and_all_is_well(
    programs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["all", "--into", str(tmp_path / "new"), "--quick", "--only", "screens,first"]) == 0
    assert list(outcomes(capsys.readouterr().out)) == ["first", "screens"]


def test_a_run_that_was_broken_off_goes_on_with_the_figures_of_earlier_days(
    programs: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, day in (("first", "2026-11-28"), ("screens", "2026-11-27"), ("last", "2026-12-01")):
        line = f"`python -m benchmarks {name}`, in two runs one after the other, {day}: batchup_ng 0.1.0 (x), "
        (tmp_path / f"{name}.md").write_text(f"## {name}\n\n{line}2 CPUs.\n")
    words = ["all", "--into", str(tmp_path), "--quick", "--since", "2026-11-28", "--only", "first,screens,last,silent"]
    assert main(words) == 1
    assert list(outcomes(capsys.readouterr().out)) == ["silent", "screens"]
    with pytest.raises(SystemExit) as refused:
        main([*words[:-3], "28.11.2026"])
    assert refused.value.code == 2
    assert "must be a day, as 2026-11-28; got '28.11.2026'" in capsys.readouterr().err


def test_a_study_that_does_not_fit_is_left_out_and_one_that_takes_longer_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = "time.sleep(0.2); (folder / 'no.md').write_text('no')"
    endless = Program(name="endless", minutes=0.0, code="(folder / 'half.md').write_text('half'); time.sleep(1000)")
    monkeypatch.setattr(everything, "FIGURES", (Program(name="long", minutes=500.0, code=later), endless))
    monkeypatch.setattr(everything, "uncommitted", lambda *paths: False)
    assert main(["all", "--into", str(tmp_path), "--budget", "0.0005"]) == 1
    printed = capsys.readouterr()
    assert "all: about 8 h 20 min on two CPUs; in minutes: long 500, endless 0" in printed.err
    assert outcomes(printed.out) == {
        "long": "left out: it does not fit into --budget", "endless": "failed: ended, as it went beyond --budget",
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["compared.md"]


def test_changes_that_are_in_no_commit_and_quick_figures_in_docs_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "uncommitted", lambda *paths: True)
    for words, message in (
        (["--into", str(tmp_path)], "changes that are in no commit"),
        (["--quick", "--into", str(everything.ROOT / "docs" / "figures")], "--quick makes figures that mean nothing"),
        (["--quick", "--into", str(tmp_path), "--only", "nothing"], "--only must be among arrays, images"),
    ):
        with pytest.raises(SystemExit) as refused:
            main(["all", *words])
        assert refused.value.code == 2
        assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_placed_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    with pytest.raises(FileNotFoundError):
        everything.place(tmp_path / "missing", tmp_path / "old")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "old"}


def test_each_row_is_a_command_and_all_take_at_most_three_hours() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)
    for figure in FIGURES:
        assert figure.module or figure.name in {*STUDIES, *OWN}
    assert sum(figure.minutes for figure in FIGURES) <= 180
    assert {"arrays.md", "sizes.svg", "bottlenecks/a.txt"} == {
        file for file in ("arrays.md", "sizes.svg", "bottlenecks/a.txt", "arrays2.md", "data_path.svg", "py.md")
        if any(figure.makes(file) for figure in FIGURES)
    }  # fmt: skip


def test_quick_options_name_parts_that_there_are() -> None:
    quick = {figure.name: shlex.split(figure.quick)[-1] for figure in FIGURES}
    for name, names in (("bottlenecks", PLANTED), ("meters", meters.WORKLOADS), ("tuning", WORKLOADS)):
        assert any(quick[name] in each for each in names)
    assert quick["limits"] in SETTINGS


@pytest.mark.in_turn
def test_a_quick_run_makes_pages_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all", "--into", str(tmp_path), "--quick", "--only", "python,cluster,imports"]) == 0
    assert outcomes(capsys.readouterr().out).keys() == {"python", "cluster", "imports"}
    assert {path.name for path in tmp_path.iterdir()} >= {
        "python.md", "python.json", "cluster.md", "imports.md", "imports.json", "compared.md",
    }  # fmt: skip
    for name in ("python", "cluster", "imports"):
        assert f"`python -m benchmarks {name}" in (tmp_path / f"{name}.md").read_text()
