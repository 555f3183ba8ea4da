"""All augmentations chained give the same bits in every pool, with any number of workers."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.testing import assert_reproducible
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.augment.helpers import images
from tests.extent import quick

pytest.importorskip("cv2", reason="OpenCV, which most augmentations need, is not installed")
ROWS = 45
SIZES = (1, 8, 20)  # the images of the last two are large enough for memory on lease


def chained(*more: Any, **options: Any) -> augment.compose:
    """Return all operations in a chain, those that mix samples apart, with `more` before the last one."""
    return augment.compose(
        augment.flip(),
        augment.flip(p=0.3, vertical=True),
        augment.random_crop((60, 70), padding=4, fill=(124, 116, 104)),
        augment.letterbox((70, 72)),
        augment.resized_crop(64),
        augment.affine(rotate=30, translate=0.1, scale=(0.8, 1.2), shear=10),
        augment.color_jitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
        augment.grayscale(p=0.2),
        augment.blur(p=0.5),
        augment.rand_augment(2, 9.0),
        augment.cutout(p=0.5),
        *more,
        augment.normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), **options),
    )


MIXING = (augment.mixup(0.4, num_classes=5, p=0.5), augment.cutmix(num_classes=5, p=0.5))


@functools.cache
def source(mixes: bool, by_name: bool = False, floats: bool = False) -> Any:
    """Return images and labels with the chain applied, in NCHW where they have no names."""
    x, y = images(ROWS, (61, 75), dtype=np.float32 if floats else np.uint8), np.arange(ROWS) % 5
    if by_name:
        chain = augment.compose(chained(*MIXING * mixes, dtype="float16"), image="x", label="y")
        return bu.ArrayDataSource({"y": y.astype(np.float32) if mixes else y, "x": x}).map(chain, rng="sample")
    return bu.ArrayDataSource([x, y]).map(chained(*MIXING * mixes, layout="NCHW"), rng="sample")


@pytest.mark.in_turn
@pytest.mark.parametrize("mixes", [False, True], ids=["apart", "mixing"])
def test_a_chain_of_all_is_reproducible(mixes: bool) -> None:
    # Where samples are mixed, what becomes of one depends on its batch: other batch sizes are other batches.
    assert_reproducible(source(mixes), 16, max_batches=3, batch_sizes=() if mixes else None)


@pytest.fixture(scope="module")
def every_pool(pools: list[AbstractWorkerPool]) -> Any:
    """Those of all tests, with several workers, and each kind with one."""
    with bu.WorkerThreadPool(1) as thread, bu.WorkerProcessPool(1) as one, bu.WorkerProcessPool(1, threads=2) as both:
        for pool in (one, both):
            pool.shared_constant("the first use starts the workers, which stay for all tests")
        yield [bu.SerialPool(), *pools, thread, one, both]


SETTINGS = list(itertools.product([False, True], repeat=3))


@pytest.mark.in_turn
@pytest.mark.parametrize(("mixes", "by_name", "floats"), quick(SETTINGS[1::4] + SETTINGS[2::4], SETTINGS))
def test_every_pool_and_batch_size_gives_the_same_bits(
    mixes: bool, by_name: bool, floats: bool, every_pool: list[AbstractWorkerPool]
) -> None:
    made, whole = source(mixes, by_name, floats), []
    for size in SIZES:
        expected = list(made.batch_iterator(size, shuffle=5, epoch=1))
        for pool in every_pool:
            assert_same_batches(
                list(pool.parallel_data_source(made).batch_iterator(size, shuffle=5, epoch=1)), expected
            )
        columns = [tuple(batch.values()) if by_name else batch for batch in expected]
        whole.append([np.concatenate(parts) for parts in zip(*columns, strict=True)])
    assert len(np.unique(whole[0][by_name].reshape(ROWS, -1), axis=0)) == ROWS
    for other in whole[1:]:
        same = all(np.array_equal(a, b) for a, b in zip(whole[0], other, strict=True))
        assert same is not mixes
