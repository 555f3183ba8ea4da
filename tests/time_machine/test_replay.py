"""Any step of any run gives the same batch again, and its rows are listed without reading any."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.time_machine import who
from tests.messages import raises
from tests.time_machine.runs import SEED, Counted, N, any_run, loaders, noisy, print_of, rows_of

STEPS = 1000
"""Random steps of the run with a crash."""


def listed(page: str) -> list[int]:
    """Return the rows that a page of ``who`` lists."""
    return [int(line.split()[1]) for line in page.split("\n\n")[1].splitlines()[1:]]


def table(page: str) -> list[list[str]]:
    """Return the positions and rows of a page of ``who``, as texts."""
    return [line.split()[:2] for line in page.split("\n\n")[1].splitlines()]


def run(folder: Path, world: int, size: int, pool: str, last: int, how: str) -> int:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "tests.time_machine.crashing_run", str(folder), *map(str, (world, size)), pool]
    done = subprocess.run(
        [*command, str(last), how], cwd=root, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.in_turn
def test_a_run_with_a_crash_a_resume_and_another_world_replays_to_the_same_bytes(tmp_path: Path) -> None:
    assert run(tmp_path, 4, 4, "processes", 187, "die") == -signal.SIGKILL
    first = (tmp_path / "seen.jsonl").read_text().splitlines()
    assert run(tmp_path, 3, 7, "threads", 260, "end") == 0
    second = (tmp_path / "seen.jsonl").read_text().splitlines()[len(first) :]
    attempts = [[json.loads(line) for line in lines] for lines in (first, second)]
    assert (attempts[0][0][0], attempts[0][-1][0], attempts[1][0][0], attempts[1][-1][0]) == (0, 186, 140, 259)
    (loader,), rng = loaders(noisy(), 5, 1, tmp_path / "run.json"), random.Random(0)
    path = tmp_path / "run.json"
    for _ in range(STEPS):
        step, rank, digest, rows = rng.choice(attempts[number := rng.randrange(2)])
        assert print_of(loader.replay(step, rank, attempt=number + 1)) == digest
        assert listed(who(path, step, rank, number + 1)) == rows
        latest = 2 if step >= 140 else 1
        assert f"attempt {latest}, begun" in who(path, step, 0)
    never(loader, 261)
    assert "attempt 1 may have taken this step before, with another source or world" in who(path, 150, 0)


def never(loader: Any, step: int) -> None:
    with raises(bu.LedgerError):
        loader.replay(step, 0, attempt=2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.in_turn
def test_any_run_replays(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    attempts = any_run(path, seed, noisy())
    (loader,) = loaders(noisy(), 5, 1, path, shuffle=99)  # only the source must be the same
    for number, done in enumerate(attempts, 1):
        for step, batches in done.items():
            for rank, batch in enumerate(batches):
                assert print_of(loader.replay(step, rank=rank, attempt=number)) == print_of(batch)
                page = who(path, step, rank, number)
                assert listed(page) == rows_of(batch)
                assert f"{len(batch[0])} sample" in page.splitlines()[0]
    latest = {step: done for done in attempts for step in done}
    rng = random.Random(seed)
    for step in rng.sample(list(latest), 20):
        if any(other > step for other in attempts[-1]) and min(attempts[-1]) <= step:
            assert print_of(loader.replay(step, 0)) == print_of(attempts[-1][step][0])


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_pools_replay_the_same_bytes(pool: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    attempts = any_run(path, 11, noisy(), 2)
    with loaders(noisy(), 5, 1, path, pool=pool, workers=2)[0] as loader:
        for number, done in enumerate(attempts, 1):
            for step in list(done)[::5]:
                for rank, batch in enumerate(done[step]):
                    assert print_of(loader.replay(step, rank=rank, attempt=number)) == print_of(batch)


def sources(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Sources with other orders, each with its ``shuffle=``."""
    x = np.arange(N)
    stored = folder / "x.npy"
    np.save(stored, np.arange(N * 4).reshape(N, 4))
    one, other = bu.ArrayDataSource([x]), bu.ArrayDataSource([x + 1000])
    return {
        "in order": (noisy(), None),
        "by blocks": (bu.ArrayDataSource([x, bu.NpyRows(stored)]), ("blocks", 5)),
        "by blocks in groups": (bu.ArrayDataSource([x, bu.NpyRows(stored)]), ("blocks", 5, 2)),
        "choice": (bu.ChoiceDataSource([one, other]), 7),
        "buckets": (one.sample(bu.BucketSampler(np.arange(N) % 20 + 1, max_tokens=120)), 7),
        "composite": (bu.CompositeDataSource([one, other]), 7),
        "subset": (one.split((0.8, 0.2), 1)[0].map(noise_of_one, rng="sample"), 7),
        "mixture": (bu.mix(one, other, weights=[3, 1]), 7),
        "steps": (bu.mix(one, other, weights=bu.steps((0, [3, 1]), (100, [1, 0.5]))), 7),
        "ramp": (bu.mix(one, other, weights=bu.ramp((0, [3, 1]), (200, [1, 1])), length=500), 7),
        "lazy filter": (one.filter(lambda x: x % 3 > 0, lazy=True), 7),
        "endless": (one.repeat(-1), 7),
        "weighted": (one.sample(bu.WeightedSampler(1 + x % 3)), 7),
    }


def noise_of_one(x: np.ndarray, rng: Any) -> Any:
    return x, rng.normal()


KNOWN_ORDERS = {
    "in order", "by blocks", "by blocks in groups", "subset", "mixture", "steps", "ramp", "lazy filter", "endless",
}  # fmt: skip
"""Sources whose rows ``who`` lists by the ledger alone."""


@pytest.mark.filterwarnings("ignore::batchup_ng.CacheWarning")
@pytest.mark.parametrize("name", [
    "in order", "by blocks", "by blocks in groups", "choice", "buckets", "composite", "subset", "mixture", "steps",
    "ramp", "lazy filter", "endless", "weighted",
])  # fmt: skip
@pytest.mark.in_turn
def test_any_order_replays_and_skips(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, shuffle = sources(tmp_path)[name]
    path, size = tmp_path / "run.json", 6
    ranks = loaders(source, size, 2, path, shuffle=shuffle)
    done: list[list[Any]] = []
    for epoch in range(3):
        for number, together in enumerate(zip(*ranks, strict=True)):
            done.append([print_of(batch) for batch in together])
            if number == 12 + epoch and (epoch != 1 or name in ("endless", "weighted")):
                break
        if epoch == 1:
            for rank in ranks:
                rank.skip([len(done) + 1, len(done) + 3])
    (loader,) = loaders(source, 9, 1, path)
    for step, digests in enumerate(done):
        assert [print_of(loader.replay(step, rank)) for rank in range(2)] == digests
    monkeypatch.setattr(sys.modules[__name__], "MADE", source)
    wanted = table(who(path, 5, 1, source=f"{__name__}:MADE"))
    if name in KNOWN_ORDERS:
        assert table(who(path, 5, 1)) == wanted
    else:
        no_rows(path)


MADE: Any = None
"""The source that ``--source`` names."""


def no_rows(path: Path) -> None:
    with raises(bu.LedgerError):
        who(path, 5, 1)


def test_names_are_those_of_the_samples_and_no_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    (loader,) = loaders(noisy(), 8, 1, path)
    for number, batch in enumerate(loader):
        if number == 3:
            expected = rows_of(batch)
            break
    column = Counted()
    monkeypatch.setattr(sys.modules[__name__], "MADE", lambda: bu.Loader(noisy(column), 99, pool="serial"))
    lines = who(path, 3, source=f"{__name__}:MADE").split("\n\n")[1].splitlines()
    assert [line.split()[2] for line in lines[1:]] == [f"images/{row:03}.png" for row in expected]
    assert [int(line.split()[0]) for line in lines[1:]] == [*range(24, 32)]
    assert column.reads == 0
    assert "file" not in who(path, 3).split("\n\n")[1]


def test_draws_are_the_keys_of_the_maps(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    ranks = loaders(noisy(), 8, 2, path)
    for together in zip(*ranks, strict=True):
        last = together
        if ranks[0].state_dict()["steps"]["step"] == 3:
            break
    page = who(path, 2, 1)
    key = bu.sampling.plans.epoch.BatchKey(SEED, 0, 5, 40, (0,))
    assert f"noise drew for each sample: seed {SEED}, epoch 0, batch 5, position 40, path [0]\n" in page
    assert f"both drew for the batch: seed {SEED}, epoch 0, batch 5, position 40, path []\n" in page
    np.testing.assert_array_equal(key.sample_rng(8).uniform(), last[1][1])
    np.testing.assert_array_equal(key._replace(path=()).generator().random(8), last[1][2])
    assert re.search(r"begun \d{4}-.* with python 3.*, numpy .*, batchup_ng ", page)


def test_views_of_a_loader_replay_what_they_hand_out(tmp_path: Path) -> None:
    (loader,) = loaders(noisy(), 8, 1, tmp_path / "run.json")
    view = loader.map(lambda x, *others: x.sum())
    sums = list(view)
    assert [view.replay(step) for step in range(len(sums))] == sums
    assert rows_of(loader.replay(2)) != []


def test_a_loader_replays_its_own_rank(tmp_path: Path) -> None:
    ranks = loaders(noisy(), 8, 3, tmp_path / "run.json")
    done = [[print_of(batch) for batch in together] for together in zip(*ranks, strict=True)]
    for rank, loader in enumerate(ranks):
        assert print_of(loader.replay(4)) == done[4][rank]
    assert loaders(noisy(), 8, 3, None)[1].epoch == 0
