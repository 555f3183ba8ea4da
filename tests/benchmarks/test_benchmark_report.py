"""The report says what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.plan import Part, Result, Study
from benchmarks.records import Epoch, Outcome, Reading
from benchmarks.report import columns, pages
from benchmarks.studies import EMPTY, FIRST_BATCH, GIGABYTES, STUDIES
from benchmarks.workloads.base import Workload

SETTING: dict[str, Any] = {
    "command": "python -m benchmarks arrays", "date": "2026-01-02", "cpus": 2, "system": "Linux x86_64",
    "python": "3.11.7", "libraries": {"numpy": "2.4.6"}, "workers": 2, "rounds": 3, "quick": False,
}  # fmt: skip
ARRAYS = STUDIES["arrays"]


def epoch(seconds: float, *, batches: int = 16, **figures: float) -> Epoch:
    return Epoch(
        seconds=seconds, first_batch_seconds=seconds / 10, batches=batches, samples=1000, bytes=2_000_000_000,
        figures=figures,
    )  # fmt: skip


def outcome(name: str, *seconds: float, family: str = "other") -> Outcome:
    result = Outcome(name=name, family=family)
    for second in (5.0, *seconds):
        result = result.add(epoch(second), fresh=False)
    return result


def result(*outcomes: Outcome, part: Part = ARRAYS.parts[0]) -> Result:
    return Result(part=part, workload=Workload(kind="arrays", folder="", samples=1000), outcomes=outcomes)


def page(*results: Result, study: Study = ARRAYS, **setting: Any) -> str:
    """The page, its tables without their padding."""
    lines = pages.page(study, {**SETTING, **setting}, results).splitlines()
    return "\n".join(" ".join(line.split()) for line in lines)


def cells(text: str, name: str) -> Sequence[str]:
    """The cells of a variant's row in the first table that has one."""
    row = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return row.strip("| ").split(" | ")[1:]


PLAIN = outcome("plain", 1.0, 2.0, 4.0, family="plain")
OURS = outcome("ours-threads", 2.0, 2.0, 4.0, family="ours")
BEFORE = outcome("ours-threads@before", 2.0, 4.0, 6.0, family="before")
TORCH = outcome("torch-workers", 4.0, 8.0, 16.0)
ABSENT = Outcome(name="grain", family="grain", status="absent", detail="not installed: grain")
FAILED = outcome("spdl", 1.0).failed("OSError: '/some/place/x.jpg' is broken")
ALL = [PLAIN, OURS, TORCH, ABSENT, FAILED]


def test_the_first_epoch_is_kept_apart_unless_each_round_has_a_process() -> None:
    assert PLAIN.first == epoch(5.0)
    assert [one.seconds for one in PLAIN.rounds] == [1.0, 2.0, 4.0]
    fresh = Outcome(name="x", family="other").add(epoch(1.0), fresh=True).add(epoch(2.0), fresh=True)
    assert fresh.first is None
    assert [one.seconds for one in fresh.rounds] == [1.0, 2.0]


def test_readings_have_the_units_of_their_names() -> None:
    assert GIGABYTES(epoch(4.0)) == 0.5
    assert Reading("samples", per="seconds")(epoch(4.0)) == 250
    assert Reading("first_batch_seconds", times=1000)(epoch(4.0)) == 400
    assert Reading("pss", times=1e-6)(epoch(1.0, pss=2e6)) == 2
    assert Reading("cpu", per="batches", times=1e6)(epoch(1.0, cpu=0.016)) == 1000
    assert math.isnan(Reading("missing", per="batches")(epoch(1.0)))
    assert Reading("cpu_seconds", per="bytes", times=1e9)(epoch(1.0, cpu_seconds=3.0)) == 1.5


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    reading = GIGABYTES
    assert columns.ratio(reading, OURS, PLAIN) == 1.0  # of 0.5, 1 and 1
    assert columns.ratio(reading, PLAIN, TORCH) == 4.0
    assert math.isnan(columns.ratio(reading, PLAIN, ABSENT))
    assert math.isnan(columns.ratio(reading, FAILED, PLAIN))


def test_the_table_shows_median_range_and_start() -> None:
    text = page(result(*ALL))
    assert "| variant | GB/s, median | range | batches/s | first epoch, s | first batch, ms |" in text
    assert cells(text, "torch-workers") == ["0.250", "0.125 to 0.500", "2.00", "5.00", "500", "–"]


def test_the_second_table_compares_ours_with_each_other_library() -> None:
    text = page(result(*ALL, BEFORE))
    assert "| against | ours-threads |" in text
    assert "| torch-workers | 4.00 |" in text
    assert "@before" not in text.partition("| against |")[2].partition("Against the other checkout")[0]
    assert "| against" not in page(result(PLAIN, TORCH))


def test_the_other_checkout_is_compared_within_each_round() -> None:
    text = page(result(OURS, BEFORE))
    row = "| shuffled batches of uint8 images in RAM | ours-threads | GB/s | 0.500 | 1.00 | 1.500 | 1.250 to 1.750 |"
    assert row in text  # of 1, 2 and 1.5
    less = replace(ARRAYS.parts[0], reading=FIRST_BATCH, less_is_better=True)
    assert "| 1.500 | 1.250 to 1.750 |" in page(result(OURS, BEFORE, part=less))  # above 1 is better all the same
    assert pages.changes([result(*ALL)]) == ""
    assert pages.changes([result(OURS, BEFORE.failed("x"))]) == ""


def test_absent_and_failed_peers_are_listed_without_paths() -> None:
    text = page(result(*ALL))
    assert "- grain: absent, not installed: grain" in text
    assert "- spdl: failed, OSError: '<path>' is broken" in text
    assert "|" not in page(result(ABSENT))


def test_json_holds_all_rounds_with_their_values() -> None:
    text = json.dumps(pages.case(result(*ALL)))
    case = json.loads(text)
    variants = {variant["name"]: variant for variant in case["variants"]}
    assert (case["name"], case["unit"], case["less_is_better"]) == ("arrays", "GB/s", False)
    assert variants["plain"]["values"] == [2.0, 1.0, 0.5]
    assert len(variants["plain"]["rounds"]) == 3
    assert variants["grain"]["status"] == "absent"
    assert "/some" not in text


SIZES = STUDIES["sizes"]
SMALL = result(outcome("ours-threads", 1.0, family="ours"), outcome("torch", 4.0), part=SIZES.parts[0])
LARGE = result(outcome("ours-threads", 2.0, family="ours"), FAILED, part=SIZES.parts[1])


def test_sizes_have_a_column_each_with_rates_and_ratios() -> None:
    text = page(SMALL, LARGE, study=SIZES)
    assert "| variant | 1 row, 49 kB | 2 rows, 98 kB |" in text
    assert cells(text, "ours-threads") == ["2.00", "1.00"]
    assert cells(text, "torch") == ["0.500", "–"]
    assert cells(text.partition("How many times as much `ours-threads`")[2], "torch") == ["4.00", "–"]
    assert "- spdl: failed" in text


def test_overhead_tells_the_time_of_an_empty_batch_and_the_cpu_time_of_the_consumer() -> None:
    took = epoch(0.5, batches=100, consumer_cpu_seconds=0.006, cpu_seconds=0.009)
    one = Outcome(name="a", family="x", rounds=(took,))
    assert cells(page(result(one, part=EMPTY)), "a") == ["200", "200 to 200", "5,000", "60.0", "90.0"]


STORAGE = STUDIES["storage"]
FILES = {part.name: part for part in STORAGE.parts}


def of_file(kind: str, order: str, *outcomes: Outcome) -> Result:
    about = {"format": kind, "bytes": 983_000_000}
    workload = Workload(kind="storage", folder="", samples=1000, order=order, detail=about)
    return Result(part=FILES[f"{kind}-{order}"], workload=workload, outcomes=outcomes)


def test_files_have_a_row_each_with_milliseconds_and_the_rate_beside_plain_code() -> None:
    text = page(
        of_file("zarr", "random", PLAIN, OURS, TORCH),
        of_file("zarr", "blocks", replace(PLAIN, name="plain-blocks"), replace(OURS, rounds=OURS.rounds[:2])),
        of_file("npy", "random", OURS, ABSENT),
        study=STORAGE,
    )
    overview, at_random, in_blocks = text.partition("Rows at random")[0], *text.split("Rows ")[1:]
    assert cells(overview, "npy") == ["0.983", "125", "–", "–", "–", "–", "–", "–"]
    assert cells(overview, "Zarr 3, chunks of 64, zstd") == ["0.983", "125", "–", "125", "–", "–", "–", "500"]
    assert cells(at_random, "Zarr 3, chunks of 64, zstd") == ["16", "125", "125 (1.00)", "500 (0.25)"]
    assert cells(at_random, "npy") == ["16", "–", "125", "–"]
    assert cells(in_blocks, "Zarr 3, chunks of 64, zstd") == ["16", "125", "125 (0.75)"]
    assert "- grain: absent" in text
