"""Sources of windows of series."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.data_source.test_contracts import contract
from tests.messages import raises

LONG = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)


def oracle(series: list[np.ndarray], length: int, stride: int, horizon: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the windows by the plainest loop."""
    found = []
    for one in series:
        start = 0
        while start + length + horizon <= len(one):
            found.append((one[start : start + length], one[start + length : start + length + horizon]))
            start += stride
    return found


@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5), length=st.integers(1, 13), stride=st.integers(1, 15),
    horizon=st.integers(0, 4), axes=st.sampled_from([(), (2,)]), form=st.sampled_from(["list", "ragged", "one"]),
)  # fmt: skip
def test_windows_are_those_of_a_plain_loop(
    sizes: list[int], length: int, stride: int, horizon: int, axes: tuple[int, ...], form: str
) -> None:
    if form == "one":
        sizes = [sum(sizes)]
    values = np.random.default_rng(0).normal(size=(sum(sizes), *axes))
    series = np.split(values, np.cumsum(sizes)[:-1])
    given_as: Any = {"list": series, "ragged": bu.Ragged(values, np.cumsum([0, *sizes])), "one": values}[form]
    expected = oracle(series, length, stride, horizon)
    if not expected:
        with raises(ArgumentError):
            bu.windows(given_as, length, stride, horizon)
        return
    source = bu.windows(given_as, length, stride, horizon)
    assert len(source) == source.num_samples() == len(expected)
    assert source.is_random_access
    columns = [np.stack([pair[place] for pair in expected]) for place in range(2 if horizon else 1)]
    assert_same_batches([source[:]], [tuple(columns)])
    order = np.random.default_rng(1).integers(0, len(expected), 7)
    assert_same_batches([source.samples_by_indices(order)], [tuple([column[order] for column in columns])])
    assert [(column.shape, column.dtype) for column in source.columns] == [(c.shape, c.dtype) for c in columns]


def test_sizes_on_both_sides_of_a_window() -> None:
    for n, expected in ((6, 1), (7, 2)):
        assert len(bu.windows(np.arange(n), 6)) == expected
        assert len(bu.windows(np.arange(n), 4, horizon=2)) == expected
    with raises(ArgumentError):
        bu.windows(np.arange(5), 6)
    assert bu.windows(np.arange(10), 3, stride=5)[:][0].tolist() == [[0, 1, 2], [5, 6, 7]]
    assert len(bu.windows(np.arange(10), 3, stride=100)) == 1


TestWindows = contract(lambda: bu.windows(LONG[:40], 5, 2, 3))
TestWindowsOfSeries = contract(lambda: bu.windows([LONG[:20], LONG[:4], LONG[50:90]], 6, 2))


def test_all_pools_read_the_same_windows_from_memory_and_files(pools: list[AbstractWorkerPool], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", LONG)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = list(bu.windows(LONG, 24, horizon=6).batch_iterator(16, shuffle=5))
    assert len(expected) == 11
    for values in (LONG, mapped, bu.NpyRows(tmp_path / "x.npy"), bu.Ragged(mapped, [0, len(LONG)])):
        source = bu.windows(values, 24, horizon=6)
        assert_same_batches(list(source.batch_iterator(16, shuffle=5)), expected)
        for pool in pools:
            assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(16, shuffle=5)), expected)


def test_a_state_from_mid_epoch_goes_on_in_another_pool(pools: list[AbstractWorkerPool]) -> None:
    source = bu.windows(LONG, 24, 2, 6)
    expected = list(source.batch_iterator(8, shuffle=5))
    iterator = pools[0].parallel_data_source(source).batch_iterator(8, shuffle=5)
    got = [next(iterator) for _ in range(4)]
    state = pickle.loads(pickle.dumps(iterator.state_dict()))
    iterator.close()
    rest = pools[1].parallel_data_source(source).batch_iterator(8, shuffle=5)
    rest.load_state_dict(state)
    assert_same_batches([*got, *rest], expected)


def test_windows_compose() -> None:
    source = bu.windows(LONG, 5, horizon=2)
    batch = source.map(lambda x, y: (x, y[..., 0])).with_index()[3:5]
    assert_same_batches([batch], [(np.array([3, 4]), np.stack([LONG[3:8], LONG[4:9]]), LONG[[[8, 9], [9, 10]], 0])])
    other = bu.windows(np.arange(200), 5, horizon=2).select(1)
    assert source.select(0).zip(other)[7][1].tolist() == [12, 13]
    both = bu.concat(source, bu.windows(LONG[::-1], 5, horizon=2))
    np.testing.assert_array_equal(both[len(source)][0], LONG[:-6:-1])
    cached = source.cache()
    assert_same_batches(list(cached.batch_iterator(7)), list(source.batch_iterator(7)))


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 3))
def test_the_gap_that_is_documented_is_the_smallest_without_a_common_step(
    length: int, stride: int, horizon: int
) -> None:
    source = bu.windows(np.arange(60), length, stride, horizon)
    gap = (length + horizon - 1) // stride

    def steps(part: Any) -> set[int]:
        return set(np.concatenate([column.ravel() for column in part[:]]).tolist())

    train, test = source.split([0.5, 0.5], shuffle=False, gap=gap)
    assert not steps(train) & steps(test)
    if gap:
        train, test = source.split([0.5, 0.5], shuffle=False, gap=gap - 1)
        assert steps(train) & steps(test)


def test_series_stay_whole_by_groups() -> None:
    series = [np.full(12, number) for number in range(6)]
    source = bu.windows(series, 4)
    train, test = source.split([0.5, 0.5], 1, groups=source.data[0].series)
    assert sorted({*train[:][0].ravel().tolist()} ^ {*test[:][0].ravel().tolist()}) == list(range(6))


def test_reads_change_nothing() -> None:
    values = LONG.copy()
    source = bu.windows(values, 5)
    source[:][0][...] = 0
    np.testing.assert_array_equal(values, LONG)


def test_tensors_are_series() -> None:
    torch = pytest.importorskip("torch", reason="tensors are torch's, which is not installed")
    tensor = torch.from_numpy(LONG.copy())
    for given_as in (tensor, bu.Ragged(tensor, [0, len(LONG)]), [tensor]):
        assert_same_batches([bu.windows(given_as, 5)[:]], [bu.windows(LONG, 5)[:]])


def test_what_has_no_windows_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", LONG)
    for refused in (
        lambda: bu.windows(LONG, 0), lambda: bu.windows(LONG, 3, 0), lambda: bu.windows(LONG, 3, 1, -1),
        lambda: bu.windows([LONG, LONG[:, :2]], 3), lambda: bu.windows([1.0, 2.0, 3.0], 2), lambda: bu.windows([], 2),
        lambda: bu.windows(LONG[:0], 1), lambda: bu.windows([LONG[:4], LONG[:5]], 4, horizon=2),
    ):  # fmt: skip
        with raises(ArgumentError):
            refused()  # type: ignore[no-untyped-call]
    for wrong in (
        lambda: bu.windows(LONG, 2.5), lambda: bu.windows(np.array(["a", None], object), 1),  # type: ignore[arg-type]
        lambda: bu.windows([np.load(tmp_path / "x.npy", mmap_mode="r")], 2), lambda: bu.windows("x.npy", 2),
        lambda: bu.windows([LONG, bu.NpyRows(tmp_path / "x.npy")], 2), lambda: bu.windows(range(9), 2),
        lambda: bu.windows(bu.ImageFiles(["a.png", "b.png"], 8, crop="random"), 2),
    ):  # fmt: skip
        with raises(ArgumentTypeError):
            wrong()  # type: ignore[no-untyped-call]
