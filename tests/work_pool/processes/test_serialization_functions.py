"""Functions from everywhere travel to workers; what cannot is refused by name."""

from __future__ import annotations

import functools
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import SerializationError
from batchup_ng.work_pool.processes import serialization
from batchup_ng.work_pool.processes.serialization import pack
from tests.extent import methods
from tests.messages import raises
from tests.work_pool.processes.serialization_helpers import PATIENT, ran

METHODS = methods("forkserver")


@pytest.mark.parametrize("method", METHODS)
def test_functions_of_modules_that_cannot_be_imported_travel(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_hand = types.ModuleType("made_by_hand")
    exec("OFFSET = 3\ndef add(x):\n    return (x + OFFSET,)", made_by_hand.__dict__)
    monkeypatch.setitem(sys.modules, "made_by_hand", made_by_hand)
    with bu.WorkerProcessPool(1, start_method=method) as pool:
        for function in (made_by_hand.add, functools.partial(made_by_hand.add)):
            ((got,),) = pool.parallel_data_source(bu.ArrayDataSource([np.arange(3)]).map(function)).batch_iterator(3)
            assert got.tolist() == [3, 4, 5]


NOTEBOOK = """
import sys, types
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
cells = [
    "import numpy as np, batchup_ng as bu",
    "SCALE = 2\\ndef helper(x): return x * SCALE\\nclass Holder:\\n    def __init__(self, x): self.x = x",
    "def cell(x): return helper(x), [Holder(int(v)) for v in x]",
    '''with bu.WorkerProcessPool(1, start_method={method!r}) as pool:
        source = bu.ArrayDataSource([np.arange(3)]).map(cell)
        for x, holders in pool.parallel_data_source(source).batch_iterator(3):
            print(x.tolist(), type(holders[0]) is Holder, holders[2].x)''',
    "SCALE = 5\\ndef helper(x): return x - SCALE",
    '''with bu.WorkerProcessPool(1, start_method={method!r}) as pool:
        for x, _ in pool.parallel_data_source(source).batch_iterator(3): print(x.tolist())''',
]
for i, cell in enumerate(cells):
    exec(compile(cell, f"<ipython-input-{{i}}>", "exec"), main.__dict__)
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.in_turn
def test_functions_of_notebook_cells_travel_as_they_are_now(method: str, tmp_path: Path) -> None:
    done = ran("-c", PATIENT + NOTEBOOK.format(method=method), cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[0, 2, 4] True 2\n[-5, -4, -3]\n", "")


# -- refusals -----------------------------------------------------------------------------------------------------


class Reader:
    """Holds what a test gives it."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def read(self, x: Any) -> Any:
        return (x,)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: Any) -> Any:
        return i


class Slotted:
    """Holds something where there is no ``__dict__``."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


def blamed() -> dict[str, Any]:
    """Return sources that cannot travel, by what the refusal says."""
    base = bu.ArrayDataSource([np.arange(3)])
    lock, state = threading.Lock(), {"inner": [1, threading.Lock()]}
    array = np.zeros((4000, 2500))

    def augment(x: Any) -> Any:
        return (x, array) if lock else ()

    def deeper(x: Any) -> Any:
        return augment(x), state

    def plain(held: Any, x: Any) -> Any:
        return (x,)

    def default(x: Any, guard: Any = lock) -> Any:
        return (x,)

    exec("def in_main(x):\n    return (x, GUARD)", namespace := {"GUARD": lock, "__name__": "__main__"})
    return {
        "map fn 'augment', variable lock of type _thread.lock": base.map(augment),
        "map fn 'deeper', variable augment, variable lock of type _thread.lock": base.map(deeper),
        "map fn '<lambda>', variable state['inner'][1] of type _thread.lock": base.map(lambda x: (x, state)),
        "map fn 'in_main', variable GUARD of type _thread.lock": base.map(namespace["in_main"]),
        "map fn 'default', variable guard of type _thread.lock": base.map(default),
        "map fn 'Reader.read'.__self__.held of type _thread.lock": base.map(Reader(lock).read).map(lambda x: (x,)),
        "map fn 'plain'.args[0] of type _thread.lock": base.map(functools.partial(plain, lock)),
        "the ArrayDataSource.data[1].held of type _thread.lock": bu.ArrayDataSource([np.arange(3), Reader(lock)]),
        "the ArrayDataSource.data[0].held.held of type _thread.lock": bu.ArrayDataSource([Reader(Slotted(lock))]),
        "the ArrayDataSource.data[0].dataset.held of type generator": bu.ArrayDataSource(
            [bu.MapStyle(Reader(i for i in range(3)))]
        ),
    }


def test_a_refusal_names_the_innermost_part() -> None:
    for message, source in blamed().items():
        with pytest.raises(SerializationError) as caught:
            pack(source)
        assert str(caught.value).startswith(f"{message} cannot be sent to a worker process: "), str(caught.value)
        assert "use WorkerThreadPool, or let the worker open such things itself" in str(caught.value)


def test_a_refusal_copies_nothing() -> None:
    lock = threading.Lock()
    source = bu.ArrayDataSource([np.zeros((4000, 2500))]).map(lambda x: (x, lock))
    with bu.WorkerProcessPool(1) as pool:
        with raises(SerializationError):
            pool.parallel_data_source(source)
        assert pool._dispatcher.copies.arena.taken == 0


def test_looking_for_the_name_ends_however_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serialization, "MAX_SECONDS", 0.05)
    lock = threading.Lock()
    nest: Any = lock
    for i in range(50):
        nest = {"a": nest, "others": [Reader(k) for k in range(2000)], i: nest}
    with raises(SerializationError):
        pack(nest)
    cycle: list[Any] = [lock]
    cycle.insert(0, cycle)
    with raises(SerializationError):
        pack(cycle)
