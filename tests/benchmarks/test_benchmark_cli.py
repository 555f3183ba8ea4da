"""The command works end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import batchup_ng
from benchmarks import studies
from benchmarks.__main__ import main
from benchmarks.peers.base import Variant
from benchmarks.plan import Part, Study
from benchmarks.records import Reading
from benchmarks.studies import STUDIES
from benchmarks.workloads.base import Workload
from benchmarks.workloads.images import photographs
from tests.extent import thorough

pytestmark = pytest.mark.in_turn

ROOT = Path(__file__).resolve().parents[2]
BARE = ["plain", "plain-processes", "plain-threads"]
OURS = ["ours-serial", "ours-threads", "ours-one-process", "ours-processes"]
SERIAL_AND_PROCESSES = ["ours-serial", "ours-processes"]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short name, as the socket of a manager must fit into 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        yield Path(folder)


def run(scratch: Path, output: Path, *arguments: str) -> dict[str, dict[str, dict[str, str]]]:
    """The status of each variant by study and part, once all is seen to be there, and nothing left."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--rounds", "2", "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=7000,  # the time limit of a test is shorter, and depends on its length
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for file in sorted(output.glob("*.json")):
        fields, page = json.loads(file.read_text()), file.with_suffix(".md").read_text()
        assert page in done.stdout
        assert str(output) not in page + json.dumps(fields)
        found[fields["study"]] = {
            case["name"]: {variant["name"]: variant["status"] for variant in case["variants"]}
            for case in fields["cases"]
        }
    until = time.monotonic() + 120  # what was killed needs a CPU to end, and so does what notices that its parent ended
    while still_running(scratch) and time.monotonic() < until:
        time.sleep(0.1)
    assert still_running(scratch) == []
    assert list(scratch.iterdir()) == []
    return found


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


def measured(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "measured")


def told(variant: Variant) -> str:
    """The status of a variant: litdata, whose installation pulls gigabytes, is seldom there."""
    return "measured" if all(map(find_spec, variant.needs)) else "absent"


def test_a_quick_run_of_two_studies_leaves_nothing(scratch: Path, tmp_path: Path) -> None:
    found = run(scratch, tmp_path, "python", "overhead", "--peers", "plain", "--parts", "python,empty")
    assert found == {"python": {"python": measured(*BARE)}, "overhead": {"empty": measured(*BARE)}}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "names",
    [["arrays", "python"], ["overhead"], ["consumer"], ["memory", "order"], ["startup"], ["adapters"], ["augment"],
     ["storage"], ["resume", "crash"]],
    ids=" ".join,
)  # fmt: skip
def test_a_quick_run_of_each_study_measures_ours(names: list[str], scratch: Path, tmp_path: Path) -> None:
    if "augment" in names:
        pytest.importorskip("cv2", reason="most augmentations need OpenCV")
    for part in STUDIES["storage"].parts if "storage" in names else ():
        for library in part.needs:
            pytest.importorskip(library, reason="the study reads its files")
    if not {"consumer", "adapters", "augment"}.isdisjoint(names):
        pytest.importorskip("sklearn", reason="the photographs come with scikit-learn")
    found = run(scratch, tmp_path, *names, "--peers", "ours")
    assert list(found) == names
    for name in names:
        assert list(found[name]) == [part.name for part in STUDIES[name].parts]
        for part in STUDIES[name].parts:
            assert found[name][part.name] == measured(*(variant.name for variant in part.variants(["ours"])))


@pytest.mark.thorough
def test_a_quick_run_trains_without_a_gpu(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the network is one of torch")
    names = [variant.name for variant in STUDIES["gpu"].parts[0].variants(None)]
    assert run(scratch, tmp_path, "gpu", "--parts", "gpu-decoded") == {"gpu": {"gpu-decoded": measured(*names)}}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["arrays", "images", "python", "startup"])
def test_a_quick_run_measures_torch_and_batchup_too(name: str, scratch: Path, tmp_path: Path) -> None:
    for library in ("torch", "batchup", "sklearn"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    found = run(scratch, tmp_path, name, "--peers", "torch,batchup")
    statuses = [status for part in found[name].values() for status in part.values()]
    assert set(statuses) == {"measured"}
    assert len(statuses) >= 6


@pytest.mark.thorough
def test_a_quick_run_of_files_measures_other_libraries_and_compares_formats(scratch: Path, tmp_path: Path) -> None:
    for library in ("torch", "webdataset", "datasets", "pyarrow"):
        pytest.importorskip(library, reason="the study compares its way to read files, too")
    parts = [part for part in STUDIES["storage"].parts if part.name in studies.LIBRARIES]
    found = run(scratch, tmp_path, "storage", "--parts", ",".join(part.name for part in parts))
    expected = {part.name: {each.name: told(each) for each in part.variants(None)} for part in parts}
    assert found["storage"] == expected


@pytest.mark.thorough
def test_a_quick_run_on_ray_measures_all_and_tells_of_its_start(scratch: Path, tmp_path: Path) -> None:
    for library in ("ray", "pyarrow", "sklearn", "simplejpeg"):
        pytest.importorskip(library, reason="the study compares its ways to read pictures, too")
    parts = STUDIES["ray"].parts[:2]
    found = run(scratch, tmp_path, "ray", "--parts", ",".join(part.name for part in parts))
    assert found["ray"] == {part.name: measured(*(each.name for each in part.variants(None))) for part in parts}
    arrays, _ = json.loads((tmp_path / "ray.json").read_text())["cases"]
    for variant in arrays["variants"]:
        for epoch in variant["rounds"]:
            started = epoch["figures"].get("connect_seconds", 0.0)
            assert (0 < started < epoch["first_batch_seconds"]) == ("ray" in variant["name"])


@pytest.mark.thorough
def test_a_quick_run_of_sizes_has_a_plot(scratch: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws the plot")
    found = run(scratch, tmp_path, "sizes", "--peers", "plain,ours-threads")
    assert found["sizes"] == {f"{rows} rows": measured(*BARE, "ours-threads") for rows in studies.SIZES}
    assert "ours-threads" in (tmp_path / "sizes.svg").read_text()


@pytest.mark.parametrize("names", [["empty", "ours-serial"], thorough(["empty", "ours-serial,ours-processes"])])
def test_another_checkout_takes_part(names: list[str], scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "batchup_ng").symlink_to(Path(batchup_ng.__file__).parent)
    part, peers = names
    arguments = ["overhead", "--parts", part, "--peers", peers, "--against", str(tmp_path / "other")]
    found = run(scratch, tmp_path / "out", *arguments)
    both = [name for peer in peers.split(",") for name in (peer, f"{peer}@before")]
    assert found == {"overhead": {part: measured(*both)}}
    assert "Against the other checkout" in (tmp_path / "out" / "overhead.md").read_text()


WRONG = {
    "peers must be among plain, ours, torch, tensorflow, batchup": ["arrays", "--peers", "plain,nobody"],
    "parts must be among new, memory, mapped; got 'ready'": ["startup", "--parts", "ready"],
    "--rounds: must be above 0 and finite; got 0": ["arrays", "--rounds", "0"],
    "--against: must be a checkout with batchup_ng/__init__.py; got 'nowhere'": ["arrays", "--against", "nowhere"],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_refused_before_anything_is_made(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(WRONG[message])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_data_that_need_another_library_say_which(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    photographs.cache_clear()  # another test may have read them
    with pytest.raises(SystemExit) as caught:
        main(["images", "--quick"])
    assert caught.value.code == 2
    assert "pip install 'batchup_ng[benchmarks]'" in capsys.readouterr().err


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_the_parts_of_a_study_have_names_and_peers(study: Study) -> None:
    assert len({part.name for part in study.parts}) == len(study.parts)
    for part in study.parts:
        names = [variant.name for variant in part.variants(None)]
        assert set(names) >= set(part.usual)
        assert any(name.startswith("ours") for name in names)


def test_a_study_that_lacks_what_it_needs_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STUDIES, "gpu", replace(STUDIES["gpu"], lack=lambda: "there is no CUDA device"))
    assert main(["gpu"]) == 0
    assert capsys.readouterr().out == "gpu: skipped, there is no CUDA device\n"


def test_a_failure_of_ours_is_an_exit_code(
    ten: Workload, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    part = Part(name="x", title="", kind="python", unit="", reading=Reading("seconds"), columns=())
    monkeypatch.setitem(STUDIES, "python", Study(name="python", title="", parts=(part,)))
    monkeypatch.setattr("benchmarks.plan.known", lambda kind: import_module("broken_peers").VARIANTS[2:3])
    assert main(["python", "--quick", "--rounds", "1"]) == 1
    assert "- raises: failed" in capsys.readouterr().out
