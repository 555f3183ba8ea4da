"""The sections of ``messages.txt`` are those of the functions that call ``raises`` and ``warns``."""

from __future__ import annotations

import ast
import bisect
import itertools
import sys
import warnings
from collections.abc import Iterator, Sequence

import pytest

from tests.messages import EXPECTED, FILE, TESTS, raises, warns

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def calls(tree: ast.AST, lines: Sequence[int]) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call in these lines, with the name of the function in which it stands; "" for no ``def``."""
    waiting = [("", tree)]
    while waiting:
        function, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", sys.maxsize)
            if bisect.bisect_left(lines, first) == bisect.bisect_right(lines, last):
                continue  # none of the lines is in it
            if isinstance(child, ast.Call):
                yield function, child
            waiting.append((getattr(child, "name", "") if isinstance(child, SCOPES) else function, child))


def called(call: ast.Call) -> str:
    """Return the name of what is called, ``name`` or ``module.name``; "" for any other expression."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    of_module = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    return f"{function.value.id}.{function.attr}" if of_module else ""


def lines_with(words: Sequence[str], text: str) -> list[int]:
    """Return the numbers of the lines in which one of these words stands."""
    return [number for number, line in enumerate(text.split("\n"), 1) if any(word in line for word in words)]


def callers(text: str) -> set[str]:
    """Return the names of the functions that call ``raises`` or ``warns`` of ``messages.py``."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "tests.messages"
        for alias in node.names
    }
    imported &= {"raises", "warns"}
    lines = lines_with(["raises(", "warns("], text)
    return {name for name, call in calls(tree, lines) if imported and called(call) in imported}


def matches(text: str) -> list[int]:
    """Return the lines of calls that have a ``match=`` of pytest."""
    names = ("pytest.raises", "pytest.warns", "pytest.RaisesExc", "pytest.deprecated_call")
    return [
        call.lineno
        for _, call in calls(ast.parse(text), lines_with(["pytest"], text))
        if called(call) in names and any(keyword.arg == "match" for keyword in call.keywords)
    ]


def texts(word: str) -> dict[str, str]:
    """Return the files of tests in which a word stands."""
    found = {path.relative_to(TESTS).as_posix(): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    return {file: text for file, text in found.items() if word in text}


def test_each_function_that_expects_a_message_has_a_section_and_no_other() -> None:
    found = {f"{file}::{function}" for file, text in texts("tests.messages").items() for function in callers(text)}
    assert sorted(found - EXPECTED.keys()) == [], "without a section"
    assert sorted(EXPECTED.keys() - found) == [], "sections of functions that call neither raises nor warns"


def test_messages_are_matched_nowhere_else() -> None:
    assert {file for file, text in texts("match").items() if matches(text)} == {"messages.py"}


def test_what_the_checks_above_look_for_is_found() -> None:
    text = (
        "from tests.messages import raises\n"
        "def test():\n"
        "    def inner():\n"
        "        with raises(ValueError):\n"
        "            [raises(x) for x in ()]\n"
        "    warns(UserWarning)\n"
        "    with pytest.raises(ValueError, match='x'), pytest.raises(ValueError):\n"
        "        pass\n"
    )
    assert callers(text) == {"inner", ""}, "a comprehension has no name to find a section by"
    assert matches(text) == [7]


def test_the_file_is_sorted_and_says_nothing_twice() -> None:
    text = FILE.read_text(encoding="utf-8")
    parts = ["\n".join(line for line in text.split("\n") if line.startswith("#"))]
    for _, keys in itertools.groupby(sorted(EXPECTED), key=lambda key: key.partition("::")[0]):
        parts.append("\n".join("\n    ".join([key, *sorted(set(EXPECTED[key]))]) for key in keys))
    assert text == "\n\n".join(parts) + "\n"
    assert all(EXPECTED.values()), "a section without an expression"


def test_a_message_must_match_one_expression_of_the_section() -> None:
    for known in ("one", "the second"):
        with raises(ValueError) as caught:
            raise ValueError(known)
        assert str(caught.value) == known
        with warns(UserWarning):
            warnings.warn(known, stacklevel=1)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as failed, raises(ValueError):
        raise ValueError("another")
    for part in ("tests/messages.txt, test_messages.py::test_a_message_must_match_one", "^one$|second$", "another"):
        assert part in str(failed.value)
    with pytest.raises(pytest.fail.Exception) as failed, pytest.warns(FutureWarning), warns(FutureWarning):
        warnings.warn("another", FutureWarning, stacklevel=1)
    assert "tests/messages.txt, test_messages.py::test_a_message_must_match_one" in str(failed.value)


def test_a_function_without_a_section_fails_and_says_what_to_edit() -> None:
    for expect in (raises, warns):
        with pytest.raises(pytest.fail.Exception) as failed:
            expect(ValueError)
        assert "tests/messages.txt has no section test_messages.py::test_a_function_without_a" in str(failed.value)
