"""Random numbers by value: the same for the same key, sound for any."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import randomness
from batchup_ng.data_source.epoch_options import epoch_options
from batchup_ng.errors import ArgumentError, ArgumentTypeError
from batchup_ng.randomness import BatchKey, OrderKey, SampleRng, numpy_rng
from batchup_ng.randomness.hashing import high_product
from tests.messages import raises

N = 20_000
MANY = np.arange(N)


def rng(n: int = N, key: int = 5) -> SampleRng:
    return SampleRng(key, np.arange(n))


@given(st.lists(st.integers() | st.text("ab\x00é中", max_size=5), min_size=1, max_size=5))
def test_a_word_depends_on_each_part(parts: list[Any]) -> None:
    assert randomness.word(*parts) == randomness.word(*parts)
    for i, part in enumerate(parts):
        other: Any = part + 1 if isinstance(part, int) else part + "x"
        assert randomness.word(*parts[:i], other, *parts[i + 1 :]) != randomness.word(*parts)


def test_rows_do_not_depend_on_their_company() -> None:
    whole = rng(100)
    part = SampleRng(5, np.array([40, 7]))
    for draw in (lambda r: r.uniform(size=3), lambda r: r.normal(), lambda r: r.integers(10, size=(2, 2))):
        np.testing.assert_array_equal(draw(whole)[[40, 7]], draw(part))
    assert len(part) == 2
    assert part.positions.tolist() == [40, 7]
    states = [g.random() for g in whole.generators()]
    assert [g.random() for g in part.generators()] == [states[40], states[7]]


def test_uniform_draws_fill_the_interval() -> None:
    u = rng().uniform(-2.0, 3.0, size=2)
    assert u.shape == (N, 2)
    assert -2.0 <= u.min() < -1.99
    assert 2.99 < u.max() < 3.0
    np.testing.assert_allclose(np.histogram(u, 10)[0] / (2 * N), 0.1, atol=0.01)
    assert abs(np.corrcoef(u[:, 0], u[:, 1])[0, 1]) < 0.04
    assert abs(np.corrcoef(u[1:, 0], u[:-1, 0])[0, 1]) < 0.04


def test_normal_draws_have_the_moments_asked_for() -> None:
    z = rng().normal(2.0, 3.0, size=5)
    assert z.mean() == pytest.approx(2.0, abs=0.05)
    assert z.std() == pytest.approx(3.0, abs=0.05)
    assert np.mean(np.abs(z - 2.0) < 3.0) == pytest.approx(0.6827, abs=0.01)
    assert np.isfinite(z).all()


@pytest.mark.parametrize(("low", "high"), [(0, 7), (-3, 4), (5, 6), (0, 2**40), (-(2**62), 2**62)])
def test_integers_are_equally_likely(low: int, high: int) -> None:
    drawn = rng().integers(low, high)
    assert drawn.dtype == np.int64
    assert low <= drawn.min()
    assert drawn.max() < high
    middle = (low + high) / 2
    assert np.mean(drawn < middle) == pytest.approx(np.ceil(middle - low) / (high - low), abs=0.02)
    if high - low == 7:
        np.testing.assert_allclose(np.bincount(drawn - low, minlength=7) / N, 1 / 7, atol=0.015)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**63))
def test_thehigh_product_is_exact(word: int, bound: int) -> None:
    assert int(high_product(np.array([word], np.uint64), bound)[0]) == word * bound >> 64


def test_choices_follow_their_weights() -> None:
    np.testing.assert_allclose(np.bincount(rng().choice(4)) / N, 0.25, atol=0.015)
    names = rng().choice(np.array(["a", "b", "c"]), size=2, p=[1, 0, 3])
    assert names.shape == (N, 2)
    assert set(np.unique(names)) == {"a", "c"}
    assert np.mean(names == "a") == pytest.approx(0.25, abs=0.015)
    assert rng().bernoulli(0.2).mean() == pytest.approx(0.2, abs=0.015)


@pytest.mark.parametrize(
    ("draw", "error"),
    [
        (lambda r: r.integers(0), ArgumentError),
        (lambda r: r.integers(3, 3), ArgumentError),
        (lambda r: r.integers(2.5), ArgumentTypeError),
        (lambda r: r.bernoulli(1.5), ArgumentError),
        (lambda r: r.choice([]), ArgumentError),
        (lambda r: r.choice(0), ArgumentError),
        (lambda r: r.choice(2, p=[1, -1]), ArgumentError),
        (lambda r: r.choice(2, p=["a", "b"]), ArgumentTypeError),
        (lambda r: r.choice(2, p=[[1], [2, 3]]), ArgumentTypeError),
        (lambda r: r.choice(2, p=[1, 1, 1]), ArgumentError),
        (lambda r: r.random(size=3.0), ArgumentTypeError),
        (lambda r: r.random(size=(2, 1.5)), ArgumentTypeError),
        (lambda r: r.normal(size="2"), ArgumentTypeError),
        (lambda r: r.choice(3, size=(2, -1)), ArgumentError),
        (lambda r: r.uniform(0, np.ones((5, 2))), ArgumentError),
        (lambda r: r.uniform(np.ones(3), size=4), ArgumentError),
        (lambda r: r.normal(np.ones(2)), ArgumentError),
        (lambda r: r.normal(0, np.ones((3, 1))), ArgumentError),
        (lambda r: r.normal("a lot"), ArgumentTypeError),
        (lambda r: r.normal(0, -1), ArgumentError),
        (lambda r: r.normal(0, np.array([1.0, -0.5, 1.0])), ArgumentError),
        (lambda r: r.uniform(-np.inf, 1), ArgumentError),
        (lambda r: r.uniform(0, [1, np.nan, 1]), ArgumentError),
        (lambda r: r.uniform(-1e308, 1e308), ArgumentError),
        (lambda r: r.uniform([[0], [1, 2]], 1), ArgumentTypeError),
        (lambda r: r.bernoulli(np.ones(2)), ArgumentError),
        (lambda r: r.bernoulli(np.array([0.5, 0.5, 1.5])), ArgumentError),
        (lambda r: r.bernoulli(float("nan")), ArgumentError),
        (lambda r: r.bernoulli("often"), ArgumentTypeError),
        (lambda r: r.integers(np.array([1, 2, 3])), ArgumentTypeError),
        (lambda r: r.integers(0, [1, 2, 3]), ArgumentTypeError),
    ],
)
def test_draws_that_make_no_sense_are_refused(draw: Any, error: type) -> None:
    with raises(error):
        draw(rng(3))


def test_sizes_may_be_numpys_and_lists() -> None:
    expected = rng(3).random(size=(2, 3))
    for size in ((np.int64(2), 3), [2, 3], np.array([2, 3])):
        np.testing.assert_array_equal(rng(3).random(size=size), expected)
    np.testing.assert_array_equal(rng(3).random(np.int64(4)), rng(3).random(4))
    assert rng(3).random(size=()).shape == (3,)
    assert rng(3).random(size=0).shape == (3, 0)


def test_each_sample_may_have_bounds_of_its_own() -> None:
    low, high = np.array([0.0, 10.0, 20.0]), np.array([1.0, 11.0, 21.0])
    plain = rng(3).random()
    np.testing.assert_allclose(rng(3).uniform(low, high), low + plain)
    assert rng(3).uniform(low[:, None], high[:, None], size=2).shape == (3, 2)
    np.testing.assert_array_equal(rng(3).uniform(0, np.ones(2), size=2), rng(3).random(2))
    np.testing.assert_allclose(rng(3).normal(low, high), low + high * rng(3).normal())
    np.testing.assert_array_equal(rng(3).uniform([0.0, 0.0, 0.0], 1), plain)
    assert rng(3).bernoulli(np.array([0.0, 1.0, 0.0])).tolist() == [False, True, False]
    assert rng(4).bernoulli(np.array([0.0, 1.0]), size=2).tolist() == [[False, True]] * 4


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float16, np.float32])
def test_bounds_of_any_dtype_are_those_of_floats(dtype: Any) -> None:
    """Of an int8 the difference of -100 and 100 is -56."""
    least, most = (-100, 100) if dtype == np.int8 else (-30_000, 30_000)
    if dtype in (np.int32, np.int64):
        least, most = -(2**30) * 2, 2**31 - 1
    low, high = np.full(3, least, dtype), np.full(3, most, dtype)
    np.testing.assert_array_equal(rng(3).uniform(low, high), rng(3).uniform(float(low[0]), float(high[0])))
    np.testing.assert_array_equal(rng(3).uniform(dtype(least), dtype(most)), rng(3).uniform(low, high))


def test_truth_values_are_bounds_of_0_and_1() -> None:
    np.testing.assert_array_equal(rng(3).uniform(False, np.ones(3, bool)), rng(3).random())


def test_a_number_is_chosen_without_a_list_of_all() -> None:
    np.testing.assert_array_equal(rng(3).choice(10**15), rng(3).integers(10**15))
    np.testing.assert_array_equal(rng(9).choice(3, p=[1, 0, 2]), rng(9).choice(np.arange(3), p=[1, 0, 2]))


@pytest.mark.parametrize("draw", [lambda r: r.uniform(np.ones(2)), lambda r: r.normal(0, -1), lambda r: r.choice(0)])
def test_a_call_that_is_refused_draws_nothing(draw: Any) -> None:
    one, other = rng(3), rng(3)
    with pytest.raises(ArgumentError):
        draw(one)
    np.testing.assert_array_equal(one.random(), other.random())


def test_calls_for_generators_are_told_apart_by_their_order() -> None:
    draws = rng(4)
    first, second = draws.generators(), draws.generators()
    later = [g.random() for g in second]
    earlier = [g.random() for g in first]
    assert len({*earlier, *later}) == 8
    part = SampleRng(5, np.array([2]))
    assert [[g.random() for g in part.generators()] for _ in range(2)] == [[earlier[2]], [later[2]]]


@given(st.integers(1, 7), st.integers(1, 30))
def test_views_of_samples_draw_for_themselves(planned: int, n: int) -> None:
    key = BatchKey(1, 2, 3, 30)
    whole = key.sample_rng(n, planned)
    draws = whole.random(2)
    assert len(np.unique(draws)) == 2 * n == 2 * len(whole)
    generated = [g.random() for g in whole.generators()]
    assert len(set(generated)) == n
    alone = key.part(np.array([planned - 1])).sample_rng(1 + (n - 1) // planned, 1)
    places = np.arange(planned - 1, n, planned)
    np.testing.assert_array_equal(alone.random(2)[: len(places)], draws[places])
    assert whole.positions.tolist() == [30 + place % planned for place in range(n)]


def test_orders_of_batchups_kind_are_told_apart_by_more_than_32_bits() -> None:
    """The epochs are two of which the words, cut to 32 bits, agree."""
    one, other = epoch_options(4, 0, epoch=24_954), epoch_options(4, 0, epoch=51_697)
    drawn = [options.order_key().random_state("rng").randint(1 << 62) for options in (one, other, one)]
    assert drawn[0] == drawn[2] != drawn[1]
    source = Listing([np.arange(50)])
    orders = [list(source.batch_indices_of(epoch)) for epoch in (17_772, 77_331, 17_772)]
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


class Listing(bu.ArrayDataSource):
    """A source that lists its rows itself, as one could in BatchUp."""

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **options: Any) -> Any:
        yield shuffle.permutation(50)

    def batch_indices_of(self, epoch: int) -> list[int]:
        (planned,) = self.plan(50, shuffle=0, epoch=epoch)
        return list(map(int, planned.rows))


def test_keys_of_children_keep_their_place() -> None:
    key = BatchKey(1, 2, 3, 30)
    part = key.child(1, np.array([4, 6])).child(0, np.array([1]))
    assert part.path == (1, 0)
    assert part.positions(1).tolist() == [36]
    assert key.child(2).positions(3).tolist() == [30, 31, 32]
    assert key.generator().random() != key.child(0).generator().random()
    assert OrderKey(1, 2).child(3) == OrderKey(1, 2, (3,))


@pytest.mark.parametrize("broken_off", [False, True])
def test_global_generators_are_as_they_were_after_a_batch(broken_off: bool) -> None:
    before = random.getstate(), np.random.get_state(legacy=False)
    drawn = []
    with contextlib.suppress(KeyError), numpy_rng.globals_kept(BatchKey(1, 2, 3)):
        drawn = [random.random(), np.random.rand()]
        if broken_off:
            raise KeyError
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(legacy=False), before[1])
    with numpy_rng.globals_kept(BatchKey(1, 2, 3)):
        assert drawn == [random.random(), np.random.rand()]


BODIES: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "one normal number": np.random.standard_normal,
    "two normal numbers": lambda: np.random.standard_normal(2),
    "another seed": lambda: np.random.seed(3),
    "another generator": lambda: np.random.set_bit_generator(np.random.PCG64(3)),
}


CASES = [
    (body, key, kind)
    for body in BODIES
    for key in (None, BatchKey(1, 2, 3))
    for kind in ("MT19937", "PCG64", "of an unknown form")
    if kind != "PCG64" or (key is None and body != "another seed")  # numpy.random.seed refuses PCG64
]


@pytest.mark.parametrize(("body", "key", "kind"), CASES)
@pytest.mark.parametrize("n_normal", [0, 1, 2])
def test_numpys_generator_is_put_back(
    body: str, key: BatchKey | None, kind: str, n_normal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "of an unknown form":
        monkeypatch.setattr(numpy_rng, "memory_of", lambda bits: None)
    bits = np.random.get_bit_generator()
    kept = np.random.get_state(legacy=False)
    try:
        np.random.seed(5)
        if kind == "PCG64":
            np.random.set_bit_generator(np.random.PCG64(7))
        np.random.standard_normal(n_normal)
        of_user = np.random.get_bit_generator()
        before = np.random.get_state(legacy=False)
        assert before["has_gauss"] == (n_normal % 2)
        for _ in range(2):
            with numpy_rng.globals_kept(key):
                if key is None:
                    np.testing.assert_equal(np.random.get_state(legacy=False), before)
                BODIES[body]()
            assert np.random.get_bit_generator() is of_user
            np.testing.assert_equal(np.random.get_state(legacy=False), before)
    finally:
        np.random.set_bit_generator(bits)
        np.random.set_state(kept)


@pytest.mark.parametrize("n_normal", [0, 1])
@pytest.mark.parametrize("key", [None, BatchKey(1, 2, 3)])
def test_an_interrupt_at_any_line_before_or_after_a_batch_leaves_the_global_generators_as_they_were(
    key: BatchKey | None, n_normal: int
) -> None:
    """A signal is raised at each line that runs before the body of the context or after it, but the first after it."""
    kept = random.getstate(), np.random.get_state(legacy=False)
    lines_left = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines_left
        if frame.f_code.co_filename != numpy_rng.__file__:
            return None
        if event == "line":
            lines_left -= 1
            if lines_left == 0:
                raise KeyboardInterrupt
        return trace

    try:
        np.random.seed(11)
        np.random.standard_normal(n_normal)
        before = random.getstate(), np.random.get_state(legacy=False)
        outcomes = []
        for line in range(1, 100):
            context = numpy_rng.globals_kept(key)
            lines_left = line
            sys.settrace(trace)
            try:
                context.__enter__()
            except KeyboardInterrupt:
                outcomes.append("interrupted")
            else:
                outcomes.append("entered")
            finally:
                sys.settrace(None)
            if outcomes[-1] == "entered":
                np.random.standard_normal(1)
                context.__exit__()
            assert random.getstate() == before[0]
            np.testing.assert_equal(np.random.get_state(legacy=False), before[1])
            if outcomes[-1] == "entered":
                break
        assert outcomes.count("interrupted") >= 10
        assert outcomes[-1] == "entered"
        for line in range(2, 100):
            context = numpy_rng.globals_kept(key)
            context.__enter__()
            np.random.standard_normal(1)
            random.random()
            lines_left = line
            sys.settrace(trace)
            try:
                context.__exit__()
            except KeyboardInterrupt:
                outcomes.append("interrupted at the end")
            finally:
                sys.settrace(None)
            assert random.getstate() == before[0]
            np.testing.assert_equal(np.random.get_state(legacy=False), before[1])
            if outcomes[-1] != "interrupted at the end" or lines_left > 0:
                break
        assert outcomes.count("interrupted at the end") >= 6
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def test_random_and_numpy_do_not_draw_the_same_numbers() -> None:
    with numpy_rng.globals_kept(BatchKey(1, 2, 3)):
        assert not set(np.random.random_sample(100)) & {random.random() for _ in range(100)}


def test_a_state_gives_a_seed_without_being_changed() -> None:
    for make in (np.random.RandomState, np.random.default_rng):
        one, two = make(3), make(3)  # type: ignore[operator]
        assert numpy_rng.seed_from_state(one) == numpy_rng.seed_from_state(two)
        assert one.random(3).tolist() == two.random(3).tolist()
        assert numpy_rng.seed_from_state(one) != numpy_rng.seed_from_state(make(3))  # type: ignore[operator]
    np.random.seed(4)
    for shuffle in (True, np.random):
        assert copy.deepcopy(numpy_rng.check_rng(shuffle)).rand() == np.random.rand()
