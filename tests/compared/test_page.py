"""The tables of docs/compared.md are right, and its programs are comparable."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.compared.counts import count_lines, names_by_package
from tests.compared.programs import LIBRARIES, PROGRAMS, TASKS, code_of, names_of, tables

PAGE = PROGRAMS.with_suffix(".md")
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")


def test_the_tables_are_those_of_the_programs() -> None:
    assert TABLE.findall(PAGE.read_text(encoding="utf-8")) == tables()


@pytest.mark.parametrize("task", TASKS)
def test_ours_is_the_shortest_and_has_no_more_names_than_the_next(task: str) -> None:
    others = [f"{task}_{library}" for library in LIBRARIES if library != "batchup_ng"]
    shortest = min(count_lines(code_of(program)) for program in others)
    assert count_lines(code_of(f"{task}_batchup_ng")) <= shortest
    own, of_all = names_of(f"{task}_batchup_ng")
    assert own <= min(names_of(program)[0] for program in others if count_lines(code_of(program)) == shortest)
    assert of_all <= min(names_of(program)[1] for program in others)


def test_the_page_shows_every_program_under_its_title() -> None:
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for task, title in TASKS.items():
        (section,) = (each for each in sections if each.lower().startswith(f"{title}\n"))
        shown = re.findall(r"^```\{literalinclude\} compared/(\w+)\.py\n:caption: (.+)\n```$", section, re.MULTILINE)
        assert shown == [(f"{task}_{library}", name) for library, name in LIBRARIES.items()]


def test_no_program_is_shorter_by_its_layout() -> None:
    if find_spec("ruff") is None:
        pytest.skip("ruff is not installed; install the extra 'lint'")
    options = ["--line-length=100", "--config=format.skip-magic-trailing-comma=true"]
    options.append("--config=lint.isort.split-on-trailing-comma=false")
    command = [sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "--isolated", *options, str(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for program in PROGRAMS.glob("*.py"):
        assert "\n\n\n\n" not in program.read_text(encoding="utf-8")
        assert ";" not in program.read_text(encoding="utf-8")


def test_lines_that_count() -> None:
    assert count_lines("import os\n\n\n# a comment\nx = 1  # a comment\n    # another\n") == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os, json\nfrom model import step\nstep(os.path.join(json.dumps(1).strip()))", {}),
        ("import numpy as np\nnp.random.rand(1).sum()", {"numpy": {"random.rand", "sum"}}),
        ("import numpy as np\nnp.load('x').f.y", {"numpy": {"load", "f", "y"}}),
        ("import tensorflow as tf", {}),
        ("from grain import a as b, c\nb(x=1)\nb(x=2)", {"grain": {"a", "x"}}),
        ("from PIL import Image\nImage.open('x').convert('L')", {"PIL": {"Image.open", "convert"}}),
        ("import h5py\nwith h5py.File('x') as f:\n    f.keys()", {"h5py": {"File", "keys"}}),
        ("import h5py\nfor row in map(len, h5py.File('x')):\n    row.a", {"h5py": {"File", "a"}}),
        ("import h5py\n[row.a for row in h5py.File('x')]", {"h5py": {"File", "a"}}),
        ("import h5py\na, b = h5py.File('x'), 3\na.c, b.d", {"h5py": {"File", "c"}}),
        ("import h5py\na, b = h5py.File('x')\nb.d", {"h5py": {"File", "d"}}),
        ("import h5py\nx = h5py.File('x')\nf = lambda x: x.a\nx.b", {"h5py": {"File", "b"}}),
        ("import h5py\ndef f(y):\n    return x.a, y.b\nx = h5py.File('x')", {"h5py": {"File", "a"}}),
        ("import h5py\no = {'mode': 'r', 'c': 1}\nh5py.File('x', **o)", {"h5py": {"File", "mode", "c"}}),
        ("import h5py\nif x := h5py.File('x'):\n    x.a", {"h5py": {"File", "a"}}),
        ("def f(a):\n    return a.b(c=1)\nf(a=1)", {}),
    ],
)
def test_names_that_count(code: str, expected: dict[str, set[str]]) -> None:
    assert names_by_package(code) == expected
