"""Columns that two parts of a batch would have, or that it lacks: refused when the source is made, if that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, MapResultError
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

N = 6
X = np.arange(N)


def named(*names: str) -> Any:
    return bu.ArrayDataSource(dict.fromkeys(names, X))


def opaque(source: Any) -> Any:
    """Return the source after a map whose columns are not known before a batch is made."""
    return source.map(unchanged)


def unchanged(*batch: Any, **parts: Any) -> Any:
    return parts or batch


def listed(x: np.ndarray) -> list[list[int]]:
    return [[number] for number in x]


TWICE: dict[str, Callable[[Any], Any]] = {
    "zip": lambda change: change(named("x", "y")).zip(named("x")),
    "composite": lambda change: bu.CompositeDataSource([named("z"), change(named("x", "y")), named("x")]),
    "index": lambda change: change(named("index", "x")).with_index(),
    "mask": lambda change: change(named("x", "x_mask")).map(listed, on="x").pad("x", mask=True),
    "lengths": lambda change: change(named("x", "x_lengths")).map(listed, on="x").map(
        bu.PadColumns("x", return_lengths=True)
    ),
    "target": lambda change: change(named("boxes", "target")).map(bu.DetectionTargets({"image_id": "boxes"})),
}  # fmt: skip


@pytest.mark.parametrize("kind", TWICE)
def test_a_name_that_is_there_twice_is_refused_when_it_is_known(kind: str) -> None:
    with raises(ArgumentError):
        TWICE[kind](lambda source: source)


@pytest.mark.parametrize("kind", TWICE)
def test_else_no_policy_takes_it_for_the_fault_of_a_sample(kind: str, pools: list[AbstractWorkerPool]) -> None:
    source = TWICE[kind](opaque)
    for made in (source, *[pool.parallel_data_source(source) for pool in pools]):
        for policy in ("raise", "skip", "replace"):
            with raises(MapResultError):
                list(made.batch_iterator(3, on_error=policy))


def test_columns_that_targets_and_padding_lack_are_refused_when_they_are_known() -> None:
    tuples = bu.FilesDataSource([X, X], bu.FilesReport("here", N, {}), {"image": 0, "boxes": 1})
    for source in (named("image", "boxes"), bu.ArrayDataSource([X, X]), tuples):
        for fn in (bu.DetectionTargets("boxez"), bu.PadColumns("boxez"), bu.PadColumns(2)):
            with raises(ArgumentError):
                source.map(fn)
    with raises(ArgumentError):
        tuples.map(bu.DetectionTargets("boxes"))  # batches are tuples, which do not show this name


def test_the_remedies_work() -> None:
    joined = named("x", "y").zip(named("x").rename({"x": "z"})).zip(named("x", "w").drop("x"))
    assert list(joined[0:2]) == ["x", "y", "z", "w"]
    assert [list(part) for part in named("x").zip(named("x"), flatten=False)[0:2]] == [["x"], ["x"]]
    composite = bu.CompositeDataSource([named("x"), named("x")], flatten=False)
    assert len(next(composite.batch_iterator(2))) == 2
    assert list(named("index").rename({"index": "row"}).with_index()[0:2]) == ["index", "row"]
    assert len(bu.CompositeDataSource([named("x"), bu.ArrayDataSource([X]), named("x")])[0:2]) == 3  # dicts in a tuple


def test_columns_after_targets_are_known() -> None:
    boxes = [[[0, 0, 1, 1]]] * N
    source = bu.ArrayDataSource({"image": X, "boxes": boxes, "labels": [[1]] * N, "label": X % 2})
    joined = source.map(bu.DetectionTargets("boxes", "labels"))
    assert list(joined.node.form()) == list(joined[0:2]) == ["image", "label", "target"]
    assert joined.labels.tolist() == (X % 2).tolist()
    files = bu.FilesDataSource([X, boxes, X % 2], bu.FilesReport("here", N, {}), {"image": 0, "boxes": 1, "label": 2})
    placed = files.map(bu.DetectionTargets({"boxes": 1}))
    assert len(placed[0:2]) == 3
    assert placed.labels.tolist() == (X % 2).tolist()
