"""The limits of the groups that a process is in."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from batchup_ng import system_limits


def test_groups_are_walked_from_the_innermost_to_the_root(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "memory" / "x").mkdir(parents=True)
    found = list(system_limits.group_folders("memory", tmp_path, "5:memory,cpu:/x\n3:pids:/p\n0::/a/b\n"))
    assert [str(folder.relative_to(tmp_path)) for folder in found] == ["a/b", "a", ".", "memory/x", "memory"]


@pytest.mark.parametrize("path", ["/", "/elsewhere/on/the/host", "/../../other"])
def test_a_group_that_is_not_seen_is_that_of_the_container(tmp_path: Path, path: str) -> None:
    assert list(system_limits.group_folders("memory", tmp_path, f"0::{path}\n")) == [tmp_path]
    assert list(system_limits.group_folders("memory", tmp_path, "")) == []


def test_what_is_no_number_is_no_limit(tmp_path: Path) -> None:
    for text, number in {"12\n": 12, "max": None, "": None, "-1": None}.items():
        (tmp_path / "limit").write_text(text)
        assert system_limits.number_in(tmp_path / "limit") == number


def test_the_memory_of_a_group_is_the_least_that_it_and_those_around_it_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, outer, old = tmp_path / "outer" / "inner", tmp_path / "outer", tmp_path / "memory"
    inner.mkdir(parents=True)
    old.mkdir()
    found = [inner, outer]
    groups = {"memory": found}
    monkeypatch.setattr(system_limits, "group_folders", lambda controller: iter(groups.get(controller, [])))
    assert system_limits.memory_limit() == math.inf
    (inner / "memory.max").write_text("max\n")
    (outer / "memory.max").write_text("5000\n")
    assert system_limits.memory_limit() == 5000
    found.append(old)
    (old / "memory.limit_in_bytes").write_text("4000\n")
    assert system_limits.memory_limit() == 4000
