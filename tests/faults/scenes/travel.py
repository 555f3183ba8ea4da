"""What travels to a worker, and what is refused before anything is started (F18)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

import batchup_ng as bu

from ..accounting import BATCH, make_pool

# -- functions ---------------------------------------------------------------------------------------------------


def a_lambda() -> Any:
    return lambda x: (x * 2,)


def a_closure() -> Any:
    factor = 2

    def double(x: np.ndarray) -> Any:
        return (x * factor,)

    return double


def a_nested_class() -> Any:
    class Doubler:
        class Factor:
            value = 2

        def __call__(self, x: np.ndarray) -> Any:
            return (x * self.Factor.value,)

    return Doubler()


def a_bound_method() -> Any:
    class Scale:
        def __init__(self) -> None:
            self.table = np.full(1000, 2)

        def double(self, x: np.ndarray) -> Any:
            return (x * self.table[0],)

    return Scale().double


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "lambda": a_lambda,
    "closure": a_closure,
    "nested class": a_nested_class,
    "bound method": a_bound_method,
}


def travels(kind: str) -> list[str]:
    """F18: maps of every sort work in a worker process; return of which sorts."""
    worked = []
    with make_pool(kind) as pool:
        for what, make in FUNCTIONS.items():
            doubled = bu.ArrayDataSource([np.arange(100)]).map(make())
            got = [x for (x,) in pool.parallel_data_source(doubled, 4).batch_iterator(BATCH)]
            assert np.array_equal(np.concatenate(got), np.arange(100) * 2), what
            worked.append(what)
    return worked


CELLS = [
    "import numpy as np\nimport batchup_ng as bu\nFACTOR = 2\n",
    "class Scale:\n"
    "    def __init__(self, factor): self.factor = factor\n"
    "    def double(self, x): return (x * self.factor,)\n"
    "def from_a_cell(x):\n    return Scale(FACTOR).double(x)\n",
    "with bu.WorkerProcessPool(2, start_method=METHOD) as pool:\n"
    "    doubled = bu.ArrayDataSource([np.arange(100)]).map(from_a_cell).map(lambda x: (x * (FACTOR // 2),))\n"
    "    got = np.concatenate([x for (x,) in pool.parallel_data_source(doubled, 4).batch_iterator(7)])\n",
    "assert got.tolist() == list(range(0, 200, 2)), got\n",
]
"""What somebody may write in a notebook: a function of one cell that uses another's."""


def in_ipython(kind: str) -> int:
    """F18: functions and classes of cells work in workers; return how many cells ran."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    for cell in [f"METHOD = {kind!r}", *CELLS]:
        shell.run_cell(cell, store_history=True).raise_error()
    assert shell.user_ns["from_a_cell"].__module__ == "__main__"
    return int(shell.execution_count) - 1


# -- refusals ----------------------------------------------------------------------------------------------------


def holding_a_lock() -> Any:
    guard = threading.Lock()

    def augment(x: np.ndarray) -> Any:
        with guard:
            return (x,)

    return bu.ArrayDataSource([np.arange(100)]).map(augment)


def holding_a_file() -> Any:
    class Log:
        def __init__(self) -> None:
            self.file = open("/dev/null", "w")  # noqa: SIM115  # closed with the program

        def note(self, x: np.ndarray) -> Any:
            return (x,)

    return bu.ArrayDataSource([np.arange(100)]).map(Log().note)


def holding_a_generator() -> Any:
    numbers = (i for i in range(10))
    return bu.ArrayDataSource([np.arange(100)]).map(lambda x: (x + next(numbers),))


REFUSED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "lock": (holding_a_lock, ["augment", "lock"]),
    "file": (holding_a_file, ["file", "TextIOWrapper"]),
    "generator": (holding_a_generator, ["generator"]),
}


def refused(kind: str) -> dict[str, str]:
    """F18: sources that cannot travel are refused when they are handed over, before any process is started for them.

    Returns:
        What is said of each.
    """
    said = {}
    before = psutil.Process().children()  # the spare fork server
    with make_pool(kind) as pool:
        for what, (make, words) in REFUSED.items():
            made = make()
            try:
                pool.parallel_data_source(made, 4)
            except bu.SerializationError as error:
                said[what] = str(error)
            assert not [word for word in words if word not in said[what]], said
        assert psutil.Process().children(recursive=True) == before
        # The pool is as good as new.
        assert len(list(pool.parallel_data_source(bu.ArrayDataSource([np.arange(70)])).batch_iterator(BATCH))) == 10
    return said
