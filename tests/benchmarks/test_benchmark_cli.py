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
from benchmarks.peers import choose, loaders, starters
from benchmarks.studies import STUDIES
from benchmarks.studies.base import Part, Study

ROOT = Path(__file__).resolve().parents[2]
LOOPS = {
    "arrays": ["plain", "plain-threads"],
    "images": ["plain-1thread", "plain-threads"],
    "python": ["plain-loop", "pool-imap"],
}


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


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["arrays", "images", "python"])
def test_a_quick_run_measures_everything_and_leaves_nothing(kind: str, scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is one of the peers of this run")
    if kind == "images":
        pytest.importorskip("sklearn", reason="the photographs come with scikit-learn")
    done = run(scratch, tmp_path, kind, "--peers", "plain,torch-workers,torch-getitems")
    assert done.returncode == 0, done.stderr
    cases = check_output(kind, done, scratch, tmp_path)
    assert cases == {kind: dict.fromkeys([*LOOPS[kind], "torch-workers", "torch-getitems"], "measured")}


def check_output(
    study: str, done: subprocess.CompletedProcess[str], scratch: Path, output: Path
) -> dict[str, dict[str, str]]:
    """The status of each variant by case, once page and JSON are seen to be there, and nothing else."""
    assert done.returncode == 0, done.stderr
    fields = json.loads((output / f"{study}.json").read_text())
    page = (output / f"{study}.md").read_text()
    assert page in done.stdout
    assert str(output) not in page + json.dumps(fields)
    assert list(scratch.iterdir()) == []
    assert still_running(scratch) == []
    return {case["name"]: {v["name"]: v["status"] for v in case["variants"]} for case in fields["cases"]}


@pytest.mark.thorough
def test_a_quick_run_of_sizes_has_a_plot(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws the plot")
    cases = check_output("sizes", run(scratch, tmp_path, "sizes", "--peers", "plain,ours-threads"), scratch, tmp_path)
    all_of_them = dict.fromkeys(["plain", "plain-threads", "ours-threads"], "measured")
    assert cases == {f"{rows} rows": all_of_them for rows in (1, 2, 21, 64, 213, 1365)}
    assert "ours-threads" in (tmp_path / "sizes.svg").read_text()


@pytest.mark.thorough
def test_a_quick_run_of_startup_watches_new_pools(scratch: Path, tmp_path: Path) -> None:
    done = run(scratch, tmp_path, "startup", "--peers", "ours-default,ours-spawn")
    both = {"ours-default": "measured", "ours-spawn": "measured"}
    assert check_output("startup", done, scratch, tmp_path) == {"ready": both, "memory": both, "mapped": both}


@pytest.mark.thorough
def test_a_quick_run_of_startup_watches_torch_too(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is the peer of this run")
    done = run(scratch, tmp_path, "startup", "--peers", "torch-fork,torch-forkserver-tensors")
    assert check_output("startup", done, scratch, tmp_path) == {
        "ready": {"torch-fork": "measured"},
        "memory": {"torch-fork": "measured", "torch-forkserver-tensors": "measured"},
        "mapped": {"torch-fork": "measured"},
    }


@pytest.mark.thorough
def test_a_quick_run_of_overhead_counts_cpu_time(scratch: Path, tmp_path: Path) -> None:
    done = run(scratch, tmp_path, "overhead", "--peers", "plain,ours-processes")
    copying = dict.fromkeys(["plain", "plain-threads", "ours-processes"], "measured")
    assert check_output("overhead", done, scratch, tmp_path) == {
        "empty": dict.fromkeys(["plain-loop", "pool-imap", "pool-imap-16", "ours-processes"], "measured"),
        **dict.fromkeys(["cpu", "cpu 213 rows", "cpu 1365 rows"], copying),
    }


@pytest.mark.thorough
def test_a_quick_run_of_consumer_has_both_consumers(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the photographs come with scikit-learn")
    done = run(scratch, tmp_path, "consumer", "--peers", "ours-threads,ours-one-process")
    both = {"ours-threads": "measured", "ours-one-process": "measured"}
    assert check_output("consumer", done, scratch, tmp_path) == {
        f"{consumer}-{kind}": both for consumer in ("slow", "busy") for kind in ("arrays", "images", "python")
    }


def test_a_quick_run_of_plain_loops_leaves_nothing(scratch: Path, tmp_path: Path) -> None:
    done = run(scratch, tmp_path, "python", "--peers", "plain")
    assert check_output("python", done, scratch, tmp_path) == {"python": dict.fromkeys(LOOPS["python"], "measured")}


@pytest.mark.thorough
def test_a_quick_run_of_memory_looks_after_each_epoch(scratch: Path, tmp_path: Path) -> None:
    done = run(scratch, tmp_path, "memory", "--peers", "ours-processes", "--parts", "arrays")
    assert check_output("memory", done, scratch, tmp_path) == {"arrays": {"ours-processes": "measured"}}
    (case,) = json.loads((tmp_path / "memory.json").read_text())["cases"]
    epochs = case["variants"][0]["rounds"]
    assert all(epoch["figures"]["processes"] >= 3 for epoch in epochs)
    assert all(0 < epoch["figures"]["uss"] <= epoch["figures"]["pss"] <= epoch["figures"]["rss"] for epoch in epochs)


@pytest.mark.thorough
def test_a_quick_run_of_order_shuffles_resumes_and_draws(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws the plot")
    done = run(scratch, tmp_path, "order", "--peers", "plain,ours")
    both = dict.fromkeys(["ours-rows", "ours-batches"], "measured")
    assert check_output("order", done, scratch, tmp_path) == {
        "rows": {**dict.fromkeys(["numpy-permutation", "numpy-generator"], "measured"), **both},
        "long": both,
        "weights": dict.fromkeys(["numpy-searchsorted", "numpy-choice", "ours"], "measured"),
    }
    assert "ours-batches, 10¹² rows" in (tmp_path / "order.svg").read_text()


@pytest.mark.thorough
def test_a_quick_run_of_order_has_torch_too(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is the peer of this run")
    cases = check_output("order", run(scratch, tmp_path, "order", "--peers", "torch"), scratch, tmp_path)
    assert cases == {"rows": {"torch-randperm": "measured"}, "weights": {"torch-multinomial": "measured"}}


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
    known = loaders(kind)
    assert len({variant.name for variant in known}) == len(known)
    assert [v.name for v in choose(known, ["torch-workers", "plain"])] == [*LOOPS[kind], "torch-workers"]


@pytest.mark.parametrize("kind", ["arrays", "none"])
def test_names_of_starters_are_unique(kind: str) -> None:
    assert len({variant.name for variant in starters(kind)}) == len(starters(kind))


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_the_usual_peers_of_a_study_are_known_to_it(study: Study) -> None:
    for part in study.parts:
        assert {variant.name for variant in part.variants(None)} >= set(part.usual)
        assert study.names(",".join(variant.name for variant in part.variants(None)))
    assert len({part.name for part in study.parts}) == len(study.parts)


@pytest.mark.parametrize("peers", ["nobody", "", "plain,nobody"])
def test_an_unknown_peer_is_refused_with_the_choices(peers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["arrays", "--peers", peers])
    assert caught.value.code == 2
    assert "must be among plain, ours, torch, batchup" in capsys.readouterr().err


def test_a_study_can_be_had_in_parts() -> None:
    study = STUDIES["startup"].only("mapped, ready")
    assert [part.name for part in study.parts] == ["ready", "mapped"]
    assert STUDIES["startup"].only(None) is STUDIES["startup"]


@pytest.mark.parametrize("parts", ["nothing", "", "ready,nothing"])
def test_an_unknown_part_is_refused_with_the_choices(parts: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["startup", "--parts", parts])
    assert caught.value.code == 2
    assert f"parts must be among ready, memory, mapped; got {parts!r}" in capsys.readouterr().err


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

    raises = tuple(variant for variant in broken_peers.variants("python") if variant.name == "raises")
    part = Part(name="python", title="", kind="python", known=raises, tell=lambda result: [])
    monkeypatch.setitem(STUDIES, "python", Study(name="python", title="", parts=(part,)))
    assert main(["python", "--quick", "--rounds", "1"]) == 1
    assert "- raises: failed" in capsys.readouterr().out
