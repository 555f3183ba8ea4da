"""The command works end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import all_variants, choose

ROOT = Path(__file__).resolve().parents[2]
LOOPS = {"arrays": ["plain"], "images": ["plain-1thread", "plain-threads"], "python": ["plain-loop", "pool-imap"]}


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short name, as the socket of a manager must fit into 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        yield Path(folder)


def run(scratch: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--rounds", "2", "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("kind", ["arrays", "images", "python"])
def test_a_quick_run_measures_everything_and_leaves_nothing(kind: str, scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is one of the peers of this run")
    if kind == "images":
        pytest.importorskip("sklearn", reason="the photographs come with scikit-learn")
    done = run(scratch, tmp_path, kind, "--peers", "plain,torch-workers,torch-getitems")
    assert done.returncode == 0, done.stderr
    fields = json.loads((tmp_path / f"{kind}.json").read_text())
    assert {v["name"]: v["status"] for v in fields["variants"]} == dict.fromkeys(
        [*LOOPS[kind], "torch-workers", "torch-getitems"], "measured"
    )
    page = (tmp_path / f"{kind}.md").read_text()
    assert page in done.stdout
    assert str(tmp_path) not in page + json.dumps(fields)
    assert list(scratch.iterdir()) == []
    assert still_running(scratch) == []


def still_running(scratch: Path) -> list[str]:
    """Commands of the living processes whose environment names the temporary folder; none where there is no /proc."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(scratch).encode() in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("kind", ["arrays", "images", "python"])
def test_names_are_unique_and_choices_keep_their_order(kind: str) -> None:
    names = [variant.name for variant in all_variants(kind)]
    assert len(set(names)) == len(names)
    assert [v.name for v in choose(kind, "torch-workers,plain")] == [*LOOPS[kind], "torch-workers"]
    assert [v.name for v in choose(kind, None)] == names


@pytest.mark.parametrize("peers", ["nobody", "", "plain,nobody"])
def test_an_unknown_peer_is_refused_with_the_choices(peers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["arrays", "--peers", peers])
    assert caught.value.code == 2
    assert "must be among plain, ours, torch, batchup" in capsys.readouterr().err


def test_bad_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["arrays", "--rounds", "0"])
    assert caught.value.code == 2
    assert "rounds must be above 0; got 0" in capsys.readouterr().err


def test_a_failure_of_ours_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    here = str(Path(__file__).resolve().parent)
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.syspath_prepend(here)
    import broken_peers

    raises = [variant for variant in broken_peers.variants("python") if variant.name == "raises"]
    monkeypatch.setattr("benchmarks.__main__.choose", lambda kind, names: raises)
    assert main(["python", "--quick", "--rounds", "1"]) == 1
    assert "- raises: failed" in capsys.readouterr().out
