"""Products of matrices have the bits of one thread in all workers; where this program uses more, that is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import NotReproducible
from batchup_ng.testing import assert_reproducible
from tests.messages import raises

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 784)).astype(np.float32)
W = RNG.normal(size=(784, 1000)).astype(np.float32)
A = RNG.normal(size=(200, 200))


def multiply(x: np.ndarray) -> Any:
    return x @ W, np.einsum("ij,jk->ik", x, W, optimize=True), np.linalg.solve(A, A[:, : len(x)] + 1).T


SOURCE = bu.ArrayDataSource([X]).map(multiply)


def test_products_have_the_same_bits_whatever_the_workers(pools: Any) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl", reason="limits the threads of this process")
    several = list(SOURCE.batch_iterator(8))
    with threadpoolctl.threadpool_limits(1):
        expected = list(SOURCE.batch_iterator(8))
    got = list(pools[1].parallel_data_source(SOURCE).batch_iterator(8))
    for one, other in zip(expected, got, strict=True):
        for array, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, same)
    if all(np.array_equal(*pair) for pair in zip(several[0], expected[0], strict=True)):
        pytest.skip("one CPU: there is nothing to name")
    only: dict[str, Any] = {"pools": ("processes",), "batch_sizes": ()}
    with raises(NotReproducible) as caught:
        assert_reproducible(SOURCE, 8, **only)
    assert caught.value.culprit == "multiply"
    with threadpoolctl.threadpool_limits(1):
        assert_reproducible(SOURCE, 8, **only)
