"""Ranks exchange their figures in any order of their calls. If one does not take part, the others get an error."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.rank_exchange import KEY, gathered
from tests.extent import quick
from tests.messages import raises

PROGRAM = Path(__file__).parents[1] / "frameworks" / "programs" / "explained_rank.py"

SCENES = {"data in lockstep": "data", "data": "data", "step": "step", "step in lockstep": "step"}
"""What the program plants, and what is slow there."""


class Store:
    """A store with the methods of torch's that are used."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> str:
        return str(self.values[key])

    def add(self, key: str, n: int) -> int:
        with self.changed:
            self.values[key] = self.values.get(key, 0) + n
            return int(self.values[key])

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None

    def wait(self, keys: list[str], limit: timedelta) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.check(keys), limit.total_seconds()):
                raise RuntimeError("wait timeout")


def exchanges(store: Store, rank: int, world: int, n: int) -> list[Any]:
    return [gathered(store, [rank, number], rank, world, 60.0) for number in range(n)]


@pytest.mark.parametrize("world", [1, 2, 5])
def test_each_rank_gets_the_figures_of_all(world: int) -> None:
    store = Store()
    with ThreadPoolExecutor(world) as threads:
        told = list(threads.map(lambda rank: exchanges(store, rank, world, 20), range(world)))
    assert told == [[[[rank, number] for rank in range(world)] for number in range(20)]] * world
    assert len(store.values) <= world + 2 * (world + 2), "what is over is left there"


def test_a_rank_that_is_missing_is_named_and_the_next_exchange_works() -> None:
    store = Store()
    for _ in range(2):
        with raises(bu.RankTimeout):
            gathered(store, "mine", 0, 3, 0.01)
    with ThreadPoolExecutor(3) as threads:
        assert [*threads.map(lambda rank: gathered(store, rank, rank, 3, 60.0), range(3))] == [[0, 1, 2]] * 3


def test_ranks_that_had_given_up_before_are_told_of() -> None:
    store = Store()
    store.set(f"{KEY}/0/1", "1")
    with raises(bu.RankTimeout):
        gathered(store, "mine", 0, 2, 0.01)


def test_a_function_that_does_not_gather_is_refused() -> None:
    with loop() as loader:
        for gather in (lambda own: None, lambda own: [own[:3]], lambda own: [[]]):
            with raises(bu.ArgumentError):
                loader.explain(trial=False, ranks=gather)


def test_a_rank_that_comes_at_the_last_moment_is_there() -> None:
    class Late(Store):
        def wait(self, keys: list[str], limit: timedelta) -> None:
            if not self.check(keys):  # the other one comes just as the time is over
                self.set(f"{KEY}/0/1", "1")
                assert self.add(f"{KEY}/0/count", 1) == 2
                self.set(keys[0], "1")
                raise RuntimeError("wait timeout")

    assert gathered(Late(), 0, 0, 2, 0.01) == [0, 1]


def loop(batches: int = 30) -> bu.Loader:
    loader = bu.Loader([np.arange(batches)], 1, pool="serial")
    for _ in loader:
        pass
    return loader


def test_a_function_may_gather_the_figures() -> None:
    def gather(own: list[Any]) -> list[list[Any]]:
        return [json.loads(json.dumps(own)), [1, "other", 3600.0, 3599.0, 1.0, 0.5, "workers", ""]]

    with loop() as loader:
        for why in (loader.explain(trial=False, ranks=gather), bu.explain(loader, trial=False, ranks=gather)):
            assert why.straggler is not None
            assert (why.straggler.rank, why.straggler.slow) == (1, "data")
            assert why.straggler.sentence in str(why)
            assert [each.rank for each in why.ranks] == [0, 1]
            assert why.ranks[0].seconds_per_batch == pytest.approx(why.seconds_per_batch)
        plain = loader.explain(trial=False)
        assert (plain.ranks, plain.straggler, plain.to_dict()["straggler"]) == ([], None, None)


def test_a_rank_without_figures_says_so_to_the_others() -> None:
    told: list[Any] = []
    with loop(3) as loader, raises(bu.ArgumentError):
        loader.explain(ranks=lambda own: [told.append(own) or own])
    (own,) = told
    assert "too few batches were measured" in own[-1]


def test_wrong_arguments_are_refused() -> None:
    with loop() as loader:
        for options in ({"ranks": True}, {"ranks": print, "timeout": 0}):
            with raises(bu.ArgumentError):
                loader.explain(**options)
        with raises(bu.ArgumentTypeError):
            loader.explain(ranks=3)


@pytest.mark.in_turn
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("world", quick([3], [2]))
def test_a_planted_straggler_is_named_on_all_ranks(world: int, tmp_path: Path) -> None:
    hidden = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    plain = {name: value for name, value in os.environ.items() if name not in hidden}
    plain |= {"PYTHONPATH": str(PROGRAM.parents[3]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(PROGRAM), str(tmp_path / "group")]
    programs = []
    try:
        for rank in range(world):
            options: Any = {"stdout": subprocess.PIPE, "env": plain}
            programs.append(subprocess.Popen([*command, str(rank), str(world)], **options))
        found = [json.loads(program.communicate(timeout=400)[0].splitlines()[-1]) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    last = world - 1
    for rank, told in enumerate(found):
        assert told["no group"].startswith("ArgumentError: ranks=True needs torch.distributed")
        for scene, slow in SCENES.items():
            straggler = told[scene]["straggler"]
            assert (straggler["rank"], straggler["slow"]) == (last, slow), (scene, told[scene])
            assert straggler["sentence"] in told[scene]["text"]
            assert [each["rank"] for each in told[scene]["ranks"]] == [*range(world)]
        if rank != last:
            assert f"rank {last} of {world} did not call explain(ranks=True) within 0.3 s" in told["one does not ask"]
            assert "too few" in told["one has too few"]["ranks"][last]["error"]
        else:
            assert "too few batches" in told["one has too few"]
        assert len(told["after that"]["ranks"]) == world
