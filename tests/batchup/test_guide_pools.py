"""The guide's examples on work pools, with threads and with processes, under the new name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from batchup_ng import data_source, work_pool

from .guide_program import (
    Array,
    PictureArrays,
    PictureLists,
    augment_batch,
    find_pictures,
    is_dog,
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


def test_pooled_batches_are_the_serial_ones(mixed_pictures: Path, pool: work_pool.AbstractWorkerPool) -> None:
    paths = find_pictures(mixed_pictures)
    ds = data_source.ArrayDataSource([PictureLists(paths), is_dog(paths)]).map(augment_batch)
    par_ds = pool.parallel_data_source(ds, batch_buffer_size=32)
    assert par_ds.num_samples() == 22
    pooled = list(par_ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345)))
    serial = list(ds.batch_iterator(batch_size=5, shuffle=np.random.RandomState(12345)))
    assert_cats_and_dogs(pooled)
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


def test_semi_supervised_batches_come_from_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    ds_lab = data_source.ArrayDataSource([np.arange(20), np.arange(20) % 3], repeats=-1)
    ds_unlab = data_source.ArrayDataSource([np.arange(150)])
    ds = data_source.CompositeDataSource([ds_lab, ds_unlab], flatten=False)
    batches = list(pool.parallel_data_source(ds).batch_iterator(batch_size=64, shuffle=np.random.RandomState(1)))
    assert [len(unlab_x) for _, (unlab_x,) in batches] == [64, 64, 22]
    for (lab_x, lab_y), (unlab_x,) in batches:
        np.testing.assert_array_equal(lab_y, lab_x % 3)
        assert len(lab_x) == len(unlab_x)


def test_results_are_gathered_through_a_pool(pool: work_pool.AbstractWorkerPool) -> None:
    data = np.random.RandomState(2).normal(size=(150, 3))
    par_ds = pool.parallel_data_source(data_source.ArrayDataSource([data]))
    (sums,) = par_ds.batch_map_concat(lambda x: x.sum(axis=1), batch_size=64)
    np.testing.assert_array_equal(sums, data.sum(axis=1))
    (mean,) = par_ds.batch_map_mean(lambda x: x[:, 0].sum(), batch_size=64)
    np.testing.assert_allclose(mean, data[:, 0].mean())
