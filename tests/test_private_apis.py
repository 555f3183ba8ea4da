"""The private parts of NumPy, cloudpickle and torch.distributed are there, and one file uses them."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import batchup_ng

PACKAGE = Path(batchup_ng.__file__).parent

SEEN = {
    "numpy.random.mtrand._rand": "1.24 to 2.4.6",
    "cloudpickle.cloudpickle._class_setstate": "3.0 to 3.1.2",
    "cloudpickle.cloudpickle._lookup_module_and_qualname": "3.0 to 3.1.2",
    "cloudpickle.cloudpickle._is_registered_pickle_by_value": "3.0 to 3.1.2",
    "cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS": "3.0 to 3.1.2",
    "torch.distributed.distributed_c10d._get_default_store": "2.13.0",
}
"""The versions in which each part was seen."""

LIBRARIES = r"np|numpy|cloudpickle|distributed\.distributed_c10d"
"""How modules of ours name these libraries, and modules in them."""


@pytest.mark.parametrize("name", SEEN)
def test_each_private_part_is_there(name: str) -> None:
    module, _, part = name.rpartition(".")
    library = name.partition(".")[0]
    if library == "torch":
        pytest.importorskip(library)
    if not hasattr(importlib.import_module(module), part):
        pytest.fail(
            f"{name} is in {library} {SEEN[name]}, but not in {version(library)}: replace it in private_apis.py", False
        )


def private_parts(path: Path) -> set[str]:
    """Return the private parts of NumPy, cloudpickle and torch.distributed that a file names."""
    text = path.read_text()
    if not re.search(rf"(?:{LIBRARIES})\.(?:\w+\.)*_[^_]", text):
        return set()  # which a parser would take a second to find out
    tree = ast.parse(text)
    names = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {
        found[1] for name in names if (found := re.fullmatch(rf"(?:{LIBRARIES})\.(?:\w+\.)*(_[^_]\w*)", name))
    }


def test_one_file_uses_them() -> None:
    found = {path: private_parts(path) for path in PACKAGE.rglob("*.py")}
    assert found.pop(PACKAGE / "private_apis.py") == {name.rpartition(".")[2] for name in SEEN}
    assert not any(found.values())
