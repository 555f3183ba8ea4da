"""Each study tells what its figures are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import campaign
from benchmarks.case import Case, Result
from benchmarks.data import MissingPhotographs
from benchmarks.harness import Options
from benchmarks.outcome import Epoch, Outcome
from benchmarks.peers import starters
from benchmarks.studies import consumer, memory, order, overhead, sizes, startup
from benchmarks.studies.base import Part, Study
from benchmarks.studies.sizes_plot import Curve, plot, spaced
from benchmarks.studies.svg import NoPlot
from benchmarks.workloads import Workload


def epoch(seconds: float = 1.0, **figures: float) -> Epoch:
    return Epoch(
        seconds=seconds, first_batch_seconds=seconds, batches=100, samples=1000, bytes=2 * 10**9, figures=figures
    )


def outcome(name: str, *epochs: Epoch, family: str = "other", baseline: bool = False) -> Outcome:
    return Outcome(name=name, family=family, baseline=baseline, first=epochs[0], rounds=epochs)


def result(*outcomes: Outcome, batch_size: int = 64) -> Result:
    workload = Workload(kind="arrays", folder="", samples=1000, batch_size=batch_size)
    return Result(case=Case(variants=(), workload=workload, title=f"{batch_size} rows"), outcomes=outcomes)


def cells(page: Sequence[str], name: str) -> list[str]:
    """The cells of a variant's row in the first table that has one."""
    for line in "\n".join(page).splitlines():
        if line.startswith(f"| {name} |"):
            return line.strip("| ").split(" | ")[1:]
    raise AssertionError(f"no row of {name} in {page}")


def test_memory_tells_the_furthest_from_the_second_epoch() -> None:
    rounds = [epoch(processes=3, rss=9e6, pss=mb * 1e6, uss=1e6, descriptors=n) for mb, n in ((5, 7), (8, 7), (4, 9))]
    row = cells(memory.tell(result(outcome("a", *rounds))), "a")
    assert row == ["3.00", "9.00", "0", "5.00", "3.00", "1.00", "0", "-1.00", "7.00", "2.00"]


def test_memory_of_a_single_round_is_where_it_was() -> None:
    single = outcome("a", epoch(pss=5e6))
    assert memory.deviation(lambda epoch: epoch.figures["pss"], single) == 0


def test_overhead_divides_cpu_time_by_gigabytes() -> None:
    plain = outcome("plain", epoch(cpu_seconds=1.0), baseline=True)
    ours = outcome("ours", epoch(cpu_seconds=3.0), family="ours")
    assert cells(overhead.tell_cpu(result(plain, ours)), "ours")[0] == "1.50"
    assert cells(overhead.tell_cpu(result(plain, ours)), "ours")[2] == "3.00"


def test_overhead_tells_the_time_of_an_empty_batch() -> None:
    assert cells(overhead.tell_empty(result(outcome("a", epoch(0.5)))), "a") == ["200", "200 to 200", "5,000"]


def test_startup_takes_the_copy_away_and_says_how_long_it_took() -> None:
    figures = {
        "copy_seconds": 0.25,
        "again_seconds": 0.5,
        "next_first_batch_seconds": 0.01,
        "worker_private_bytes": 2e6,
        "worker_unique_bytes": 3e6,
        "growth_bytes": 4e6,
    }
    page = startup.tell_first_batch(result(outcome("a", epoch(1.0, **figures))))
    assert cells(page, "a") == ["1.00", "1.00 to 1.00", "0.750", "0.500", "10.0", "2.00", "3.00", "4.00"]
    assert "in each of these processes: 0.250 s (0.250 to 0.250)." in page[1]


def test_startup_says_nothing_of_copies_where_nobody_started() -> None:
    assert startup.tell_first_batch(result(Outcome(name="a", family="x", status="failed"))) == ["", "", ""]


def test_consumer_leaves_a_dash_where_a_loader_tells_nothing() -> None:
    figures = {"pace_seconds": 0.01, "step_seconds": 0.02, "waited": 0.02, "waited_later": 0.005}
    row = cells(consumer.tell_slow(result(outcome("torch", epoch(**figures)))), "torch")
    assert row == ["10.0", "20.0", "0.500", "0.500 to 0.500", "–", "2.00", "–"]


def test_consumer_tells_how_fast_its_loop_was() -> None:
    busy = outcome("a", epoch(loops_per_second=2e6, alone=0.25))
    assert cells(consumer.tell_busy(result(busy)), "a")[:3] == ["2.00", "2.00 to 2.00", "25.0"]


SMALL = result(outcome("ours-processes", epoch(1.0), family="ours"), outcome("torch", epoch(4.0)), batch_size=1)
LARGE = result(outcome("ours-processes", epoch(2.0), family="ours"), batch_size=10)


ORDER = {"early_rate": 2e7, "growth_bytes": 3e6}
RESUMED = {"state_seconds": 5e-5, "resume_seconds": 6e-5, "resumed_batch_seconds": 2e-4}


def test_order_tells_milliseconds_rates_and_memory() -> None:
    row = cells(order.tell_order(result(outcome("a", epoch(0.5, **ORDER)))), "a")
    assert row == ["500", "500 to 500", "20.0", "20.0 to 20.0", "3.00", "0.500"]


def test_order_leaves_a_dash_where_nothing_can_be_resumed() -> None:
    told = order.tell_long(result(outcome("rows", epoch(0.5, **ORDER)), outcome("all", epoch(0.5, **ORDER, **RESUMED))))
    assert cells(told, "rows")[-3:] == ["–", "–", "–"]
    assert cells(told, "all")[-3:] == ["0.0500", "0.0600", "0.200"]


def test_draws_are_told_in_sums_over_the_weights() -> None:
    figures = {
        "cumsum_seconds": 0.25,
        "batch_seconds": 1e-5,
        "mean_batch_seconds": 2e-5,
        "longest_batch_seconds": 1e-3,
        "growth_bytes": 8e8,
    }
    row = cells(order.tell_draws(result(outcome("a", epoch(0.5, **figures)))), "a")
    assert row == ["0.500", "0.500 to 0.500", "2.00", "2.00 to 2.00", "0.0100", "0.0200", "1.00", "800"]


def long_result(name: str, samples: int, *outcomes: Outcome) -> Result:
    workload = Workload(kind="order", folder="", samples=samples, batch_size=1024)
    return Result(case=Case(variants=(), workload=workload, name=name), outcomes=outcomes)


@pytest.mark.usefixtures("fonts")
def test_the_plot_of_orders_has_a_bar_for_each_variant_that_shuffles() -> None:
    ours, torch = outcome("ours-rows", epoch(0.001, **ORDER), family="ours"), outcome("torch", epoch(9.0, **ORDER))
    weights = long_result("weights", 9, ours)
    cases = [long_result("rows", 10**8, torch, ours), long_result("long", 10**12, ours), weights]
    drawn = order.draw(cases)["order.svg"]
    assert drawn == order.draw(cases)["order.svg"]
    told = "torch, 10⁸ rows: 9,000 ms, 3.00 MB; ours-rows, 10⁸ rows: 1.00 ms, 3.00 MB; ours-rows, 10¹² rows: 1.00 ms"
    assert told in drawn
    assert ">torch, 10⁸ rows</text>" in drawn.replace("\n", "")
    assert order.draw([weights]) == {}


def test_sizes_have_a_column_each_with_rates_and_ratios() -> None:
    page = sizes.summary([SMALL, LARGE])
    assert "| variant | 1 rows, 2.0 MB | 10 rows, 20 MB |" in page
    assert "| ours-processes | 2.00 | 1.00 |" in page
    assert "| torch | 0.500 | – |" in page
    assert page.endswith("| torch | 4.00 | – |")


def test_sizes_without_figures_have_no_plot() -> None:
    nothing = result(Outcome(name="a", family="x", status="failed"))
    assert sizes.draw([nothing]) == {}
    assert "1 rows" in sizes.summary([SMALL])


@pytest.fixture(scope="module")
def fonts() -> None:
    """Let matplotlib open its fonts, which it keeps open, before what a test leaves behind is looked for."""
    pytest.importorskip("matplotlib", reason="draws the plot")
    sizes.draw([SMALL, LARGE])
    sizes.draw([LARGE])
    order.draw([long_result("rows", 10**8, outcome("a", epoch(0.5, **ORDER)))])


@pytest.mark.usefixtures("fonts")
def test_the_plot_is_the_same_for_the_same_figures() -> None:
    drawn = sizes.draw([SMALL, LARGE])["sizes.svg"]
    assert drawn == sizes.draw([SMALL, LARGE])["sizes.svg"]
    assert drawn != sizes.draw([LARGE])["sizes.svg"]
    assert "<dc:date>" not in drawn
    assert 'role="img"' in drawn
    assert "ours-processes from 2 to 1; torch from 0.5 to 0.5." in drawn
    assert ">torch</text>" in drawn.replace("\n", "")


def test_the_plot_without_matplotlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(NoPlot, match=r"pip install 'batchup_ng\[plot\]'"):
        plot([Curve("a", ((1.0, 1.0),))])


def test_labels_that_would_meet_are_moved_apart() -> None:
    places = spaced([0.2, 0.21, 0.22, 0.9], 0.05)
    assert places == pytest.approx([0.2, 0.25, 0.3, 0.9])


def test_a_part_without_photographs_is_left_out_and_a_study_of_them_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(kind: str, folder: Path, *, quick: bool) -> Workload:
        if kind == "images":
            raise MissingPhotographs("no scikit-learn")
        return Workload(kind=kind, folder=str(folder), samples=0, batch_size=1)

    monkeypatch.setattr(campaign, "make", make)
    images, none = (
        Part(name=kind, title=f"of {kind}", kind=kind, known=starters("none")[:1], tell=lambda result: [])
        for kind in ("images", "none")
    )
    monkeypatch.setattr(campaign, "measure", lambda case, options, say: Result(case=case, outcomes=()))
    said: list[str] = []

    def run(*parts: Part) -> list[Result]:
        study = Study(name="x", title="x", parts=parts)
        return campaign.run(study, None, Options(), tmp_path, quick=True, say=said.append)

    assert [done.case.name for done in run(images, none)] == ["none"]
    assert said == ["left out: of images: no scikit-learn", "of none"]
    with pytest.raises(MissingPhotographs):
        run(images)
