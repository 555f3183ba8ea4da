"""What is shipped is complete, and installs without what it does not need."""

from __future__ import annotations

import collections
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchup_ng._version import __version__

ROOT = Path(__file__).parents[1]
FILES = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md",
    "pyproject.toml", "setup.py", "tox.ini",
)  # fmt: skip
FOLDERS = (".ci", ".github", "batchup_ng", "benchmarks", "docs", "examples", "tests")
HIDDEN = shutil.ignore_patterns("__pycache__", "*.py[cod]", "_build", ".*_cache", ".hypothesis")

needs_checkout = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not run in a checkout")


def can_build_without_network() -> bool:
    """Tell whether this environment has what the build needs, so that nothing must be fetched."""
    try:
        major = int(importlib.metadata.version("setuptools").split(".")[0])
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return major >= 77  # which knows the licence as an expression


def hook(name: str, source: Path, out: Path) -> Path:
    """Return the file that the build makes of a folder; nothing is fetched."""
    out.mkdir()
    call = f"from setuptools import build_meta; build_meta.{name}({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=source, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the source distribution unpacks to. It is built from a copy without git, so the checkout stays as it is."""
    if not can_build_without_network():
        pytest.skip("needs setuptools >= 77 here, to build without fetching anything")
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "source"
    copy.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, copy)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=HIDDEN)
    with tarfile.open(hook("build_sdist", copy, folder / "out")) as archive:
        archive.extractall(folder / "unpacked", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel, built from what the source distribution holds."""
    with zipfile.ZipFile(hook("build_wheel", sdist, sdist.parent / "wheel")) as archive:
        yield archive


@needs_checkout
def test_the_source_distribution_holds_all_that_the_tests_need(sdist: Path) -> None:
    built = {"PKG-INFO", "setup.cfg"}
    inside = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    inside = {name for name in inside if not name.startswith("batchup_ng.egg-info/")}
    kept = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
        if path.is_file() and not any(HIDDEN("", path.relative_to(ROOT).parts))
    ]  # fmt: skip
    assert inside - built == {*FILES, *(path.relative_to(ROOT).as_posix() for path in kept)}
    assert sdist.name == f"batchup_ng-{__version__}"


@needs_checkout
def test_the_wheel_holds_every_module_and_the_data(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if name.startswith("batchup_ng/")}
    package = ROOT / "batchup_ng"
    modules = {path.relative_to(ROOT).as_posix() for path in package.rglob("*.py")}
    data = {"batchup_ng/py.typed", "batchup_ng/demo/digits.npz", "batchup_ng/demo/digits.md"}
    assert inside == modules | data


@needs_checkout
def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {"batchup_ng", f"batchup_ng-{__version__}.dist-info"}


@needs_checkout
def test_the_wheel_states_version_licence_and_core_dependencies(wheel: zipfile.ZipFile) -> None:
    prefix = f"batchup_ng-{__version__}.dist-info"
    metadata = wheel.read(f"{prefix}/METADATA").decode()
    assert f"\nVersion: {__version__}\n" in metadata
    assert re.search(r"^License(-Expression)?: MIT$", metadata, re.MULTILINE)
    assert any(name.startswith(prefix) and name.endswith("LICENSE") for name in wheel.namelist())
    needed = re.findall(r"^Requires-Dist: ([a-z]+)[^;\n]*$", metadata, re.MULTILINE)
    assert sorted(needed) == ["cloudpickle", "joblib", "numpy", "pillow"]


def project() -> dict[str, Any]:
    """Return the metadata in pyproject.toml."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 reads no TOML")
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


@needs_checkout
def test_a_library_has_one_oldest_version_in_all_extras() -> None:
    metadata = project()
    versions = collections.defaultdict(set)
    for needed in [metadata["dependencies"], *metadata["optional-dependencies"].values()]:
        for each in needed:
            name, extras, version = re.fullmatch(r"([\w.-]+)(\[[\w,-]+\])?(.*)", each).groups()
            if name == "batchup_ng":
                assert set(extras[1:-1].split(",")) <= set(metadata["optional-dependencies"]), each
            else:
                versions[name].add(version)
    assert {name for name, each in versions.items() if len(each) > 1} == {"torch"}  # pinned where a result must be


@needs_checkout
def test_the_files_that_cite_and_install_say_what_the_metadata_say() -> None:
    metadata = project()
    cited = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    assert (cited["title"], cited["version"], cited["license"]) == (metadata["name"], __version__, metadata["license"])
    assert (cited["abstract"], cited["repository-code"]) == (metadata["description"], metadata["urls"]["Source"])
    assert metadata["authors"][0]["name"] in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    lowest = re.findall(r"^    (\w+)==([\d.]+)\.\*$", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE)
    assert [f"{name}>={version}" for name, version in lowest] == metadata["dependencies"]
    table = re.findall(r"^\| (`[^|]+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`([\w-]+)`", cell)}
    inner = {"benchmarks", "docs", "lint", "types", "release"}  # for dev-all alone
    assert set(metadata["optional-dependencies"]) - inner <= named


@needs_checkout
def test_setup_py_knows_the_version() -> None:
    if not can_build_without_network():
        pytest.skip("needs setuptools >= 77 here")
    command = [sys.executable, str(ROOT / "setup.py"), "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.splitlines()[-1] == __version__


@needs_checkout
def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "batchup_ng").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@needs_checkout
def test_the_commands_of_the_readme_make_their_own_environment() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("python3 -m venv ")]
    assert [line.rpartition(" && ")[2] for line in commands] == [
        ".venv/bin/python -m batchup_ng demo",
        ".venv/bin/python -m pytest",
    ]
    for line in commands:
        assert re.match(r"python3 -m venv \.venv && \.venv/bin/pip install -q -e '\.\[[a-z,]+\]' && ", line)


@needs_checkout
def test_the_changelog_opens_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changelog, re.MULTILINE)[1] == __version__


@needs_checkout
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_our_files_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []


@needs_checkout
def test_each_python_of_the_metadata_is_tested_on_each_system() -> None:
    listed = [each.rpartition(" ")[2] for each in project()["classifiers"] if re.search(r":: 3\.\d+$", each)]
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    (pythons,) = re.findall(r"^ +python: \[(.*)\]$", workflow, re.MULTILINE)
    assert {*listed, "3.14", "3.14t"} <= set(re.findall(r'"([\d.t]+)"', pythons))
    assert "os: [ubuntu-latest, macos-latest, windows-latest]" in workflow


@needs_checkout
@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_is_well_formed_and_asks_for_no_more_than_it_needs(path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in jobs.items():
        needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        assert set(needs) <= set(jobs), name
        if "uses" in job:  # another workflow of ours, which can be called
            called = yaml.safe_load((ROOT / job["uses"]).read_text(encoding="utf-8"))
            assert "workflow_call" in called[True]  # "on" is a truth value of YAML
            continue
        assert "timeout-minutes" in job, name
        assert job.get("permissions", {}) == ({"id-token": "write"} if name == "publish" else {}), name
        assert all(len({"uses", "run"} & set(step)) == 1 for step in job["steps"]), name
