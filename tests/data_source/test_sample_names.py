"""What a sample is called, whatever it went through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.base import sample_name
from batchup_ng.data_source import ChoiceBatch, PlannedDataSource
from batchup_ng.memory.paging import file_name
from batchup_ng.sampling.plans.rows import one_row, take_rows
from tests.messages import raises


class Named:
    """An accessor whose rows have names."""

    def __init__(self, prefix: str, n: int = 10) -> None:
        self.prefix = prefix
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(self.n)[rows]

    def sample_name(self, row: int) -> str:
        return f"{self.prefix}{row}"


def source(prefix: str = "a", n: int = 10) -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.zeros(n), Named(prefix, n)])


def names(of: PlannedDataSource) -> list[str | None]:
    """Return the names of the samples of an epoch, in its order."""
    result = []
    for planned in of.plan(4):
        rows = planned.rows
        for place in range(len(np.ravel(next(_leaves(rows))))):
            result.append(of.node.sample_name(take_rows(rows, np.array([place]))))
    return result


def _leaves(rows: Any) -> Any:
    if isinstance(rows, tuple):
        for part in rows[:1]:
            yield from _leaves(part)
    else:
        yield rows


def numbered(prefix: str, rows: Any) -> list[str]:
    return [f"{prefix}{row}" for row in rows]


def nothing(*batch: Any) -> Any:
    return batch


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: source(), numbered("a", range(10))),
        (lambda: source().map(nothing).map_samples(nothing), numbered("a", range(10))),
        (lambda: bu.take(source(), 3), numbered("a", range(3))),
        (lambda: bu.subset(source(), [5, -1, 2]), numbered("a", [5, 9, 2])),
        (lambda: bu.subset(bu.subset(source(), [5, 9, 2]), [2, 1]), numbered("a", [2, 9])),
        (lambda: bu.concat(source("a", 3), source("b", 2)), numbered("a", range(3)) + numbered("b", range(2))),
        (lambda: bu.repeat(source("a", 2), 2), numbered("a", [0, 1, 0, 1])),
        (lambda: bu.zip(source("a", 3), source("b", 3)), ["a0, b0", "a1, b1", "a2, b2"]),
        (lambda: bu.CompositeDataSource([source("a", 2), source("b", 3)]), ["a0, b0", "a1, b1"]),
        (lambda: bu.ChoiceDataSource([source("a", 2), source("b", 2)]), ["a0", "a1", "b0", "b1"]),
        (lambda: bu.repeat(bu.take(source(), 2), 2), numbered("a", [0, 1, 0, 1])),
        (lambda: bu.ArrayDataSource([np.arange(3)]), [None] * 3),
        (lambda: bu.zip(source("a", 2), bu.ArrayDataSource([np.arange(2)])), ["a0", "a1"]),
        (lambda: bu.ArrayDataSource([Named("x"), Named("x")]), numbered("x", range(10))),
    ],
)
def test_a_sample_keeps_its_name(made: Any, expected: list[str | None]) -> None:
    assert names(made()) == expected


def test_a_row_of_a_choice_tells_its_source() -> None:
    choice = bu.ChoiceDataSource([source(), source()])
    (first, second) = (choice.plan(4)[k].rows for k in (0, 1))
    assert one_row(take_rows(first, np.array([2]))) == ChoiceBatch(2, 0)
    assert one_row(take_rows(second, np.array([2]))) == ChoiceBatch(2, 1)


def test_mapped_arrays_are_called_by_their_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12).reshape(4, 3))
    mapped = np.load(path, mmap_mode="r")
    for array in (mapped, mapped[1:], np.asarray(mapped)[:, 1]):
        assert file_name(array) == str(path)
    assert bu.ArrayDataSource([np.arange(4), mapped]).node.sample_name(np.array([2])) == str(path)
    assert file_name(np.arange(3)) is None
    assert file_name(Named("a")) is None
    # Who can name a sample goes before who can only name a file of many.
    assert bu.ArrayDataSource([mapped, Named("a", 4)]).node.sample_name(np.array([2])) == "a2"


def test_pictures_are_called_by_their_path() -> None:
    paths = ["a b.png", "ö/ü.jpg", "x\nz.png"]
    files = bu.ImageFiles(paths, size=4)
    assert [sample_name(files, row) for row in (0, 1, 2, -1)] == [*paths, paths[2]]
    assert sample_name(bu.ImageArrayUInt8ToFloat32(files), 1) == paths[1]
    assert sample_name(bu.ImageArrayUInt8ToFloat32(np.zeros((3, 4))), 1) is None


def test_the_map_that_raises_is_the_one_that_is_named() -> None:
    def second(x: Any) -> Any:
        raise ValueError("no")

    with bu.WorkerThreadPool(1) as pool:
        mapped = bu.ArrayDataSource([np.arange(4)]).map(nothing).map_samples(second).map(nothing)
        with pytest.raises(bu.BatchError) as caught:
            next(pool.parallel_data_source(mapped).batch_iterator(4))
        assert caught.value.op is not None
        assert caught.value.op.endswith("second")
        with raises(bu.MapResultError):
            next(pool.parallel_data_source(bu.ArrayDataSource([np.arange(4)]).map(lambda x: None)).batch_iterator(4))
