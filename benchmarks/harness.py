"""Parent side of the harness: starts every variant once, then lets them take turns.

Variants are started one after the other, untimed, each in its own process group. In each round every variant has one
turn (an epoch, unless the case's trial says otherwise), in an order drawn anew, so that a drift of the machine
meets all of them alike; those whose turn it is not wait on their stdin. Round 0 is the first epoch, with the start
of the pools. A case whose rounds are ``fresh`` starts a process for each turn, and has no round 0.

Memory: all variants hold their data at once. Where that would not fit into nine tenths of the memory that is free,
they are measured in several waves, one after the other; the report says so, since a ratio across waves no longer
compares neighbours in time.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.case import Case, Result
from benchmarks.outcome import Outcome
from benchmarks.peer_process import PeerFailed, PeerProcess
from benchmarks.peers.base import Variant

SETTLE_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to measure.

    Attributes:
        rounds: Turns of each variant; after its first, but for a case whose rounds are ``fresh``.
        workers: Threads or processes of the variants that have any.
        timeout: Seconds that starting, or one turn, may take.
    """

    rounds: int = 5
    workers: int = 2
    timeout: float = 300.0

    def __post_init__(self) -> None:
        for name in ("rounds", "workers", "timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")


def measure(case: Case, options: Options, say: Callable[[str], None] = lambda line: None) -> Result:
    """Run all variants of a case.

    Args:
        case: Who takes part, on what data, doing what; a variant whose modules are missing is reported as absent.
        options: Rounds, workers, deadline.
        say: Told of progress, a line each.

    Returns:
        One outcome a variant, in the order given. A failure ends that variant only.
    """
    outcomes = {variant.name: _unmeasured(variant) for variant in case.variants}
    present = [variant for variant in case.variants if outcomes[variant.name].status != "absent"]
    if case.fresh:
        _measure_fresh(present, outcomes, case, options, say)
        return Result(case=case, outcomes=tuple(outcomes.values()))
    for number, wave in enumerate(waves(present, case.workload.nbytes, available_memory() * 9 // 10)):
        for variant in wave:
            outcomes[variant.name] = replace(outcomes[variant.name], wave=number)
        _measure_wave(wave, outcomes, case, options, say)
    return Result(case=case, outcomes=tuple(outcomes.values()))


def _unmeasured(variant: Variant) -> Outcome:
    outcome = Outcome(name=variant.name, family=variant.family, baseline=variant.baseline)
    missing = [module for module in variant.needs if find_spec(module) is None]
    return replace(outcome, status="absent", detail=f"not installed: {missing[0]}") if missing else outcome


def _measure_wave(
    wave: Sequence[Variant],
    outcomes: dict[str, Outcome],
    case: Case,
    options: Options,
    say: Callable[[str], None],
) -> None:
    """Add to the outcomes what the variants of one wave do."""
    with contextlib.ExitStack() as stack:
        processes = {}
        for variant in wave:
            process = PeerProcess(variant, case, workers=options.workers, timeout=options.timeout)
            stack.callback(process.close)
            with _noting_failure(outcomes, variant.name, say):
                process.open()
                processes[variant.name] = process
        for number in range(options.rounds + 1):
            for name in round_order(list(processes), number):
                if outcomes[name].status == "measured":
                    time.sleep(SETTLE_SECONDS)
                    with _noting_failure(outcomes, name, say):
                        outcomes[name] = outcomes[name].add(processes[name].turn(number))
            say(f"round {number} of {options.rounds} done")


def _measure_fresh(
    variants: Sequence[Variant],
    outcomes: dict[str, Outcome],
    case: Case,
    options: Options,
    say: Callable[[str], None],
) -> None:
    """Add to the outcomes what the variants do, each turn in a process that does nothing else."""
    named = {variant.name: variant for variant in variants}
    for number in range(1, options.rounds + 1):
        for name in round_order(list(named), number):
            if outcomes[name].status == "measured":
                process = PeerProcess(named[name], case, workers=options.workers, timeout=options.timeout)
                with contextlib.closing(process), _noting_failure(outcomes, name, say):
                    process.open()
                    time.sleep(SETTLE_SECONDS)
                    outcomes[name] = outcomes[name].repeat(process.turn(0))
        say(f"round {number} of {options.rounds} done")


@contextlib.contextmanager
def _noting_failure(outcomes: dict[str, Outcome], name: str, say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except PeerFailed as error:
        outcomes[name] = outcomes[name].failed(str(error))
        say(f"{name} failed: {error}")


def round_order(names: Sequence[str], number: int) -> list[str]:
    """The order of one round: a permutation that depends on the round's number only.

    >>> sorted(round_order(["a", "b", "c"], 4))
    ['a', 'b', 'c']
    """
    return random.Random(number).sample(list(names), len(names))


def waves(variants: Sequence[Variant], nbytes: int, available: int) -> list[list[Variant]]:
    """Groups of variants, in order, whose data fit into memory together.

    Args:
        variants: What to run.
        nbytes: Bytes of the workload's data.
        available: Bytes that may be used. A variant that alone needs more has a wave of its own all the same.
    """
    groups: list[list[Variant]] = []
    used = 0
    for variant in variants:
        need = variant.copies * nbytes
        if not groups or used + need > available:
            groups.append([])
            used = 0
        groups[-1].append(variant)
        used += need
    return groups


def available_memory() -> int:
    """Bytes that can be had without swapping, by the kernel's estimate; half of all where it gives none."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
