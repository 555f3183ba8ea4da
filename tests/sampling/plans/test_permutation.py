"""The keyed permutation: a bijection, the same for ever, computed part by part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng import randomness
from batchup_ng.errors import ArgumentError
from batchup_ng.randomness import OrderKey
from batchup_ng.sampling import StandardSampler
from batchup_ng.sampling.plans.permutation import (
    MAX_POSITIONS,
    POSITIONS_AT_A_TIME,
    ROUNDS,
    TABLE_POSITIONS,
    KeyedPermutation,
)
from tests.extent import quick
from tests.messages import raises

KEYS = (0, 1, 2**64 - 1)
WORD = 2**64


class Reference:
    """The network once more, one Python integer at a time, in both directions."""

    def __init__(self, n: int, key: int) -> None:
        self.n = n
        self.bits = (n - 1).bit_length() // 2
        self.size = (n + 2**self.bits - 1) // 2**self.bits
        self.keys = [randomness.word("round", key, i) for i in range(ROUNDS)]

    def forth(self, position: int) -> int:
        while True:
            left, right = divmod(position, 2**self.bits)
            for i in range(0, ROUNDS, 2):
                left = (left + self.shift(i, right)) % self.size
                right ^= self.mask(i + 1, left)
            position = left * 2**self.bits + right
            if position < self.n:
                return position

    def back(self, row: int) -> int:
        while True:
            left, right = divmod(row, 2**self.bits)
            for i in range(ROUNDS - 2, -1, -2):
                right ^= self.mask(i + 1, left)
                left = (left - self.shift(i, right)) % self.size
            row = left * 2**self.bits + right
            if row < self.n:
                return row

    def shift(self, i: int, right: int) -> int:
        return (self.mixed(i, right) // 2**32) * self.size // 2**32

    def mask(self, i: int, left: int) -> int:
        return self.mixed(i, left) // 2 ** (64 - self.bits)

    def mixed(self, i: int, half: int) -> int:
        word = (half + self.keys[i]) * 0xBF58476D1CE4E5B9 % WORD
        return (word ^ (word >> 32)) * 0x94D049BB133111EB % WORD


def assert_permutes(n: int, key: int) -> None:
    image = KeyedPermutation(n, key)(np.arange(n))
    assert image.dtype == np.int64
    assert np.array_equal(np.bincount(image, minlength=n), np.ones(n))


def test_every_small_length_is_permuted() -> None:
    for n in range(1, 700):
        for key in KEYS:
            assert_permutes(n, key)


@pytest.mark.parametrize("exponent", quick([8, 12, 13], range(8, 17)))
def test_every_length_around_a_power_of_two_is_permuted(exponent: int) -> None:
    for n in range(2**exponent - 8, 2**exponent + 9):
        for key in KEYS:
            assert_permutes(n, key)


@pytest.mark.parametrize("exponent", quick([12.5, 17], [12.5, 13.5, 14.5, 15.5, 16.5, 17, 18, 19, 20]))
def test_every_length_around_a_square_is_permuted(exponent: float) -> None:
    # Where the halves are of one size, or the pairs are exactly as many as the positions.
    root = round(2 ** (exponent / 2))
    for n in {root * root + d for d in (-1, 0, 1)} | {root * (root + 1) + d for d in (-1, 0, 1)}:
        assert_permutes(n, 5)


lengths = st.integers(TABLE_POSITIONS + 1, MAX_POSITIONS) | st.integers(12, 61).flatmap(
    lambda bits: st.integers(2**bits + 1, 2 ** (bits + 1))
)


@given(
    n=lengths | st.sampled_from([TABLE_POSITIONS + 1, 2**32, 2**32 + 1, MAX_POSITIONS - 1, MAX_POSITIONS]),
    key=st.integers(0, WORD - 1),
    data=st.data(),
)
def test_the_inverse_finds_every_position_again(n: int, key: int, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=50))
    positions = np.array([0, n - 1, *drawn], dtype=np.int64)
    image = KeyedPermutation(n, key)(positions)
    assert image.min() >= 0
    assert image.max() < n
    reference = Reference(n, key)
    assert [reference.back(row) for row in image.tolist()] == positions.tolist()
    assert [KeyedPermutation(n, key).back(row) for row in image.tolist()] == positions.tolist()
    assert [reference.forth(position) for position in positions.tolist()] == image.tolist()


@pytest.mark.parametrize("n", [10**8, 10**12, 2**40 + 1, MAX_POSITIONS])
def test_no_two_of_a_million_positions_meet(n: int, in_full: bool) -> None:
    half = np.arange(500_000 if in_full else 20_000)
    positions = np.concatenate([half, n - 1 - half])
    image = KeyedPermutation(n, 11)(positions)
    assert len(np.unique(image)) == len(positions)
    assert image.min() >= 0
    assert image.max() < n


GOLDEN = {
    (10, 0): [0, 6, 8, 1, 2],
    (TABLE_POSITIONS, 1): [2982, 1720, 689, 2729, 1109],
    (TABLE_POSITIONS + 1, 1): [2365, 1399, 209, 3241, 1541],
    (8192, 2): [3046, 7958, 248, 2687, 3529],
    (100_003, 2**64 - 1): [89285, 92008, 8168, 24046, 64627],
    (10**6, 7): [321608, 663085, 249823, 810245, 449005],
    (2**32 + 1, 7): [1527775498, 59251803, 1944234960, 4040325097, 3680157117],
    (10**12, 7): [934146031834, 943919964455, 450827334152, 586702996227, 505663001183],
    (MAX_POSITIONS, 7): [
        3700352982882286241, 168539380222499273, 2592991377562017771, 3621849118300613149, 2413863246037217095
    ],
}  # fmt: skip


@pytest.mark.parametrize(("n", "key"), GOLDEN)
def test_the_order_is_the_same_for_ever(n: int, key: int) -> None:
    # Saved epochs rest on it: a change of these values would let them go on with other samples.
    positions = np.array([0, 1, 2, n // 2, n - 1], dtype=np.int64)
    assert KeyedPermutation(n, key)(positions).tolist() == GOLDEN[n, key]


@pytest.mark.parametrize("n", [3000, 100_003, 10**12])
def test_a_part_is_the_same_on_its_own(n: int) -> None:
    permutation = KeyedPermutation(n, 9)
    first = n // 2 - 1000
    whole = permutation(np.arange(first, first + 2 * POSITIONS_AT_A_TIME + 5) % n)
    assert np.array_equal(permutation(np.arange(first + 50, first + 114) % n), whole[50:114])
    backwards = np.arange(first, first + 2 * POSITIONS_AT_A_TIME + 5)[::-1] % n
    assert np.array_equal(permutation(backwards), whole[::-1])
    assert len(permutation(np.arange(0))) == 0


def test_the_positions_asked_for_are_left_alone() -> None:
    positions = np.arange(5000)
    KeyedPermutation(5000, 1)(positions)
    assert np.array_equal(positions, np.arange(5000))


def test_two_to_the_62_is_the_longest() -> None:
    sampler = StandardSampler(MAX_POSITIONS)
    rows = sampler.rows_at(np.array([0, MAX_POSITIONS - 1]), OrderKey(1, 0))
    assert ((rows >= 0) & (rows < MAX_POSITIONS)).all()
    with raises(ArgumentError):
        StandardSampler(MAX_POSITIONS + 1)
    with raises(ArgumentError):
        KeyedPermutation(MAX_POSITIONS + 1, 0)


@pytest.mark.parametrize("n", [0, 10, 5000, 10**12, MAX_POSITIONS])
def test_positions_out_of_range_are_refused_for_they_might_never_be_sent_inside(n: int) -> None:
    permutation = KeyedPermutation(n, 1)
    for position in (-1, n, min(2 * n + 3, 2**63 - 1)):
        with raises(IndexError) as caught:
            permutation(np.array([position]))
        assert f"below {n};" in str(caught.value)
