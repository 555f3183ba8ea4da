"""The gathering functions, the other sources and the picture helper give what BatchUp gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .comparing import Library, assert_same, assert_same_stream, take
from .sources import arrays, composites_of, maps_of

FIRST = 6
batch_sizes = st.integers(1, 30)
seeds = st.integers(0, 2**32 - 1)
plain_sources = st.one_of(arrays(), maps_of(arrays()), composites_of(arrays(), st.just(True)))
prepended = st.sampled_from([None, (2,)])

Function = Callable[..., Any]


def as_single(*batch: Any) -> Any:
    return first_leaf(batch) * 3


def as_tuple(*batch: Any) -> Any:
    return first_leaf(batch), first_leaf(batch[-1:]) + 1


def as_none(*batch: Any) -> Any:
    return None


def sums_as_tuple(*batch: Any) -> Any:
    return first_leaf(batch).sum(), float(first_leaf(batch[-1:]).sum())


def sum_as_float(*batch: Any) -> Any:
    return float(first_leaf(batch).sum())


def sum_as_array(*batch: Any) -> Any:
    return np.array(first_leaf(batch).sum(axis=0))


def sums_now_and_then(*batch: Any) -> Any:
    total = int(first_leaf(batch).sum())
    return (float(total),) if total % 2 else None


def first_leaf(batch: Any) -> Any:
    """The first array of a nested batch, with what was put before it left out."""
    while isinstance(batch, tuple):
        batch = batch[1] if isinstance(batch[0], int) else batch[0]
    return batch


class Progress:
    """A stand-in for tqdm that writes down how it was called."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.seen = 0

    def __call__(self, iterator: Iterable[Any], **options: Any) -> Iterator[Any]:
        self.calls.append(options)
        for item in iterator:
            self.seen += 1
            yield item


def gather(library: Library, spec: Any, method: str, function: Function, seed: int, **options: Any) -> Any:
    """One call of the method, with what its progress function was told."""
    progress = Progress()
    source = spec.build(library)
    rng = np.random.RandomState(seed)
    result = getattr(source, method)(function, progress_iter_func=progress, shuffle=rng, **options)
    return result, progress.calls[0]["total"], progress.calls[0]["leave"], progress.seen


@given(
    spec=plain_sources,
    batch_size=batch_sizes,
    seed=seeds,
    function=st.sampled_from([as_single, as_tuple, as_none]),
    prepend_args=prepended,
    n_batches=st.sampled_from([None, None, 1, 3, 50]),
)
def test_batch_map_concat(
    ours: Library, old: Library, spec: Any, seed: int, function: Function, **options: Any
) -> None:
    if spec.endless:
        options["n_batches"] = options["n_batches"] or FIRST
    results = [gather(library, spec, "batch_map_concat", function, seed, **options) for library in (ours, old)]
    assert_same(*results)


@given(
    spec=plain_sources,
    batch_size=batch_sizes,
    seed=seeds,
    function=st.sampled_from([sums_as_tuple, sum_as_float, sum_as_array, sums_now_and_then, as_none]),
    prepend_args=prepended,
    n_batches=st.sampled_from([None, None, 1, 3, 50]),
)
def test_batch_map_mean(ours: Library, old: Library, spec: Any, seed: int, function: Function, **options: Any) -> None:
    if spec.endless:
        options["n_batches"] = options["n_batches"] or FIRST
    results = [gather(library, spec, "batch_map_mean", function, seed, **options) for library in (ours, old)]
    assert_same(*results)


@given(spec=plain_sources, batch_size=batch_sizes, seed=seeds, function=st.sampled_from([as_single, as_tuple]))
def test_batch_map_mean_over_an_axis(
    ours: Library, old: Library, spec: Any, seed: int, function: Function, **options: Any
) -> None:
    options |= {"sum_axis": 0, "n_batches": FIRST if spec.endless else None}
    results = [gather(library, spec, "batch_map_mean", function, seed, **options) for library in (ours, old)]
    assert_same(*results)


@pytest.mark.parametrize("sum_axis", [(0, 1), (0, 2), 0])
def test_batch_map_mean_over_several_axes(ours: Library, old: Library, sum_axis: Any) -> None:
    data = np.random.RandomState(1).normal(size=(11, 3, 4))
    results = [
        library.data_source.ArrayDataSource([data]).batch_map_mean(lambda x: x * 2, 4, sum_axis=sum_axis)
        for library in (ours, old)
    ]
    assert_same(*results)


@pytest.mark.parametrize("name", ["batch_map_concat", "batch_map_mean"])
def test_the_plain_functions_go_on_where_they_stopped(ours: Library, old: Library, name: str) -> None:
    def finish(result: Any) -> Any:
        return result if name == "batch_map_concat" else float(result.sum())

    def run(library: Library) -> list[Any]:
        batches = library.data_source.ArrayDataSource([np.arange(100.0)]).batch_iterator(7)
        function = getattr(library.data_source, name)
        progress = Progress()
        return [
            function(lambda x: finish(x * 2), batches, n_batches=3),
            function(lambda k, x: finish(x * k), batches, n_batches=2, prepend_args=(3,)),
            function(lambda x: None, batches, n_batches=1),
            function(lambda x: finish(x - 1), batches, progress_iter_func=progress),
            function(finish, batches),
            progress.calls[0]["total"],
        ]

    assert_same_stream(run(ours), run(old))


def test_an_empty_iterator_gives_what_it_gave(ours: Library, old: Library) -> None:
    for name in ("batch_map_concat", "batch_map_mean"):
        results = [getattr(library.data_source, name)(lambda x: x, iter([])) for library in (ours, old)]
        assert_same(*results)


@given(spec=arrays(), data=st.data())
def test_samples_by_indices(ours: Library, old: Library, spec: Any, data: st.DataObject) -> None:
    last = (len(spec.sampler.indices) or spec.sampler.length) - 1
    wanted = np.array(data.draw(st.lists(st.integers(0, last), min_size=1)))
    ours_ds, old_ds = spec.build(ours), spec.build(old)
    assert_same(ours_ds.samples_by_indices(wanted), old_ds.samples_by_indices(wanted))
    rows = wanted % spec.sampler.length
    assert_same(ours_ds.samples_by_indices_nomapping(rows), old_ds.samples_by_indices_nomapping(rows))


@pytest.mark.parametrize("rows", [slice(0, 5), slice(2, 9, 3), slice(3, 4)])
@pytest.mark.parametrize("include_indices", [False, True])
def test_samples_by_slice(ours: Library, old: Library, rows: slice, include_indices: bool) -> None:
    data = [np.arange(12), np.arange(24.0).reshape(12, 2)]
    ours_ds, old_ds = (
        library.data_source.ArrayDataSource(data, include_indices=include_indices) for library in (ours, old)
    )
    assert_same(ours_ds.samples_by_indices_nomapping(rows), old_ds.samples_by_indices_nomapping(rows))
    assert_same(ours_ds.samples_by_indices(rows), old_ds.samples_by_indices(rows))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("trim", [False, True])
def test_samples_by_indices_of_nested_sources(ours: Library, old: Library, flatten: bool, trim: bool) -> None:
    def run(library: Library) -> list[Any]:
        sources = library.data_source
        part = sources.ArrayDataSource([np.arange(20)], indices=np.arange(15)[::-1])
        twice = sources.CompositeDataSource([part, part.map(lambda x: (x * 2,))], flatten=flatten, trim=trim)
        ds = sources.CompositeDataSource([twice, part], flatten=flatten, trim=trim)
        choice = sources.ChoiceDataSource([twice, part])
        wanted = [[np.array([1, 3, 5]), np.array([2, 4])], np.array([0, 0, 7])]
        batch = sources.ChoiceBatch(sample_indices=wanted[0], ds_index=0)
        return [
            ds.samples_by_indices(wanted),
            ds.samples_by_indices_nomapping(wanted),
            choice.samples_by_indices(batch),
            choice.samples_by_indices_nomapping(batch),
        ]

    assert_same_stream(run(ours), run(old))


def make_batches(batch_size: int, shuffle: Any = None, total: int = 23) -> Iterator[tuple[Any, Any]]:
    """Batches of one's own making, for the sources that call or hold an iterator."""
    rows = np.arange(total) if shuffle is None else shuffle.permutation(total)
    for start in range(0, total, batch_size):
        yield rows[start : start + batch_size], rows[start : start + batch_size] * 0.5


def count_samples(shuffle: Any = None, total: int = 23) -> int:
    return total


@given(batch_size=batch_sizes, seed=seeds, total=st.integers(1, 40))
def test_callable_sources(ours: Library, old: Library, batch_size: int, seed: int, total: int) -> None:
    def run(library: Library) -> list[Any]:
        ds = library.data_source.CallableDataSource(make_batches, count_samples)
        mapped = ds.map(lambda a, b: (b, a))
        both = library.data_source.CompositeDataSource([ds, mapped], flatten=False)
        rng = np.random.RandomState(seed)
        return [
            ds.num_samples(),
            ds.num_samples(total=total),
            mapped.num_samples(total=total),
            both.num_samples(total=total),
            ds.is_random_access,
            *take(ds.batch_iterator(batch_size), None),
            *take(ds.batch_iterator(batch_size, total=total, shuffle=rng), None),
            *take(mapped.batch_iterator(batch_size, total=total), None),
            *take(both.batch_iterator(batch_size, total=total, shuffle=rng), None),
            *mapped.batch_map_concat(lambda a, b: (a, b), batch_size, total=total),
            rng.get_state()[1:3],
        ]

    assert_same_stream(run(ours), run(old))


@given(batch_size=batch_sizes, seed=seeds, lengths=st.lists(st.integers(1, 30), min_size=1, max_size=3))
def test_callables_beside_arrays(ours: Library, old: Library, batch_size: int, seed: int, lengths: list[int]) -> None:
    def run(library: Library) -> list[Any]:
        sources = library.data_source
        parts = [sources.ArrayDataSource([np.arange(length)]) for length in lengths]
        parts.append(sources.CallableDataSource(make_batches, 23))
        composite, choice = sources.CompositeDataSource(parts), sources.ChoiceDataSource(parts)
        rng = np.random.RandomState(seed)
        return [
            (composite.num_samples(), choice.num_samples(), composite.is_random_access, choice.is_random_access),
            *take(composite.batch_iterator(batch_size, shuffle=rng), None),
            *take(choice.batch_iterator(batch_size, shuffle=rng), None),
            *take(choice.batch_iterator(batch_size), None),
            rng.get_state()[1:3],
        ]

    assert_same_stream(run(ours), run(old))


@pytest.mark.parametrize("n_samples", [None, 23, np.inf])
def test_iterator_sources(ours: Library, old: Library, n_samples: Any) -> None:
    def run(library: Library) -> list[Any]:
        ds = library.data_source.IteratorDataSource(make_batches(4), n_samples)
        return [ds.num_samples(), ds.is_random_access, *take(ds.map(lambda a, b: (a,)).batch_iterator(9), None)]

    assert_same_stream(run(ours), run(old))


@pytest.mark.parametrize(
    "thing",
    [[np.arange(9)], (np.arange(9), np.arange(9) * 2), make_batches(4), make_batches],
    ids=["list", "tuple", "iterator", "callable"],
)
def test_coerced_things_become_the_same_kind_of_source(ours: Library, old: Library, thing: Any) -> None:
    kinds = [type(library.data_source.coerce_data_source(thing)).__name__ for library in (ours, old)]
    assert kinds[0] == kinds[1]


@given(
    bounds=st.tuples(st.floats(-10, 10), st.floats(-10, 10)),
    index=st.one_of(
        st.integers(0, 11),
        st.lists(st.integers(0, 11)).map(lambda rows: np.array(rows, dtype=int)),
        st.slices(12),
        st.tuples(st.integers(0, 11), st.slices(3)),
    ),
)
def test_stored_bytes_become_the_same_floats(ours: Library, old: Library, bounds: Any, index: Any) -> None:
    stored = np.random.RandomState(1).randint(0, 256, size=(12, 3, 2)).astype(np.uint8)
    ours_images, old_images = (library.image_utils.ImageArrayUInt8ToFloat32(stored, *bounds) for library in (ours, old))
    assert len(ours_images) == len(old_images)
    assert ours_images.shape == old_images.shape
    assert ours_images.dtype == old_images.dtype
    assert_same(ours_images[index], old_images[index])
