"""Every example of BatchUp's guide on arrays, samplers and composites, run under the new name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from batchup_ng import data_source, sampling

from .guide_program import Array, PictureArrays, find_pictures, flip_batch, is_dog


@pytest.fixture(scope="module")
def train_x() -> Array:
    return np.random.RandomState(1).normal(size=(200, 3, 6, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def train_y() -> Array:
    # Class 0 has 150 samples, class 1 has 40, class 2 has 10.
    return np.repeat(np.arange(3), [150, 40, 10]).astype(np.int32)


def test_shuffled_batches_cover_the_data_once(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([train_x, train_y])
    order = np.random.RandomState(12345).permutation(200)
    lengths = []
    for batch_x, batch_y in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)):
        rows, order = order[:64], order[64:]
        np.testing.assert_array_equal(batch_x, train_x[rows])
        np.testing.assert_array_equal(batch_y, train_y[rows])
        lengths.append(len(batch_x))
    assert lengths == [64, 64, 64, 8]


def test_numpys_own_functions_are_a_generator(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([train_x, train_y])
    np.random.seed(7)
    seen = np.concatenate([batch_y for _, batch_y in ds.batch_iterator(batch_size=64, shuffle=np.random)])
    np.random.seed(7)
    np.testing.assert_array_equal(seen, train_y[np.random.permutation(200)])


def test_five_repeats_show_each_row_five_times() -> None:
    ds_times_5 = data_source.ArrayDataSource([np.arange(50)], repeats=5)
    batches = list(ds_times_5.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)))
    assert [len(x) for (x,) in batches] == [64, 64, 64, 58]
    assert (np.bincount(np.concatenate([x for (x,) in batches])) == 5).all()


def test_endless_repeats_begin_again_with_full_batches() -> None:
    inf_ds = data_source.ArrayDataSource([np.arange(100)], repeats=-1)
    batches = list(itertools.islice(inf_ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(1)), 25))
    assert all(len(x) == 64 for (x,) in batches)
    assert (np.bincount(np.concatenate([x for (x,) in batches])) == 16).all()


def test_endless_repeats_fill_a_batch_greater_than_the_data() -> None:
    inf_ds = data_source.ArrayDataSource([np.arange(10)], repeats=-1)
    for (batch,) in itertools.islice(inf_ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(1)), 5):
        assert len(batch) == 64


def test_augmentation_may_write_into_its_batch(train_x: Array, train_y: Array) -> None:
    before = train_x.copy()
    ds = data_source.ArrayDataSource([train_x, train_y], include_indices=True)
    ds = ds.map(lambda rows, x, y: (rows, *flip_batch(x, y)))
    mirrored = 0
    for rows, batch_x, _ in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)):
        for row, image in zip(rows, batch_x, strict=True):
            is_mirrored = not np.array_equal(image, before[row])
            mirrored += is_mirrored
            np.testing.assert_array_equal(image, before[row][:, :, ::-1] if is_mirrored else before[row])
    assert 0 < mirrored < 200
    np.testing.assert_array_equal(train_x, before)


def test_pictures_are_read_from_disk_by_an_accessor(equal_pictures: Any) -> None:
    paths = find_pictures(equal_pictures)
    train_x, train_y = PictureArrays(paths), is_dog(paths)
    ds = data_source.ArrayDataSource([train_x, train_y])
    seen = 0
    for batch_x, batch_y in ds.batch_iterator(batch_size=8, shuffle=np.random.RandomState(12345)):
        assert batch_x.dtype == np.uint8
        assert batch_x.shape == (len(batch_y), 10, 12, 3)
        numbers = batch_x[:, 0, 0, 0] // 5
        np.testing.assert_array_equal(batch_y, numbers % 2)
        seen += len(batch_y)
    assert seen == 22


def make_semi_supervised(**options: bool) -> data_source.CompositeDataSource:
    ds_lab = data_source.ArrayDataSource([np.arange(20), np.arange(20) % 3], repeats=-1)
    ds_unlab = data_source.ArrayDataSource([np.arange(1000, 1150)])
    return data_source.CompositeDataSource([ds_lab, ds_unlab], **options)


def test_a_composite_joins_the_two_and_trims_the_last_batch() -> None:
    batches = list(make_semi_supervised().batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)))
    assert [(len(x), len(y), len(u)) for x, y, u in batches] == [(64,) * 3, (64,) * 3, (22,) * 3]
    assert sorted(np.concatenate([u for _, _, u in batches])) == list(range(1000, 1150))
    assert make_semi_supervised().num_samples() == 150


def test_composites_nest() -> None:
    third = data_source.ArrayDataSource([np.arange(150)])
    ds = data_source.CompositeDataSource([make_semi_supervised(flatten=False), third], flatten=False)
    for ((lab_x, _), (unlab_x,)), (x,) in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)):
        assert len(lab_x) == len(unlab_x) == len(x)


def draw_classes(sampler: sampling.AbstractSampler, train_x: Array, train_y: Array, n_batches: int = 40) -> Array:
    """The classes of a few thousand draws, as shares."""
    ds = data_source.ArrayDataSource([train_x, train_y], sampler=sampler)
    assert ds.num_samples() == np.inf
    batches = itertools.islice(ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)), n_batches)
    classes = np.concatenate([batch_y for _, batch_y in batches])
    assert len(classes) == 64 * n_batches
    return np.bincount(classes, minlength=3) / len(classes)


def test_class_balancing_takes_the_number_of_classes_as_in_the_guide(train_x: Array, train_y: Array) -> None:
    # The guide shows `n_classes`, which release 0.2.3 no longer takes: a program that follows the guide runs here.
    sampler = sampling.WeightedSampler.class_balancing_sampler(y=train_y, n_classes=train_y.max() + 1)
    np.testing.assert_allclose(draw_classes(sampler, train_x, train_y), 1 / 3, atol=0.03)


def test_class_balancing_weights_take_the_number_of_classes_as_in_the_guide(train_y: Array) -> None:
    weights = sampling.WeightedSampler.class_balancing_sample_weights(y=train_y, n_classes=train_y.max() + 1)
    np.testing.assert_allclose(weights / weights.sum(), np.repeat([1 / 450, 1 / 120, 1 / 30], [150, 40, 10]))
