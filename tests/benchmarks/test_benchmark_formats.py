"""Files of the workload ``storage``: each is read right, by plain code, by ours, and as a data set for PyTorch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.formats import FORMATS
from benchmarks.harness import Options, measure
from benchmarks.peers import known
from benchmarks.plan import Part
from benchmarks.studies import STUDIES
from benchmarks.trials import run_epoch
from benchmarks.workloads import make, open_data
from benchmarks.workloads.base import Workload
from tests.extent import thorough

PARTS = {part.name: part for part in STUDIES["storage"].parts}
VARIANTS = {variant.name: variant for variant in known("storage")}
OWN = ("plain", "ours")  # other libraries leave processes or threads behind, and run in whole studies only
POOLS = ("ours-threads", "ours-processes")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return make("storage", tmp_path_factory.mktemp("storage"), quick=True)


def adapted(part: Part, made: Workload) -> Workload:
    for module in part.needs:
        pytest.importorskip(module, reason=f"{part.title} needs it")
    return part.adapt(made)


@pytest.mark.parametrize("name", FORMATS)
def test_each_way_to_read_a_file_gives_what_was_written(name: str, made: Workload) -> None:
    workload = adapted(PARTS[f"{name}-contiguous"], made)
    data, folder = open_data(workload), Path(made.folder)
    images, labels = np.load(folder / "npy" / "x.npy"), np.load(folder / "labels.npy")
    rows = np.array([70, 3, 299, 64, 3])  # of three groups, the last of which is short
    x, y = data.batch(rows)
    assert np.array_equal(x, images[rows])
    assert np.array_equal(y, labels[rows])
    for row in (70, 299):
        x, y = data.sample(row)
        assert np.array_equal(x, images[row])
        assert y == labels[row]
    for start, count in ((64, 64), (256, 44)):
        out = np.zeros((count, *images.shape[1:]), np.uint8), np.zeros(count, np.int64)
        data.fill(np.arange(start, start + count), out)
        assert np.array_equal(out[0], images[start : start + count])
        assert np.array_equal(out[1], labels[start : start + count])


BY_ITSELF = [(part, each.name) for part in PARTS for each in PARTS[part].variants(None) if each.family in OWN]


@pytest.mark.parametrize(("part", "name"), [thorough(*pair) if pair[1] in POOLS else pair for pair in BY_ITSELF])
def test_a_file_is_delivered_in_each_order(part: str, name: str, made: Workload) -> None:
    workload = adapted(PARTS[part], made)
    feed = VARIANTS[name].open(workload, 2)
    try:
        for number in range(2):
            epoch = run_epoch(lambda number=number: feed.epoch(number), workload, check_x=True)
            assert (epoch.samples, epoch.batches) == (workload.samples, -(-workload.samples // workload.batch_size))
    finally:
        feed.close()


def test_plain_code_is_that_of_the_order() -> None:
    assert [each.name for each in PARTS["zarr-blocks"].variants(["plain"])] == ["plain-blocks"]
    assert [each.name for each in PARTS["zarr-random"].variants(["plain", "torch-none"])] == ["plain", "torch-none"]


def test_an_order_is_the_one_that_is_asked_for(made: Workload) -> None:
    labels = np.load(Path(made.folder) / "labels.npy")
    for name, part in ((each, PARTS[f"npy-{each}"]) for each in ("contiguous", "random")):
        workload = part.adapt(made)
        for variant in ("plain", "ours-serial"):
            feed = VARIANTS[variant].open(workload, 2)
            found = np.concatenate([y.copy() for _, y in feed.epoch(0)])
            assert np.array_equal(found, labels) == (name == "contiguous")
            feed.close()


def test_a_random_epoch_of_a_slow_format_has_some_of_the_rows(made: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMATS["npy"], "drawn", 2)
    workload = PARTS["npy-random"].adapt(made)
    assert workload.samples == 128
    for name in ("plain", "ours-serial"):
        feed = VARIANTS[name].open(workload, 2)
        found = [np.concatenate([y.copy() for _, y in feed.epoch(number)]) for number in range(2)]
        feed.close()
        assert sum(found[0].tolist()) == workload.y_sum
        assert not np.array_equal(*found)
        assert set(found[0].tolist()) == set(found[1].tolist())
    assert PARTS["npy-contiguous"].adapt(made).samples == 300


def test_a_format_without_its_library_is_absent(
    made: Workload, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(FORMATS["lmdb"], "needs", ("no_such_module_anywhere",))
    part = replace(PARTS["lmdb-random"], needs=FORMATS["lmdb"].needs)
    os.symlink(Path(made.folder) / "npy", tmp_path / "npy")
    workload = part.adapt(replace(made, folder=str(tmp_path)))
    assert os.listdir(tmp_path) == ["npy"]
    outcomes = measure(part, part.variants(None), workload, Options()).outcomes
    assert {outcome.status for outcome in outcomes} == {"absent"}
    assert len(outcomes) >= 5
