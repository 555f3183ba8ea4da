"""Samples that take for ever (F19)."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import batchup_ng as bu
from batchup_ng.work_pool import prefetch_buffer

from ..accounting import BATCH, BATCHES, SHUFFLE, balance, make_pool, planned_rows, source, whole
from ..hunting import send, wait_for
from ..mischief import AtRows, Several, who_was_there

POSITION = 200


def stuck_row() -> int:
    return int(planned_rows()[POSITION])


def timed_out(kind: str, workers: int, act: str, timeout: float) -> dict[str, Any]:
    """F19: a sample never ends; ``timeout=`` ends the wait with an error that names the row."""
    with make_pool(kind, workers) as pool:
        fault = AtRows([stuck_row()], act)
        parallel = pool.parallel_data_source(source(fault=fault), 4, timeout=timeout)
        iterator, delivered = parallel.batch_iterator(BATCH, shuffle=SHUFFLE), 0
        try:
            for _ in iterator:
                delivered += 1
        except bu.SampleTimeout as error:
            found = {"row": error.row, "message": str(error)}
        else:
            raise AssertionError(f"the epoch ended without an error, after {delivered} batches")
        iterator.close()
        return found | {"stuck": stuck_row(), "delivered": delivered, "usable": whole(pool) == BATCHES}


def skipped(kind: str, workers: int, acts: list[str], timeout: float) -> bool:
    """F19: samples that never end, each in another way, are skipped, the rest is delivered."""
    with make_pool(kind, workers) as pool:
        rows = planned_rows()[POSITION : POSITION + 30 * len(acts) : 30].tolist()
        fault = Several(*[AtRows([row], act) for row, act in zip(rows, acts, strict=True)])
        parallel = pool.parallel_data_source(source(fault=fault), 4, timeout=timeout, on_error="skip")
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            balance(iterator, bad=rows)
            return all(isinstance(error.error, bu.SampleTimeout) for error in iterator.errors)


@contextlib.contextmanager
def stall_seconds(seconds: float) -> Iterator[None]:
    """Warn of a stall after so many seconds within."""
    before = prefetch_buffer.STALL_SECONDS
    prefetch_buffer.STALL_SECONDS = seconds
    try:
        yield
    finally:
        prefetch_buffer.STALL_SECONDS = before


def warned_of(kind: str, act: str) -> dict[str, Any]:
    """F19: without a timeout a warning tells which rows keep the consumer waiting, once; then the loop is left."""
    row, told, ends = stuck_row(), list[str](), list[threading.Thread]()
    with tempfile.TemporaryDirectory() as folder, make_pool(kind) as pool, stall_seconds(0.25):
        # The first who reads the row is stuck; when the warning has come it is killed, which others then survive.
        parallel = pool.parallel_data_source(source(fault=AtRows([row], act, folder)), 4)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)

        def show(message: Any, category: type, *_: Any) -> None:
            rows = re.findall(r"\d+", str(message).partition("rows [")[2].partition("]")[0])
            if str(row) not in rows:
                return  # on a machine that is busy the consumer may have waited for other batches too
            told.append(f"{category.__name__}: {message}")
            ends.append(threading.Thread(target=end_it))  # on such a machine the row may not have been begun
            ends[-1].start()

        def end_it() -> None:
            pid = wait_for(lambda: who_was_there(folder, row), "the worker to be in the batch")
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show  # type: ignore[assignment]
            batches = balance(iterator)
        for thread in ends:
            thread.join()
    return {"told": told, "stuck": row, "batches": batches}


def slow_but_alive(kind: str) -> int:
    """F19: a batch that takes longer than the timeout, while each of its samples does not, is delivered."""
    with make_pool(kind) as pool:
        slow = bu.ArrayDataSource([planned_rows()]).map_samples(pause_a_little)
        parallel = pool.parallel_data_source(bu.take(slow, 14), 2, timeout=1.0)
        return sum(len(rows) for (rows,) in parallel.batch_iterator(BATCH))


def pause_a_little(row: Any) -> Any:
    time.sleep(0.17)
    return (row,)
