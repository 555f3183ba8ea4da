"""The trial on a device, tried on the CPU where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from benchmarks import training, workloads  # noqa: E402  # after the skip
from benchmarks.peers import devices  # noqa: E402
from benchmarks.workloads.base import Batch, Workload  # noqa: E402

pytestmark = pytest.mark.in_turn


class Feed:
    """Epochs of two batches on the device."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def epoch(self, number: int) -> Iterator[Batch]:
        self.epochs.append(number)
        x, y = torch.zeros(3, 3, 32, 32, dtype=torch.uint8), torch.arange(3)
        yield from 2 * [(x.to(devices.device()), y.to(devices.device()))]

    def close(self) -> None:
        """Nothing was started."""


def test_the_network_has_as_many_weights_as_resnet_50() -> None:
    # 25,557,032: torchvision's models.resnet50, https://docs.pytorch.org/vision/main/models.html
    with torch.device("meta"):
        assert sum(weights.numel() for weights in training._network(64).parameters()) == 25_557_032


def test_a_turn_takes_its_steps_from_as_many_epochs_as_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # or torch makes a folder in /tmp for it
    feed = Feed()
    done = training.training(feed, Workload(kind="", folder="", samples=6), 2, {"steps": 4, "warm": 1, "width": 2})
    assert feed.epochs == [2000, 2001, 2002]
    assert (done.batches, done.samples, done.bytes) == (4, 12, 4 * (3 * 3 * 32 * 32 + 3 * 8))
    assert 0 < done.figures["busy"] < 1
    assert 0 <= done.figures["gap_seconds"] <= done.figures["longest_gap_seconds"] < done.seconds


@pytest.mark.parametrize("variant", devices.VARIANTS, ids=lambda variant: variant.name)
def test_what_goes_to_the_device_is_what_a_network_takes(variant: devices.Variant, tmp_path: Path) -> None:
    workload = workloads.make("decoded", tmp_path, quick=True)
    feed = variant.open(workload, 1)
    try:
        for x, y in feed.epoch(0):
            assert x.shape == (32, 3, 32, 32)
            assert x.is_contiguous(memory_format=torch.channels_last)
            assert (x.dtype, y.dtype, x.device.type) == (torch.uint8, torch.int64, devices.device())
            assert int(y.sum()) == workload.y_sum
            assert int(x[:, 0, 16, 16].sum()) == workload.x_sum
    finally:
        feed.close()
