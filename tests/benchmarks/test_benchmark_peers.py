"""Every peer delivers every workload, under a name of its own.

Those of other libraries, Ray among them, leave processes behind, so that only the runs of whole studies have them.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import known
from benchmarks.peers.base import Variant
from benchmarks.trials import run_epoch
from benchmarks.workloads import KINDS, make, open_data
from benchmarks.workloads.base import Workload, shuffled
from tests.extent import thorough

QUICK = {("arrays", "plain-threads"), ("arrays", "plain-processes"), ("arrays", "ours-serial"), ("python", "plain"),
         ("empty", "ours-threads"), ("order", "plain")}  # fmt: skip
LEFT_OUT = (("storage", "ours-to-tf-data"), ("decoded", "plain-same-batch"), ("images", "plain-same-batch"))
"""What a ``tf.data`` read from it keeps, open files too, until the program ends; what is not to deliver all samples."""
PAIRS = [(kind, variant.name) for kind in KINDS for variant in known(kind) if (kind, variant.name) not in LEFT_OUT
         and variant.family in ("plain", "ours") and "ray" not in variant.needs]  # fmt: skip


def workload_of(kind: str, folder: Path) -> Workload:
    if kind in ("images", "images_large", "photographs"):
        pytest.importorskip("sklearn", reason="the photographs come with scikit-learn")
    return make(kind, folder, quick=True)


def variant_of(kind: str, name: str) -> Variant:
    (variant,) = [variant for variant in known(kind) if variant.name == name]
    return variant


@pytest.mark.parametrize(("kind", "name"), [pair if pair in QUICK else thorough(*pair) for pair in PAIRS])
def test_a_peer_delivers_a_workload_again_and_again(kind: str, name: str, tmp_path: Path) -> None:
    workload = workload_of(kind, tmp_path)
    feed = variant_of(kind, name).open(workload, 2)
    try:
        for number in range(3):
            epoch = run_epoch(lambda number=number: feed.epoch(number), workload, check_x=True)
            assert (epoch.samples, epoch.batches) == (workload.samples, -(-workload.samples // workload.batch_size))
            if number == 1:
                feed.close()
    finally:
        feed.close()


@pytest.mark.parametrize("name", ["plain-threads", "plain-processes"])
def test_bare_workers_use_their_memory_again_after_the_next_batch(name: str, tmp_path: Path) -> None:
    workload = replace(make("arrays", tmp_path, quick=True), batch_size=4)  # 50 batches, 16 slots
    feed = variant_of("arrays", name).open(workload, 2)
    try:
        places = set()
        expected = open_data(workload)
        for rows, (x, y) in zip(shuffled(workload, 0), feed.epoch(0), strict=True):
            places.add(x.__array_interface__["data"][0])
            assert all(map(np.array_equal, (x, y), expected.batch(rows)))
        assert len(places) == 16
    finally:
        feed.close()


@pytest.mark.parametrize("mapped", [False, True])
def test_mapped_arrays_travel_by_name_and_others_by_value(tmp_path: Path, mapped: bool) -> None:
    workload = replace(make("arrays", tmp_path, quick=True), mapped=mapped)
    sent = pickle.dumps(open_data(workload))
    assert (len(sent) < 2000) == mapped
    arrived = pickle.loads(sent)
    assert isinstance(arrived.columns[0], np.memmap) == mapped
    assert np.array_equal(arrived.batch(np.array([3, 5]))[1], arrived.columns[1][[3, 5]])


@pytest.mark.parametrize("kind", [thorough(kind) if kind == "images_large" else kind for kind in KINDS])
def test_each_way_to_read_gives_the_same(kind: str, tmp_path: Path) -> None:
    data = open_data(workload_of(kind, tmp_path))
    rows = np.array([7, 3])
    batch = data.batch(rows)
    out = [np.empty_like(array) for array in batch]
    data.fill(rows, out)
    samples = [data.sample(int(row)) for row in rows]
    for place, array in enumerate(batch):
        assert np.array_equal(out[place], array)
        assert np.array_equal([sample[place] for sample in samples], array)
