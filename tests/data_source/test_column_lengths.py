"""``source.lengths``: the lengths of a column through maps, for a sampler of similar lengths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.data_source.column_lengths import SAMPLES_READ_AT_ONCE
from tests.messages import raises


def words(rows: list[Any]) -> list[list[str]]:
    return [row["text"].split() for row in rows]


def test_buckets_of_json_lines_hold_each_sample_once(pools: list[Any], tmp_path: Path) -> None:
    counts = [1 + (7 * row) % 11 for row in range(60)]
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps({"text": "a " * n}) for n in counts))
    source = bu.from_file(tmp_path / "x.jsonl").map(lambda x: [np.arange(len(row)) for row in words(x)], on="x")
    found = source.lengths("x")
    assert (found.dtype, found.tolist()) == (np.int64, counts)
    bucketed = source.sample(bu.BucketSampler(found, max_tokens=24)).pad("x")
    expected = [batch["x"] for batch in bucketed.batch_iterator(1000, shuffle=1)]
    assert max(batch.size for batch in expected) <= 24
    assert sorted(int(row.max()) + 1 for batch in expected for row in batch) == sorted(counts)
    for pool in pools:
        with bu.Loader(bucketed, shuffle=1, pool=pool) as loader:
            for got, batch in zip(loader, expected, strict=True):
                np.testing.assert_array_equal(got["x"], batch)


@given(st.sampled_from([0, 1, 2, SAMPLES_READ_AT_ONCE, SAMPLES_READ_AT_ONCE + 1]), st.booleans(), st.randoms())
def test_lengths_are_those_of_the_samples(n: int, is_dict: bool, random: Any) -> None:
    texts = ["x" * random.randrange(4) for _ in range(n)]
    place: Any = "text" if is_dict else 1
    columns: Any = {"n": np.arange(n), "text": texts} if is_dict else [np.arange(n), texts]
    source = bu.ArrayDataSource(columns if n else {"text": np.zeros((0, 3))} if is_dict else [np.zeros(0)] * 2)
    order = random.sample(range(n), n)
    assert source.lengths(place).tolist() == list(map(len, texts))
    assert source.subset(order).lengths(place).tolist() == [len(texts[row]) for row in order]
    if n:
        doubled = source.map(lambda texts: [2 * text for text in texts], on=place)
        together = source.map(lambda **columns: columns) if is_dict else source.map(lambda *columns: columns)
        assert doubled.lengths(place).tolist() == [2 * len(text) for text in texts]
        assert together.lengths(place).tolist() == list(map(len, texts))


def test_columns_of_a_table_are_found_by_their_names_in_tuples() -> None:
    source = bu.from_table({"path": ["a", "b"], "t": [[1], [2, 3]]}, missing="ignore", columns=["t"])
    assert source.lengths("t").tolist() == [1, 2]


def test_what_has_no_lengths_is_refused() -> None:
    source = bu.ArrayDataSource({"n": np.arange(4), "text": ["a", "bc", "", "d"]})
    fewer = source.map(lambda n, text: {"n": n[:1], "text": text[:1]}, resizes=True)
    for column, of in (("n", source), ("no", source), ("text", fewer), (0, source)):
        with raises((bu.ArgumentError, bu.ArgumentTypeError)):
            of.lengths(column)
    with raises(bu.ArgumentTypeError):
        bu.IteratorDataSource(iter([])).lengths("x")
