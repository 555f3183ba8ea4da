"""Loaders whose batches are tensors on a GPU, or on the CPU if there is no GPU: x ``(n, 3, h, w)``, y ``(n,)``.

``plain-same-batch`` delivers the same batch every time: the highest rate of a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from benchmarks.peers.adapters import AdapterFeed
from benchmarks.peers.base import OURS, Variant
from benchmarks.peers.torch_loader import Batches, TorchFeed, tensors
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload


def device() -> str:
    """Return the device of the batches."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class SameBatch:
    """A batch that stays on the device."""

    def __init__(self, workload: Workload, workers: int) -> None:
        rows = np.arange(min(workload.batch_size, workload.samples))
        x, y = tensors(open_data(workload).batch(rows))
        self.batch = x.permute(0, 3, 1, 2).to(device()), y.to(device())
        self.batches = -(-workload.samples // workload.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        return repeat(self.batch, self.batches)

    def close(self) -> None:
        """Do nothing, because nothing was started."""


def to_device(loader: Any) -> Any:
    from batchup_ng.frameworks.torch import to_torch

    return to_torch(loader, device=device(), channels_first=True)


class TorchOnDevice(TorchFeed):
    """Whole batches, pinned by the loader's own thread. The loop starts their copies and does not wait for them."""

    def __init__(self, workload: Workload, workers: int) -> None:
        super().__init__(workload, workers, Batches, collate_fn=tensors, pin_memory=device() == "cuda")

    def epoch(self, number: int) -> Iterator[Batch]:
        for x, y in super().epoch(number):
            x, y = (tensor.to(device(), non_blocking=True) for tensor in (x, y))
            yield x.permute(0, 3, 1, 2), y


make = partial(Variant, module=__name__, needs=("torch",), workloads=("decoded", "images"), usual=False)
ours = partial(AdapterFeed, library="torch", hand_over=to_device)
VARIANTS = (
    make(name="plain-same-batch", family="plain", open=SameBatch),
    make(name="ours-threads-device", family=OURS, open=partial(ours, pool="threads")),
    make(name="ours-processes-device", family=OURS, open=partial(ours, pool="processes"), copies=2),
    make(name="torch-device", family="torch", open=TorchOnDevice),
)
