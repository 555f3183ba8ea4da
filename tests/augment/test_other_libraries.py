"""What docs/augmentation.md shows of Albumentations and torchvision runs, and gives the same batches again."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.testing import assert_reproducible
from benchmarks.peers.augmentations import torchvision_v2
from tests.augment.helpers import images

PAGE = Path(__file__).parents[2] / "docs" / "augmentation.md"
SHOWN = re.compile(r"^```\{code-block\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run in a checkout")


def train_of(library: str) -> Any:
    """Return the source that the page makes with a library."""
    source = bu.ArrayDataSource([images(20, (32, 32)), np.arange(20)])
    (code,) = [code for code in SHOWN.findall(PAGE.read_text(encoding="utf-8")) if library in code]
    names = {"source": source, "__name__": "__main__"}
    exec(code, names)
    return names["train"]


def check(train: Any, shape: tuple[int, ...]) -> None:
    """Check that batches have that form, and that epochs and samples differ."""
    first, second = (next(train.batch_iterator(20, shuffle=1, epoch=epoch)) for epoch in (0, 1))
    assert first[0].shape == (20, *shape)
    assert first[0].dtype == np.uint8
    assert len(np.unique(first[0].reshape(20, -1), axis=0)) == 20
    assert not np.array_equal(np.sort(first[0], axis=0), np.sort(second[0], axis=0))
    assert sorted(first[1]) == list(range(20))


@pytest.mark.filterwarnings("ignore")  # of the library's own
def test_albumentations(monkeypatch: pytest.MonkeyPatch, in_full: bool) -> None:
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # it would look for a newer version
    pytest.importorskip("albumentations", reason="Albumentations is not installed")
    train = train_of("albumentations")
    check(train, (24, 24, 3))
    pools = ("serial", "threads", *["processes"] * in_full)  # a worker takes seconds to import it
    assert_reproducible(train, 8, max_batches=2, pools=pools)


@pytest.mark.filterwarnings("ignore")
def test_torchvision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))  # or torch makes a folder for it
    for library in ("torch", "torchvision"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    lacks = hasattr(torchvision_v2(), "lack")  # its compiled part cannot be loaded here, nor in workers
    pools = ("serial",) if lacks else ("serial", "processes")
    train = train_of("torchvision")
    check(train, (3, 24, 24))
    assert_reproducible(train, 8, max_batches=2, pools=pools)
