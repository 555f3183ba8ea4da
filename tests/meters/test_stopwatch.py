"""The times of a batch are those of its thread, whatever else is measured meanwhile."""

from __future__ import annotations

import functools
import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.meters import stopwatch
from batchup_ng.meters.stopwatch import MOST_MAPS, Made, map_name

names = st.text(st.characters(exclude_characters="\0"), max_size=20)
numbers = st.floats(allow_nan=False)


def measured(work: float = 0.0) -> Made:
    begun = stopwatch.begin()
    time.sleep(work)
    stopwatch.end(begun)
    made = Made.of(stopwatch.taken())
    assert made is not None
    return made


slowest = st.none() | st.tuples(st.floats(1e-9, allow_nan=False), numbers, names, names)


@given(st.tuples(numbers, numbers, numbers, numbers, st.integers(-1, 2**62), st.dictionaries(names, numbers), slowest))
def test_what_is_packed_comes_back(times: stopwatch.Measured) -> None:
    assert Made.of(stopwatch.packed(times)) == Made.of(times) == times
    assert stopwatch.packed(None) == b""
    assert Made.of(b"") is Made.of(None) is None


def test_a_cpu_time_that_was_not_measured_stays_unknown() -> None:
    made = Made.of(stopwatch.packed((1.0, 2.0, math.nan, math.nan, 3, {}, None)))
    assert made is not None
    assert math.isnan(made.cpu)


def test_a_batch_inside_of_a_map_is_measured_apart() -> None:
    outer = stopwatch.begin()
    stopwatch.note("before", 1.0)
    inner = stopwatch.begin()
    stopwatch.note("inner", 2.0)
    stopwatch.end(inner)
    assert Made.of(stopwatch.taken()).maps == {"inner": 2.0}  # type: ignore[union-attr]
    stopwatch.note("before", 0.5)
    stopwatch.end(outer)
    made = Made.of(stopwatch.taken())
    assert made is not None
    assert made.maps == {"before": 1.5}
    assert stopwatch.taken() is None


def test_what_no_batch_calls_is_not_kept() -> None:
    stopwatch.note("alone", 1.0)
    assert measured().maps == {}


def test_threads_do_not_see_one_another() -> None:
    begun = stopwatch.begin()
    thread = threading.Thread(target=measured)
    thread.start()
    stopwatch.note("mine", 1.0)
    thread.join()
    assert stopwatch.taken() is None
    stopwatch.end(begun)
    assert Made.of(stopwatch.taken()).maps == {"mine": 1.0}  # type: ignore[union-attr]


def test_cpu_time_is_measured_for_each_slow_batch_and_for_some_quick_ones() -> None:
    for _ in range(2):
        measured(0.003)  # the first one after quick ones may not be
    assert not math.isnan(measured(0.003).cpu)
    known = [not math.isnan(measured().cpu) for _ in range(5 * stopwatch.MEASURED_OF_QUICK)]
    assert 2 <= sum(known) < len(known) // 2


def test_only_so_many_names_are_kept() -> None:
    begun = stopwatch.begin()
    for number in range(2 * MOST_MAPS):
        stopwatch.note(str(number), 1.0)
    stopwatch.note("0", 1.0)
    stopwatch.end(begun)
    times = stopwatch.taken()
    made = Made.of(stopwatch.packed(times))
    assert made is not None
    assert len(made.maps) == MOST_MAPS
    assert made.maps["0"] == 2.0


@given(st.integers(1, 300), st.floats(1e-9, 1.0))
def test_a_loop_over_groups_is_one_over_the_items(n: int, latest: float) -> None:
    assert [item for group in stopwatch.in_groups(range(n), n, "step") for item in group] == [*range(n)]
    begun = stopwatch.begin()
    stopwatch._of_thread.watch.seconds = latest
    groups = [list(group) for group in stopwatch.in_groups(range(n), n, "step")]
    stopwatch.end(begun)
    assert [item for group in groups for item in group] == [*range(n)]
    sizes = {len(group) for group in groups[:-1]}
    assert len(sizes) <= 1
    if sizes:  # a group takes long enough for two looks at the clock, and is no longer than need be
        (size,) = sizes
        assert size * latest / n >= 0.999 * stopwatch.WORTH
        assert size == 1 or (size - 1) * latest / n < stopwatch.WORTH
    else:
        assert n == 1 or latest < 2 * stopwatch.WORTH


def slowest_of(seconds: list[float], *, named: bool = True) -> stopwatch.Slowest | None:
    """Return what is kept of a batch whose samples took these times."""
    begun = stopwatch.begin()
    stopwatch._of_thread.watch.seconds = math.inf
    for group in stopwatch.in_groups(seconds, len(seconds), "a step"):
        for each in group:
            time.sleep(each)
    if named:
        stopwatch.name_slowest(lambda first, end, n: f"{first} to {end} of {n}")
    stopwatch.end(begun)
    found = Made.of(stopwatch.packed(stopwatch.taken())).slowest  # type: ignore[union-attr]
    return None if found is None else stopwatch.Slowest(*found)


def test_the_slowest_sample_is_kept_with_its_name() -> None:
    found = slowest_of([0.0, 0.0, 0.05, 0.0])
    assert found is not None
    assert (found.step, found.names) == ("a step", "2 to 3 of 4")
    assert found.seconds >= 0.05 > found.typical
    assert slowest_of([0.0, 0.05], named=False) is None


def test_samples_that_take_less_than_a_millisecond_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "QUICK", math.inf)  # seconds, which no machine is too busy for
    assert slowest_of([0.0, 0.0]) is None


def test_the_slowest_of_several_steps_is_kept_and_a_name_that_fails_costs_nothing() -> None:
    begun = stopwatch.begin()
    stopwatch.note_slowest("one", [0.1, 0.3], 2)
    stopwatch.name_slowest(lambda first, end, n: "known")
    stopwatch.note_slowest("other", [0.2, 0.1], 2)
    stopwatch.name_slowest(lambda first, end, n: "never asked")
    inner = stopwatch.begin()
    stopwatch.note_slowest("inner", [9.0], 1)
    stopwatch.name_slowest(lambda first, end, n: str(1 // 0))
    stopwatch.end(inner)
    assert Made.of(stopwatch.taken()).slowest is None  # type: ignore[union-attr]
    stopwatch.end(begun)
    assert Made.of(stopwatch.taken()).slowest == (0.3, pytest.approx(0.1), "one", "known")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("function", "name"),
    [(measured, "measured"), (functools.partial(measured, 1.0), "measured"), (Made, "Made"), (time.sleep, "sleep")],
)
def test_a_map_has_the_name_of_its_function(function: object, name: str) -> None:
    assert map_name(function) == name  # type: ignore[arg-type]


def test_lambdas_of_different_lines_have_different_names() -> None:
    one = lambda x: x  # noqa: E731
    other = lambda x: x  # noqa: E731
    assert map_name(one) != map_name(other)
    assert map_name(one).startswith("<lambda>:")
