"""Bottlenecks that are planted in a simulated machine are found, and following the advice has the predicted effect."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from batchup_ng.explanation.explanation import Explanation
from tests.extent import quick

from .world import World


class Planted(NamedTuple):
    world: World
    cause: str
    change: dict[str, Any] | None  # that the first advice means; None if there is none
    words: str = ""  # of the first advice


PROCESSES = World(kind="processes", take=0.0004, pack=0.0002, transfer=0.0002)

PLANTED = {
    "a Python map in threads": Planted(
        World(map_cpu=0.008, locks=True, workers=4), "lock", {"kind": "processes", "workers": 4, "take": 0.0004},
        "processes",
    ),
    "a Python map in one thread": Planted(
        World(map_cpu=0.008, locks=True, workers=1), "lock", {"kind": "processes", "workers": 4, "take": 0.0004},
        "processes",
    ),
    "a NumPy map in one thread": Planted(World(map_cpu=0.008, workers=1), "workers", {"workers": 5}, "workers"),
    "a NumPy map on all CPUs": Planted(World(map_cpu=0.02, workers=4), "cpu", {"map_cpu": 0.01}, "half the time"),
    "a NumPy map in processes, on all CPUs": Planted(
        dataclasses.replace(PROCESSES, map_cpu=0.02, workers=4), "cpu", {"map_cpu": 0.01}, "half the time"
    ),
    "a slow disk": Planted(World(read_wait=0.02, workers=2), "workers", {"workers": 11}, "workers"),
    "a slow disk, processes": Planted(
        dataclasses.replace(PROCESSES, read_wait=0.02, workers=2), "workers", {"workers": 9}, "workers"
    ),
    "a slow network": Planted(World(read_wait=0.1, workers=8), "workers", {"workers": 48, "buffer": 49}, "workers"),
    "decoding": Planted(World(read_cpu=0.03, workers=4), "cpu", None),
    "decoding that fits in memory": Planted(
        World(read_cpu=0.03, workers=4, data_bytes=1e9), "cpu", {"read_cpu": 0.0015}, "memory"
    ),
    "one batch in fifty is slow": Planted(
        World(read_wait=0.004, slow_of=50, slow=0.1, workers=4, buffer=6, asked=6), "slow_samples",
        {"buffer": 64, "asked": 64}, "buffer of 64",
    ),
    "one batch in fifty is slow, processes": Planted(
        dataclasses.replace(PROCESSES, read_wait=0.004, slow_of=50, slow=0.1, workers=4, buffer=6, asked=6),
        "slow_samples", {"buffer": 64, "asked": 64}, "buffer of 64",
    ),
    "memory cuts the buffer": Planted(
        World(read_wait=0.02, workers=8, buffer=3), "buffer", {"buffer": 20}, "memory for all 20"
    ),
    "huge results": Planted(
        dataclasses.replace(PROCESSES, map_cpu=0.001, pack=0.012, transfer=0.004, workers=2, batch_bytes=10**7),
        "transfer", {"kind": "threads", "pack": 0.0, "transfer": 0.0, "take": 0.0}, "threads",
    ),
    "results that the loop unpickles": Planted(
        dataclasses.replace(PROCESSES, map_cpu=0.001, take=0.01, workers=2, batch_bytes=10**7), "receive",
        {"kind": "threads", "pack": 0.0, "transfer": 0.0, "take": 0.0}, "threads",
    ),
    "a map after the pool": Planted(
        World(take=0.01, consumer_maps=("collate",), workers=4), "consumer_map",
        {"take": 0.0, "map_cpu": 0.01, "consumer_maps": ()}, "in the workers",
    ),
    "a conversion in the loop": Planted(World(convert=0.006), "conversion", None),
    "the loop": Planted(World(read_wait=0.003, step_wait=0.02), "loop", None),
    "the loop, processes": Planted(dataclasses.replace(PROCESSES, map_cpu=0.005, step_wait=0.02), "loop", None),
    "threads that slow the loop": Planted(
        World(map_cpu=0.004, locks=True, workers=2, step_wait=0.0, step_cpu=0.008), "lock_loop",
        {"kind": "processes", "take": 0.0004}, "processes",
    ),
    "workers that take the loop's CPU": Planted(
        dataclasses.replace(
            PROCESSES, map_cpu=0.006, workers=4, cpus=2, step_wait=0.0, step_cpu=0.008, loop_locks=False, loop_threads=2
        ),
        "contention", {"map_cpu": 0.003}, "half the time",
    ),
    "a serial pool": Planted(
        World(kind="serial", map_cpu=0.008, locks=True, step_wait=0.006), "serial",
        {"kind": "processes", "workers": 4, "take": 0.0004}, "processes",
    ),
    "a serial pool that waits": Planted(
        World(kind="serial", read_wait=0.008, step_wait=0.006), "serial", {"kind": "threads", "workers": 4}, "threads"
    ),
    "tiny batches in processes": Planted(
        dataclasses.replace(PROCESSES, read_cpu=0.0002, step_wait=0.001, take=0.001, batch_bytes=1000), "tiny",
        {"kind": "serial", "take": 0.0, "pack": 0.0}, "serial",
    ),
    "other programs": Planted(
        dataclasses.replace(PROCESSES, map_cpu=0.008, workers=2, cpus=2, neighbours=6), "neighbours", None
    ),
    "the first epoch": Planted(World(first_epoch_wait=0.05, step_wait=0.01), "first_epoch", None),
}  # fmt: skip


SOME = ["a Python map in threads", "a slow disk, processes", "one batch in fifty is slow", "threads that slow the loop"]


@pytest.mark.parametrize("name", quick(SOME, list(PLANTED)))
def test_a_planted_bottleneck_is_found_and_the_advice_does_what_it_says(name: str) -> None:
    planted = PLANTED[name]
    evidence = planted.world.evidence()
    told = Explanation(evidence)
    assert told.verdict.cause == planted.cause, told
    assert told.verdict.confidence != "low"
    if planted.change is None:
        return
    assert told.advice, told
    assert planted.words in told.advice[0].change, told
    then = dataclasses.replace(planted.world, **planted.change).seconds_per_batch()
    assert told.advice[0].seconds == pytest.approx(then, rel=0.25), (told, then)
