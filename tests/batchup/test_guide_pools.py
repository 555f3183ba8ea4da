"""The guide's examples on work pools, with threads and with processes, under the new name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from batchup_ng import data_source, sampling, work_pool

from .guide_program import (
    Array,
    PictureArrays,
    PictureLists,
    augment_batch,
    find_pictures,
    flip_batch,
    is_dog,
    power_sum,
    raise_value_error,
)


def picture_numbers(batch_x: Array) -> Array:
    """The number of each picture of a batch, told by its colour."""
    return batch_x[:, 0, 0, 0] // 5


def assert_cats_and_dogs(batches: list[tuple[Array, Array]]) -> None:
    """Each of the 22 pictures once, at 16 by 16 pixels, with its own class."""
    for batch_x, batch_y in batches:
        assert batch_x.shape == (len(batch_y), 16, 16, 3)
        np.testing.assert_array_equal(batch_y, picture_numbers(batch_x) % 2)
    assert sorted(np.concatenate([picture_numbers(x) for x, _ in batches])) == list(range(22))


def test_threads_prepare_cats_and_dogs(mixed_pictures: Path) -> None:
    paths = find_pictures(mixed_pictures)
    ds = data_source.ArrayDataSource([PictureLists(paths), is_dog(paths)])
    with work_pool.WorkerThreadPool(processes=4) as th_pool:
        par_ds = th_pool.parallel_data_source(ds.map(augment_batch), batch_buffer_size=32)
        par_iter = par_ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345))
        assert_cats_and_dogs(list(par_iter))


@pytest.mark.thorough
def test_processes_prepare_cats_and_dogs(mixed_pictures: Path) -> None:
    paths = find_pictures(mixed_pictures)
    ds = data_source.ArrayDataSource([PictureLists(paths), is_dog(paths)])
    with work_pool.WorkerProcessPool(processes=4) as proc_pool:
        par_ds = proc_pool.parallel_data_source(ds.map(augment_batch), batch_buffer_size=32)
        par_iter = par_ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345))
        assert_cats_and_dogs(list(par_iter))


def test_pooled_batches_are_the_serial_ones(mixed_pictures: Path, pool: work_pool.AbstractWorkerPool) -> None:
    paths = find_pictures(mixed_pictures)
    ds = data_source.ArrayDataSource([PictureLists(paths), is_dog(paths)]).map(augment_batch)
    par_ds = pool.parallel_data_source(ds, batch_buffer_size=32)
    assert par_ds.num_samples() == 22
    pooled = list(par_ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345)))
    serial = list(ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345)))
    for (pooled_x, pooled_y), (serial_x, serial_y) in zip(pooled, serial, strict=True):
        np.testing.assert_array_equal(pooled_x, serial_x)
        np.testing.assert_array_equal(pooled_y, serial_y)


def test_lists_of_pillow_images_travel_as_they_are(mixed_pictures: Path, pool: work_pool.AbstractWorkerPool) -> None:
    paths = find_pictures(mixed_pictures)
    ds = data_source.ArrayDataSource([PictureLists(paths), is_dog(paths)])
    sizes = []
    for batch_x, batch_y in pool.parallel_data_source(ds).batch_iterator(batch_size=5):
        assert isinstance(batch_x, list)
        assert len(batch_x) == len(batch_y)
        assert all(isinstance(picture, Image.Image) for picture in batch_x)
        assert all(picture.convert("RGB").getpixel((0, 0))[2] == 7 for picture in batch_x)
        sizes += [picture.size for picture in batch_x]
    expected = []
    for path in paths:
        with Image.open(path) as picture:
            expected.append(picture.size)
    assert sizes == expected


def test_an_accessor_of_arrays_is_read_in_the_background(
    equal_pictures: Path, pool: work_pool.AbstractWorkerPool
) -> None:
    paths = find_pictures(equal_pictures)
    ds = data_source.ArrayDataSource([PictureArrays(paths), is_dog(paths)])
    par_ds = pool.parallel_data_source(ds, batch_buffer_size=32)
    kept = list(par_ds.batch_iterator(batch_size=4, shuffle=np.random.RandomState(12345)))
    seen = np.concatenate([picture_numbers(batch_x) for batch_x, _ in kept])
    stored = picture_numbers(PictureArrays(paths)[:])
    np.testing.assert_array_equal(seen, stored[np.random.RandomState(12345).permutation(22)])


def test_two_epochs_are_taken_from_one_parallel_source(pool: work_pool.AbstractWorkerPool) -> None:
    par_ds = pool.parallel_data_source(data_source.ArrayDataSource([np.arange(100)]), batch_buffer_size=4)
    rng, expected = np.random.RandomState(3), np.random.RandomState(3)
    for _ in range(2):
        order = np.concatenate([x for (x,) in par_ds.batch_iterator(batch_size=7, shuffle=rng)])
        np.testing.assert_array_equal(order, expected.permutation(100))


def test_a_map_in_the_pool_may_write_into_its_batch(pool: work_pool.AbstractWorkerPool) -> None:
    images = np.random.RandomState(8).normal(size=(60, 2, 4, 4))
    before = images.copy()
    ds = data_source.ArrayDataSource([images, np.arange(60)]).map(flip_batch)
    for batch_x, rows in pool.parallel_data_source(ds).batch_iterator(batch_size=16):
        for image, row in zip(batch_x, rows, strict=True):
            assert np.array_equal(image, before[row]) or np.array_equal(image, before[row][:, :, ::-1])
    np.testing.assert_array_equal(images, before)


def test_the_consumer_may_write_into_a_batch(pool: work_pool.AbstractWorkerPool) -> None:
    data = np.arange(100.0)
    par_ds = pool.parallel_data_source(data_source.ArrayDataSource([data]), batch_buffer_size=3)
    kept = []
    for (batch,) in par_ds.batch_iterator(batch_size=16):
        batch *= 2
        kept.append(batch)
    np.testing.assert_array_equal(np.concatenate(kept), np.arange(100.0) * 2)
    np.testing.assert_array_equal(data, np.arange(100.0))


def test_lambdas_and_closures_are_maps(pool: work_pool.AbstractWorkerPool) -> None:
    offset = 5

    def shift(batch: Array) -> tuple[Array]:
        return (batch + offset,)

    ds = data_source.ArrayDataSource([np.arange(20)]).map(shift).map(lambda batch: (batch * 2,))
    batches = [x for (x,) in pool.parallel_data_source(ds).batch_iterator(batch_size=6)]
    np.testing.assert_array_equal(np.concatenate(batches), (np.arange(20) + 5) * 2)


def test_a_class_inside_a_function_is_an_accessor(pool: work_pool.AbstractWorkerPool) -> None:
    class Squares:
        def __len__(self) -> int:
            return 30

        def __getitem__(self, index: Any) -> Any:
            return index**2

    ds = data_source.ArrayDataSource([Squares()])
    batches = [x for (x,) in pool.parallel_data_source(ds).batch_iterator(batch_size=8)]
    np.testing.assert_array_equal(np.concatenate(batches), np.arange(30) ** 2)


def test_semi_supervised_batches_come_from_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    ds_lab = data_source.ArrayDataSource([np.arange(20), np.arange(20) % 3], repeats=-1)
    ds_unlab = data_source.ArrayDataSource([np.arange(150)])
    ds = data_source.CompositeDataSource([ds_lab, ds_unlab], flatten=False)
    batches = list(pool.parallel_data_source(ds).batch_iterator(batch_size=64, shuffle=np.random.RandomState(1)))
    assert [len(unlab_x) for _, (unlab_x,) in batches] == [64, 64, 22]
    for (lab_x, lab_y), (unlab_x,) in batches:
        np.testing.assert_array_equal(lab_y, lab_x % 3)
        assert len(lab_x) == len(unlab_x)


def test_endless_weighted_batches_come_from_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    weights = np.array([0.0, 1.0, 0.0, 3.0])
    ds = data_source.ArrayDataSource([np.arange(4)], sampler=sampling.WeightedSampler(weights))
    batches = pool.parallel_data_source(ds).batch_iterator(batch_size=16, shuffle=np.random.RandomState(1))
    for (rows,) in itertools.islice(batches, 10):
        assert set(rows.tolist()) <= {1, 3}


def test_results_are_gathered_through_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    data = np.random.RandomState(2).normal(size=(150, 3))
    par_ds = pool.parallel_data_source(data_source.ArrayDataSource([data]))
    (sums,) = par_ds.batch_map_concat(lambda x: x.sum(axis=1), batch_size=64)
    np.testing.assert_array_equal(sums, data.sum(axis=1))
    (mean,) = par_ds.batch_map_mean(lambda x: x[:, 0].sum(), batch_size=64)
    np.testing.assert_allclose(mean, data[:, 0].mean())


def test_a_work_stream_gives_the_results_of_its_tasks(pool: work_pool.AbstractWorkerPool) -> None:
    def tasks() -> Iterator[tuple[Any, tuple[Any, ...]]]:
        for _ in range(10):
            yield np.random.normal, (0.0, 1.0, (100, 10))

    results = list(pool.work_stream(tasks()).retrieve_iter())
    assert [result.shape for result in results] == [(100, 10)] * 10


def test_a_work_stream_keeps_the_order_of_its_tasks(pool: work_pool.AbstractWorkerPool) -> None:
    stream = pool.work_stream(((pow, (i, 2)) for i in range(50)), task_buffer_size=6)
    assert [stream.retrieve() for _ in range(50)] == [i**2 for i in range(50)]
    assert stream.retrieve() is None


def test_a_shared_constant_is_an_argument_of_many_tasks(pool: work_pool.AbstractWorkerPool) -> None:
    shared = pool.shared_constant(np.arange(1000.0))
    stream = pool.work_stream((power_sum, (shared, k)) for k in range(4))
    expected = [float((np.arange(1000.0) ** k).sum()) for k in range(4)]
    np.testing.assert_allclose(list(stream.retrieve_iter()), expected)


def test_two_streams_share_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    one = pool.parallel_data_source(data_source.ArrayDataSource([np.arange(50)]))
    two = pool.parallel_data_source(data_source.ArrayDataSource([np.arange(100, 150)]))
    pairs = list(zip(one.batch_iterator(8), two.batch_iterator(8), strict=True))
    np.testing.assert_array_equal(np.concatenate([a for (a,), _ in pairs]), np.arange(50))
    np.testing.assert_array_equal(np.concatenate([b for _, (b,) in pairs]), np.arange(100, 150))


def test_the_error_of_a_map_reaches_the_consumer(pool: work_pool.AbstractWorkerPool) -> None:
    ds = data_source.ArrayDataSource([np.arange(50)]).map(raise_value_error)
    batches = pool.parallel_data_source(ds).batch_iterator(batch_size=8)
    with pytest.raises(ValueError, match="this batch is not good"):
        next(batches)


def test_the_error_of_a_task_reaches_the_consumer(pool: work_pool.AbstractWorkerPool) -> None:
    stream = pool.work_stream((raise_value_error, ()) for _ in range(3))
    with pytest.raises(ValueError, match="this batch is not good"):
        stream.retrieve()
