"""The text of OpenMetrics has the figures of ``metrics()``, and a strict parser reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.observe.openmetrics import FAMILIES, OF_A_MAP
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

SAMPLE = re.compile(r'([a-z_0-9]+)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def doubled(x: np.ndarray) -> np.ndarray:
    return 2 * x


def loop(pool: Any) -> bu.Loader:
    loader = bu.Loader(bu.ArrayDataSource([np.arange(40)]).map(doubled, on=0), 6, shuffle=1, pool=pool)
    for _ in range(2):
        for _ in loader:
            pass
    return loader


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def read(text: str) -> Samples:
    """Return the values of an exposition by names and labels. It has a family at a time, and each sample once."""
    *lines, last, rest = text.split("\n")
    assert (last, rest) == ("# EOF", "")
    found: Samples = {}
    families: list[str] = []
    about: list[str] = []
    for line in lines:
        if line.startswith("# "):
            about = [] if line.startswith("# TYPE ") else about
            about.append(line.split(" ", 3)[1])
            name, what = line.split(" ", 3)[2:]
            if about == ["TYPE"]:
                kind = what
                families.append(name)
            assert name == families[-1]
            assert what
            assert about[-1] != "UNIT" or name.endswith(f"_{what}")
            continue
        assert about in (["TYPE", "HELP"], ["TYPE", "UNIT", "HELP"])
        matched = SAMPLE.fullmatch(line)
        assert matched is not None, line
        name, labels, value = matched.groups()
        assert name == families[-1] + "_total" * (kind == "counter")
        pairs = LABEL.findall(labels or "")
        assert len({key for key, _ in pairs}) == len(pairs)
        assert ("quantile" in dict(pairs)) == (kind == "summary")
        key = name, tuple((key, unescaped(value)) for key, value in pairs)
        assert key not in found
        found[key] = float(value)
    assert len(set(families)) == len(families)
    return found


def by_prometheus(text: str) -> Samples:
    """Return the same, read by the parser of Prometheus's client."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sample.labels.items())): sample.value for sample in samples}


@pytest.fixture(scope="module", params=["serial", "threads", "processes"])
def pool(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> AbstractWorkerPool:
    threads, processes = pools
    return {"serial": bu.SerialPool(), "threads": threads, "processes": processes}[request.param]


def expected(metrics: dict[str, float], **labels: str) -> Iterator[tuple[Any, float]]:
    """Yield the samples of measurements, from their names alone."""
    shares = {"wait_share": "wait_ratio", "busy_share": "busy_ratio", "ready_mean": "ready_batches"}
    for name, value in metrics.items():
        base, _, end = name.partition("_ms_")
        own: dict[str, str] = {}
        if name in ("batches", "samples", "wait_seconds"):
            told = f"{name}_total"
        elif not end:
            told = shares.get(name, name)
        elif end.startswith("mean"):
            told, own = f"batch_{base}_mean_seconds", {"map": end[5:]} if base == "map" else {}
        else:
            told, own = f"batch_{base}_seconds", {"quantile": {"p50": "0.5", "p99": "0.99"}[end]}
        yield (f"batchup_ng_{told}", tuple({**labels, **own}.items())), value / 1e3 if end else value


def test_all_figures_are_there(pool: AbstractWorkerPool) -> None:
    with loop(pool) as loader:
        metrics = loader.metrics()
        text, again = bu.openmetrics(loader), bu.openmetrics(metrics)
    assert text == again
    found = read(text)
    assert found == pytest.approx(dict(expected(metrics)))
    assert by_prometheus(text) == pytest.approx(found)
    assert found["batchup_ng_batches_total", ()] == 14
    assert 0 < found["batchup_ng_wait_seconds_total", ()] == metrics["wait_seconds"]
    assert ("batchup_ng_batch_map_mean_seconds", (("map", "doubled"),)) in found


def test_several_loaders_have_one_type_a_family_and_a_label_each() -> None:
    with loop("serial") as train, bu.Loader([np.arange(3)], 2, pool="serial") as unused:
        metrics = train.metrics()
        text = bu.openmetrics({"train": train, 'v"1\\\n': metrics, "later": unused}, labels={"job": 7})
    found = read(text)
    assert found == pytest.approx(
        dict([*expected(metrics, job="7", loader="train"), *expected(metrics, job="7", loader='v"1\\\n')])
    )
    assert by_prometheus(text) == pytest.approx(found)
    assert text.count("# TYPE batchup_ng_batches counter") == 1


def test_a_loader_without_measurements_has_no_samples() -> None:
    with bu.Loader([np.arange(3)], 2, pool="serial") as loader:
        assert bu.openmetrics(loader) == bu.openmetrics({}) == bu.openmetrics({"train": {}}) == "# EOF\n"


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_any_text_is_a_label(value: str, name: str) -> None:
    text = bu.openmetrics({name: {f"{OF_A_MAP}{value}": 1.5}}, labels={"of": value})
    shown_value, shown_name = (each.encode("utf-8", "backslashreplace").decode() for each in (value, name))
    labels = (("of", shown_value), ("loader", shown_name), ("map", shown_value))
    assert read(text) == {("batchup_ng_batch_map_mean_seconds", labels): 0.0015}
    assert by_prometheus(text) == read(text)


@given(st.floats() | st.integers(-(2**60), 2**60))
def test_any_number_is_a_value(value: float) -> None:
    text = bu.openmetrics({"wait_share": value})
    ((_, found),) = read(text).items()
    assert found == float(value) or (math.isnan(found) and math.isnan(value))
    assert str([float(each) for each in by_prometheus(text).values()]) == str([found])


def test_what_cannot_be_told_is_refused() -> None:
    with raises(bu.ArgumentTypeError):
        bu.openmetrics([np.arange(3)])
    with raises(bu.ArgumentTypeError):
        bu.openmetrics({3: {}})
    with raises(bu.ArgumentTypeError):
        bu.openmetrics({"batches": "3"})
    with raises(bu.ArgumentError):
        bu.openmetrics({"loss": 3.0})
    with raises(bu.ArgumentTypeError):
        bu.openmetrics({}, labels="job")
    for name in ("1st", "with space", "__own", "", 3, "loader", "map", "quantile", "job\n"):
        with raises(bu.ArgumentError):
            bu.openmetrics({}, labels={name: "x"})


def test_names_end_with_their_units() -> None:
    for name, family in FAMILIES.items():
        assert not family.unit or name.endswith(f"_{family.unit}")
        assert family.help == family.help.strip()
        assert not set('\\\n"') & set(family.help)
