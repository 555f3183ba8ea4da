"""The benchmarks are run from the checkout, not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.report import bars, compared
from benchmarks.workloads.base import Workload

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True, scope="session")
def extra() -> None:
    """Skip all where the extra of the benchmarks is not installed: nobody runs them there."""
    if find_spec("matplotlib") is None:
        pytest.skip("the extra 'benchmarks' is not installed")


@pytest.fixture(autouse=True, scope="session")
def fonts(extra: None) -> None:
    """Open the fonts before the first test, which is checked to leave no open file: matplotlib keeps them."""
    bars.svg("fonts", [(compared.PLOTS[0].panels[0], [bars.Value("a", True, 1.0, 1.0, 1.0)])])


@pytest.fixture
def ten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workload:
    """Ten rows whose y is x + 1, for the peers of ``broken_peers``, which their processes find by that name."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.syspath_prepend(str(HERE))
    return Workload(kind="python", folder=str(tmp_path), samples=10, batch_size=4, x_sum=45, y_sum=55)
