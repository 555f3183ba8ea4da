"""What a pool does is in the program's log, if the program has one."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import batchup_ng as bu


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "batchup_ng")
    return caplog


def fails_at_nine(x: np.ndarray) -> tuple[np.ndarray]:
    if (x == 9).any():
        raise ValueError("a bad sample")
    return (x,)


def test_a_choice_is_logged_with_its_reason(said: pytest.LogCaptureFixture) -> None:
    for pool in ("threads", "auto"):
        with bu.Loader([np.arange(10)], 2, pool=pool) as loader:
            assert len(list(loader)) == 5
    (chosen,) = said.messages
    assert re.match(r"pool='auto' chose '(serial|threads)': a batch takes .*", chosen)


@pytest.mark.filterwarnings("ignore::batchup_ng.errors.SampleWarning")
@pytest.mark.parametrize("action", ["skip", "replace"])
def test_each_bad_sample_is_logged(action: str, said: pytest.LogCaptureFixture) -> None:
    source = bu.ArrayDataSource([np.arange(20)]).map(fails_at_nine)
    with bu.Loader(source, 5, pool="serial", on_error=action) as loader:
        for _ in range(2):
            list(loader)
    done = {"skip": "left out", "replace": "replaced"}[action]
    assert [text.split(" a sample")[0] for text in said.messages] == [f"on_error={action!r} {done}"] * 2
    assert all("a bad sample" in text for text in said.messages)


def test_a_worker_that_is_replaced_is_logged(said: pytest.LogCaptureFixture) -> None:
    with bu.WorkerProcessPool(1) as pool:
        pid = pids(pool)[0]
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while not any("in place of another" in text for text in said.messages) and time.monotonic() < end:
            list(pids(pool))
    assert said.messages[0] == "a pool of 1 worker processes was made, start_method='forkserver'"
    (replaced,) = [text for text in said.messages if "in place of another" in text]
    assert str(pid) in replaced.split("in place of another")[1]


def pids(pool: bu.WorkerProcessPool) -> list[int]:
    def of_worker(x: np.ndarray) -> tuple[np.ndarray]:
        return (np.full(len(x), os.getpid()),)

    source = pool.parallel_data_source(bu.ArrayDataSource([np.arange(2)]).map(of_worker))
    return [int(pid) for (batch,) in source.batch_iterator(1) for pid in batch]


def test_a_handler_that_raises_costs_only_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    class Raises(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("of the handler")

    handler, logger = Raises(), logging.getLogger("batchup_ng")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with bu.WorkerProcessPool(1) as pool:
            pid = pids(pool)[0]
            os.kill(pid, signal.SIGKILL)
            assert len(pids(pool)) == 2
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert "of the handler" in capsys.readouterr().err


def test_an_answer_of_other_data_is_logged(said: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    for stop in (10, 10, 11):
        bu.ArrayDataSource([np.arange(stop)]).filter(lambda x: x > 3, cache=path, progress=False)
    assert said.messages == [
        f"the answer of a filter in {str(path)!r} is of other samples or functions; the filter is computed again"
    ]
    said.clear()
    path = tmp_path / "numbers"
    for stop in (10, 10, 11):
        bu.statistics(bu.ArrayDataSource([np.arange(stop)]), cache=path, progress=False)
    assert len(said.messages) == 1


def test_a_program_without_logging_does_not_import_it() -> None:
    code = (
        "import sys, numpy as np, batchup_ng as bu\nbu.Loader\n"  # whose modules load cloudpickle, which loads it
        "sys.modules.pop('logging', None)\n"
        "with bu.Loader([np.arange(4)], 2, pool='threads', workers=1) as loader: list(loader)\n"
        "print('logging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
