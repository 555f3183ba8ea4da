"""What maps return is looked at where they return it, alike in every pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError, MapCallError, MapResultError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

A = np.arange(20)
SOURCE = bu.ArrayDataSource([A, A * 2.0])


def bare(x: Any, y: Any) -> Any:
    return np.stack([x, y])


def forgot(x: Any, y: Any) -> Any:
    x += 1


WRONG: dict[str, tuple[Any, type]] = {
    "bare": (bare, ArgumentTypeError),
    "none": (forgot, ArgumentTypeError),
    "scalar": (lambda x, y: x.sum(), ArgumentTypeError),
    "number": (lambda x, y: 3.5, ArgumentTypeError),
    "string": (lambda x, y: "xy", ArgumentTypeError),
    "generator": (lambda x, y: (part for part in (x, y)), ArgumentTypeError),
    "unequal": (lambda x, y: (np.repeat(x, 2), y), ArgumentError),
    "shorter": (lambda x, y: (x[:0], y[:0]), ArgumentError),
    "longer": (lambda x, y: {"x": np.repeat(x, 2)}, ArgumentError),
    "nested": (lambda x, y: (x, {"y": ([1, 2, 3, 4, 5], y)}), ArgumentError),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_batch_is_refused_alike_everywhere(case: str, pools: list[AbstractWorkerPool]) -> None:
    fn, error = WRONG[case]
    source = SOURCE.map(fn).map(lambda *batch: batch)  # the first is to blame, not the second
    for over in (source, *[pool.parallel_data_source(source) for pool in (bu.SerialPool(), *pools)]):
        with raises(error):
            list(over.batch_iterator(4))
    with raises(error):
        list(bu.CallableDataSource(lambda batch_size: SOURCE.batch_iterator(batch_size)).map(fn).batch_iterator(4))


def masked_last(x: Any, y: Any) -> Any:
    return (np.ma.masked_array([x, y], [True, False]) if x % 4 == 3 else np.array([x, y])), y


@pytest.mark.parametrize("of", [lambda x, y: masked_last(x, y), lambda x, y: {"x": masked_last(x, y)}])
def test_a_masked_sample_is_refused(of: Any) -> None:
    for over in (SOURCE.map_samples(of), bu.SerialPool().parallel_data_source(SOURCE.map_samples(of))):
        with raises(MapResultError):
            next(over.batch_iterator(4))


@pytest.mark.parametrize("way", ["map", "map_samples", "collate"])
def test_a_map_that_ends_the_loop_is_named_alike_everywhere(way: str, pools: list[AbstractWorkerPool]) -> None:
    def stops(*batch: Any) -> Any:
        raise StopIteration("early")

    source = getattr(SOURCE, way)(stops)
    for over in (source, *[pool.parallel_data_source(source) for pool in (bu.SerialPool(), *pools)]):
        with raises(RuntimeError):
            next(over.batch_iterator(3))


def test_the_error_of_a_batch_is_told_where_single_samples_fail_in_another_way(pools: list[AbstractWorkerPool]) -> None:
    def whole(x: Any, y: Any) -> Any:
        if len(x) > 1:
            raise KeyError("too many")

    source = SOURCE.map(whole)
    for over in (source, *[pool.parallel_data_source(source) for pool in (bu.SerialPool(), *pools)]):
        with raises(KeyError):
            next(over.batch_iterator(3))


RIGHT: dict[str, Any] = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, "y": (y, y)},
    "one": lambda x, y: (x,),
    "list of samples": lambda x, y: (list(x), y),
    "scalars beside": lambda x, y: (x, y, x.sum(), np.array(3), "name", None),
    "another shape": lambda x, y: (np.outer(x, y), y),
}


@pytest.mark.parametrize("case", RIGHT)
def test_batches_pass(case: str, pools: list[AbstractWorkerPool]) -> None:
    source = SOURCE.map(RIGHT[case])
    expected = list(source.batch_iterator(3, shuffle=1))
    assert type(expected[0]) is (dict if case == "dict" else tuple)
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(3, shuffle=1)), expected)


def test_a_map_that_resizes_says_so(pools: list[AbstractWorkerPool]) -> None:
    def views(x: Any, y: Any) -> Any:
        return np.concatenate([x, x]), np.concatenate([y, -y])

    source = SOURCE.map(views, resizes=True).map(lambda x, y: (x, y, x + y))
    batches = list(source.batch_iterator(8, shuffle=2))
    assert [len(x) for x, _, _ in batches] == [16, 16, 8]
    for pool in pools:
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(8, shuffle=2)), batches)
    assert [len(x) for x, _, _ in bu.take(source, 12).batch_iterator(8)] == [16, 8]
    with raises(ArgumentError):
        next(SOURCE.map(lambda x, y: (x, y[:1]), resizes=True).batch_iterator(8))
    with raises(ArgumentTypeError):
        SOURCE.map(views, resizes=2)  # type: ignore[arg-type]  # on purpose


def test_columns_that_were_unequal_before_may_stay_so() -> None:
    parts = [bu.ArrayDataSource([np.arange(n)]) for n in (7, 5)]
    ragged = bu.CompositeDataSource(parts, trim=False).map(lambda x, y: (x + 1, y + 1))
    assert [[len(x), len(y)] for x, y in ragged.batch_iterator(4)] == [[4, 4], [3, 1]]


def test_a_wrong_result_is_no_samples_fault(pools: list[AbstractWorkerPool]) -> None:
    source = SOURCE.map(lambda x, y: (x[x != 7], y[x != 7]))
    opened = [source.batch_iterator(4, on_error="skip")]
    opened += [pool.parallel_data_source(source, on_error="skip").batch_iterator(4) for pool in pools]
    for iterator in opened:
        with iterator, raises(bu.MapResultError):
            list(iterator)
        assert iterator.errors == []


@pytest.mark.parametrize("wrong", [lambda x, y: (), lambda x, y: (x.mean(), y.sum()), lambda x, y: (x, iter(y))])
def test_a_batch_has_arrays_and_no_generators(wrong: Any) -> None:
    with raises(bu.MapResultError):
        next(SOURCE.map(wrong).batch_iterator(4))


MASKED = np.ma.masked_array([1, 2, 1, -999], [False, False, False, True])

DOORS: dict[str, Callable[[], Any]] = {
    "ragged values": lambda: bu.Ragged(MASKED, [0, 1, 4]),
    "ragged rows": lambda: bu.Ragged.from_rows([MASKED, np.ones(2, int)]),
    "pad_batch": lambda: bu.pad_batch([MASKED, np.ones(2, int)]),
    "pad": lambda: bu.ArrayDataSource([np.arange(2)]).map(lambda x: ([MASKED, MASKED[:1]],)).pad(0)[0:2],
    "rows": lambda: bu.ArrayDataSource([np.arange(9)])[MASKED],
    "subset": lambda: bu.ArrayDataSource([np.arange(9)]).subset(MASKED),
    "weights": lambda: bu.WeightedSampler(MASKED),
    "weights of sample": lambda: bu.ArrayDataSource([np.arange(4)]).sample(weights=MASKED),
    "balanced": lambda: bu.ArrayDataSource([np.arange(4)]).sample(balanced=MASKED),
    "stratify": lambda: bu.ArrayDataSource([np.arange(4)]).split([0.5, 0.5], 1, stratify=MASKED),
    "groups": lambda: bu.ArrayDataSource([np.arange(4)]).split([0.5, 0.5], 1, groups=MASKED),
    "lengths": lambda: bu.BucketSampler(MASKED),
    "class weights": lambda: bu.class_weights(MASKED),
    "statistics": lambda: bu.statistics(bu.ArrayDataSource([np.arange(2)]).map(lambda x: ([MASKED] * len(x),))),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_mask_is_lost_at_any_door(door: str) -> None:
    with raises((ArgumentTypeError, MapResultError)):
        DOORS[door]()


def test_sparse_matrices_are_refused_with_what_to_do() -> None:
    class Sparse:
        """As SciPy has them."""

        nnz, ndim, shape = 2, 2, (2, 2)

        def __len__(self) -> int:
            raise TypeError("sparse array length is ambiguous; use getnnz() or shape[0]")

        def __getitem__(self, rows: Any) -> Any:
            return self

        def toarray(self) -> np.ndarray:
            return np.eye(2)

    with raises(ArgumentTypeError):
        bu.ArrayDataSource([Sparse()])
    with raises(MapResultError):
        bu.ArrayDataSource([np.eye(2)]).map(lambda x: (Sparse(),))[0:2]
    with raises(MapResultError):
        bu.ArrayDataSource([np.eye(2)]).map(lambda x: Sparse(), on=0)[0:2]


class OfTorchvision:
    """A stand-in for a transform of torchvision's, which passes over what is no tensor, as `torchvision.transforms.v2`
    does."""

    def __call__(self, x: Any) -> Any:
        return x


OfTorchvision.__module__ = "torchvision.transforms.v2._geometry"


def test_transforms_of_tensors_do_not_get_batches_of_arrays() -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    source = bu.ArrayDataSource({"image": images, "label": np.arange(4)})
    with raises(ArgumentTypeError):
        next(source.map(OfTorchvision(), on="image").batch_iterator(2))
    (batch,) = source.map_samples(OfTorchvision(), on="image").batch_iterator(4)  # one picture, as torchvision wants it
    assert batch["image"].shape == (4, 8, 8, 3)


def test_what_is_no_function_of_a_batch_is_refused() -> None:
    with raises(ArgumentTypeError):
        SOURCE.map(bu.augment.flip)  # type: ignore[arg-type]
    with raises(ArgumentTypeError):
        SOURCE.map("flip")  # type: ignore[arg-type]
    labels = bu.ArrayDataSource([np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)])
    with raises(ArgumentError):
        next(labels.map(bu.augment.flip(), on=1).batch_iterator(2))
    with raises(MapCallError):
        next(labels.map(lambda image: (image,)).batch_iterator(2))
