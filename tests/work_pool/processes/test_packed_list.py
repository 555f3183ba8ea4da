"""Long lists of samples, which all workers have once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import batchup_ng as bu
from batchup_ng.work_pool.processes.serialization import SHORTEST_PACKED_LIST, packed_list


class Sample:
    """What a worker could not import if it were a script's."""


@pytest.mark.parametrize(
    "item",
    [
        ("cat.jpg", 3),
        {"text": "é", "tokens": [1, 2], "none": None, "ratio": 0.5, "flag": True},
        (Path("a/b.png"), b"\0", np.float32(1.5), 1 + 2j, frozenset("a")),
        (np.arange(5), "beside an array"),
    ],
)
def test_items_come_back_as_they_were(item: Any) -> None:
    items = [item, *range(SHORTEST_PACKED_LIST)]
    packed = packed_list(items)
    assert packed is not None
    assert len(packed) == len(items)
    assert repr(packed[0]) == repr(item)
    last = SHORTEST_PACKED_LIST - 1
    assert [packed[place] for place in (1, len(items) - 1, -1)] == [0, last, last]
    for place in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            packed[place]


def test_what_holds_anything_else_or_is_short_travels_as_ever() -> None:
    for odd in (Sample(), Sample, [lambda: 1], np.zeros(5).view(np.memmap), Path):
        items = [("x", 1)] * SHORTEST_PACKED_LIST + [odd]
        assert (packed_list(items) is None) == (odd is not Path)
    assert packed_list([1] * (SHORTEST_PACKED_LIST - 1)) is None


def test_large_items_travel_as_ever_for_they_may_share_what_they_hold() -> None:
    assert packed_list([(bytes(1000), i) for i in range(SHORTEST_PACKED_LIST)]) is None
    assert packed_list([np.zeros(1000)] * SHORTEST_PACKED_LIST) is None


def test_f21_a_long_list_of_samples_is_held_once(in_full: bool) -> None:
    def private() -> tuple[int, int]:
        return os.getpid(), int(psutil.Process().memory_full_info().uss)

    def epoch(pool: bu.WorkerProcessPool, samples: list[Any]) -> dict[int, int]:
        source = pool.parallel_data_source(bu.ArrayDataSource([bu.MapStyle(samples)]))
        rows = [int(label) for _, labels in source.batch_iterator(100, shuffle=7) for label in labels]
        assert sorted(rows) == list(range(len(samples)))
        return dict(pool.work_stream((private, ()) for _ in range(16)).retrieve_iter())

    samples = [(f"/data/images/{i:07d}.jpg", i) for i in range(1_000_000 if in_full else 100_000)]
    with bu.WorkerProcessPool(2) as pool:
        before, after = epoch(pool, samples[: 2 * SHORTEST_PACKED_LIST]), epoch(pool, samples)
    common = before.keys() & after.keys()
    assert common
    # As Python objects the list takes 150 bytes a sample and more; a worker's first batch takes some 4 MB.
    assert max(after[pid] - before[pid] for pid in common) < 100 * len(samples)
