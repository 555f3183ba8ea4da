"""The last epoch of a loader: ``loader.epochs(n)`` makes no batch of a later one, and the loader still goes on."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from tests.submissions import Submissions

N, SIZE = 12, 4
ROWS = np.arange(N)


def of_epochs(*epochs: int) -> list[tuple[int, int]]:
    return [(epoch, number) for epoch in epochs for number in range(N // SIZE)]


def rows(batches: Any) -> list[int]:
    return [int(row) for batch in batches for row in (batch["x"] if isinstance(batch, dict) else batch[0])]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("view", [lambda loader: loader, lambda loader: loader.map(lambda x: (x,))])
def test_nothing_of_an_epoch_after_the_last_is_submitted(size: int, view: Callable[[bu.Loader], bu.Loader]) -> None:
    with Submissions() as pool, bu.Loader([ROWS], SIZE, pool=pool, buffer=size) as loader:
        assert rows(view(loader).epochs(2)) == [*ROWS] * 2
        assert pool.submitted == of_epochs(0, 1)
        assert rows(view(loader).epochs(3)) == [*ROWS]  # a second call goes on
        assert pool.submitted == of_epochs(0, 1, 2)
        assert rows(loader) == [*ROWS]  # no last epoch is known here
        assert pool.submitted[: 4 * N // SIZE] == of_epochs(0, 1, 2, 3)
        ahead = len(pool.submitted)
        assert ahead == 4 * N // SIZE + min(size, N // SIZE)
        assert rows(loader.epochs(5)) == [*ROWS]  # what is ready of the fifth epoch is handed out
        assert pool.submitted == of_epochs(0, 1, 2, 3, 4)


@pytest.mark.parametrize("taken", range(2 * N // SIZE))
def test_a_loop_that_is_left_and_a_state_keep_the_last_epoch(taken: int) -> None:
    with Submissions() as pool, bu.Loader([ROWS], SIZE, pool=pool) as loader:
        got = rows(itertools.islice(loader.epochs(2), taken))
        state = loader.state_dict()
    with Submissions() as pool, bu.Loader([ROWS], SIZE, pool=pool) as other:
        other.load_state_dict(state)
        assert got + rows(other.epochs(2)) == [*ROWS] * 2
        assert pool.submitted == of_epochs(0, 1)[taken:]


def test_epochs_without_end_are_made_ahead() -> None:
    with Submissions() as pool, bu.Loader([ROWS], SIZE, pool=pool) as loader:
        epochs = loader.epochs(None)
        assert rows(itertools.islice(epochs, N // SIZE)) == [*ROWS]
        assert pool.submitted == of_epochs(0, 1)


def counted(path: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return a batch, and note in a file that it was made; in one write, as several processes do so."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(file, bytes([x[0]]))
    os.close(file)
    return {"x": x}


@pytest.mark.parametrize("kind", ["serial", "threads", "processes"])
def test_a_map_is_called_once_for_each_batch_of_the_epochs(
    kind: str, tmp_path: Path, pools: list[AbstractWorkerPool]
) -> None:
    path = tmp_path / "calls"
    path.touch()
    source = bu.ArrayDataSource({"x": ROWS}).map(functools.partial(counted, str(path)))
    pool = dict(zip(["threads", "processes"], pools, strict=True)).get(kind, kind)
    with bu.Loader(source, SIZE, pool=pool) as loader:
        assert rows(loader.epochs(2)) == [*ROWS] * 2
        assert list(pools[0].work_stream(iter([(abs, (1,))])).retrieve_iter()) == [1]
    assert sorted(path.read_bytes()) == sorted([0, 4, 8] * 2)
