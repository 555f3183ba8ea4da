"""Threads that share one iterator, as an exception or a close ends its epoch in one of them."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source import BatchIterator
from batchup_ng.work_pool.prefetch_buffer import BufferedRunner
from tests.messages import raises
from tests.threads import in_threads

N, SIZE = 24, 4


class FailsUnderway:
    """A map that fails at a row, once another thread waits for its turn to take a batch of the same iterator."""

    def __init__(self, row: int) -> None:
        self.row = row
        self.iterator: Any = None
        self.came: list[BaseException] = []
        self.other = threading.Thread(target=self.take)

    def take(self) -> None:
        try:
            next(self.iterator)
        except BaseException as error:
            self.came.append(error)

    def __call__(self, x: np.ndarray) -> Any:
        if self.row not in x:
            return (x,)
        if not self.other.ident:
            self.other.start()
            deadline = time.monotonic() + 240
            while not self.waits():
                assert time.monotonic() < deadline
                time.sleep(0.001)
        raise ValueError("bad")

    def waits(self) -> bool:
        frame = sys._current_frames().get(self.other.ident or 0)
        return frame is not None and frame.f_code is BufferedRunner.__next__.__code__


@pytest.mark.parametrize("row", [9, N - 1])
@pytest.mark.parametrize("buffer", [1, 20])
@pytest.mark.parametrize("width", [1, 4096])
def test_an_error_in_one_thread_is_no_end_for_another(
    row: int, buffer: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = FailsUnderway(row)
    take_back = BatchIterator.take_back

    def late(self: BatchIterator, *args: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            fails.other.join(240)  # which goes on before this thread could say that the epoch is broken off
        take_back(self, *args)

    monkeypatch.setattr(BatchIterator, "take_back", late)
    source = bu.ArrayDataSource([np.repeat(np.arange(N)[:, None], width, axis=1)]).map(fails)
    with bu.SerialPool() as pool:
        fails.iterator = pool.parallel_data_source(source, buffer).batch_iterator(SIZE)
        assert [next(fails.iterator)[0][0, 0] for _ in range(row // SIZE)] == list(range(0, row // SIZE * SIZE, SIZE))
        with raises(ValueError):
            next(fails.iterator)
        assert [type(error) for error in fails.came] == [bu.PoolClosed]


def test_a_wait_is_reported_by_one_of_several_threads() -> None:
    waits: list[bu.EpochWait] = []
    reported = threading.Event()

    def report(wait: bu.EpochWait) -> None:
        waits.append(wait)
        reported.set()

    for _ in range(50):
        with bu.Loader([np.arange(N)], SIZE, pool="threads", workers=1) as loader:
            iterator = iter(bu.watch(loader, report))
            in_threads([partial(list, iterator)] * 3)
            assert reported.is_set()
    assert len(waits) == 50
