"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.data_source import AbstractDataSource, PlannedDataSource

A = np.arange(10)


def ids(source: AbstractDataSource, batch_size: int = 4, **options: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in source.batch_iterator(batch_size, **options)]


def flat(lists: list[list[int]]) -> list[int]:
    return [item for items in lists for item in items]


def draws(source: PlannedDataSource, batch_size: int, **options: Any) -> np.ndarray:
    return np.concatenate([batch[-1] for batch in source.batch_iterator(batch_size, **options)])


def uniform(i: Any, rng: Any) -> Any:
    return i, rng.uniform(size=len(i)) if isinstance(rng, np.random.Generator) else rng.uniform()


def stream_of(n: int) -> bu.CallableDataSource:
    def batches(batch_size: int, shuffle: Any = None, **more: Any) -> Iterator[Any]:
        for start in range(0, n, batch_size):
            yield (np.arange(start, min(start + batch_size, n)),)

    return bu.CallableDataSource(batches, n)
