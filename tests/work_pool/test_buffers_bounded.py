"""A stream never makes more ahead than its buffer holds."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu


@pytest.mark.parametrize("size", [1, 2, 5, 20])
def test_no_more_batches_are_made_than_the_buffer_holds(size: int) -> None:
    made, most = 0, 0
    delivered = 0
    lock = threading.Lock()

    def count(i: Any) -> Any:
        nonlocal made, most
        with lock:
            made += 1
            most = max(most, made - delivered)
        return (i,)

    source = bu.ArrayDataSource([np.arange(300)]).map(count)
    with bu.WorkerThreadPool(3) as pool:
        for _ in pool.parallel_data_source(source, size).batch_iterator(3):
            with lock:
                delivered += 1
    assert made == 100
    # A batch counts as delivered here a moment after the iterator has handed it out and asked for the next.
    assert most <= size + 1


def test_the_generator_of_a_broken_loop_is_closed() -> None:
    closed = []

    def tasks() -> Any:
        try:
            while True:
                yield (len, ("abc",))
        finally:
            closed.append(True)

    with bu.WorkerThreadPool(1) as pool:
        pool.work_stream(tasks()).close()
    assert closed == [True]
