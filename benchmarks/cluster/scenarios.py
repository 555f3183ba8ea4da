"""The table of ``python -m benchmarks cluster``: rate, loss and buffered batches of a simulated cluster.

python -m benchmarks cluster --actors 8 64 --batch-seconds 0.25 --noticed 62
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Sequence

from batchup_ng.work_pool.prefetch_buffer import MAX_BYTES_AHEAD
from benchmarks.arguments import positive
from benchmarks.cluster.simulation import Cluster, Costs, Outcome, Simulation, rates
from benchmarks.own import OwnStudy
from benchmarks.report.columns import number
from benchmarks.report.pages import table

SMALL, LARGE = Costs.batch_seconds, 64 * 2 / 54.3
"""Seconds in which one CPU makes 64 images from small JPEG files, and from files of 12 megapixels. Two CPUs make 54.3
of the large ones a second (``docs/benchmarks.md``, "Images", "fast")."""

DEFAULT_BUFFER = 20
"""The default of ``batch_buffer_size``."""

BUSY = 0.9
"""Busy share of the time from which on a component counts as the bottleneck."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """The simulation of one row."""

    name: str
    cluster: Cluster
    buffer: int  # most batches in flight or done at once


def scenarios(actors: int, multiple: float, costs: Costs, seconds: float) -> Iterator[Scenario]:
    """Yield the rows of so many actors. A node has 16 actors, or half of all if there are fewer than 32."""
    per_node = min(16, actors // 2)
    nodes, buffer = actors // per_node, math.ceil(multiple * actors)
    well = Cluster((1.0,) * nodes, per_node)
    tenth, hundredth = max(1, round(nodes / 10)), max(1, round(nodes / 100))

    def slow(count: int, speed: float) -> Cluster:
        return dataclasses.replace(well, speeds=(speed,) * count + (1.0,) * (nodes - count))

    def losing(count: int, spare: int) -> Cluster:
        losses = tuple((seconds * (node + 1) / (count + 1), node) for node in range(count))
        return dataclasses.replace(well, losses=losses, spare=spare)

    yield Scenario("all well", well, DEFAULT_BUFFER)
    if (fit := MAX_BYTES_AHEAD // costs.batch_bytes - 2) < buffer:
        yield Scenario("all well, default `buffer_bytes`", well, fit)
    yield Scenario("all well", well, 2 * actors)
    yield Scenario("all well", well, buffer)
    yield Scenario(f"{tenth} of {nodes} nodes at half speed", slow(tenth, 0.5), buffer)
    yield Scenario(f"{hundredth} of {nodes} nodes at a quarter", slow(hundredth, 0.25), buffer)
    yield Scenario(f"1 of {nodes} nodes lost, no room elsewhere", losing(1, 0), buffer)
    yield Scenario(f"1 of {nodes} nodes lost, one spare", losing(1, 1), buffer)
    yield Scenario(f"3 losses, {nodes} nodes and three spare", losing(3, 3), buffer)


HEAD = ("what happens", "actors", "buffer, batches", "batches/s", "of the ideal", "lost a failure, s",
        "held at most, batches", "held at most, GB", "bound by")  # fmt: skip


def row(costs: Costs, actors: int, scenario: Scenario, seconds: float, seed: int) -> list[str]:
    """Return the cells of a scenario: an epoch that takes `seconds` at the ideal rate."""
    cluster = scenario.cluster
    ideal = min(rates(costs, cluster).values())
    batches = math.ceil(ideal * seconds)
    outcome = Simulation(costs, cluster, batches, scenario.buffer, seed).run()
    lost = math.nan
    if cluster.losses:
        without = Simulation(costs, dataclasses.replace(cluster, losses=()), batches, scenario.buffer, seed).run()
        lost = (outcome.seconds - without.seconds) / len(cluster.losses)
    rate = batches / outcome.seconds
    return [
        scenario.name, f"{actors:,}", f"{scenario.buffer:,}", number(rate), f"{rate / ideal:.2f}", number(lost),
        f"{outcome.held:,}", number(outcome.held * costs.batch_bytes / 1e9), bound(outcome),
    ]  # fmt: skip


def bound(outcome: Outcome) -> str:
    """Return the component that was nearly always busy, or ``buffer`` if it was full, waiting for the next batch."""
    busiest = max(outcome.busy, key=outcome.busy.__getitem__)
    return busiest if outcome.busy[busiest] >= BUSY else "buffer"


def main(arguments: Sequence[str]) -> int:
    """Print the conditions, the assumptions, then a table for each cost of a batch."""
    study = OwnStudy("cluster", "Simulate a cluster.", files="cluster.md")
    study.parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    add = study.add
    add("--actors", type=_actors, nargs="+", default=[8, 64, 256, 1024], help="tables have rows for each number")
    add("--batch-seconds", type=positive, nargs="+", default=[SMALL, LARGE], help="of an actor, on average")
    add("--buffer", type=positive, default=4.0, help="batches ahead for each actor")
    add("--noticed", type=positive, default=Costs.noticed_seconds, help="seconds until a loss is noticed")
    add("--seconds", type=positive, default=120.0, help="of an epoch at the ideal rate")
    add("--seed", type=int, default=0, help="of the times that batches take")
    choice = study.parse(arguments)
    text = [f"Simulated, not measured, by {study.line} {assumptions(Costs(noticed_seconds=choice.noticed))}"]
    for batch_seconds in choice.batch_seconds:
        costs = Costs(batch_seconds=batch_seconds, noticed_seconds=choice.noticed)
        text.append(f"### Batches of {number(batch_seconds * 1e3)} ms")
        cells = [
            row(costs, actors, scenario, choice.seconds, choice.seed)
            for actors in choice.actors
            for scenario in scenarios(actors, choice.buffer, costs, choice.seconds)
        ]
        text.append(table(HEAD, cells))
    study.publish("\n\n".join(text) + "\n")
    return 0


def _actors(text: str) -> int:
    if (actors := int(text)) < 2 or actors % min(16, actors // 2):
        raise argparse.ArgumentTypeError(f"must be even and, above 32, a multiple of 16; got {text}")
    return actors


def assumptions(costs: Costs) -> str:
    """Return the costs in words, except the time of a batch on an actor."""
    return (
        f"A batch has {costs.batch_bytes / 1e6:.1f} MB; what it takes on an actor varies by {costs.variation:.0%} "
        f"(log-normal). The network carries {costs.network_bandwidth * 8e-9:.0f} Gb/s, a message takes "
        f"{costs.latency * 1e3:.1f} ms. The dispatcher takes {costs.submit_seconds * 1e3:.2f} ms for a call, "
        f"{costs.take_seconds * 1e3:.2f} ms for a result, and copies {costs.copy_bandwidth * 1e-9:.0f} GB/s. "
        f"A loss is noticed after {costs.noticed_seconds:.0f} s; an actor is there again "
        f"{costs.restart_seconds:.0f} s later."
    )
