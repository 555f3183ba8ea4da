"""What the tests of compatibility with BatchUp share: the old library as an oracle, pools, picture files."""

from __future__ import annotations

import collections
import collections.abc
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from batchup_ng import data_source, sampling, work_pool
from batchup_ng.image import utils

from .comparing import Library

OURS = Library(data_source, sampling, utils)


def import_old() -> Library:
    """The real BatchUp 0.2.3, asked for by its modules, since its name alone is also the name of this folder."""
    reason = "BatchUp 0.2.3 is the oracle of this test and is not installed"
    old_sampling = pytest.importorskip("batchup.sampling", reason=reason)
    old_sources = pytest.importorskip("batchup.data_source", reason=reason)
    old_utils = pytest.importorskip("batchup.image.utils", reason=reason)
    # It asks for `collections.Iterator`, which Python 3.10 removed; the rest of it runs as it is.
    old_sources.collections = types.SimpleNamespace(
        Iterator=collections.abc.Iterator, namedtuple=collections.namedtuple
    )
    return Library(old_sources, old_sampling, old_utils)


@pytest.fixture(scope="session")
def ours() -> Library:
    """The modules under test."""
    return OURS


@pytest.fixture(scope="session")
def old() -> Library:
    """The modules of BatchUp 0.2.3."""
    return import_old()


@pytest.fixture(scope="session", params=["batchup_ng", "batchup"])
def library(request: pytest.FixtureRequest) -> Library:
    """Each library in turn, for what both must do."""
    return OURS if request.param == "batchup_ng" else import_old()


@pytest.fixture(scope="module", params=["threads", "processes"])
def pool(request: pytest.FixtureRequest) -> Iterator[work_pool.AbstractWorkerPool]:
    """A pool of two workers of each kind in turn, for all tests of a module."""
    make = work_pool.WorkerThreadPool if request.param == "threads" else work_pool.WorkerProcessPool
    with make(processes=2) as opened:
        opened.shared_constant("the first use starts the workers")
        yield opened


def save_pictures(folder: Path, sizes: list[tuple[int, int]]) -> None:
    """Write cats and dogs by turns, each of one colour of its own, so that a picture tells which file it is."""
    for number, size in enumerate(sizes):
        kind = "cat" if number % 2 == 0 else "dog"
        Image.new("RGB", size, (number * 5, 255 - number * 5, 7)).save(folder / f"{kind}.{number:02d}.png")


@pytest.fixture
def equal_pictures(tmp_path: Path) -> Path:
    """A folder of 22 pictures of 12 by 10 pixels."""
    save_pictures(tmp_path, [(12, 10)] * 22)
    return tmp_path


@pytest.fixture
def mixed_pictures(tmp_path: Path) -> Path:
    """A folder of 22 pictures of many sizes."""
    rng = np.random.RandomState(3)
    save_pictures(tmp_path, [(int(width), int(height)) for width, height in rng.randint(5, 40, size=(22, 2))])
    return tmp_path
