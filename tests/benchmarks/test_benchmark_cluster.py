"""The simulated cluster: every batch once and in order, rates and losses as computed by hand, a table."""

from __future__ import annotations

import dataclasses
from statistics import mean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.__main__ import main
from benchmarks.cluster.scenarios import HEAD, scenarios
from benchmarks.cluster.simulation import Cluster, Costs, Outcome, Simulation, rates
from tests.messages import raises

FREE = Costs(
    batch_seconds=1.0, variation=0.0, batch_bytes=1, submit_seconds=0.0, take_seconds=0.0, copy_bandwidth=1e12,
    network_bandwidth=1e12, latency=0.0, noticed_seconds=5.0, restart_seconds=1.0,
)  # fmt: skip
"""An actor takes a second, all else next to nothing."""

FOUR = Cluster((1.0, 1.0), actors_per_node=2)


def costing(**changed: float) -> Costs:
    return dataclasses.replace(FREE, **changed)


def simulated(costs: Costs, cluster: Cluster, batches: int, buffer: int, seed: int = 0) -> Outcome:
    return Simulation(costs, cluster, batches, buffer, seed).run()


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A few nodes, of which all but one may be lost, each at any time."""
    speeds = tuple(draw(st.lists(st.sampled_from([1.0, 0.5, 0.25]), min_size=1, max_size=4)))
    spare = draw(st.integers(0, 2))
    lost = draw(st.lists(st.integers(0, len(speeds) + spare - 1), unique=True, max_size=len(speeds) + spare - 1))
    losses = tuple((draw(st.floats(0, 5)), node) for node in lost)
    return Cluster(speeds, draw(st.integers(1, 3)), spare, losses)


COSTS = st.builds(
    Costs,
    batch_seconds=st.floats(0.01, 1), variation=st.sampled_from([0.0, 0.3, 2.0]), submit_seconds=st.floats(0, 0.1),
    take_seconds=st.floats(0, 0.1), latency=st.floats(0, 0.1), noticed_seconds=st.floats(0, 3),
    restart_seconds=st.floats(0, 3),
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(COSTS, clusters(), st.integers(1, 60), st.integers(1, 30), st.integers(0, 3))
def test_each_batch_is_delivered_once_and_in_order(
    costs: Costs, cluster: Cluster, batches: int, buffer: int, seed: int
) -> None:
    outcome = simulated(costs, cluster, batches, buffer, seed)
    assert outcome.delivered == tuple(range(batches))
    assert outcome == simulated(costs, cluster, batches, buffer, seed)
    assert outcome.made >= batches
    assert all(share <= 1 + 1e-9 for share in outcome.busy.values())
    if not cluster.losses:
        assert outcome.made == batches
        assert outcome.held <= buffer


def test_the_actors_are_never_idle_where_all_else_is_free() -> None:
    outcome = simulated(FREE, FOUR, batches=40, buffer=8)
    assert outcome.seconds == pytest.approx(10.0)
    assert outcome.busy["actors"] == pytest.approx(1.0)


def test_a_slow_node_makes_its_part() -> None:
    cluster = Cluster((1.0, 0.5), actors_per_node=1)
    outcome = simulated(FREE, cluster, batches=300, buffer=6)
    assert 300 / outcome.seconds == pytest.approx(rates(FREE, cluster)["actors"], rel=0.02)
    assert rates(FREE, cluster)["actors"] == 1.5


def test_the_network_carries_one_batch_after_another() -> None:
    costs = costing(batch_bytes=100, network_bandwidth=1000.0, latency=0.25, submit_seconds=0.01)
    actors = Cluster((1.0,) * 8, actors_per_node=4)
    assert min(rates(costs, actors).items(), key=lambda rate: rate[1]) == ("network", 10.0)
    first, last = 0.01 + 0.25 + 1.0, 0.25  # the link waits for the first batch; the last has then to arrive
    assert simulated(costs, actors, batches=200, buffer=64).seconds == pytest.approx(first + 200 * 0.1 + last)


def test_the_dispatcher_handles_one_batch_after_another() -> None:
    costs = costing(submit_seconds=0.02, take_seconds=0.03, copy_bandwidth=20.0)
    actors = Cluster((1.0,) * 8, actors_per_node=4)
    assert min(rates(costs, actors).items(), key=lambda rate: rate[1]) == ("consumer", 10.0)
    outcome = simulated(costs, actors, batches=500, buffer=64)
    assert outcome.seconds == pytest.approx(50.0, rel=0.02)
    assert outcome.busy["consumer"] >= 0.98


def test_with_a_buffer_of_one_each_batch_takes_the_whole_way() -> None:
    costs = costing(batch_bytes=100, network_bandwidth=200.0, copy_bandwidth=400.0, latency=0.125, submit_seconds=0.25,
                    take_seconds=0.5)  # fmt: skip
    assert simulated(costs, FOUR, batches=7, buffer=1).seconds == pytest.approx(
        7 * (0.25 + 1 + 0.5 + 0.25 + 0.5 + 0.25)
    )


def test_twenty_batches_ahead_keep_twenty_of_a_thousand_actors_busy() -> None:
    many = Cluster((1.0,) * 64)
    assert simulated(FREE, many, batches=200, buffer=20).seconds == pytest.approx(10.0)
    assert simulated(FREE, many, batches=4096, buffer=2048).seconds == pytest.approx(4.0)


def test_what_is_late_holds_up_a_full_buffer() -> None:
    # Each actor is given two of the first four batches. The slow one takes 10 s for each of its own; the other's wait.
    cluster = Cluster((0.1, 1.0), actors_per_node=1)
    outcome = simulated(FREE, cluster, batches=4, buffer=4)
    assert outcome.seconds == pytest.approx(20.0)
    assert outcome.held == 3, "two that wait, and the first as it comes"


def test_a_loss_costs_the_work_begun_and_the_time_until_it_is_noticed() -> None:
    lossy = Cluster((1.0, 1.0), actors_per_node=1, spare=1, losses=((10.5, 0),))
    whole = simulated(FREE, dataclasses.replace(lossy, losses=()), batches=40, buffer=2)
    outcome = simulated(FREE, lossy, batches=40, buffer=2)
    # One actor makes the lost batch while the other starts again; then both go on.
    assert outcome.seconds - whole.seconds == pytest.approx(0.5 + FREE.noticed_seconds)
    assert outcome.made == 40


def test_a_buffer_that_lasts_until_the_loss_is_noticed_hides_it_where_the_network_is_the_limit() -> None:
    costs = costing(batch_bytes=100, network_bandwidth=100.0)
    lossy = Cluster((1.0, 1.0, 1.0), actors_per_node=2, losses=((10.5, 0),))
    whole = dataclasses.replace(lossy, losses=())

    def late(buffer: int) -> float:
        return simulated(costs, lossy, 60, buffer).seconds - simulated(costs, whole, 60, buffer).seconds

    assert late(buffer=2) > 4
    assert late(buffer=40) <= 1 + 1e-6, "what the link had carried of a batch when its node was lost"


def test_a_result_that_is_crossing_the_network_when_its_node_is_lost_is_made_again() -> None:
    costs = costing(batch_bytes=100, network_bandwidth=200.0)
    lossy = Cluster((1.0,), actors_per_node=1, spare=1, losses=((1.25, 0),))
    outcome = simulated(costs, lossy, batches=1, buffer=1)
    assert outcome.made == 2
    assert outcome.seconds == pytest.approx(1.25 + 5.0 + 1.0 + 1.0 + 0.5)  # noticed, started again, made, sent


def test_a_result_that_is_taken_after_its_actor_was_given_up_is_dropped() -> None:
    costs = costing(take_seconds=10.0, noticed_seconds=1.0)
    lossy = Cluster((1.0, 1.0), actors_per_node=1, losses=((2.0, 1),))
    outcome = simulated(costs, lossy, batches=4, buffer=2)
    assert outcome.made == 5
    # Made, one taken, one dropped; that one made again and taken; then the third, which is not held ahead; the fourth.
    assert outcome.seconds == pytest.approx(1 + 10 + 10 + (1 + 10) + (1 + 10) + (1 + 10))
    assert outcome.held == 2


def test_no_actor_starts_on_a_node_that_was_lost_before() -> None:
    lossy = Cluster((1.0, 1.0), actors_per_node=1, spare=2, losses=((1.0, 2), (10.0, 0)))
    without = dataclasses.replace(lossy, spare=1, losses=((10.0, 0),))
    assert simulated(FREE, lossy, 60, 4) == simulated(FREE, without, 60, 4)


def test_a_node_that_is_lost_while_its_actors_start_again_is_given_up() -> None:
    # Node 2 gets the actors of node 0 at 6 s, is lost before they answer; node 3 takes them.
    cluster = Cluster((1.0, 1.0), actors_per_node=2, spare=2, losses=((1.0, 0), (6.5, 2)))
    outcome = simulated(FREE, cluster, batches=100, buffer=8)
    assert outcome.delivered == tuple(range(100))
    alone = dataclasses.replace(cluster, spare=1)  # then nobody has room
    assert outcome.seconds < simulated(FREE, alone, batches=100, buffer=8).seconds


def test_costs_have_the_mean_and_the_variation_that_were_asked_for() -> None:
    drawn = Costs(batch_seconds=2.0, variation=0.5).draw(100_000, seed=1)
    assert mean(drawn) == pytest.approx(2.0, rel=0.02)
    assert pstdev(drawn) == pytest.approx(1.0, rel=0.05)
    assert drawn[:9] == Costs(batch_seconds=2.0, variation=0.5).draw(9, seed=1)


def test_another_seed_draws_other_costs() -> None:
    assert simulated(Costs(), FOUR, 40, 8, seed=1).seconds != simulated(Costs(), FOUR, 40, 8, seed=2).seconds


def test_one_node_must_be_left() -> None:
    with raises(ValueError):
        Cluster((1.0, 1.0), losses=((1.0, 0), (2.0, 1)))


@pytest.mark.parametrize("actors", [2, 3, 8, 48, 1024])
def test_a_scenario_has_the_actors_that_were_asked_for(actors: int) -> None:
    assert {each.cluster.actors for each in scenarios(actors, 4, Costs(), 120.0)} == {actors}


def test_the_command_says_that_it_simulates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "--actors", "4", "64", "--batch-seconds", "0.05", "0.5", "--seconds", "1"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("Simulated, not measured, by `python -m benchmarks cluster --actors 4 64")
    assert sum("actors" in line and HEAD[0] in line for line in lines) == 2, "a table for each cost"
    assert sum("no room elsewhere" in line for line in lines) == 4


@pytest.mark.parametrize(
    "wrong", [["--actors", "40"], ["--actors", "1"], ["--buffer", "0"], ["--batch-seconds", "nan"], ["--seconds", "-1"]]
)
def test_what_cannot_be_simulated_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["cluster", *wrong])
    assert refused.value.code == 2
    assert "must be" in capsys.readouterr().err
