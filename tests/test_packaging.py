"""What is shipped is complete, and installs without what it does not need."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from batchup_ng._version import __version__

ROOT = Path(__file__).parents[1]
SHIPPED = ["batchup_ng", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]

needs_checkout = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="not run in a checkout")


def can_build_without_network() -> bool:
    """Tell whether this environment has what the build needs, so that nothing must be fetched."""
    try:
        major = int(importlib.metadata.version("setuptools").split(".")[0])
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return major >= 70


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy so that the checkout stays as it is."""
    if not can_build_without_network():
        pytest.skip("needs pip and setuptools >= 70 here, to build without fetching anything")
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    copy.mkdir()
    for name in SHIPPED:
        place = ROOT / name
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(place, copy / name, ignore=leave) if place.is_dir() else shutil.copy(place, copy / name)
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    command = [*pip_wheel, "-w", str(folder), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


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
