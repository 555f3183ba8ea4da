"""Sources of named arrays: batches that are dicts, which maps are called with by name."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing.sources import SourceContract, assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns

X, Y = np.arange(40.0).reshape(20, 2), np.arange(20)


def named(**more: Any) -> Any:
    return bu.ArrayDataSource({"image": X, "label": Y}, **more)


def scaled(label: Any, image: Any) -> Any:
    return {"label": label, "image": image / 2}


class TestNamed(SourceContract):
    def make(self) -> Any:
        def noisy(image: Any, label: Any, rng: Any) -> Any:
            return {"image": image + rng.normal(size=(1,)), "label": label}

        source = named(include_indices=True).map(lambda index, image, label: {"image": image, "label": label + index})
        return source.map(noisy, rng="sample").map_samples(lambda label, image: {"x": image, "y": label})


def test_padding_is_marked_by_a_column(pools: list[AbstractWorkerPool]) -> None:
    options: dict[str, Any] = {"shuffle": 7, "shard": (2, 3), "pad_mask": True}
    tuples = list(bu.ArrayDataSource([X, Y]).batch_iterator(4, **options))
    expected = [dict(zip(("image", "label", "pad_mask"), batch, strict=True)) for batch in tuples]
    assert not expected[-1]["pad_mask"].all()
    assert_same_batches(list(named().batch_iterator(4, **options)), expected)
    for pool in (bu.SerialPool(), *pools):
        assert_same_batches(list(pool.parallel_data_source(named()).batch_iterator(4, **options)), expected)
        behind = pool.parallel_data_source(named()).map(lambda image, label: {"image": image, "label": label})
        assert_same_batches(list(behind.batch_iterator(4, **options)), expected)
        with bu.Loader(named(), 4, pool=pool, **options) as loader:
            assert_same_batches(list(loader), expected)
        taken = bu.ArrayDataSource({"pad_mask": Y})
        with raises((bu.ArgumentError, bu.BatchError)):
            next(pool.parallel_data_source(taken).batch_iterator(4, **options))


def test_batches_are_dicts_of_the_names_in_their_order() -> None:
    batch = next(named().batch_iterator(3))
    assert {name: part.tolist() for name, part in batch.items()} == {"image": X[:3].tolist(), "label": [0, 1, 2]}
    assert list(batch) == ["image", "label"]
    assert list(next(named(include_indices=True).batch_iterator(3))) == ["index", "image", "label"]


def test_maps_are_called_by_name_and_a_dict_replaces_the_batch() -> None:
    assert list(next(named().map(scaled).batch_iterator(3))) == ["label", "image"]
    (x,) = next(named().map(lambda image, **rest: (image,)).batch_iterator(3))
    assert x.tolist() == X[:3].tolist()
    drawn = named().map(lambda rng, **batch: {**batch, "noise": rng.normal(size=len(batch["label"]))}, rng="batch")
    assert next(drawn.batch_iterator(3))["noise"].shape == (3,)
    samples = named().map_samples(lambda image, label, rng: (image[0] + rng.integers(2), label), rng="sample")
    assert next(samples.batch_iterator(3))[1].tolist() == [0, 1, 2]
    with raises(TypeError):
        next(named().map(lambda image: (image,)).batch_iterator(3))
    with raises(bu.ArgumentError):
        next(named().map_samples(lambda image, label: {"a": 1, **({"b": 2} if label else {})}).batch_iterator(3))


def test_what_collate_gives_by_name_is_a_batch_by_name_too() -> None:
    def collated(samples: Any) -> Any:
        return collections.UserDict({"label": np.array([sample["label"] for sample in samples])})  # as Hugging Face's

    source = named().collate(collated).map(lambda label: {"twice": 2 * label})
    assert next(source.batch_iterator(3))["twice"].tolist() == [0, 2, 4]


def test_sources_side_by_side_share_one_dict() -> None:
    other = bu.ArrayDataSource({"weight": Y / 20})
    for pair in (named().zip(other), bu.CompositeDataSource([named(), other])):
        assert list(next(pair.batch_iterator(3))) == ["image", "label", "weight"]
    nested = next(named().zip(named(), flatten=False).batch_iterator(3))
    assert [list(part) for part in nested] == [["image", "label"]] * 2
    mixed = next(named().zip(bu.ArrayDataSource([Y])).batch_iterator(3))
    assert [type(part) for part in mixed] == [dict, np.ndarray]
    with raises(bu.ArgumentError):
        next(named().zip(named()).batch_iterator(3))


def test_sources_one_after_the_other_agree_in_their_names() -> None:
    swapped = named().map(scaled)
    batch = next(named().concat(swapped).batch_iterator(40, shuffle=1))
    assert sorted(batch["label"].tolist()) == sorted([*Y, *Y])
    with raises(bu.ArgumentError):
        next(named().concat(named().map(lambda image, label: {"label": label})).batch_iterator(40))


def test_row_numbers_are_a_column() -> None:
    assert next(named().with_index().batch_iterator(3, shuffle=1))["index"].tolist() == [
        *next(named().batch_iterator(3, shuffle=1))["label"]
    ]
    with raises(bu.ArgumentError):
        next(named(include_indices=True).with_index().batch_iterator(3))
    with raises(bu.ArgumentError):
        next(bu.CompositeDataSource([named(), bu.ArrayDataSource({"w": Y})]).with_index().batch_iterator(3))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: bu.ArrayDataSource({}), ValueError),
        (lambda: bu.ArrayDataSource({1: Y}), TypeError),  # type: ignore[dict-item]
        (lambda: bu.ArrayDataSource({"x": Y, "y": Y[1:]}), ValueError),
        (lambda: bu.ArrayDataSource({"x": [1, 2]}), TypeError),
        (lambda: bu.ArrayDataSource({"index": Y}, include_indices=True), ValueError),
    ],
)
def test_data_is_checked_and_columns_are_named(make: Any, error: type[Exception]) -> None:
    with raises(error):
        make()


def test_pools_give_the_same_dicts_large_ones_in_slots(pools: list[AbstractWorkerPool]) -> None:
    big = np.random.default_rng(0).normal(size=(64, 1000))
    source = bu.ArrayDataSource({"big": big, "label": np.arange(64)}).map(lambda big, label: {"x": big * 2, "y": label})
    expected = list(source.batch_iterator(8, shuffle=3))
    for pool in pools:
        parallel = pool.parallel_data_source(source)
        for _ in range(2):  # the first batches go by the pipe, as long as their size is not known
            with parallel.batch_iterator(8, shuffle=3, epoch=0) as batches:
                assert_same_batches(list(batches), expected)
                transports = batches.stats()["transport"]
        assert transports["socket"] == transports["message"] == 0
    skipping = pools[0].parallel_data_source(source.map(without_five), on_error="skip").batch_iterator(16)
    with warns(bu.SampleWarning):
        assert next(skipping)["y"].tolist() == [y for y in range(16) if y != 5]


def test_padding_by_number_is_refused_and_dicts_become_sources() -> None:
    with raises(bu.ArgumentError):
        next(named().map(bu.PadColumns(0)).batch_iterator(3))
    assert list(next(bu.coerce_data_source({"image": X}).batch_iterator(3))) == ["image"]


def without_five(x: Any, y: Any) -> Any:
    if 5 in y:
        raise ValueError("five")
    return {"x": x, "y": y}


def other_mapping(**columns: Any) -> Any:
    return collections.UserDict(columns)


def test_mappings_that_are_no_dict_are_batches_by_name() -> None:
    source = named().map(lambda image, label: other_mapping(image=image, label=label))
    assert source[3]["label"] == 3
    assert next(source.take(2).batch_iterator(3))["label"].tolist() == [0, 1]
    samples = source.map_samples(lambda image, label: other_mapping(y=label))
    assert next(samples.batch_iterator(3))["y"].tolist() == [0, 1, 2]
    assert len(source.filter(lambda image, label: label > 4)) == 15
    assert sorted(next(source.concat(source).batch_iterator(40, shuffle=1))["label"]) == sorted([*Y, *Y])
    assert list(next(source.zip(bu.ArrayDataSource({"w": Y})).batch_iterator(3))) == ["image", "label", "w"]
    assert next(source.with_index().batch_iterator(3))["index"].tolist() == [0, 1, 2]
    streamed = bu.IteratorDataSource(iter([other_mapping(y=Y)])).take(2)
    assert next(streamed.batch_iterator(3))["y"].tolist() == [0, 1]


def test_maps_behind_a_pool_take_mappings_that_are_no_dict_by_name() -> None:
    with bu.SerialPool() as pool:
        behind = pool.parallel_data_source(named()).map(other_mapping).map(lambda image, label: (label,))
        assert next(behind.batch_iterator(3))[0].tolist() == [0, 1, 2]
