"""``pytest.raises`` and ``pytest.warns`` with the regular expressions of ``messages.txt`` as their ``match=``.

The heading of a section is the file and the name of the function that calls ``raises`` or ``warns``. A function inside
a test has a section of its own. Functions of the same name in one file share one. A message must match at least one
expression of the section. ``test_messages.py`` checks the file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

TESTS = Path(__file__).parent
FILE = TESTS / "messages.txt"


def sections(text: str) -> dict[str, list[str]]:
    """Return the regular expressions of each section of such a text, in its order."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line.startswith("    "):
            found[list(found)[-1]].append(line[4:])
        elif line and not line.startswith("#"):
            found[line] = []
    return found


EXPECTED = sections(FILE.read_text(encoding="utf-8"))


def raises(kind: Any) -> Any:
    """Return ``pytest.raises`` for an exception whose message matches the section of the caller."""
    return pytest.raises(kind, match=_expected(sys._getframe(1)))


def warns(kind: Any) -> Any:
    """Return ``pytest.warns`` for a warning whose message matches the section of the caller."""
    return pytest.warns(kind, match=_expected(sys._getframe(1)))


def _expected(caller: FrameType) -> str:
    # Not by co_filename: in a copy of the tests with what Python compiled, it is the path of the original.
    # Nor by a call of the system: a test may have it fail.
    file = Path(caller.f_globals["__file__"]).relative_to(TESTS).as_posix()
    section = f"{file}::{caller.f_code.co_name}"
    if section not in EXPECTED:
        pytest.fail(f"tests/messages.txt has no section {section}; add it, with what messages must match")
    return f"(?#tests/messages.txt, {section})" + "|".join(EXPECTED[section])  # the comment is shown if none matches
