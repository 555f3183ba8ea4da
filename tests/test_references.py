"""Constants of a map that reach the next map by a way that Python's references do not show."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.references import References
from batchup_ng.work_pool import AbstractWorkerPool

C = np.zeros(4)
X = np.arange(11)


class Interface:
    """An object that shows an array, and does not let it be seen."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__


class Struct:
    """An object that shows the constant, by a structure of C."""

    @property
    def __array_struct__(self) -> Any:
        return C.__array_struct__


WAYS: dict[str, Callable[[], np.ndarray]] = {
    "dlpack": lambda: np.from_dlpack(C),
    "interface": lambda: np.asarray(Interface(C)),
    "struct": lambda: np.asarray(Struct()),
    "view": lambda: np.from_dlpack(C)[::-1],
    "strided": lambda: np.lib.stride_tricks.as_strided(np.from_dlpack(C), (4,), (8,)),
}


def plus_one(column: Any) -> Any:
    for each in column if isinstance(column, list) else column.values() if isinstance(column, dict) else [column]:
        each += 1
    return column


def numbers(column: Any) -> Any:
    if isinstance(column, dict):
        return {name: part.tolist() for name, part in column.items()}
    return [part.tolist() for part in column] if isinstance(column, list) else column.tolist()


@pytest.mark.parametrize("way", WAYS)
def test_a_later_map_does_not_change_the_constant(way: str) -> None:
    shown = WAYS[way]
    forms: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
        "column": (lambda n: shown()[:n], lambda n: [1.0] * n),
        "dict": (lambda n: {"c": shown()[:n]}, lambda n: {"c": [1.0] * n}),
        "list": (lambda n: [shown() for _ in range(n)], lambda n: [[1.0] * 4] * n),
    }
    for make, ones in forms.values():
        source = bu.ArrayDataSource([X]).map(lambda x, make=make: (make(len(x)), x))
        changed = source.map(lambda c, x: (plus_one(c), x))
        made = [numbers(c) for c, _ in changed.batch_iterator(4)]
        assert made == [ones(n) for n in (4, 4, 3)]
        assert C.tolist() == [0.0] * 4
    chosen = bu.ArrayDataSource({"x": X, "y": X}).map(lambda x: shown()[: len(x)], on="x").map(plus_one, on="x")
    assert [batch["x"].tolist() for batch in chosen.batch_iterator(4)] == [[1.0] * n for n in (4, 4, 3)]
    assert C.tolist() == [0.0] * 4


def constant(x: np.ndarray) -> Any:
    return np.from_dlpack(C)[: len(x)], x


def raised(c: np.ndarray, x: np.ndarray) -> Any:
    c += 1
    return c, x


def test_the_number_of_workers_changes_nothing(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([X]).map(constant).map(raised)
    for pool in pools:
        made = [(c.tolist(), x.tolist()) for c, x in pool.parallel_data_source(source).batch_iterator(4)]
        assert made == [([1.0] * len(x), x) for x in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10])]


def test_tensors_by_dlpack() -> None:
    torch = pytest.importorskip("torch", reason="the constant is a tensor")
    tensor = torch.zeros(4, dtype=torch.float64)
    source = bu.ArrayDataSource([X]).map(lambda x: (np.from_dlpack(tensor)[: len(x)], x)).map(raised)
    assert [c.tolist() for c, _ in source.batch_iterator(4)] == [[1.0] * n for n in (4, 4, 3)]
    assert tensor.tolist() == [0.0] * 4


@pytest.mark.parametrize("make", [
    lambda: np.arange(3.0), lambda: np.arange(6.0)[1:4], lambda: np.arange(6.0).reshape(2, 3).T,
    lambda: np.frombuffer(b"abcd"[:3], np.uint8), lambda: np.ndarray((3,), np.uint8, mmap.mmap(-1, 64)),
    lambda: np.lib.stride_tricks.as_strided(np.arange(6.0), (3,), (16,)), lambda: np.zeros(3, [("a", int)])["a"],
])  # fmt: skip
def test_what_numpy_owns_is_not_copied(make: Callable[[], np.ndarray]) -> None:
    references = References()
    references.add(make())
    assert references.kept() <= {id(base) for base in references._found.values() if isinstance(base, memoryview)}
