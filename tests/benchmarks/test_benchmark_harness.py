"""A peer that goes wrong harms neither the others nor the machine."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import batchup_ng
from benchmarks import peer_process
from benchmarks.harness import Options, measure, round_order, waves
from benchmarks.peer_process import PeerFailed, PeerProcess
from benchmarks.peers.base import Variant
from benchmarks.plan import Part
from benchmarks.records import Outcome, Reading
from benchmarks.workloads.base import Workload
from tests.extent import thorough
from tests.messages import raises

pytestmark = pytest.mark.in_turn

ROOT = Path(__file__).resolve().parents[2]
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
RATE = Reading("samples", per="seconds")
PATIENCE = 600.0
"""Seconds that a peer may take to start; it takes one, unless the machine is busy."""
PART = Part(name="x", title="x", kind="python", unit="samples/s", reading=RATE, columns=())


def peer(name: str) -> Variant:
    (found,) = [variant for variant in import_module("broken_peers").VARIANTS if variant.name == name]
    return found


def run(
    ten: Workload, *names: str, part: Part = PART, rounds: int = 2, timeout: float = PATIENCE
) -> dict[str, Outcome]:
    result = measure(part, [peer(name) for name in names], ten, Options(rounds=rounds, timeout=timeout))
    return {outcome.name: outcome for outcome in result.outcomes}


def test_peers_that_fail_or_are_absent_are_reported_while_the_others_go_on(ten: Workload, in_full: bool) -> None:
    details = {"raises": "EOFError: bad luck", "dies": "about to die"}
    if in_full:
        details["repeats"] = "sum of y of an epoch must be 55"
        details["runs-once"] = "RuntimeError: this process has run an epoch before"
    outcomes = run(ten, *details, "absent", "prints", "good")
    for name, detail in details.items():
        assert outcomes[name].status == "failed"
        assert detail in outcomes[name].detail
    assert outcomes["absent"].status == "absent"
    assert "no_such_module_anywhere" in outcomes["absent"].detail
    good = outcomes["good"]
    assert good.status == "measured"
    assert good.first is not None
    assert [(epoch.samples, epoch.batches) for epoch in good.rounds] == [(10, 3)] * 2
    assert all(0 < epoch.first_batch_seconds <= epoch.seconds for epoch in good.rounds)
    assert outcomes["prints"].status == "measured"  # what a peer prints is no answer


@pytest.mark.thorough
def test_a_fresh_round_is_a_process_in_which_the_epoch_is_the_first(ten: Workload) -> None:
    outcomes = run(ten, "runs-once", "dies", part=replace(PART, fresh=True), rounds=3)
    assert outcomes["runs-once"].first is None
    assert len(outcomes["runs-once"].rounds) == 3
    assert "about to die" in outcomes["dies"].detail


@pytest.mark.parametrize("trial", ["epochs", *map(thorough, ("consumer", "startup"))])
def test_a_peer_that_drops_samples_has_failed_in_every_trial(ten: Workload, trial: str) -> None:
    outcome = run(ten, "drops", part=replace(PART, trial=trial))["drops"]
    assert "samples of an epoch must be 10; the peer delivered 6" in outcome.detail


@pytest.mark.thorough
def test_a_peer_that_hangs_fails_at_the_timeout(ten: Workload) -> None:
    assert run(ten, "hangs", timeout=4)["hangs"].detail == "no answer within 4 s"


@pytest.mark.thorough  # what its child leaves is init's, which may take seconds to let it go
@LINUX
def test_close_ends_the_whole_group_which_is_its_own(ten: Workload) -> None:
    process = PeerProcess(peer("litters"), PART, ten, workers=2, timeout=PATIENCE)
    try:
        process.open()
        process.turn(0)
        assert os.getpgid(process.group) == process.group != os.getpgid(0)
        assert len(members(process.group)) == 2
    finally:
        process.close()
        process.close()
    until = time.monotonic() + 120  # a process that was killed needs a CPU to end
    while members(process.group) and time.monotonic() < until:
        time.sleep(0.01)
    assert members(process.group) == []


@LINUX
def test_a_failure_ends_the_whole_group(ten: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_process, "POLL_SECONDS", 0.05)
    process = PeerProcess(peer("hangs"), PART, ten, workers=2, timeout=PATIENCE)
    process.open()
    process._timeout = 0.2  # it is open, however busy the machine is
    with raises(PeerFailed):
        process.turn(0)
    assert members(process.group) == []
    process.close()


@LINUX
def test_a_child_without_a_parent_ends_its_group(ten: Workload) -> None:
    process = PeerProcess(peer("good"), PART, ten, workers=2, timeout=PATIENCE)
    try:
        process.open()
        process._pipe.close()  # as if this process were gone
        assert process._process.wait(PATIENCE) == -9
    finally:
        process.close()


def members(group: int) -> list[str]:
    """The commands of the living processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            command, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(command)
    return found


def test_the_library_comes_from_the_other_checkout_and_the_harness_from_this_one(ten: Workload, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "batchup_ng").symlink_to(Path(batchup_ng.__file__).parent)
    now = peer("tells")
    before = now.taken_from(str(tmp_path / "other"))
    result = measure(PART, [now, before], ten, Options(rounds=1))
    at_home, away = (outcome.detail.removeprefix("RuntimeError: ").split() for outcome in result.outcomes)
    library, harness = "batchup_ng/__init__.py", "benchmarks/peers/base.py"
    overlay = Path(ten.folder) / "before"
    assert [outcome.name for outcome in result.outcomes] == ["tells", "tells@before"]
    assert at_home == [str(ROOT / library), str(ROOT / harness)] * 2
    assert away == [str(overlay / library), str(overlay / harness)] * 2
    assert (overlay / "batchup_ng").resolve() == Path(batchup_ng.__file__).parent
    assert (overlay / "benchmarks").resolve() == ROOT / "benchmarks"


def test_each_round_is_another_permutation_of_pairs() -> None:
    variants = [one for name in ("good", "drops", "dies", "hangs") for one in (peer(name), peer(name).taken_from("x"))]
    orders = [[variant.name for variant in round_order(variants, number)] for number in range(9)]
    assert len({tuple(order) for order in orders}) == 9
    assert orders[3] == [variant.name for variant in round_order(variants, 3)]
    for order in orders:
        assert sorted(order) == sorted(variant.name for variant in variants)
        assert all(a.partition("@")[0] == b.partition("@")[0] for a, b in zip(order[::2], order[1::2], strict=True))


def test_variants_that_fit_together_are_one_wave() -> None:
    variants = [peer("good"), peer("drops"), peer("dies")]
    workload = Workload(kind="python", folder="", samples=1600, batch_size=50, nbytes=20)  # 16 batches are half of it
    assert waves(variants, workload, available=90) == [variants]
    assert waves(variants, workload, available=60) == [variants[:2], variants[2:]]
    assert waves(variants, workload, available=1) == [[variant] for variant in variants]
    assert waves([], workload, available=1) == []
    pair = [variants[0], variants[0].taken_from("x")]
    assert waves([*pair, variants[1]], workload, available=1) == [pair, [variants[1]]]
