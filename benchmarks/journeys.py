"""How far a reader has to walk: the modules of the package that run in four journeys, and how often they change.

``python -m benchmarks.journeys`` prints a table in Markdown. A module counts if one of its functions is called on the
thread of the loop. A change of module is a call in another module than the call before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import batchup_ng as bu

ROOT = os.path.dirname(bu.__file__) + os.sep


class Walk(NamedTuple):
    """The modules that one call runs through."""

    modules: list[str]  # in the order of their first call
    changes: int

    def __str__(self) -> str:
        return f"{len(self.modules)} / {self.changes}"


def walked(run: Callable[[], Any]) -> Walk:
    """Call `run` and return the modules of the package that it runs through on this thread."""
    modules: dict[str, None] = {}
    changes, latest = 0, ""

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal changes, latest
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            module = name[len(ROOT) : -3].replace(os.sep, ".")
            modules[module] = None
            changes += bool(latest) and module != latest
            latest = module

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return Walk(list(modules), changes)


def images(folder: Path, n: int = 130) -> bu.ArrayDataSource:
    """Return a source of `n` small PNG files."""
    paths = []
    for number in range(n):
        paths.append(folder / f"{number}.png")
        Image.fromarray(np.full((16, 16, 3), number % 256, np.uint8)).save(paths[-1])
    return bu.ArrayDataSource([bu.ImageFiles(paths, size=(16, 16)), np.arange(n)])


@contextlib.contextmanager
def standing_still(pids: list[int]) -> Iterator[None]:
    """Stop processes for a while. Otherwise a walk would depend on when they answer."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def begun(source: Any, shuffle: Any) -> tuple[Walk, Walk]:
    """Return the walks of the first ``iter`` of a loader, by a pool that runs already, and of a later ``next``.

    The worker answers nothing during the one, and has made the batch before the other.
    """
    with bu.WorkerProcessPool(1) as pool:
        for _ in pool.parallel_data_source(source).batch_iterator(16):
            pass
        with bu.Loader(source, 16, shuffle=shuffle, pool=pool) as loader:
            found: list[Any] = []
            with standing_still(pool._dispatcher.pids()):
                first = walked(lambda: found.append(iter(loader)))
            for _ in range(3):
                next(found[0])
            while not loader.stats()["buffered"]:  # a wait is the longer, the later the worker answers
                time.sleep(0.001)
            return first, walked(lambda: next(found[0]))


def resumed(source: Any) -> Walk:
    """Return the walk of the first ``next`` after a state of two ranks was loaded by one, in a serial loop."""
    with bu.Loader(source, 16, shuffle=7, pool="serial", shard=(0, 2)) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with bu.Loader(source, 16, shuffle=7, pool="serial", shard=(0, 1)) as loader:

        def first() -> None:
            loader.load_state_dict(state)
            next(iter(loader))

        return walked(first)


def journeys() -> dict[str, Walk]:
    """Return the walk of each journey."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = images(folder)
        first, later = begun(source, 7)
        found['iter(Loader(images, 64, shuffle=7, pool="processes"))'] = first
        found["a later next of it"] = later
        blocks = 'iter(Loader(from_file("x.h5"), shuffle="blocks", pool="processes"))'
        found[blocks] = begun(hdf5(folder), ("blocks", 7))[0]
        arrays = bu.ArrayDataSource([np.arange(260).reshape(130, 2), np.arange(130)])
        found["the first next after a resume with another world, serial, arrays"] = resumed(arrays)
    return found


def hdf5(folder: Path) -> Any:
    """Return a source of an HDF5 file with compressed chunks."""
    import h5py

    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=np.arange(8000).reshape(-1, 2), chunks=(100, 2), compression="gzip")
    return bu.from_file(folder / "x.h5")


if __name__ == "__main__":
    print("| journey (modules that run / changes of module) | today |\n|---|---|")
    for journey, walk in journeys().items():
        print(f"| `{journey}` | {walk} |")
    array = bu.ArrayDataSource([np.arange(2)])
    with bu.SerialPool() as serial:
        kinds = [type(each) for each in (array, array.map(tuple), serial.parallel_data_source(array))]
    for kind in kinds:
        print(f"| classes behind `{kind.__name__}` | {len(kind.__mro__) - 1} |")
    names = {name for kind in kinds[0].__mro__[:-1] for name in vars(kind) if not name.startswith("_")}
    print(f"| public names on a source | {len(names)} |")
