"""The model of the way of batches agrees with what can be computed by hand, and with a naive simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.explanation.pipeline import Pipeline


def pipeline(
    make: object, step: object, workers: int, buffer: int, take: float = 0.0, transfer: float = 0.0
) -> Pipeline:
    makes, steps = np.atleast_1d(np.asarray(make, float)), np.atleast_1d(np.asarray(step, float))
    n = max(len(makes), len(steps))
    return Pipeline(
        np.resize(makes, n), np.resize(steps, n), np.full(n, take), np.full(n, transfer), workers, buffer
    )


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pipeline(6, 1, 0, 1), 7),  # the loop makes each batch itself
        (pipeline(6, 1, 0, 1, take=0.5), 7.5),
        (pipeline(6, 1, 1, 4), 6),  # one worker sets the pace
        (pipeline(6, 1, 3, 6), 2),  # three do
        (pipeline(6, 1, 8, 16), 1),  # the loop does
        (pipeline(6, 1, 8, 16, take=1), 2),  # with what it takes to receive a batch
        (pipeline(6, 1, 8, 2), 3),  # only two batches may be under way
        (pipeline(6, 1, 2, 8, transfer=5), 3),  # what is on the way keeps no worker
        (pipeline(6, 1, 1, 1), 6),  # the next is begun as the loop gets the one before
        (pipeline(6, 10, 1, 1), 10),
        (dataclasses.replace(pipeline(6, 1, 8, 16), floor=2.5), 2.5),
    ],
)
def test_regular_batches_come_as_computed_by_hand(made: Pipeline, expected: float) -> None:
    assert made.seconds_per_batch() == pytest.approx(expected, rel=0.02)


def test_a_slow_batch_holds_up_the_loop_unless_the_buffer_is_large() -> None:
    # Of 50 batches, one takes 100 and the others 1; each worker makes 1 in this time, and the loop needs 1.
    make = np.ones(50)
    make[25] = 100.0
    small = pipeline(make, 1, 8, 9).seconds_per_batch()
    large = pipeline(make, 1, 8, 200).seconds_per_batch()
    assert small == pytest.approx(1 + (100 - 9) / 50, rel=0.1)
    assert large == pytest.approx(1, rel=0.1)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 6), st.integers(1, 4), st.integers(1, 9)
)
def test_more_of_anything_is_never_slower(makes: list[int], step: int, workers: int, buffer: int) -> None:
    now = pipeline(makes, step, workers, buffer)
    seconds = now.seconds_per_batch()
    assert seconds >= max(step, np.mean(makes) / min(workers, buffer)) * 0.97
    assert seconds <= (step + max(makes)) * 1.01
    assert dataclasses.replace(now, buffer=buffer + 1).seconds_per_batch() <= seconds * 1.05
    assert pipeline(np.array(makes) / 2, step, workers, buffer).seconds_per_batch() <= seconds * 1.05
