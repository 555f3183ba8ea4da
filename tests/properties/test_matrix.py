"""One stream, however it is made: pools, workers, buffers, ranks, resumes after each batch, killed workers.

The settings are ``KINDS`` × ``WORKERS`` × ``BUFFERS`` × ``WORLDS`` of ``matrix.py``. In each the whole stream is
compared with a plain loop, byte for byte, and after each batch a state is taken, with which another setting goes on,
one setting after the other. That is so with ``--thorough``. Otherwise each pool and each pair of buffer and world comes
once, a state is taken after some batches, and of what it hands out the first batches are compared.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.randomness import BatchKey, numpy_rng
from batchup_ng.testing.comparison import digest_of, layout_of
from batchup_ng.testing.sources import assert_same_batches
from tests.extent import quick
from tests.properties.matrix import (
    BATCHES,
    BUFFERS,
    EPOCH,
    KEPT,
    KINDS,
    LOOKED_AT,
    SEED,
    SIZE,
    SIZES,
    WORKERS,
    WORLDS,
    augmented,
    open_pool,
    opened,
    views,
)

POOLS = [("serial", 1), *itertools.product(KINDS[1:], WORKERS)]
SETTINGS = list(itertools.product(POOLS, BUFFERS))
QUICK = [(pool, BUFFERS[i % len(BUFFERS)], WORLDS[i % len(WORLDS)]) for i, pool in enumerate(POOLS)]
STEP = 24
"""Every so many batches a state is taken; after each if thorough."""


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[tuple[str, int], Any]]:
    """All pools, which stay for all tests."""
    with opened(POOLS) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> dict[bool, list[Any]]:
    """The batches of a plain loop, with and without a map that draws from global generators."""
    return {old: list(augmented(old).batch_iterator(SIZE, SEED, epoch=EPOCH)) for old in (False, True)}


def iterators(source: Any, world: int, **options: Any) -> list[Any]:
    """Return the iterator of each rank."""
    return [source.batch_iterator(SIZE, SEED, shard=(rank, world), **options) for rank in range(world)]


def mixed(ranks: list[Any], rounds: int | None = None) -> list[Any]:
    """Return the batches that all ranks together hand out, in the order of the stream; `rounds` of each, or all."""
    given = [list(rank if rounds is None else islice(rank, rounds)) for rank in ranks]
    return [batch for together in zip(*given, strict=True) for batch in together]


def close(ranks: list[Any]) -> None:
    for rank in ranks:
        rank.close()


@pytest.mark.parametrize(
    ("pool", "buffer", "world"),
    quick(QUICK, list(itertools.product(POOLS, BUFFERS, WORLDS))),
    ids=lambda part: "-".join(map(str, np.ravel(part))),
)
def test_every_setting_hands_out_the_one_stream_and_any_other_goes_on_with_it(
    pool: tuple[str, int],
    buffer: int,
    world: int,
    pools: dict[tuple[str, int], Any],
    expected: dict[bool, list[Any]],
    in_full: bool,
) -> None:
    old = pool[0] != "threads"
    made = functools.cache(lambda pool, buffer: pools[pool].parallel_data_source(augmented(old), buffer))
    others = itertools.cycle(itertools.product(SETTINGS, WORLDS))
    for _ in range(7 * SETTINGS.index((pool, buffer))):
        next(others)
    ranks, given = iterators(made(pool, buffer), world, epoch=EPOCH), []
    for round_ in range(BATCHES // world):
        states = [rank.state_dict() for rank in ranks]
        assert len({(state["samples"], state["batches"]) for state in states}) == 1
        if in_full or round_ % STEP == 0:
            check_tail(next(others), made, states[0], expected[old], round_ * world, old, in_full)
        given += mixed(ranks, 1)
    assert_same_batches(given, expected[old])
    assert mixed(ranks) == []


@pytest.fixture(scope="module")
def one_by_one() -> dict[str, list[Any]]:
    """The columns of each source of images, whose batches are of one image, each copied as it comes."""
    made = {}
    for name, source in views().items():
        rows = [[part.copy() for part in batch] for batch in source.batch_iterator(1, SEED, epoch=EPOCH)]
        made[name] = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    return made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", quick(["serial-1", "threads-2", "processes-2"], [f"{k}-{n}" for k, n in POOLS]))
def test_what_a_map_sees_does_not_depend_on_whose_memory_it_is(
    kind: str, size: int, pools: dict[tuple[str, int], Any], one_by_one: dict[str, list[Any]]
) -> None:
    (pool,) = [made for (name, workers), made in pools.items() if f"{name}-{workers}" == kind]
    for name, source in views().items():
        for made in (pool.parallel_data_source(source, BUFFERS[1]), source):
            epoch = made.batch_iterator(size, SEED, epoch=EPOCH)
            columns = [np.concatenate(parts) for parts in zip(*epoch, strict=True)]
            for place, (column, wanted) in enumerate(zip(columns, one_by_one[name], strict=True)):
                np.testing.assert_array_equal(column, wanted, err_msg=f"part {place} of {name!r}", strict=True)
    assert (KEPT == 7).all()


def check_tail(
    setting: Any, made: Any, state: Any, expected: list[Any], reached: int, old: bool, in_full: bool
) -> None:
    """Go on from a state in another setting."""
    (pool, buffer), world = setting
    if old and pool[0] == "threads":
        pool = ("processes", pool[1])  # threads share the global generators
    state = json.loads(json.dumps(state))
    ranks = iterators(made(pool, buffer), world, state=state)
    left = expected[reached:]
    whole = len(left) // world
    rounds = whole if in_full else min(whole, math.ceil(LOOKED_AT / world))
    assert_same_batches(mixed(ranks, rounds), left[: rounds * world])
    if rounds == whole:
        check_end(mixed(ranks), left[whole * world :], world)
    close(ranks)


def check_end(given: list[Any], left: list[Any], world: int) -> None:
    """Compare the samples of the last round, which is cut otherwise than in a world of one."""
    if not left:
        assert given == []
        return
    n = SIZE * len(left)
    for column in (0, 1, 4, 6):  # what does not belong to the batch
        got = np.concatenate([batch[column] for batch in given])
        assert len(got) == world * math.ceil(n / world)
        np.testing.assert_array_equal(got[:n], np.concatenate([batch[column] for batch in left]), strict=True)


def running_workers(pool: Any) -> list[int]:
    """Return the pids of the workers, at least one: there are fewer as long as one that was killed is not replaced."""
    while not (pids := pool._dispatcher.pids()):
        time.sleep(0.01)
    return list(pids)


@pytest.mark.parametrize(
    ("workers", "buffer", "world"),
    quick([(2, 7, 3)], list(itertools.product(WORKERS, BUFFERS, WORLDS))),
)
def test_a_killed_worker_changes_nothing(
    workers: int, buffer: int, world: int, expected: dict[bool, list[Any]]
) -> None:
    with open_pool("processes", workers) as pool:
        source = pool.parallel_data_source(augmented(old=True), buffer)
        ranks, given = iterators(source, world, epoch=EPOCH), []
        kills = {5 * workers + world, 25, 49}
        for round_ in range(BATCHES // world):
            if round_ in kills:
                running = running_workers(pool)
                with contextlib.suppress(ProcessLookupError):  # it has just ended, and nobody has noticed yet
                    os.kill(running[round_ % len(running)], signal.SIGKILL)
                state = json.loads(json.dumps(ranks[0].state_dict()))
                resumed = augmented(old=True).batch_iterator(SIZE, SEED, state=state)
                left = expected[True][round_ * world :]
                assert_same_batches(list(islice(resumed, LOOKED_AT)), left[:LOOKED_AT])
            given += mixed(ranks, 1)
        assert_same_batches(given, expected[True])


@pytest.mark.parametrize("case", quick(["kill"], ["threads", "skip"]))
def test_a_new_process_goes_on_after_each_batch(case: str, tmp_path: Path, in_full: bool) -> None:
    bad, old = case == "skip", case != "threads"
    told: dict[str, Any] = {"old": old, "bad": bad, "on_error": "skip" if bad else "raise"}
    told["settings"] = [("serial", 1), ("processes", 2 if old else 3), *([] if old else [("threads", 3)])]
    states, digests = [], []
    with warnings.catch_warnings(), open_pool("threads" if case == "threads" else "processes", 2) as pool:
        warnings.simplefilter("ignore", bu.SampleWarning)
        source = pool.parallel_data_source(augmented(old, bad), 7, on_error=told["on_error"])
        iterator = source.batch_iterator(SIZE, SEED, epoch=EPOCH)
        while True:
            if case == "kill" and len(states) % 50 == 20:
                os.kill(running_workers(pool)[0], signal.SIGKILL)
            states.append(iterator.state_dict())
            batch = next(iterator, None)
            if batch is None:
                break
            digests.append(digest_of([batch, layout_of(batch)]))
    assert len(digests) == BATCHES
    assert all(len(json.dumps(state).encode()) <= 4096 for state in states)
    assert (states[-1]["counts"][2] > 5) is bad
    looked_at = range(0, BATCHES + 1, 1 if in_full else BATCHES // 3)  # the very end among them
    (tmp_path / "in.json").write_text(json.dumps({**told, "states": [states[at] for at in looked_at]}))
    tails = gone_on(tmp_path)
    assert len(tails) == len(looked_at)
    for reached, tail in zip(looked_at, tails, strict=True):
        assert tail == digests[reached:], f"after {reached} batches"


def gone_on(folder: Path) -> list[list[int]]:
    """Return what a program in another process makes of what ``in.json`` says."""
    files = [str(folder / name) for name in ("in.json", "out.json")]
    command = [sys.executable, "-W", "ignore", "-m", "tests.properties.matrix", *files]
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tails: list[list[int]] = json.loads((folder / "out.json").read_text())
    return tails


def test_no_draw_comes_twice(pools: dict[tuple[str, int], Any], in_full: bool) -> None:
    n = 12_500 if in_full else 1_000

    def draws(x: np.ndarray, rng: bu.SampleRng) -> Any:
        return (rng.uniform(), rng.uniform())

    def old_draws(*columns: np.ndarray) -> Any:
        return (*columns, np.random.random_sample(len(columns[0])))

    def more(*columns: np.ndarray, rng: np.random.Generator) -> Any:
        return (*columns, rng.random(len(columns[0])))

    source = bu.ArrayDataSource([np.arange(n)]).map(draws, rng="sample").map(old_draws).map(more, rng="batch")
    found = []
    parallel = pools["processes", 4].parallel_data_source(source)
    for epoch in range(2):
        for batch in parallel.batch_iterator(8, SEED, epoch=epoch):
            found += [column.copy() for column in batches.leaves(batch)]
    together = np.concatenate(found)
    assert len(together) == len(np.unique(together)) == 8 * n


def test_no_two_batches_seed_the_global_generators_alike(in_full: bool) -> None:
    n = 100_000 if in_full else 5_000
    with numpy_rng.globals_kept(BatchKey()):
        first = set()
        for batch in range(n):
            numpy_rng.seed_globals(BatchKey(batch=batch))
            first.add(np.random.random_sample())
    assert len(first) == n


def test_nothing_is_read_on_resume_but_what_is_handed_out(pools: dict[tuple[str, int], Any], in_full: bool) -> None:
    read: list[int] = []

    class Counted:
        shape = (600,)

        def __len__(self) -> int:
            return 600

        def __getitem__(self, rows: Any) -> np.ndarray:
            read.extend(map(int, rows))
            return np.asarray(rows)

    source = bu.ArrayDataSource([Counted()])
    whole = [batch[0] for batch in source.batch_iterator(SIZE, SEED)]
    for setting, buffer in (s for s in SETTINGS if s[0][0] != "processes"):
        for at in (0, 1, 77, 149, 150) if in_full else (1, 149, 150):
            plain = source.batch_iterator(SIZE, SEED)
            for _ in range(at):
                next(plain)
            state = plain.state_dict()
            read.clear()
            parallel = pools[setting].parallel_data_source(source, buffer)
            with parallel.batch_iterator(SIZE, SEED, state=state) as iterator:
                rest = [batch[0] for batch in iterator]
            assert_same_batches(rest, whole[at:])
            assert sorted(read) == sorted(np.concatenate([*whole[at:], []]))
