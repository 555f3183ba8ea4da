"""The keyed permutation: a bijection, well mixed, computed part by part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.sampling.permutation import SMALL, KeyedPermutation, keyed_permutation


@pytest.mark.parametrize("n", [1, 2, 3, 10, 255, SMALL, SMALL + 1, 5000, 8192, 8193, 20_000, 65_536])
def test_it_is_a_bijection(n: int) -> None:
    for key in (0, 1, 2**64 - 1):
        image = KeyedPermutation(n, key)(np.arange(n))
        assert np.array_equal(np.sort(image), np.arange(n))


@given(bits=st.integers(13, 62), key=st.integers(0, 2**64 - 1), data=st.data())
def test_no_two_positions_of_a_large_one_meet(bits: int, key: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(2 ** (bits - 1) + 1, 2**bits))
    positions = np.unique(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=300)))
    image = KeyedPermutation(n, key)(positions)
    assert len(np.unique(image)) == len(positions)
    assert image.min() >= 0
    assert image.max() < n


def test_a_part_is_the_same_on_its_own() -> None:
    permutation = KeyedPermutation(100_003, 9)
    whole = permutation(np.arange(100_003))
    assert np.array_equal(permutation(np.arange(50_000, 50_064)), whole[50_000:50_064])


@pytest.mark.parametrize("n", [12, 5000])
def test_each_position_goes_everywhere_equally_often(n: int) -> None:
    # Chi-squared over 12 cells of positions by 12 of values: mean 11 × 11 degrees of freedom, deviation sqrt(2 × 121).
    counts = np.zeros((12, 12))
    n_keys = 6000 if n == 12 else 60
    cells = np.arange(n) * 12 // n
    for key in range(n_keys):
        np.add.at(counts, (cells, cells[KeyedPermutation(n, key)(np.arange(n))]), 1)
    expected = np.outer(np.bincount(cells), np.bincount(cells)) * n_keys / n
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert 121 - 5 * 242**0.5 < chi_squared < 121 + 5 * 242**0.5


def test_neighbours_do_not_stay_neighbours() -> None:
    n = 100_000
    steps = np.diff(KeyedPermutation(n, 4)(np.arange(n)))
    assert np.count_nonzero(np.abs(steps) == 1) < 20  # two are expected
    fixed = np.count_nonzero(KeyedPermutation(n, 4)(np.arange(n)) == np.arange(n))
    assert fixed < 10  # one is expected


def test_it_is_made_once_for_a_key() -> None:
    assert keyed_permutation(77, 5) is keyed_permutation(77, 5)
