"""Which rank this is: as the user says, or the launcher."""

from __future__ import annotations

import random
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.distributed import LAUNCHERS, rank_from, rank_from_jax, shard_of
from batchup_ng.testing.sources import assert_same_batches
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises, warns

SOURCE = bu.ArrayDataSource([np.arange(10)])


@pytest.mark.parametrize(("launcher", "rank", "world"), LAUNCHERS)
def test_each_launcher_is_understood(launcher: str, rank: str, world: str) -> None:
    assert rank_from({rank: "2", world: "5"}) == (2, 5)


def test_without_a_launcher_there_is_one_process() -> None:
    assert rank_from({}) == (0, 1)


def test_a_batch_script_that_starts_one_process_is_alone_whatever_slurm_could_start() -> None:
    assert rank_from({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) == (0, 1)
    assert rank_from({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "3"}) == (2, 3)


@pytest.mark.parametrize("half", ["RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_half_of_what_a_launcher_sets_is_refused(half: str) -> None:
    with raises(bu.ArgumentError):
        rank_from({half: "1"})


def test_who_started_the_training_counts_more_than_slurm() -> None:
    assert rank_from({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "RANK": "5", "WORLD_SIZE": "16"}) == (5, 16)


@pytest.mark.parametrize(("rank", "world"), [("5", "5"), ("-1", "2"), ("x", "2"), ("0", "0"), ("", "2"), ("²", "3")])
def test_an_environment_that_makes_no_sense_is_refused(rank: str, world: str) -> None:
    with raises(bu.ArgumentError):
        rank_from({"RANK": rank, "WORLD_SIZE": world})


def test_auto_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, *names in LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    assert [x.tolist() for (x,) in SOURCE.batch_iterator(5, shard="auto")] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [x.tolist() for (x,) in SOURCE.batch_iterator(5, shard="auto")] == [[5, 6, 7, 8, 9]]


def test_a_jax_that_is_old_or_being_imported_knows_of_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    for old in (types.SimpleNamespace(), types.SimpleNamespace(distributed=types.SimpleNamespace())):
        monkeypatch.setitem(sys.modules, "jax", old)
        assert rank_from_jax() is None
        bu.Loader(SOURCE, 5)


def test_a_loader_without_shard_in_one_of_several_processes_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = bu.CallableDataSource(lambda size: iter([(np.arange(size),)]))
    for _, *names in LAUNCHERS:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bu.Loader(SOURCE, 5)
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "1")
        bu.Loader(SOURCE, 5)
        monkeypatch.setenv("WORLD_SIZE", "2")
        for shard in ("auto", None, (0, 2), (0, 1)):
            bu.Loader(SOURCE, 5, shard=shard)
        bu.Loader(stream, 5)  # whose function gives each process its own
    with warns(UserWarning) as caught:
        bu.Loader(SOURCE, 5)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("shard", "kind"),
    [
        ((2, 2), bu.ArgumentError),
        ((-1, 2), bu.ArgumentError),
        ((0, 0), bu.ArgumentError),
        (3, bu.ArgumentTypeError),
        ("all", bu.ArgumentTypeError),
        ((0, 1, 2), bu.ArgumentTypeError),
        (b"ab", bu.ArgumentTypeError),
        ({0, 2}, bu.ArgumentTypeError),
        ({0: 0, 1: 2}, bu.ArgumentTypeError),
        ((0.5, 2), bu.ArgumentTypeError),
    ],
)
def test_what_is_no_shard_is_refused(shard: Any, kind: type) -> None:
    with raises(kind):
        SOURCE.batch_iterator(2, shard=shard)


def test_other_options_of_a_shard_are_checked() -> None:
    with raises(bu.ArgumentError):
        SOURCE.batch_iterator(2, uneven="dorp")
    with raises(bu.ArgumentTypeError):
        SOURCE.batch_iterator(2, pad_mask=1)
    assert shard_of((np.int64(1), np.int32(3)), "drop", True) == (1, 3, "drop", True)


def old_code(x: np.ndarray) -> Any:
    return x, np.random.rand(len(x)) + random.random()


def test_batches_with_a_mask_draw_from_seeded_global_generators_too(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([np.arange(20)]).map(old_code)
    options: dict[str, Any] = {"shuffle": 3, "shard": (1, 2), "pad_mask": True}
    plain = list(source.batch_iterator(4, **options))
    assert_same_batches([batch[:-1] for batch in plain], list(source.batch_iterator(4, shuffle=3, shard=(1, 2))))
    for pool in (bu.SerialPool(), pools[1]):
        assert_same_batches(list(pool.parallel_data_source(source).batch_iterator(4, **options)), plain)
