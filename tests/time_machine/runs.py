"""Runs of several ranks with crashes, resumes and other worlds, and what each rank got at each step."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.testing.comparison import digest_of, layout_of

N = 300
SEED = 3


class Counted:
    """Rows that count how often they are read, with a name for each."""

    shape = (N,)
    dtype = np.dtype(np.int64)

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> np.ndarray:
        self.reads += 1
        return np.asarray(rows)

    def sample_name(self, row: int) -> str:
        return f"images/{row:03}.png"


def noise(x: np.ndarray, rng: Any) -> Any:
    return x, rng.uniform()


def both(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Any:
    return x, y, rng.random(len(x))


def noisy(column: Any = None) -> Any:
    """A source with the row numbers, a number drawn for each sample, and one drawn for the batch."""
    column = Counted() if column is None else column
    return bu.ArrayDataSource([column]).map(noise, rng="sample").map(both, rng="batch")


def rows_of(batch: Any) -> list[int]:
    return [int(row) for row in batch[0]]


def print_of(batch: Any) -> int:
    """Return a digest of the bytes of a batch and of their layout."""
    return digest_of([batch, layout_of(batch)])


def loaders(source: Any, size: int, world: int, path: Path | None, state: Any = None, **options: Any) -> list[Any]:
    """Return the loader of each rank, with its ledger."""
    made = [bu.Loader(source, size, shard=(rank, world), **{"shuffle": SEED, "pool": "serial", **options})
            for rank in range(world)]  # fmt: skip
    for loader in made:
        if path is not None:
            assert bu.ledger(loader, path) is loader
        if state is not None:
            loader.load_state_dict(json.loads(json.dumps(state)))
    return made


def any_run(path: Path, seed: int, source: Any, n_attempts: int = 5, **options: Any) -> list[dict[int, list[Any]]]:
    """Run some attempts that end anywhere and go on from an earlier state in another world and batch size.

    Returns:
        For each attempt the batches of all ranks by step, which this function counts itself.
    """
    rng = random.Random(seed)
    attempts: list[dict[int, list[Any]]] = []
    state, states = None, {}
    for _ in range(n_attempts):
        ranks = loaders(source, rng.choice([4, 7, 8]), rng.choice([1, 2, 3, 4]), path, state, **options)
        step = 0 if state is None else state["steps"]["step"]
        done: dict[int, list[Any]] = {}
        attempts.append(done)
        for _ in range(rng.randint(1, 5)):
            if rng.random() < 0.3:
                skipped = [step + rng.randint(0, 40) for _ in range(3)]
                for rank in ranks:
                    rank.skip(skipped)
            most = rng.choice([1000, 1000, 5, 20])  # a loop may leave its epoch early
            for number, together in enumerate(zip(*ranks, strict=True)):
                done[step] = [tuple(column.copy() for column in batch) for batch in together]
                step += 1
                now = [rank.state_dict() for rank in ranks]
                assert all(each["steps"] == now[0]["steps"] for each in now)
                assert now[0]["steps"]["step"] == step
                if rng.random() < 0.1:
                    states[step] = now[0]
                if number >= most:
                    break
        if rng.random() < 0.4:  # otherwise it is a crash, as far as the ledger knows
            for rank in ranks:
                rank.close()
        state = states[rng.choice(list(states))] if states else None
        reached = 0 if state is None else state["steps"]["step"]
        states = {at: saved for at, saved in states.items() if at <= reached}
    return attempts
