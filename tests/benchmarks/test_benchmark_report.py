"""The report says what was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks import report
from benchmarks.outcome import Epoch, Outcome

SETTING = report.Setting(
    kind="arrays",
    command="python -m benchmarks arrays",
    date="2026-01-02",
    cpus=2,
    system="Linux x86_64",
    python="3.11.7",
    libraries={"numpy": "2.4.6"},
    samples=1000,
    batch_size=64,
    workers=2,
    quick=False,
)


def epoch(seconds: float) -> Epoch:
    return Epoch(seconds=seconds, first_batch_seconds=seconds / 10, batches=16, samples=1000, bytes=2_000_000_000)


def outcome(name: str, *seconds: float, family: str = "other", baseline: bool = False) -> Outcome:
    result = Outcome(name=name, family=family, baseline=baseline).add(epoch(5.0))
    for second in seconds:
        result = result.add(epoch(second))
    return result


PLAIN = outcome("plain", 1.0, 2.0, 4.0, family="plain", baseline=True)
OURS = outcome("ours-threads", 2.0, 2.0, 4.0, family="ours")
TORCH = outcome("torch-workers", 4.0, 8.0, 16.0)
ABSENT = Outcome(name="grain", family="grain", status="absent", detail="not installed: grain")
FAILED = outcome("spdl", 1.0).failed("OSError: '/some/place/x.jpg' is broken")
ALL = [PLAIN, OURS, TORCH, ABSENT, FAILED]


def test_the_first_epoch_is_kept_apart() -> None:
    assert PLAIN.first == epoch(5.0)
    assert [round_.seconds for round_ in PLAIN.rounds] == [1.0, 2.0, 4.0]


def test_rates_have_the_units_of_the_workload() -> None:
    assert report.rate("arrays", epoch(4.0)) == 0.5
    assert report.rate("images", epoch(4.0)) == 250
    assert report.rate("python", epoch(4.0)) == 250


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    assert report.ratio("arrays", OURS, PLAIN) == 1.0  # of 0.5, 1 and 1
    assert report.ratio("arrays", PLAIN, TORCH) == 4.0
    assert report.ratio("arrays", PLAIN, ABSENT) is None
    assert report.ratio("arrays", FAILED, PLAIN) is None


def test_the_table_shows_median_range_start_and_ratio() -> None:
    page = report.to_markdown(SETTING, ALL)
    assert "| variant | GB/s, median | range | batches/s |" in page
    assert "| torch-workers | 0.250 | 0.125 to 0.500 | 2.00 | 5.00 | 500 | 8.00 | 0.25 |" in page


def test_the_second_table_compares_ours_with_each_peer() -> None:
    page = report.to_markdown(SETTING, ALL)
    assert "| against | ours-threads |" in page
    assert "| torch-workers | 4.00 |" in page
    assert "against" not in report.to_markdown(SETTING, [PLAIN, TORCH])


def test_absent_and_failed_peers_are_listed_without_paths() -> None:
    page = report.to_markdown(SETTING, ALL)
    assert "- grain: absent, not installed: grain" in page
    assert "- spdl: failed, OSError: '<path>' is broken" in page


def test_a_page_without_figures_is_still_a_page() -> None:
    page = report.to_markdown(SETTING, [ABSENT])
    assert "python -m benchmarks arrays" in page
    assert "- grain" in page
    assert "|" not in page


def test_what_means_nothing_is_said_to_mean_nothing() -> None:
    assert "mean nothing" in report.to_markdown(replace(SETTING, quick=True), ALL)
    assert "mean nothing" not in report.to_markdown(SETTING, ALL)


def test_several_waves_are_admitted() -> None:
    assert "measured in 2 waves" in report.to_markdown(SETTING, [PLAIN, replace(TORCH, wave=1)])
    assert "waves" not in report.to_markdown(SETTING, ALL)


def test_json_holds_all_rounds_and_all_ratios() -> None:
    fields = json.loads(json.dumps(report.to_json(SETTING, ALL)))
    variants = {variant["name"]: variant for variant in fields["variants"]}
    assert fields["unit"] == "GB/s"
    assert fields["setting"]["libraries"] == {"numpy": "2.4.6"}
    assert len(variants["plain"]["rounds"]) == 3
    assert variants["plain"]["rate"] == {"median": 1.0, "min": 0.5, "max": 2.0}
    assert variants["ours-threads"]["times_as_fast_as"] == {"plain": 1.0, "torch-workers": 4.0}
    assert variants["grain"]["status"] == "absent"
    assert "/some" not in json.dumps(fields)


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
    assert report.without_paths(text) == cleaned


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (99.96, "100."), (1.0, "1.00"), (0.00123, "0.00123")])
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text
