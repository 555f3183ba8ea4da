"""``Loader.map``: the function gets the parts of a batch, and errors about them say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import ArgumentTypeError, MapCallError
from tests.messages import raises

X = np.arange(20)


@pytest.mark.parametrize("pool", ["serial", "threads"])
@pytest.mark.parametrize("tuples", [False, True])
def test_a_function_gets_the_parts_of_the_batch(tuples: bool, pool: Any) -> None:
    source = bu.ArrayDataSource([X, X * 2] if tuples else {"x": X, "y": X * 2})
    kind: Any = {"serial": bu.SerialPool, "threads": bu.WorkerThreadPool}[pool]
    with kind() as workers, bu.Loader(source, 8, pool=workers) as loader:
        assert [made.tolist() for made in loader.map(lambda x, y: x + y)] == [(3 * X[i : i + 8]).tolist()
                                                                             for i in (0, 8, 16)]  # fmt: skip
        whole = loader.map(lambda *columns, **named: columns or named)
        assert [type(batch) for batch in whole] == [tuple if tuples else dict] * 3
        for fn in (lambda x: x, lambda x, y, z: x, lambda: None, lambda y, x, /, z: x):
            with raises(MapCallError):
                next(iter(loader.map(fn)))
        with raises(TypeError) as raised:  # an error inside of the function is its own
            next(iter(loader.map(lambda x, y: x + None)))
        assert not isinstance(raised.value, MapCallError)


def test_options_of_maps_of_a_source_are_named_with_the_remedy() -> None:
    source = bu.ArrayDataSource({"x": X, "y": X})
    with bu.Loader(source, 8) as loader:
        for option in ("on", "out", "rng", "resizes", "onn"):
            with raises(ArgumentTypeError):
                loader.map(len, **{option: "x"})
    with bu.Loader(source.map(np.negative, on="x"), 20) as loader:
        assert next(iter(loader))["x"].tolist() == (-X).tolist()
