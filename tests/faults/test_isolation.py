"""Which samples of a batch are to blame: decisions, tested with a reader that only pretends to read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.errors import PoolBroken, PoolClosed, WorkerDied
from batchup_ng.faults.isolation import MAX_ROUNDS, PartialBatch, isolable, isolate

BAD, OTHER, GONE = ValueError("bad"), LookupError("in another way"), WorkerDied("gone")


@dataclasses.dataclass
class Pretends:
    """A reader that returns the places of a batch as its samples.

    Attributes:
        fails: Returns the exception of some places that are read together, or None.
        reads: The places of each read.
    """

    fails: Callable[[list[int]], BaseException | None]
    reads: list[list[int]] = dataclasses.field(default_factory=list)

    def together(self, places: np.ndarray) -> Any:
        self.reads.append(places.tolist())
        return self.fails(places.tolist()) or places.tolist()

    def alone(self, places: np.ndarray, error: BaseException) -> Iterator[Any]:
        for place in places.reshape(-1, 1):
            yield self.together(place)


def isolated(
    fails: Callable[[list[int]], BaseException | None], action: str = "skip", retries: int = 0, n: int = 6
) -> tuple[PartialBatch, list[list[int]]]:
    """Return the result of a batch of `n` samples that failed, and what was read after that."""
    error = fails(list(range(n)))
    assert error is not None
    reader = Pretends(fails)
    return isolate(reader, np.arange(n), error, action, retries), reader.reads


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


def test_only_what_may_be_a_samples_fault_is_searched_for() -> None:
    assert isolable(BAD, np.arange(3))
    assert not any(isolable(error, np.arange(3)) for error in (PoolClosed("closed"), PoolBroken("broken")))
    assert not isolable(BAD, np.arange(0))
    assert not isolable(BAD, slice(3))
