"""Paths in two arrays: what goes in comes out, in little memory, which worker processes share."""

from __future__ import annotations

import importlib
import pickle
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.accessors.packed_paths import PackedPaths, packed_paths
from tests.messages import raises

packed_paths_module = importlib.import_module(PackedPaths.__module__)
any_text = st.text(st.characters(exclude_categories=()))


@given(st.lists(any_text))
def test_any_text_comes_back(paths: list[str]) -> None:
    packed = PackedPaths(iter(paths))
    assert list(packed) == paths
    assert [packed[row - len(paths)] for row in range(len(paths))] == paths
    assert packed[::2] == paths[::2]
    assert list(pickle.loads(pickle.dumps(packed))) == paths
    for beyond in (len(paths), -len(paths) - 1):
        with pytest.raises(IndexError):
            packed[beyond]


@given(st.lists(st.tuples(any_text, st.lists(any_text))))
def test_folders_and_names_are_joined(folders: list[tuple[str, list[str]]]) -> None:
    assert list(PackedPaths.of_folders(folders)) == [folder + name for folder, names in folders for name in names]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> int:
    """Have few paths packed at once; return how many."""
    monkeypatch.setattr(packed_paths_module, "PATHS_ENCODED_AT_ONCE", 1000)
    return 1000


def test_more_paths_than_are_packed_at_once(small_pieces: int) -> None:
    count = 2 * small_pieces + 3
    packed = PackedPaths(Path(f"{row}") for row in range(count))
    assert list(packed) == list(map(str, range(count)))
    with raises(bu.ArgumentTypeError) as caught:
        PackedPaths([*["a"] * (small_pieces + 1), b"x"])  # type: ignore[list-item]  # which is wrong
    assert f"at {small_pieces + 1} " in str(caught.value)
    assert repr(packed) == f"<{count} paths: '0', '1', '2', ...>"
    assert packed_paths(packed) is packed


def test_the_building_takes_little_more_than_what_is_built(small_pieces: int) -> None:
    count = 60 * small_pieces
    tracemalloc.start()
    try:
        packed = PackedPaths(f"/data/pictures/of/some/folder/{row:010}.jpg" for row in range(count))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    kept = sum(array.nbytes for array in vars(packed).values())
    assert kept == count * (44 + 8) + 8
    assert peak < 1.6 * kept + 500 * small_pieces  # bytes of the objects of one piece
