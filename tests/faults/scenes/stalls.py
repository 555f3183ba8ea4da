"""Samples, workers, starts and ends that take for ever (F19, F20)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import batchup_ng as bu
from batchup_ng.work_pool import processes, window

from ..books import BATCH, BATCHES, SHUFFLE, balance, make_pool, planned_rows, source
from ..hunting import all_workers, send, stop
from ..mischief import AtRows

POSITION = 400


def stuck_row() -> int:
    return int(planned_rows()[POSITION])


def timed_out(kind: str, workers: int, act: str, timeout: float) -> dict[str, Any]:
    """F19: a sample never ends; ``timeout=`` ends the wait with an error that names the row."""
    with make_pool(kind, workers) as pool:
        fault = AtRows([stuck_row()], act)
        parallel = pool.parallel_data_source(source(fault=fault), 4, timeout=timeout)
        iterator, delivered = parallel.batch_iterator(BATCH, shuffle=SHUFFLE), 0
        began = time.perf_counter()
        try:
            for _ in iterator:
                delivered += 1
                began = time.perf_counter()
        except bu.SampleTimeout as error:
            found = {"seconds": time.perf_counter() - began, "row": error.row, "message": str(error)}
        else:
            raise AssertionError(f"the epoch ended without an error, after {delivered} batches")
        iterator.close()
        usable = _usable(pool)
        return found | {"stuck": stuck_row(), "delivered": delivered, "usable": usable}


def _usable(pool: Any) -> bool:
    with pool.parallel_data_source(source(), 4).batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
        return balance(iterator)["batches"] == BATCHES


def skipped(kind: str, workers: int, act: str, timeout: float) -> dict[str, Any]:
    """F19: a sample that never ends is skipped, the rest is delivered."""
    with make_pool(kind, workers) as pool:
        fault = AtRows([stuck_row()], act)
        parallel = pool.parallel_data_source(source(fault=fault), 4, timeout=timeout, on_error="skip")
        with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
            figures = balance(iterator, bad=[stuck_row()])
            (error,) = iterator.errors
            return figures | {"timeout": isinstance(error.error, bu.SampleTimeout)}


@contextlib.contextmanager
def stall_seconds(seconds: float) -> Iterator[None]:
    """Warn of a stall after so many seconds within."""
    before = window.STALL_SECONDS
    window.STALL_SECONDS = seconds
    try:
        yield
    finally:
        window.STALL_SECONDS = before


def warned_of(kind: str, act: str) -> dict[str, Any]:
    """F19: without a timeout a warning tells which rows keep the consumer waiting, once; then the loop is left."""
    row, told, passed = stuck_row(), [], 0
    with tempfile.TemporaryDirectory() as folder, make_pool(kind) as pool, stall_seconds(0.5):
        # The first who reads the row is stuck; when the warning has come it is killed, which others then survive.
        parallel = pool.parallel_data_source(source(fault=AtRows([row], act, folder)), 4)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)

        def show(message: Any, category: type, *_: Any) -> None:
            told.append(f"{category.__name__}: {message}")
            pid = int(Path(folder, str(row)).read_text())
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show  # type: ignore[assignment]
            passed = balance(iterator)["batches"]
    return {"told": told, "stuck": row, "batches": passed}


def slow_but_alive(kind: str) -> dict[str, Any]:
    """F19: a batch that takes longer than the timeout, while each of its samples does not, is delivered."""
    with make_pool(kind) as pool:
        slow = bu.ArrayDataSource([planned_rows()]).map_samples(pause_a_little)
        parallel = pool.parallel_data_source(bu.take(slow, 28), 2, timeout=0.5)
        began = time.perf_counter()
        count = sum(len(rows) for (rows,) in parallel.batch_iterator(BATCH))
        return {"samples": count, "seconds": time.perf_counter() - began}


def pause_a_little(row: Any) -> Any:
    time.sleep(0.15)
    return (row,)


# -- F20 ---------------------------------------------------------------------------------------------------------

HANGS = "import os, time\nif os.environ.get('BATCHUP_NG_TEST_HANGS'):\n    time.sleep(3600)\n"


def lower_start_timeout(seconds: float) -> None:
    """Let the pool wait only so long for a worker to be ready."""
    names = [module.name for module in pkgutil.iter_modules(processes.__path__, f"{processes.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    found = [module for module in modules if hasattr(module, "START_SECONDS")]
    assert found, "no module of the process pool has START_SECONDS, after which a worker should be ready"
    for module in found:
        module.START_SECONDS = seconds  # type: ignore[attr-defined]


def told_of_a_start(kind: str) -> dict[str, Any]:
    """Use a pool whose workers cannot start; return what it says and how long that takes."""
    began = time.perf_counter()
    try:
        with make_pool(kind) as pool:
            next(pool.work_stream(iter([(len, ("abc",))])))
    except bu.BatchupError as error:
        return {"message": str(error), "seconds": time.perf_counter() - began}
    raise AssertionError("a pool whose workers cannot start did work")


def hangs_in_import(kind: str) -> dict[str, Any]:
    """F20: each interpreter that is started hangs before it gets to the worker's code."""
    lower_start_timeout(1.0)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(HANGS)
        path = os.environ["PYTHONPATH"]
        os.environ |= {"PYTHONPATH": f"{folder}{os.pathsep}{path}", "BATCHUP_NG_TEST_HANGS": "yes"}
        found = told_of_a_start(kind)
        gc.collect()
        os.environ["BATCHUP_NG_TEST_HANGS"] = ""
        with make_pool(kind) as pool:
            assert _usable(pool)
        return found


def hangs_in_init(kind: str) -> dict[str, Any]:
    """F20: what starts the workers is stopped, then a worker dies; the pool does not wait for ever for another."""
    lower_start_timeout(3.0)  # enough for a start on a busy machine
    with make_pool(kind) as pool:
        assert _usable(pool)
        pids = all_workers(kind, 2)
        if kind == "forkserver":
            (server,) = psutil.Process().children()
            stop(server.pid)
        for pid in pids:
            stop(pid)
            send(pid)
        began = time.perf_counter()
        try:
            done = _usable(pool)
        except bu.BatchupError as error:
            return {"message": str(error), "seconds": time.perf_counter() - began}
        return {"message": "", "usable": done, "seconds": time.perf_counter() - began}


def server_killed(kind: str) -> dict[str, Any]:
    """F4, F20: the server that forks the workers is killed with a worker; the epoch completes or one error tells."""
    began = time.perf_counter()
    with make_pool(kind) as pool:
        assert _usable(pool)
        (server,) = psutil.Process().children()
        parallel = pool.parallel_data_source(source(pause=0.002), 4)

        def act(batch: int) -> None:
            if batch == 20:
                pids = all_workers(kind, 2)
                send(server.pid)
                send(pids[0])

        try:
            with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
                how = f"completed {balance(iterator, at=act)['batches']}"
        except bu.WorkerLost as error:
            how = f"WorkerLost: {error}"
    return {"how": how, "seconds": time.perf_counter() - began}


def hangs_in_close(kind: str, act: str) -> dict[str, Any]:
    """F20: a pool is closed while a worker is stuck in a sample."""
    pool = make_pool(kind)
    row = stuck_row()
    with tempfile.TemporaryDirectory() as folder:
        parallel = pool.parallel_data_source(source(fault=AtRows([row], act, folder)), 4)
        iterator = parallel.batch_iterator(BATCH, shuffle=SHUFFLE)
        for _ in range(POSITION // BATCH):
            next(iterator)
        deadline = time.monotonic() + 10
        while not Path(folder, str(row)).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        pids = all_workers(kind, 2)
        began = time.perf_counter()
        pool.close()
        took = time.perf_counter() - began
        # Those that had to be killed are gone with close itself, not some time later.
        return {"seconds": took, "left": [pid for pid in pids if psutil.pid_exists(pid) and not _zombie(pid)]}


def _zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True
