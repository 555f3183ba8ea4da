"""What BatchUp refuses is refused here by the same built-in exception; each refusal is tried on both libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchup_ng import data_source, errors, sampling, work_pool
from tests.messages import raises

from .comparing import Library

X = np.arange(20)
Y = np.arange(40).reshape(20, 2)
ROWS = np.arange(5)


def array(library: Library, **options: Any) -> Any:
    return library.data_source.ArrayDataSource([X, Y], **options)


def unindexed(library: Library) -> Any:
    """A source that cannot be read by row."""
    return library.data_source.CallableDataSource(lambda batch_size: iter([(X[:batch_size],)]))


def mixed(library: Library, kind: str) -> Any:
    """A source that cannot be read by row since one of its parts cannot."""
    if kind == "MapDataSource":
        return unindexed(library).map(lambda x: (x,))
    return getattr(library.data_source, kind)([array(library), unindexed(library)])


def pair(library: Library) -> Any:
    return library.data_source.CompositeDataSource([array(library), array(library)])


def choice(library: Library) -> Any:
    return library.data_source.ChoiceDataSource([array(library), array(library)])


def weighted(library: Library) -> Any:
    return library.sampling.WeightedSampler(np.arange(20.0))


def weighted_subset(library: Library) -> Any:
    return library.sampling.WeightedSubsetSampler(np.ones(5), ROWS)


VALUE_ERRORS: dict[str, Callable[[Library], Any]] = {
    "standard sampler, no repeats": lambda lib: lib.sampling.StandardSampler(10, repeats=0),
    "standard sampler, negative repeats": lambda lib: lib.sampling.StandardSampler(10, repeats=-5),
    "subset sampler, no repeats": lambda lib: lib.sampling.SubsetSampler(ROWS, repeats=0),
    "subset sampler, negative repeats": lambda lib: lib.sampling.SubsetSampler(ROWS, repeats=-2),
    "weights that sum to nothing": lambda lib: lib.sampling.WeightedSampler(np.zeros(3)),
    "subset weights that sum to nothing": lambda lib: lib.sampling.WeightedSubsetSampler(np.zeros(3), np.arange(3)),
    "fewer rows than weights": lambda lib: lib.sampling.WeightedSubsetSampler(np.ones(5), np.arange(3)),
    "more rows than weights": lambda lib: lib.sampling.WeightedSubsetSampler(np.ones(3), np.arange(5)),
    "no repeats": lambda lib: array(lib, repeats=0),
    "negative repeats": lambda lib: array(lib, repeats=-2),
    "sampler and rows": lambda lib: array(lib, sampler=lib.sampling.StandardSampler(20), indices=ROWS),
    "sampler and repeats": lambda lib: array(lib, sampler=lib.sampling.StandardSampler(20), repeats=2),
    "sampler and endless repeats": lambda lib: array(lib, sampler=lib.sampling.StandardSampler(20), repeats=-1),
    "arrays of different lengths": lambda lib: lib.data_source.ArrayDataSource([X, Y[:10]]),
    "third array of a different length": lambda lib: lib.data_source.ArrayDataSource([X, Y, Y[:19]]),
    "endless concat": lambda lib: array(lib, repeats=-1).batch_map_concat(lambda x, y: x, 5),
    "endless mean": lambda lib: array(lib, repeats=-1).batch_map_mean(lambda x, y: x.sum(), 5),
    "endless weighted concat": lambda lib: array(lib, sampler=weighted(lib)).batch_map_concat(lambda x, y: x, 5),
    "too few index arrays": lambda lib: pair(lib).samples_by_indices([ROWS]),
    "too many index arrays": lambda lib: pair(lib).samples_by_indices([ROWS] * 3),
    "too few unmapped index arrays": lambda lib: pair(lib).samples_by_indices_nomapping([ROWS]),
    "coercion of an empty list": lambda lib: lib.data_source.coerce_data_source([]),
    "coercion of an empty tuple": lambda lib: lib.data_source.coerce_data_source(()),
}

TYPE_ERRORS: dict[str, Callable[[Library], Any]] = {
    "array instead of a list": lambda lib: lib.data_source.ArrayDataSource(X),
    "tuple instead of a list": lambda lib: lib.data_source.ArrayDataSource((X, Y)),
    "number of samples as text": lambda lib: lib.data_source.CallableDataSource(lambda batch_size: iter([]), "ten"),
    "number of samples as a fraction": lambda lib: lib.data_source.CallableDataSource(lambda n: iter([]), 1.5),
    "number of samples of an iterator as text": lambda lib: lib.data_source.IteratorDataSource(iter([]), "ten"),
    "number of samples of an iterator as a fraction": lambda lib: lib.data_source.IteratorDataSource(iter([]), 1.5),
    "choice by an array": lambda lib: choice(lib).samples_by_indices(ROWS),
    "choice by a list": lambda lib: choice(lib).samples_by_indices([ROWS, 0]),
    "choice by a plain tuple": lambda lib: choice(lib).samples_by_indices((ROWS, 0)),
    "unmapped choice by an array": lambda lib: choice(lib).samples_by_indices_nomapping(ROWS),
    "unmapped choice by a list": lambda lib: choice(lib).samples_by_indices_nomapping([ROWS, 0]),
    "unmapped choice by a plain tuple": lambda lib: choice(lib).samples_by_indices_nomapping((ROWS, 0)),
    "text as a batch result": lambda lib: array(lib).batch_map_concat(lambda x, y: "text", 5),
    "text as a batch sum": lambda lib: array(lib).batch_map_mean(lambda x, y: "text", 5),
    "coercion of a number": lambda lib: lib.data_source.coerce_data_source(1),
    "coercion of nothing": lambda lib: lib.data_source.coerce_data_source(None),
    "coercion of a list of numbers": lambda lib: lib.data_source.coerce_data_source([1]),
    "coercion of a list with a number": lambda lib: lib.data_source.coerce_data_source([X, 1]),
    "coercion of a list with a source": lambda lib: lib.data_source.coerce_data_source([X, array(lib)]),
}

NOT_IMPLEMENTED: dict[str, Callable[[Library], Any]] = {
    "length of an abstract sampler": lambda lib: lib.sampling.AbstractSampler().num_indices_generated(),
    "order of an abstract sampler": lambda lib: lib.sampling.AbstractSampler().in_order_indices_batch_iterator(5),
    "shuffle of an abstract sampler": lambda lib: lib.sampling.AbstractSampler().shuffled_indices_batch_iterator(
        batch_size=5, shuffle_rng=np.random.RandomState(1)
    ),
    "weighted sampler in order": lambda lib: weighted(lib).in_order_indices_batch_iterator(5),
    "weighted subset sampler in order": lambda lib: weighted_subset(lib).in_order_indices_batch_iterator(5),
    "weighted source in order": lambda lib: next(array(lib, sampler=weighted(lib)).batch_iterator(5)),
    "weighted source with shuffle=False": lambda lib: next(
        array(lib, sampler=weighted(lib)).batch_iterator(5, shuffle=False)
    ),
    "weighted subset source in order": lambda lib: next(array(lib, sampler=weighted_subset(lib)).batch_iterator(5)),
    "index batches of a weighted source in order": lambda lib: next(
        array(lib, sampler=weighted(lib)).batch_indices_iterator(5)
    ),
    "length of an abstract source": lambda lib: lib.data_source.AbstractDataSource().num_samples(),
    "batches of an abstract source": lambda lib: lib.data_source.AbstractDataSource().batch_iterator(5),
    "rows of an abstract source": lambda lib: lib.data_source.RandomAccessDataSource(20).samples_by_indices(ROWS),
    "unmapped rows of an abstract source": lambda lib: lib.data_source.RandomAccessDataSource(
        20
    ).samples_by_indices_nomapping(ROWS),
}


@pytest.mark.parametrize("refused", VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_values_that_are_refused(library: Library, refused: Callable[[Library], Any]) -> None:
    with raises(ValueError):
        refused(library)


@pytest.mark.parametrize("refused", TYPE_ERRORS.values(), ids=TYPE_ERRORS)
def test_types_that_are_refused(library: Library, refused: Callable[[Library], Any]) -> None:
    with raises(TypeError):
        refused(library)


@pytest.mark.parametrize("refused", NOT_IMPLEMENTED.values(), ids=NOT_IMPLEMENTED)
def test_what_is_left_to_others_is_refused(library: Library, refused: Callable[[Library], Any]) -> None:
    with pytest.raises(NotImplementedError):
        refused(library)


@pytest.mark.parametrize("kind", ["CompositeDataSource", "ChoiceDataSource", "MapDataSource"])
def test_a_source_over_one_without_rows_refuses_rows(library: Library, kind: str) -> None:
    ds = mixed(library, kind)
    assert not ds.is_random_access
    with pytest.raises(TypeError):
        next(ds.batch_indices_iterator(5))
    for method in (ds.samples_by_indices, ds.samples_by_indices_nomapping):
        with pytest.raises(TypeError):
            method(library.data_source.ChoiceBatch(ROWS, 0) if kind == "ChoiceDataSource" else ROWS)


def test_an_array_without_shape_has_none_as_an_image_array(library: Library) -> None:
    class Bare:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: Any) -> Any:
            return np.zeros(3, np.uint8)[index]

    images = library.image_utils.ImageArrayUInt8ToFloat32(Bare())
    with raises(AttributeError):
        images.shape  # noqa: B018 - the attribute itself is what fails


@pytest.mark.parametrize(
    "thing",
    [
        np.arange(10),
        [np.arange(10)],
        None,
        "text",
        data_source.CallableDataSource(lambda batch_size: iter([])),
        data_source.IteratorDataSource(iter([])),
        data_source.CallableDataSource(lambda batch_size: iter([])).map(lambda x: (x,)),
    ],
    ids=["array", "list", "nothing", "text", "callable source", "iterator source", "map of a callable source"],
)
def test_a_pool_refuses_what_it_cannot_read_by_row(pool: work_pool.AbstractWorkerPool, thing: Any) -> None:
    with pytest.raises(TypeError):
        pool.parallel_data_source(thing)


def test_a_pool_refuses_an_endless_concat(pool: work_pool.AbstractWorkerPool) -> None:
    par_ds = pool.parallel_data_source(data_source.ArrayDataSource([X], repeats=-1))
    with raises(ValueError):
        par_ds.batch_map_concat(lambda x: x, 5)


def test_a_pool_refuses_a_weighted_source_in_order(pool: work_pool.AbstractWorkerPool) -> None:
    ds = data_source.ArrayDataSource([X], sampler=sampling.WeightedSampler(np.ones(20)))
    with pytest.raises(NotImplementedError):
        next(pool.parallel_data_source(ds).batch_iterator(5))


@pytest.mark.parametrize("refused", [*VALUE_ERRORS.values(), *TYPE_ERRORS.values()], ids=[*VALUE_ERRORS, *TYPE_ERRORS])
def test_our_refusals_are_in_one_tree(ours: Library, refused: Callable[[Library], Any]) -> None:
    with pytest.raises(errors.BatchupError):
        refused(ours)
