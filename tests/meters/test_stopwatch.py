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


@given(st.tuples(numbers, numbers, numbers, numbers, st.integers(-1, 2**62), st.dictionaries(names, numbers)))
def test_what_is_packed_comes_back(times: tuple[float, float, float, float, int, dict[str, float]]) -> None:
    assert Made.of(stopwatch.packed(times)) == Made.of(times) == times
    assert stopwatch.packed(None) == b""
    assert Made.of(b"") is Made.of(None) is None


def test_a_cpu_time_that_was_not_measured_stays_unknown() -> None:
    made = Made.of(stopwatch.packed((1.0, 2.0, math.nan, math.nan, 3, {})))
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
