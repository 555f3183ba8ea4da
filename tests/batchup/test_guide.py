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


@pytest.fixture(scope="module")
def train_w(train_y: Array) -> Array:
    return np.array([1.0, 2.0, 4.0])[train_y]


@pytest.fixture(scope="module")
def subset_a() -> Array:
    return np.random.RandomState(2).permutation(200)[:70]


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


def test_shuffle_true_draws_a_seed_from_numpy_itself(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([np.arange(200), train_y])
    orders = []
    for _ in range(2):
        np.random.seed(7)
        orders.append(np.concatenate([rows for rows, _ in ds.batch_iterator(batch_size=64, shuffle=True)]).tolist())
    assert orders[0] == orders[1] != list(range(200))
    assert sorted(orders[0]) == list(range(200))


def test_numpys_own_functions_are_a_generator(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([train_x, train_y])
    np.random.seed(7)
    seen = np.concatenate([batch_y for _, batch_y in ds.batch_iterator(batch_size=64, shuffle=np.random)])
    np.random.seed(7)
    np.testing.assert_array_equal(seen, train_y[np.random.permutation(200)])


def test_without_shuffle_batches_come_in_order(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([train_x, train_y])
    batches = list(ds.batch_iterator(batch_size=64))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches]), train_x)
    np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), train_y)


def test_a_subset_by_indices_draws_those_rows_only(train_x: Array, train_y: Array, subset_a: Array) -> None:
    ds = data_source.ArrayDataSource([np.arange(200), train_y], indices=subset_a)
    rows = np.concatenate([rows for rows, _ in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345))])
    assert sorted(rows) == sorted(subset_a)
    assert ds.num_samples() == 70


def test_included_indices_name_the_rows_of_the_batch(train_x: Array, train_y: Array) -> None:
    ds = data_source.ArrayDataSource([train_x, train_y], include_indices=True)
    for batch_ndx, batch_x, batch_y in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)):
        np.testing.assert_array_equal(batch_x, train_x[batch_ndx])
        np.testing.assert_array_equal(batch_y, train_y[batch_ndx])


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


def test_augmentation_in_order_leaves_the_data_as_it_was(train_x: Array, train_y: Array) -> None:
    before = train_x.copy()
    for _ in data_source.ArrayDataSource([train_x, train_y]).map(flip_batch).batch_iterator(batch_size=64):
        pass
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


def test_an_accessor_serves_ints_and_slices_through_the_source(equal_pictures: Any) -> None:
    paths = find_pictures(equal_pictures)
    ds = data_source.ArrayDataSource([PictureArrays(paths), is_dog(paths)])
    batch_x, batch_y = ds.samples_by_indices_nomapping(slice(2, 9, 3))
    assert batch_x.shape == (3, 10, 12, 3)
    assert len(batch_y) == 3


def test_two_iterators_by_hand_make_semi_supervised_batches() -> None:
    rng = np.random.RandomState(12345)
    ds_lab = data_source.ArrayDataSource([np.arange(20), np.arange(20) % 3], repeats=-1)
    ds_unlab = data_source.ArrayDataSource([np.arange(1000, 1150)])
    lab_iter = ds_lab.batch_iterator(batch_size=64, shuffle=rng)
    seen = []
    for (unlab_x,) in ds_unlab.batch_iterator(batch_size=64, shuffle=rng):
        lab_x, lab_y = next(lab_iter)
        np.testing.assert_array_equal(lab_y, lab_x % 3)
        assert len(lab_x) == 64
        seen.append(unlab_x)
    assert sorted(np.concatenate(seen)) == list(range(1000, 1150))


def make_semi_supervised(**options: bool) -> data_source.CompositeDataSource:
    ds_lab = data_source.ArrayDataSource([np.arange(20), np.arange(20) % 3], repeats=-1)
    ds_unlab = data_source.ArrayDataSource([np.arange(1000, 1150)])
    return data_source.CompositeDataSource([ds_lab, ds_unlab], **options)


def test_a_composite_joins_the_two_and_trims_the_last_batch() -> None:
    batches = list(make_semi_supervised().batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)))
    assert [(len(x), len(y), len(u)) for x, y, u in batches] == [(64,) * 3, (64,) * 3, (22,) * 3]
    assert sorted(np.concatenate([u for _, _, u in batches])) == list(range(1000, 1150))
    assert make_semi_supervised().num_samples() == 150


def test_a_composite_shuffles_its_parts_independently() -> None:
    ds = data_source.CompositeDataSource([data_source.ArrayDataSource([np.arange(150)]) for _ in range(2)])
    assert any((a != b).any() for a, b in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)))


def test_an_unflattened_composite_gives_nested_batches() -> None:
    ds = make_semi_supervised(flatten=False)
    for (lab_x, lab_y), (unlab_x,) in ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)):
        assert len(lab_x) == len(lab_y) == len(unlab_x)


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


def test_weights_set_how_often_a_sample_is_drawn(train_x: Array, train_y: Array, train_w: Array) -> None:
    shares = draw_classes(sampling.WeightedSampler(weights=train_w), train_x, train_y)
    np.testing.assert_allclose(shares, np.array([150, 80, 40]) / 270, atol=0.03)


def test_weights_of_a_subset_draw_from_it_only(train_y: Array, train_w: Array, subset_a: Array) -> None:
    sampler = sampling.WeightedSubsetSampler(sub_weights=train_w[subset_a], indices=subset_a)
    ds = data_source.ArrayDataSource([np.arange(200), train_y], sampler=sampler)
    for rows, _ in itertools.islice(ds.batch_iterator(batch_size=64, shuffle=np.random.RandomState(12345)), 10):
        assert np.isin(rows, subset_a).all()


def test_a_class_balancing_sampler_draws_each_class_alike(train_x: Array, train_y: Array) -> None:
    sampler = sampling.WeightedSampler.class_balancing_sampler(y=train_y)
    np.testing.assert_allclose(draw_classes(sampler, train_x, train_y), 1 / 3, atol=0.03)


def test_a_class_balancing_sampler_of_a_subset_draws_each_class_alike(train_x: Array, train_y: Array) -> None:
    odd = np.arange(1, 200, 2)
    sampler = sampling.WeightedSubsetSampler.class_balancing_sampler(y=train_y, indices=odd)
    np.testing.assert_allclose(draw_classes(sampler, train_x, train_y), 1 / 3, atol=0.03)


def test_class_balancing_takes_the_number_of_classes_as_in_the_guide(train_x: Array, train_y: Array) -> None:
    # The guide shows `n_classes`, which release 0.2.3 no longer takes: a program that follows the guide runs here.
    sampler = sampling.WeightedSampler.class_balancing_sampler(y=train_y, n_classes=train_y.max() + 1)
    np.testing.assert_allclose(draw_classes(sampler, train_x, train_y), 1 / 3, atol=0.03)


def test_class_balancing_weights_take_the_number_of_classes_as_in_the_guide(train_y: Array) -> None:
    weights = sampling.WeightedSampler.class_balancing_sample_weights(y=train_y, n_classes=train_y.max() + 1)
    np.testing.assert_allclose(weights / weights.sum(), np.repeat([1 / 450, 1 / 120, 1 / 30], [150, 40, 10]))


def test_class_balancing_weights_can_be_changed_before_use(train_x: Array, train_y: Array) -> None:
    weights = sampling.WeightedSampler.class_balancing_sample_weights(y=train_y)
    weights[train_y == 2] *= 2
    shares = draw_classes(sampling.WeightedSampler(weights=weights), train_x, train_y)
    np.testing.assert_allclose(shares, [0.25, 0.25, 0.5], atol=0.03)
