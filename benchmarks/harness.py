"""Parent side of the harness: starts every variant once, then lets them take turns.

Variants are started one after the other, untimed, each in its own process group. In each round every variant has one
turn (an epoch, unless the part's trial says otherwise). Each round has its own random order, so a drift of the machine
affects all variants alike. The others wait on their pipes. Round 0 is the first epoch, with the start of the pools. A
part whose rounds are ``fresh`` starts a process for each turn, and has no round 0.

Memory: all variants hold their data at once. If nine tenths of the free memory are too small, the variants are measured
in several waves, one after the other. The report says so, because a ratio across waves does not compare neighbours in
time. A variant and its counterpart from another checkout stay together, in waves and rounds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import groupby

import psutil

from benchmarks.peer_process import PeerFailed, PeerProcess
from benchmarks.peers.base import Variant
from benchmarks.plan import Part, Result
from benchmarks.records import Outcome
from benchmarks.workloads.base import Workload

SETTLE_SECONDS = 0.05
AHEAD = 16
"""Approximate number of batches that a variant holds in addition to its data."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a measurement."""

    rounds: int = 5  # turns of each variant, not counting the first; if they are ``fresh``, all turns
    workers: int = 2  # threads or processes of a variant with workers
    timeout: float = 300.0  # most seconds of a start, or of one turn
    say: Callable[[str], None] = lambda line: None  # called with each line of progress


def measure(part: Part, variants: Sequence[Variant], workload: Workload, options: Options) -> Result:
    """Run all variants of a part; return one outcome each, in the given order. A failure ends only its variant."""
    outcomes = {variant.name: _unmeasured(variant) for variant in variants}
    present = [variant for variant in variants if outcomes[variant.name].status != "absent"]
    groups = [present] if part.fresh else waves(present, workload, psutil.virtual_memory().available * 9 // 10)
    for number, wave in enumerate(groups):
        for variant in wave:
            outcomes[variant.name] = replace(outcomes[variant.name], wave=number)
        _measure(wave, outcomes, part, workload, options)
    return Result(part=part, workload=workload, outcomes=tuple(outcomes.values()))


def _unmeasured(variant: Variant) -> Outcome:
    outcome = Outcome(name=variant.name, family=variant.family)
    missing = [module for module in variant.needs if find_spec(module) is None]
    return replace(outcome, status="absent", detail=f"not installed: {missing[0]}") if missing else outcome


def _measure(
    wave: Sequence[Variant], outcomes: dict[str, Outcome], part: Part, workload: Workload, options: Options
) -> None:
    """Run the variants of a wave and update their outcomes. If rounds are fresh, each turn has a new process."""
    processes: dict[str, PeerProcess] = {}

    def attempt(variant: Variant, number: int | None) -> None:
        """Run a turn, or with None only open the process."""
        name = variant.name
        if outcomes[name].status != "measured":
            return
        try:
            if name not in processes:
                processes[name] = PeerProcess(
                    variant, part, workload, workers=options.workers, timeout=options.timeout
                )
                processes[name].open()
            if number is not None:
                time.sleep(SETTLE_SECONDS)
                done = processes[name].turn(0 if part.fresh else number)
                outcomes[name] = outcomes[name].add(done, fresh=part.fresh)
        except PeerFailed as error:
            outcomes[name] = outcomes[name].failed(str(error))
            options.say(f"{name} failed: {error}")
        if part.fresh:
            processes.pop(name).close()

    try:
        for variant in () if part.fresh else wave:
            attempt(variant, None)
        for number in range(int(part.fresh), options.rounds + 1):
            for variant in round_order(wave, number):
                attempt(variant, number)
            options.say(f"round {number} of {options.rounds} done")
    finally:
        for process in processes.values():
            process.close()


def _pairs(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Group each variant with its counterpart from another checkout, which follows it."""
    return [list(group) for _, group in groupby(variants, lambda variant: variant.original)]


def round_order(variants: Sequence[Variant], number: int) -> list[Variant]:
    """Return the order of a round: a permutation that depends only on its number and keeps pairs together."""
    rng, pairs = random.Random(number), _pairs(variants)
    return [variant for pair in rng.sample(pairs, len(pairs)) for variant in rng.sample(pair, len(pair))]


def waves(variants: Sequence[Variant], workload: Workload, available: int) -> list[list[Variant]]:
    """Group variants, in order, by memory that fits together. A variant that alone needs too much gets its own wave."""
    groups: list[list[Variant]] = []
    used = 0.0
    ahead = AHEAD * workload.batch_size / max(workload.samples, 1)
    for pair in _pairs(variants):
        need = sum(variant.copies + ahead for variant in pair) * workload.nbytes
        if not groups or used + need > available:
            groups.append([])
            used = 0.0
        groups[-1] += pair
        used += need
    return groups
