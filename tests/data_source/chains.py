"""Chains of methods that select and combine the samples of a source of named columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import batchup_ng as bu

Step = Callable[[Any], Any]


def _folds(source: Any) -> Any:
    return bu.concat(*source.split([0.3, 0.3, 0.4], seed=2)[1:])


STEPS: dict[str, Step] = {
    "split": lambda source: source.split([0.6, 0.4], seed=1)[0],
    "subset": lambda source: source.subset(np.arange(len(source))[::-1][: max(2, len(source) - 1)]),
    "take": lambda source: source.take(max(2, len(source) - 2)),
    "repeat": lambda source: source.repeat(2) if source.node.permutes_rows() else source,
    "folds": _folds,
    "twice": lambda source: source.concat(source.subset([1, 0])),
    "zip": lambda source: source.zip(bu.ArrayDataSource({"other": np.arange(len(source))})).drop("other"),
    "column": lambda source: source.with_column("more", np.zeros(len(source))).drop("more"),
    "index": lambda source: source.with_index().drop("index"),
    "map": lambda source: source.map(lambda x: x + 1, on="x"),
    "samples": lambda source: source.map_samples(lambda x: x * 2, on="x"),
    "names": lambda source: source.rename({"x": "z"}).rename({"z": "x"}),
    "sampled": lambda source: source.sample(stratified=True),
    "balanced": lambda source: source.sample(balanced=True, per_class=2),
}
"""Each step takes a source of the columns x, label and row, with two samples at least, and returns one of these columns
whose samples have numbers."""

chains = st.lists(st.sampled_from(sorted(STEPS)), max_size=4)


def made(source: Any, chain: list[str]) -> Any:
    """Return the source after the steps of a chain."""
    for name in chain:
        source = STEPS[name](source)
    return source
