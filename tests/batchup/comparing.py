"""Compare what two libraries make of the same description of a source."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

Batch = Any


@dataclass(frozen=True)
class Library:
    """The modules of one of the two libraries."""

    data_source: ModuleType
    sampling: ModuleType
    image_utils: ModuleType


def assert_same(ours: Batch, theirs: Batch) -> None:
    """Equal nesting, types of containers, dtypes, shapes and values."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple)
        assert len(ours) == len(theirs)
        for our_part, their_part in zip(ours, theirs, strict=True):
            assert_same(our_part, their_part)
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def assert_same_stream(ours: list[Batch], theirs: list[Batch]) -> None:
    """Equal batches in equal order, and no more of them."""
    assert len(ours) == len(theirs)
    for our_batch, their_batch in zip(ours, theirs, strict=True):
        assert_same(our_batch, their_batch)


def assert_same_state(ours: np.random.RandomState, theirs: np.random.RandomState) -> None:
    """Both generators have drawn the same and will go on alike."""
    for our_part, their_part in zip(ours.get_state(), theirs.get_state(), strict=True):
        np.testing.assert_array_equal(our_part, their_part)


def take(iterable: Iterable[Batch], limit: int | None) -> list[Batch]:
    """All batches, or the first `limit` of an endless stream; what can be closed is closed."""
    iterator = iter(iterable)
    try:
        return list(itertools.islice(iterator, limit))
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def leaf_lengths(batch: Batch) -> list[int]:
    """The length of every array of a nested batch."""
    if isinstance(batch, tuple):
        return [length for part in batch for length in leaf_lengths(part)]
    return [len(batch)]


@contextmanager
def warnings_are_errors() -> Iterator[None]:
    """Fail on a warning of any kind, NumPy's among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
