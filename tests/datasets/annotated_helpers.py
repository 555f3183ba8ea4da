"""Images of several sizes for the tests of annotated images, and checks that all of their sources share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import batchup_ng as bu
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool

SIZES = [(20, 30), (40, 25), (16, 16), (33, 21), (10, 50)]
"""Height and width of each image."""


def pixels(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (*SIZES[number], 3), dtype=np.uint8)


def write_images(folder: Path, names: list[str]) -> None:
    """Write an image for each name."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(number)).save(folder / name)


def columns(source: Any) -> dict[str, list[Any]]:
    """Return all samples of a source, by column."""
    batch = next(source.batch_iterator(1000))
    return {name: list(column) for name, column in batch.items()}


def assert_is_like_any_source(source: Any, pools: list[AbstractWorkerPool]) -> None:
    """Check the batches from pools, of a resumed epoch, of splits, of single columns."""
    assert not source.node.traits.runs_user_code
    order = {"shuffle": 5, "epoch": 1}
    expected = list(source.batch_iterator(2, **order))
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(2, **order)), expected)
    begun = source.batch_iterator(2, **order)
    next(begun)
    assert_same_batches(list(source.batch_iterator(2, state=begun.state_dict(), **order)), expected[1:])
    parts = source.split([0.5, 0.5], seed=1)
    assert sorted(np.concatenate([part.rows for part in parts]).tolist()) == list(range(len(source)))
    whole = columns(source)
    for name, column in whole.items():
        assert len(column) == len(source)
        assert_same_batches([columns(source.select(name))[name]], [column])
    assert list(source.columns) == list(whole)
    assert source.columns["image"].dtype == np.uint8
    assert "image_id" in repr(source)
    subset = columns(source.subset([2, 0]))
    assert_same_batches([subset], [{name: [column[2], column[0]] for name, column in whole.items()}])


def assert_images(images: list[Any], numbers: list[int]) -> None:
    for image, number in zip(images, numbers, strict=True):
        np.testing.assert_array_equal(image, pixels(number), strict=True)


def report_of(source: Any) -> bu.FilesReport:
    report = source.report
    assert isinstance(report, bu.FilesReport)
    assert str(report)
    return report
