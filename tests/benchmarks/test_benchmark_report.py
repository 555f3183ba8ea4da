"""The report says what was measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from benchmarks.case import Case, Result
from benchmarks.outcome import Epoch, Outcome
from benchmarks.report import pages, readings, tables
from benchmarks.studies.throughput import ARRAYS, tell
from benchmarks.workloads import Workload

SETTING = pages.Setting(
    study="arrays",
    title="arrays: images",
    command="python -m benchmarks arrays",
    date="2026-01-02",
    cpus=2,
    system="Linux x86_64",
    python="3.11.7",
    libraries={"numpy": "2.4.6"},
    workers=2,
    rounds=3,
    quick=False,
)


def epoch(seconds: float, **figures: float) -> Epoch:
    first = seconds / 10
    return Epoch(
        seconds=seconds, first_batch_seconds=first, batches=16, samples=1000, bytes=2_000_000_000, figures=figures
    )


def outcome(name: str, *seconds: float, family: str = "other", baseline: bool = False) -> Outcome:
    result = Outcome(name=name, family=family, baseline=baseline).add(epoch(5.0))
    for second in seconds:
        result = result.add(epoch(second))
    return result


def result(*outcomes: Outcome, name: str = "arrays") -> Result:
    case = Case(
        variants=(),
        workload=Workload(kind="arrays", folder="", samples=1000, batch_size=64),
        name=name,
        title=f"the {name}",
        unit="GB/s",
        reading=readings.gigabytes_per_second,
    )
    return Result(case=case, outcomes=outcomes)


def page(*outcomes: Outcome, setting: pages.Setting = SETTING) -> str:
    return pages.page(setting, [result(*outcomes)], tell)


PLAIN = outcome("plain", 1.0, 2.0, 4.0, family="plain", baseline=True)
OURS = outcome("ours-threads", 2.0, 2.0, 4.0, family="ours")
TORCH = outcome("torch-workers", 4.0, 8.0, 16.0)
ABSENT = Outcome(name="grain", family="grain", status="absent", detail="not installed: grain")
FAILED = outcome("spdl", 1.0).failed("OSError: '/some/place/x.jpg' is broken")
ALL = [PLAIN, OURS, TORCH, ABSENT, FAILED]


def test_the_first_epoch_is_kept_apart() -> None:
    assert PLAIN.first == epoch(5.0)
    assert [round_.seconds for round_ in PLAIN.rounds] == [1.0, 2.0, 4.0]


def test_rounds_of_processes_of_their_own_have_no_first() -> None:
    fresh = Outcome(name="x", family="other").repeat(epoch(1.0)).repeat(epoch(2.0))
    assert fresh.first is None
    assert [round_.seconds for round_ in fresh.rounds] == [1.0, 2.0]


def test_readings_have_the_units_of_their_names() -> None:
    assert readings.gigabytes_per_second(epoch(4.0)) == 0.5
    assert readings.samples_per_second(epoch(4.0)) == 250
    assert readings.batches_per_second(epoch(4.0)) == 4
    assert readings.figure("bytes", 1e-6)(epoch(1.0, bytes=2e6)) == 2
    assert math.isnan(readings.figure("missing")(epoch(1.0)))


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    rate = readings.gigabytes_per_second
    assert readings.ratio(rate, OURS, PLAIN) == 1.0  # of 0.5, 1 and 1
    assert readings.ratio(rate, PLAIN, TORCH) == 4.0
    assert readings.ratio(rate, PLAIN, ABSENT) is None
    assert readings.ratio(rate, FAILED, PLAIN) is None


def test_the_table_shows_median_range_start_and_ratio() -> None:
    text = page(*ALL)
    assert "| variant | GB/s, median | range | batches/s |" in text
    assert "| torch-workers | 0.250 | 0.125 to 0.500 | 2.00 | 5.00 | 500 | 8.00 | 0.25 |" in text


def test_the_second_table_compares_ours_with_each_peer() -> None:
    text = page(*ALL)
    assert "| against | ours-threads |" in text
    assert "| torch-workers | 4.00 |" in text
    assert "against" not in page(PLAIN, TORCH)


def test_absent_and_failed_peers_are_listed_without_paths() -> None:
    text = page(*ALL)
    assert "- grain: absent, not installed: grain" in text
    assert "- spdl: failed, OSError: '<path>' is broken" in text


def test_a_page_without_figures_is_still_a_page() -> None:
    text = page(ABSENT)
    assert "python -m benchmarks arrays" in text
    assert "- grain" in text
    assert "|" not in text


def test_the_heading_of_one_case_has_its_samples_and_that_of_several_has_not() -> None:
    assert "2026-01-02: 1,000 samples, batch 64, 3 rounds, 2 workers," in page(PLAIN)
    text = pages.page(SETTING, [result(PLAIN), result(TORCH, name="others")], tell, "Of both.")
    assert "2026-01-02: 3 rounds, 2 workers," in text
    assert "Of both." in text
    assert "### the others\n\n1,000 samples, batch 64.\n\n| variant |" in text


def test_a_case_that_is_told_in_the_summary_has_no_heading() -> None:
    text = pages.page(SETTING, [result(PLAIN), result(ABSENT, name="others")], lambda result: [])
    assert "### the arrays" not in text
    assert "### the others" in text


def test_what_means_nothing_is_said_to_mean_nothing() -> None:
    assert "mean nothing" in page(*ALL, setting=replace(SETTING, quick=True))
    assert "mean nothing" not in page(*ALL)


def test_several_waves_are_admitted() -> None:
    assert "measured in 2 waves" in page(PLAIN, replace(TORCH, wave=1))
    assert "waves" not in page(*ALL)


def test_json_holds_all_rounds_and_all_ratios() -> None:
    fields = json.loads(json.dumps(pages.to_json(SETTING, [result(*ALL)])))
    (case,) = fields["cases"]
    variants = {variant["name"]: variant for variant in case["variants"]}
    assert case["unit"] == "GB/s"
    assert fields["setting"]["libraries"] == {"numpy": "2.4.6"}
    assert len(variants["plain"]["rounds"]) == 3
    assert variants["plain"]["value"] == {"median": 1.0, "min": 0.5, "max": 2.0}
    assert variants["ours-threads"]["times_as_much_as"] == {"plain": 1.0, "torch-workers": 4.0}
    assert variants["grain"]["status"] == "absent"
    assert "/some" not in json.dumps(fields)


def test_the_arrays_study_reads_gigabytes() -> None:
    assert ARRAYS.parts[0].reading(epoch(4.0)) == 0.5


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("in '/a/b c.txt'", "in '<path> c.txt'"),
        ("at C:\\x\\y.py", "at <path>"),
        ("1/2 of images/s", "1/2 of images/s"),
        ("/single", "/single"),
    ],
)
def test_paths_are_cut_out(text: str, cleaned: str) -> None:
    assert pages.without_paths(text) == cleaned


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.6, "12,346"),
        (99.96, "100."),
        (1.0, "1.00"),
        (0.00123, "0.00123"),
        (-0.5, "-0.500"),
        (0.0, "0"),
        (0.00004, "0.00004"),
        (1e-9, "0"),
        (math.nan, "–"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert tables.number(value) == text
