"""A pattern, or what a search for files gives, is refused with the words that make it a list in one order."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchup_ng import ArgumentTypeError, ImageFiles


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("data/*.png", r"pass sorted\(glob\.glob\('data/\*\.png'\)\)"),
        ("data/**/?.png", r"pass sorted\(glob\.glob\('data/\*\*/\?\.png', recursive=True\)\)"),
        ("data/one.png", r"not the one path 'data/one\.png'; pass \['data/one\.png'\]"),
    ],
)
def test_a_pattern_is_not_one_path(pattern: str, remedy: str) -> None:
    with pytest.raises(ArgumentTypeError, match=remedy):
        ImageFiles(pattern)


def test_what_a_search_gives_is_to_be_sorted() -> None:
    with pytest.raises(ArgumentTypeError, match=r"sorted\(paths\).*Path\.glob"):
        ImageFiles(Path().glob("*.png"))
