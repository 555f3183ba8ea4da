"""A peer that goes wrong harms neither the others nor the machine."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import peer_process
from benchmarks.case import Case
from benchmarks.harness import Options, measure, round_order, waves
from benchmarks.outcome import Outcome
from benchmarks.peer_process import PeerFailed, PeerProcess
from benchmarks.peers.base import Variant, find
from benchmarks.workloads import Workload
from tests.extent import thorough

HERE = Path(__file__).resolve().parent


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """Ten rows whose y is x + 1, for the peers of ``broken_peers``."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))
    return Workload(kind="python", folder=str(tmp_path), samples=10, batch_size=4, x_sum=45, y_sum=55)


def peer(name: str) -> Variant:
    return find("broken_peers", "python", name)


def run(workload: Workload, *names: str, rounds: int = 2, timeout: float = 30) -> dict[str, Outcome]:
    return measured(case(workload, *names), rounds=rounds, timeout=timeout)


def case(workload: Workload, *names: str, trial: str = "epochs", fresh: bool = False) -> Case:
    return Case(variants=tuple(peer(name) for name in names), workload=workload, trial=trial, fresh=fresh)


def measured(case: Case, *, rounds: int = 2, timeout: float = 30) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in measure(case, Options(rounds=rounds, timeout=timeout)).outcomes}


@pytest.mark.thorough
def test_a_fresh_round_is_a_process_in_which_the_epoch_is_the_first(workload: Workload) -> None:
    outcome = measured(case(workload, "counts", fresh=True), rounds=3)["counts"]
    assert outcome.status == "measured"
    assert outcome.first is None
    assert len(outcome.rounds) == 3


@pytest.mark.thorough
def test_a_peer_that_fails_in_a_fresh_round_is_reported_while_the_others_go_on(workload: Workload) -> None:
    outcomes = measured(case(workload, "dies", "good", fresh=True))
    assert "about to die" in outcomes["dies"].detail
    assert len(outcomes["good"].rounds) == 2


@pytest.mark.parametrize("trial", ["startup", thorough("ready")])
def test_a_peer_whose_start_cannot_be_watched_has_failed(workload: Workload, trial: str) -> None:
    outcome = measured(case(workload, "good", trial=trial, fresh=True))["good"]
    assert outcome.detail == "Unstartable: a Good does not tell of its workers"


@pytest.mark.parametrize("trial", ["cpu", *map(thorough, ("footprint", "slow-consumer", "busy-consumer"))])
def test_a_peer_that_drops_samples_has_failed_in_every_trial(workload: Workload, trial: str) -> None:
    settings = {"epochs": 1, "loops": 5}
    outcome = measured(replace(case(workload, "drops", trial=trial), settings=settings))["drops"]
    assert "samples of an epoch must be 10; the peer delivered 6" in outcome.detail


def test_peers_that_fail_or_are_absent_are_reported_while_the_others_go_on(workload: Workload, in_full: bool) -> None:
    details = {
        "raises": "ValueError: bad luck",
        "dies": "about to die",
    }
    if in_full:
        details["repeats"] = "sum of y of an epoch must be 55"
        details["counts"] = "RuntimeError: this process has run an epoch before"
        details["no-import"] = "ImportError: libnothing.so is missing"
        details["drops"] = "samples of an epoch must be 10; the peer delivered 6"
    outcomes = run(workload, *details, "absent", "prints", "good")
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
def test_a_peer_that_hangs_fails_at_the_timeout(workload: Workload) -> None:
    outcomes = run(workload, "hangs", timeout=4)
    assert outcomes["hangs"].detail == "no answer within 4 s"


@pytest.mark.thorough  # what its child leaves is init's, which may take seconds to let it go
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_close_ends_the_whole_group(workload: Workload) -> None:
    process = PeerProcess(peer("litters"), case(workload), workers=2, timeout=30)
    try:
        process.open()
        process.turn(0)
        assert len(members(process.group)) == 2
    finally:
        process.close()
        process.close()
    assert members(process.group) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_a_failure_ends_the_whole_group(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_process, "POLL_SECONDS", 0.05)
    process = PeerProcess(peer("hangs"), case(workload), workers=2, timeout=60)
    process.open()
    process._timeout = 0.2  # it is open, however busy the machine is
    with pytest.raises(PeerFailed, match=r"no answer within 0\.2 s"):
        process.turn(0)
    assert members(process.group) == []
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


def test_each_round_is_another_permutation() -> None:
    names = [f"peer{n}" for n in range(8)]
    orders = [round_order(names, number) for number in range(5)]
    assert all(sorted(order) == names for order in orders)
    assert len({tuple(order) for order in orders}) == 5
    assert orders[3] == round_order(names, 3)


def test_variants_that_fit_together_are_one_wave() -> None:
    variants = [peer("good"), peer("drops"), peer("dies")]
    assert waves(variants, nbytes=10, available=30) == [variants]
    assert waves(variants, nbytes=10, available=20) == [variants[:2], variants[2:]]
    assert waves(variants, nbytes=10, available=1) == [[variant] for variant in variants]
    assert waves([], nbytes=10, available=1) == []


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"workers": -1}, {"timeout": 0.0}])
def test_options_are_checked_when_made(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Options(**wrong)


@pytest.mark.thorough
def test_peers_run_in_a_group_of_their_own(workload: Workload) -> None:
    process = PeerProcess(peer("good"), case(workload), workers=2, timeout=30)
    try:
        process.open()
        assert os.getpgid(process.group) == process.group != os.getpgid(0)
    finally:
        process.close()
