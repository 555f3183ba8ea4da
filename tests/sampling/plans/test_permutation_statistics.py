"""The keyed permutation cannot be told from a random one by what can be counted.

NumPy's permutations go through the same functions. Keys are fixed, so that each run counts the same. A standard normal
deviate is beyond 5 with a probability of 6e-7; there are fewer than 2,500 of them here, so that random orders
would have been taken for others with a probability below 0.0015, once and for all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from math import gcd, sqrt
from typing import Any

import numpy as np
import pytest

from batchup_ng.randomness import OrderKey
from batchup_ng.sampling.plans.permutation import TABLE_POSITIONS, KeyedPermutation
from tests.extent import quick, thorough
from tests.sampling.plans.order_statistics import STATISTICS, WHOLE, Family, Order, look, many_keys

LIMIT = 5.0
THOROUGH = 100
"""How many times as many orders a thorough run counts."""

CASES = {
    64: 2000,
    1000: 400,
    TABLE_POSITIONS: 128,
    TABLE_POSITIONS + 1: 256,
    6000: 128,
    2**13: 128,
    2**13 + 1: 128,
    2**14 + 1: 64,
    2**15 - 1: 32,
    2**16: 16,
    10**6: 4,
    10**8: 16,
    10**12: 16,
    2**40 + 1: 16,
    2**62: 16,
}
"""By length, how many orders are looked at: tables, lengths just above them, odd and even numbers of bits."""


def keyed(rounds: int = 8) -> Family:
    return lambda n, key: KeyedPermutation(n, key, rounds=rounds)


def by_numpy(n: int, key: int) -> Order:
    """The reference: a permutation; for lengths that fill no memory draws, which hardly ever are the same."""
    rng = np.random.default_rng(key)
    if n <= WHOLE:
        drawn = rng.permutation(n)
        return lambda positions: drawn[positions]
    return lambda positions: rng.integers(n, size=len(positions))


FAMILIES = {"keyed": keyed(), "numpy": by_numpy}


def some(first: int, *lengths: int) -> list[Any]:
    """The parameters of a test of both families: the first length of ours, all with ``--thorough``."""
    return quick([(first, "keyed")], list(itertools.product((first, *lengths), FAMILIES)))


def epochs(first: int, count: int) -> list[int]:
    """The keys of the epochs of a run."""
    return [OrderKey(7, epoch).word("shuffle", 0) for epoch in range(first, first + count)]


def seeds(first: int, count: int) -> list[int]:
    """The keys of the first epochs of runs with neighbouring seeds."""
    return [OrderKey(seed, 0).word("shuffle", 0) for seed in range(first, first + count)]


def numbers(first: int, count: int) -> list[int]:
    """Neighbouring keys."""
    return list(range(first, first + count))


def deviates(n: int, family: Family, keys: list[int], names: Iterable[str] = STATISTICS) -> dict[str, float]:
    """By statistic, the deviate that is furthest from 0."""
    orders = look(n, family, keys)
    return {name: max(STATISTICS[name](orders), key=abs, default=0.0) for name in names}


@pytest.mark.parametrize(("n", "family"), some(TABLE_POSITIONS + 1, *(n for n in CASES if n != TABLE_POSITIONS + 1)))
def test_the_epochs_of_a_run_are_random_orders(n: int, family: str, in_full: bool) -> None:
    found = deviates(n, FAMILIES[family], epochs(0, CASES[n] if in_full else CASES[n] // 4))
    assert {name: z for name, z in found.items() if abs(z) > LIMIT} == {}


@pytest.mark.parametrize("n", [64, thorough(TABLE_POSITIONS + 1), thorough(2**13), thorough(10**12)])
@pytest.mark.parametrize("keys", [seeds, numbers])
def test_so_are_those_of_neighbouring_seeds_and_keys(keys: Callable[[int, int], list[int]], n: int) -> None:
    found = deviates(n, keyed(), keys(0, CASES[n]))
    assert {name: z for name, z in found.items() if abs(z) > LIMIT} == {}


@pytest.mark.parametrize(
    ("n", "family"), some(10**12, 64, TABLE_POSITIONS, TABLE_POSITIONS + 1, 2**13, 2**14 + 1, 2**40 + 1, 2**62)
)
def test_each_position_and_each_two_go_everywhere_over_the_epochs(n: int, family: str, in_full: bool) -> None:
    found = np.array(many_keys(n, FAMILIES[family], epochs(0, 3000 if in_full else 1000)))
    assert abs(found).max() < LIMIT
    # The mean of so many squares is 1, with a deviation of sqrt(2 / number), and more since the pairs overlap.
    assert abs(np.mean(found**2) - 1) < 2 * LIMIT * sqrt(2 / len(found))


def test_every_order_of_a_few_positions_occurs_equally_often(in_full: bool) -> None:
    # 120 orders, chi-squared with 119 degrees of freedom: mean 119, deviation sqrt(238).
    each = 100 if in_full else 20
    counts: dict[tuple[int, ...], int] = {}
    for key in epochs(0, 120 * each):
        order = tuple(KeyedPermutation(5, key)(np.arange(5)).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 120
    chi_squared = sum((count - each) ** 2 / each for count in counts.values())
    assert abs(chi_squared - 119) < LIMIT * sqrt(238)


@pytest.mark.parametrize("n", [TABLE_POSITIONS, thorough(6000), thorough(2**13)])
def test_even_and_odd_permutations_are_equally_frequent(n: int) -> None:
    odd = sum(is_odd(KeyedPermutation(n, key)(np.arange(n))) for key in range(200))
    assert abs(odd - 100) < LIMIT * sqrt(50)


@pytest.mark.thorough
def test_but_for_a_left_half_of_odd_size_nearly_all_are_of_one_sign() -> None:
    # The limit of the family that its module names: each round is an even permutation then, so that what is left of
    # chance are cycles among the few numbers that are not below n.
    n = TABLE_POSITIONS + 1
    odd = sum(is_odd(KeyedPermutation(n, key)(np.arange(n))) for key in range(200))
    assert odd > 180


def is_odd(order: np.ndarray) -> bool:
    """Whether it takes an odd number of swaps: that of the rows less that of the cycles."""
    following, seen, cycles = order.tolist(), bytearray(len(order)), 0
    for start in range(len(following)):
        if not seen[start]:
            cycles += 1
            while not seen[start]:
                seen[start] = 1
                start = following[start]
    return (len(following) - cycles) % 2 == 1


# -- the statistics notice bad orders --------------------------------------------------------------------------------


def test_two_rounds_are_noticed_at_every_length(in_full: bool) -> None:
    for n in (
        (TABLE_POSITIONS + 1, 2**13, 2**14 + 1, 2**16, 10**12, 2**62) if in_full else (TABLE_POSITIONS + 1, 10**12)
    ):
        found = deviates(n, keyed(2), epochs(0, 16), ["steps", "places"])
        assert abs(found["steps"]) > 100
        assert abs(found["places"]) > LIMIT
        assert max(map(abs, many_keys(n, keyed(2), epochs(0, 500)))) > LIMIT


@pytest.mark.thorough
def test_four_rounds_are_noticed_where_all_of_an_order_is_seen() -> None:
    for n in (TABLE_POSITIONS + 1, 2**13, 2**14 + 1, 2**16, 10**6):
        assert abs(deviates(n, keyed(4), epochs(0, CASES[n]), ["steps"])["steps"]) > 2 * LIMIT


def linear(n: int, key: int) -> Order:
    """Steps of one size."""
    step = next(s for s in range(n // 3 + key % 1000, n) if gcd(s, n) == 1)
    return lambda positions: (positions * step + key % n) % n


def rotated(n: int, key: int) -> Order:
    """One order, begun somewhere else."""
    order = KeyedPermutation(n, 0)
    return lambda positions: (order(positions) + key % n) % n


def flipped(n: int, key: int) -> Order:
    """One order, its bits flipped by the key."""
    order = KeyedPermutation(n, 0)
    return lambda positions: order(positions) ^ (key % n)


def nearly_in_place(n: int, key: int) -> Order:
    """Rows shuffled within sixteenths."""
    part = KeyedPermutation(n // 16, key)
    return lambda positions: positions // (n // 16) * (n // 16) + part(positions % (n // 16))


def two_by_two(n: int, key: int) -> Order:
    """Neighbours that stay together."""
    halves = KeyedPermutation(n // 2, key)
    return lambda positions: halves(positions // 2) * 2 + positions % 2


def swaps(n: int, key: int) -> Order:
    """Rows that change places with others."""
    order = np.arange(n)
    partners = KeyedPermutation(n, key)(order)
    order[partners[::2]], order[partners[1::2]] = partners[1::2], partners[::2]
    return lambda positions: order[positions]


def slowly_changing(n: int, key: int) -> Order:
    """An order that keeps a tenth of the last one."""
    order = KeyedPermutation(n, 0)(np.arange(n))
    moved = np.flatnonzero(np.arange(n) % 10 != 0)
    order[moved] = order[moved][KeyedPermutation(len(moved), key)(np.arange(len(moved)))]
    return lambda positions: order[positions]


@pytest.mark.parametrize(
    ("statistic", "family"),
    [
        thorough("places", nearly_in_place),
        ("steps", linear),
        thorough("pairs", linear),
        thorough("neighbours", two_by_two),
        thorough("fixed_points", swaps),
        ("agreement", slowly_changing),
        thorough("next_order", slowly_changing),
    ],
)
def test_each_statistic_notices_the_fault_that_it_is_for(statistic: str, family: Family) -> None:
    assert abs(deviates(2**13, family, epochs(0, 64), [statistic])[statistic]) > 2 * LIMIT


@pytest.mark.parametrize("family", [rotated, thorough(flipped), thorough(nearly_in_place)])
def test_pairs_of_positions_notice_orders_that_depend_on_each_other(family: Family) -> None:
    assert max(map(abs, many_keys(2**13, family, epochs(0, 1000)))) > 2 * LIMIT


# -- many more of them -----------------------------------------------------------------------------------------------


def summed_up(n: int, family: Family, keys: Callable[[int, int], list[int]]) -> Iterator[tuple[str, float]]:
    """Each deviate over many times as many orders, by the name of its statistic."""
    found: dict[str, list[list[float]]] = {}
    for k in range(THOROUGH):
        orders = look(n, family, keys(k * CASES[n], CASES[n]))
        for name, statistic in STATISTICS.items():
            found.setdefault(name, []).append(statistic(orders))
    for name, values in found.items():
        yield from ((name, float(z)) for z in np.sum(values, axis=0) / sqrt(THOROUGH))


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", CASES)
def test_a_hundred_times_as_many_epochs_are_random_orders(n: int, family: str) -> None:
    found = list(summed_up(n, FAMILIES[family], epochs))
    assert [(name, z) for name, z in found if abs(z) > LIMIT] == []


@pytest.mark.thorough
@pytest.mark.parametrize("n", [TABLE_POSITIONS + 1, 2**13, 10**6, 10**12])
def test_positions_go_everywhere_over_very_many_epochs(n: int) -> None:
    assert max(map(abs, many_keys(n, keyed(), epochs(0, 300_000)))) < LIMIT
