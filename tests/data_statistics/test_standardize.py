"""Columns and images that are standardised by statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import augment
from batchup_ng.errors import ArgumentError
from tests.data_statistics.test_statistics import columns
from tests.messages import raises


def test_columns_of_a_dict(pools: list[Any]) -> None:
    data = {name: values for name, values in columns().items() if name != "far"} | {"same": np.full(60, 7.0)}
    source, stats = bu.ArrayDataSource(data), bu.statistics(data)
    expected = ((data["features"].astype(float) - stats["features"].mean) / stats["features"].std).astype(np.float32)
    for made in (source.map(bu.standardize(stats)), source.map(bu.standardize(stats, ["features", "same"]))):
        for opened in (made, pools[1].parallel_data_source(made)):
            (batch,) = opened.batch_iterator(60)
            assert list(batch) == list(data)
            np.testing.assert_array_equal(batch["features"], expected)
            assert batch["same"].tolist() == [0.0] * 60
            assert batch["label"].tolist() == data["label"].tolist()
    chosen = source.map(bu.standardize(stats, ["age", "features"], "float64"), on=["age", "features"])[:]
    np.testing.assert_allclose(chosen["age"], (data["age"] - data["age"].mean()) / data["age"].std(), rtol=1e-12)
    assert chosen["features"].dtype == np.float64
    assert chosen["gray"] is not None
    assert source.map(bu.standardize(stats["age"]), on="age")[:]["age"].dtype == np.float32
    named = source.map(bu.standardize(stats, dtype="float64"), on=["features", "age"])[:]
    assert named.keys() == chosen.keys()
    for name, column in named.items():
        np.testing.assert_array_equal(column, chosen[name])
    turned = source.map(bu.standardize(stats, ["age", "features"], "float64"), on=["features", "age"])[:]
    np.testing.assert_array_equal(turned["age"], chosen["age"])
    with raises(ArgumentError):
        source.map(bu.standardize(stats), on="name")
    with raises(ArgumentError):
        source.map(bu.standardize(stats, ["age", "features"]), on=["age", "same"])


@pytest.mark.parametrize("names", [["age", "height"], ["age"]])
def test_columns_of_integers_are_standardised_if_they_are_named(names: list[str]) -> None:
    data = {"age": np.array([20, 40, 60]), "height": np.array([160, 170, 190]), "label": np.array([0, 1, 1])}
    expected = {name: ((data[name] - data[name].mean()) / data[name].std()).astype("f4") for name in names}
    source, stats = bu.ArrayDataSource(data), bu.statistics(data, names)
    of_tuples = bu.ArrayDataSource([*data.values()])
    for made in (source.map(bu.standardize(stats), on=names), source.map(bu.standardize(stats, names), on=names)):
        np.testing.assert_equal(made[:], data | expected)
    made = of_tuples.map(bu.standardize(bu.statistics(of_tuples)), on=[*range(len(names))])
    np.testing.assert_equal(made[:], tuple((data | expected).values()))
    for action in ("raise", "skip"):
        with raises(bu.MapCallError):
            next(source.map(bu.standardize(stats)).batch_iterator(2, on_error=action))


def test_columns_of_a_tuple_and_of_different_lengths() -> None:
    ragged = [np.array([1.0, 3.0]), np.array([5.0]), np.array([])]
    source = bu.ArrayDataSource([ragged, np.array([0, 1, 1])])
    stats = bu.statistics(source)
    first, labels = source.map(bu.standardize(stats))[:]
    mean, std = np.mean([1, 3, 5]), np.std([1, 3, 5])
    for found, given in zip(first, ragged, strict=True):
        np.testing.assert_array_equal(found, ((given - mean) / std).astype(np.float32))
    assert labels.tolist() == [0, 1, 1]


def test_what_cannot_be_standardised_is_refused() -> None:
    data = columns()
    stats = bu.statistics(data)
    with raises(bu.ArgumentTypeError):
        bu.standardize(3)
    with raises(bu.ArgumentTypeError):
        bu.standardize(stats, ["name"])
    with raises(bu.ArgumentError):
        bu.standardize(stats, ["no"])
    with raises(bu.ArgumentError):
        bu.standardize(bu.statistics(data, ["label"]))(label=data["label"])
    with raises(bu.ArgumentError):
        bu.standardize(stats)(np.zeros(3))
    with raises(bu.ArgumentError):
        bu.standardize(stats)(age=np.zeros(3))
    with raises(bu.ArgumentError):
        bu.standardize(stats, ["age", "far"])(np.zeros(3))


def test_statistics_are_for_images_of_their_own_unit(pools: list[Any]) -> None:
    image = columns()["image"]
    bytes_, to_255, to_1 = (bu.ArrayDataSource({"image": each}) for each in (
        image, image.astype(np.float32), (image / 255).astype(np.float32)
    ))  # fmt: skip
    sources = [bytes_, to_255, to_1]
    pairs = {(0, 0): True, (0, 1): False, (0, 2): False, (1, 0): False, (1, 1): True, (2, 0): True, (2, 2): True}
    for (of, to), taken in pairs.items():
        stats = bu.statistics(sources[of])
        for given in (stats, stats["image"]):
            mapped = sources[to].map(augment.normalize(given, layout="NCHW"))
            if not taken:
                for over in (mapped, pools[0].parallel_data_source(mapped)):
                    with raises(ArgumentError):
                        next(over.batch_iterator(60))
            else:
                made = mapped[:]["image"]
                np.testing.assert_allclose((made.mean((0, 2, 3)), made.std((0, 2, 3)) - 1), 0, atol=1e-4)
    mean, std = bu.statistics(bytes_).for_images()
    np.testing.assert_allclose(to_1.map(augment.normalize(mean, std))[:]["image"].mean((0, 1, 2)), 0, atol=1e-4)


def test_columns_of_another_unit_are_not_standardised() -> None:
    counts = np.arange(60, dtype=np.uint8)
    stats = {kind: bu.statistics({"n": counts.astype(kind)}) for kind in ("uint8", "int64", "float32")}
    for of, to in (("uint8", "float32"), ("uint8", "float64"), ("float32", "uint8")):
        for column in (counts.astype(to), [counts[:2].astype(to), counts[2:].astype(to)]):
            with raises(ArgumentError):
                bu.standardize(stats[of], "n")(n=column)
    for of, to in (("uint8", "uint8"), ("uint8", "int64"), ("int64", "float64"), ("float32", "int64")):
        made = bu.standardize(stats[of], "n")(n=counts.astype(to))["n"]
        np.testing.assert_allclose((made.mean(), made.std()), (0, 1), atol=1e-6)
    assert bu.standardize(stats["uint8"], "n")(n=[counts[:2], []])["n"][1].shape == (0,)


def test_images_are_normalised_by_statistics() -> None:
    data = columns()
    stats, image = bu.statistics(data), data["image"] / 255
    made = bu.ArrayDataSource(data).map(augment.normalize(stats))[:]["image"]
    np.testing.assert_allclose(made, (image - image.mean((0, 1, 2))) / image.std((0, 1, 2)), atol=1e-5)
    assert augment.normalize(stats) == augment.normalize(stats["image"])
    floats = bu.statistics([image.astype(np.float32)])
    np.testing.assert_allclose(augment.normalize(floats).mean, image.mean((0, 1, 2)), rtol=1e-6)
    black = augment.normalize(bu.statistics([np.zeros((3, 2, 2, 1), np.uint8)]))
    assert (black.mean, black.std) == ((0.0,), (1.0,))
    with raises(bu.ArgumentError):
        augment.normalize(bu.statistics(data, ["age", "gray"]))
    with raises(bu.ArgumentTypeError):
        augment.normalize(0.5)
