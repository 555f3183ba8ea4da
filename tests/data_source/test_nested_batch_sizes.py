"""A composite whose parts give different numbers of samples, inside other sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from tests.data_source.source_helpers import stream_of


def arrays(n: int) -> Any:
    return bu.ArrayDataSource([np.arange(n)])


def one_to_seven(unlabelled: Any = None) -> Any:
    return bu.CompositeDataSource([arrays(10), unlabelled or arrays(70)], batch_size=[1, 7])


def sizes(source: Any, batch_size: int = 5, **options: Any) -> list[list[int]]:
    return [[len(part) for part in batch] for batch in source.batch_iterator(batch_size, **options)]


@pytest.mark.parametrize("shuffle", [None, 3])
def test_a_composite_around_it_loses_no_samples(shuffle: Any) -> None:
    assert sizes(bu.CompositeDataSource([one_to_seven(), arrays(10)]), shuffle=shuffle) == [[5, 35, 5]] * 2
    grouped = bu.CompositeDataSource([one_to_seven(), arrays(50)], batch_size=[1, 5])
    assert sizes(grouped, shuffle=shuffle) == [[5, 35, 25]] * 2
    rows = next(grouped.batch_indices_iterator(5, shuffle))
    assert [len(part) for part in grouped.samples_by_indices(rows)] == [5, 35, 25]
    _, unlabelled, _ = zip(*grouped.batch_iterator(5, shuffle=shuffle), strict=True)
    assert sorted(np.concatenate(unlabelled)) == list(range(70))


def test_rows_of_different_lengths_are_still_cut() -> None:
    flat = bu.CompositeDataSource([arrays(10), arrays(10)])
    for rows in ([np.arange(3), np.arange(5)], (slice(0, 3), slice(0, 5))):
        assert [part.tolist() for part in flat.samples_by_indices(rows)] == [[0, 1, 2]] * 2


def test_a_stream_that_cannot_be_cut_by_its_samples_is_refused() -> None:
    streaming = one_to_seven(stream_of(70))
    assert sizes(streaming.take(10)) == [[5, 35]] * 2
    for source in (streaming.take(3), bu.CompositeDataSource([streaming, arrays(10)])):
        with pytest.raises(bu.ArgumentError, match=r"5 and 35 rows cannot be cut .*batch_size=\[1, 7, 1\]"):
            sizes(source)
    assert sizes(one_to_seven().take(3)) == [[3, 21]]
