"""Which samples of a batch are to blame: decisions, tested with a reader that only pretends to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.errors import (
    MapCallError,
    MapResultError,
    PoolBroken,
    PoolClosed,
    SampleTimeout,
    SerializationError,
    WorkerDied,
)
from batchup_ng.faults.isolation import MAX_ROUNDS, PartialBatch, isolable, isolate
from batchup_ng.faults.policy import ErrorPolicy

BAD, OTHER, GONE = ValueError("bad"), LookupError("in another way"), WorkerDied("gone")


@dataclasses.dataclass
class Pretends:
    """A reader that returns the places of a batch as its samples.

    Attributes:
        fails: Returns the exception of some places that are read together, or None.
        reads: The places of each read.
    """

    fails: Callable[[list[int]], Any]
    reads: list[list[int]] = dataclasses.field(default_factory=list)

    def together(self, places: np.ndarray) -> Any:
        self.reads.append(places.tolist())
        return self.fails(places.tolist()) or places.tolist()

    def alone(self, places: np.ndarray, error: BaseException) -> Iterator[Any]:
        for place in places.reshape(-1, 1):
            yield self.together(place)


def isolated(
    fails: Callable[[list[int]], Any], action: str = "skip", retries: int = 0, n: int = 6, types: Any = None
) -> tuple[PartialBatch, list[list[int]]]:
    """Return the result of a batch of `n` samples that failed, and what was read after that."""
    error = fails(list(range(n)))
    assert error is not None
    reader = Pretends(fails)
    rule = ErrorPolicy(action, retries=retries, types=types)
    return isolate(reader, np.arange(n), error, rule), reader.reads


@given(st.sets(st.integers(0, 8), min_size=1), st.sampled_from([BAD, GONE]))
def test_the_good_samples_are_made_without_the_bad_ones(bad: set[int], error: Exception) -> None:
    made, reads = isolated(lambda places: error if bad & set(places) else None, n=9)
    good = [place for place in range(9) if place not in bad]
    assert made == PartialBatch(good or None, len(good), dict.fromkeys(sorted(bad), error))
    assert reads == [[place] for place in range(9)] + [good] * bool(good)


@given(st.sets(st.integers(0, 8), min_size=1))
def test_the_policy_raise_reads_as_far_as_the_first_bad_sample(bad: set[int]) -> None:
    made, reads = isolated(lambda places: BAD if bad & set(places) else None, "raise", n=9)
    assert made == PartialBatch(failures={min(bad): BAD})
    assert len(reads) == min(bad) + 1


def test_no_sample_is_to_blame_if_all_fail_alone_in_another_way() -> None:
    made, _ = isolated(lambda places: OTHER if len(places) == 1 else BAD)
    assert made == PartialBatch(error=BAD)


def test_each_sample_that_ends_its_worker_is_to_blame_whatever_ended_the_batch() -> None:
    late = TimeoutError("late")
    made, _ = isolated(lambda places: GONE if len(places) > 1 else late)
    assert made.failures == dict.fromkeys(range(6), late)


@pytest.mark.parametrize(("error", "fails"), [(BAD, True), (GONE, False)])
def test_what_does_not_come_again_is_raised_or_noted_never_dropped(error: Exception, fails: bool) -> None:
    for action in ("raise", "skip", "replace"):
        moments = iter([error])
        made, _ = isolated(lambda places: next(moments, None), action)  # noqa: B023
        assert [made.error, made.retried] == ([error, None] if fails and action == "raise" else [None, error])
        assert made.gone == (fails and action == "raise")


def test_retries_make_the_whole_batch_and_are_noted() -> None:
    moments = iter([BAD] * 3)
    made, reads = isolated(lambda places: next(moments, None), "raise", retries=3)
    assert (made.batch, made.retried, reads) == (list(range(6)), BAD, [list(range(6))] * 3)


def test_a_search_ends_though_other_samples_fail_each_time() -> None:
    fails = {0}

    def one_more(places: list[int]) -> BaseException | None:
        if len(places) > 1 and not fails & set(places):
            fails.add(places[0])
            return BAD
        return BAD if fails & set(places) else None

    made, _ = isolated(one_more, n=9)
    assert (list(made.failures), made.error) == (list(range(MAX_ROUNDS))[::-1], BAD)


def test_an_error_of_the_program_is_raised_beside_bad_samples() -> None:
    wrong = NameError("no such name")

    def fails(places: list[int]) -> BaseException | None:
        return BAD if 2 in places else wrong if 4 in places else None

    made, _ = isolated(fails)
    assert made == PartialBatch(failures={4: wrong}, of_program=True)


@pytest.mark.parametrize("action", ["skip", "replace"])
@pytest.mark.parametrize("again", [False, True])
def test_a_bad_sample_does_not_hide_an_error_of_the_program_in_the_whole_batch(action: str, again: bool) -> None:
    none_left = MemoryError("none left")
    moments = iter([none_left])

    def fails(places: list[int]) -> BaseException | None:
        if len(places) > 1:
            return none_left if again else next(moments, None)
        return BAD if places == [2] else None

    made, _ = isolated(fails, action)
    assert made == PartialBatch(error=none_left, gone=not again, of_program=True)


@pytest.mark.parametrize("error", [MapCallError("no such column"), MapResultError("returned None")])
@pytest.mark.parametrize("types", [None, Exception])
def test_a_bad_sample_does_not_hide_a_map_that_fails_for_another(error: Exception, types: Any) -> None:
    def fails(places: list[int]) -> BaseException | None:
        return BAD if 2 in places else error if 4 in places else None

    made, _ = isolated(fails, "skip", types=types)
    assert made == PartialBatch(failures={4: error}, of_program=True)


def test_a_later_try_may_make_what_there_was_no_memory_for() -> None:
    moments = iter([MemoryError()])
    made, reads = isolated(lambda places: next(moments, None), retries=1)
    assert (made.batch, type(made.retried), len(reads)) == (list(range(6)), MemoryError, 1)


@pytest.mark.parametrize("types", [OSError, (KeyError, OSError)])
def test_types_say_what_is_a_samples_fault(types: Any) -> None:
    gone = OSError("no such file")
    assert isolated(lambda places: gone if 3 in places else None, types=types)[0].failures == {3: gone}
    for other in (BAD, NameError("no such name")):
        made, _ = isolated(lambda places: other if 3 in places else None, types=types)  # noqa: B023
        assert made == PartialBatch(failures={3: other}, of_program=True)


@pytest.mark.parametrize("ended", [GONE, SampleTimeout("late")])
def test_a_sample_that_ends_its_worker_is_bad_whatever_the_types_say(ended: Exception) -> None:
    made, _ = isolated(lambda places: ended if 3 in places else None, types=KeyError)
    assert made == PartialBatch([0, 1, 2, 4, 5], 5, {3: ended})


def test_what_a_worker_found_to_be_of_the_program_stands_alone() -> None:
    stand_in = SerializationError("an exception of type X that cannot be pickled was raised")

    def fails(places: list[int]) -> Any:
        if 1 in places:
            return GONE
        return PartialBatch(failures={places.index(4): stand_in}, of_program=True) if len(places) > 1 else None

    assert isolated(fails)[0] == PartialBatch(failures={4: stand_in}, of_program=True)


def test_only_what_may_be_a_samples_fault_is_searched_for() -> None:
    assert isolable(BAD, np.arange(3))
    assert not any(isolable(error, np.arange(3)) for error in (PoolClosed("closed"), PoolBroken("broken")))
    assert not isolable(BAD, np.arange(0))
    assert not isolable(BAD, slice(3))
