"""Loaders whose batches are tensors on a GPU, or on the CPU if there is no GPU: x ``(n, 3, h, w)``, y ``(n,)``.

``plain-same-batch`` delivers the same batch every time: the highest rate of a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from benchmarks.peers.adapters import AdapterFeed, to
from benchmarks.peers.base import OURS, Feed, Loaded, Variant
from benchmarks.peers.torch_loader import Batches, tensors, torch_loader
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload


def device() -> str:
    """Return the device of the batches."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class SameBatch(Feed):
    """A batch that stays on the device."""

    def __init__(self, workload: Workload, workers: int) -> None:
        rows = np.arange(min(workload.batch_size, workload.samples))
        self.batch = on_device(tensors(open_data(workload).batch(rows)))
        self.batches = -(-workload.samples // workload.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        return repeat(self.batch, self.batches)


def on_device(batch: Any) -> Batch:
    """Start the copies of a batch to the device; return it with channels first."""
    x, y = (tensor.to(device(), non_blocking=True) for tensor in batch)
    return x.permute(0, 3, 1, 2), y


def to_device(loader: Any) -> Any:
    return to("torch", loader, device=device(), channels_first=True)


def pinned(workload: Workload, workers: int) -> Loaded:
    """Return PyTorch's loader of whole batches, pinned by its own thread. The loop does not wait for their copies."""
    options = {"collate_fn": tensors, "pin_memory": device() == "cuda"}
    return torch_loader(workload, workers, Batches, on_device, **options)


make = partial(Variant, needs=("torch",), workloads=("decoded", "images"), usual=False)
ours = partial(AdapterFeed, library="torch", hand_over=to_device)
VARIANTS = (
    make(name="plain-same-batch", family="plain", open=SameBatch),
    make(name="ours-threads-device", family=OURS, open=partial(ours, pool="threads")),
    make(name="ours-processes-device", family=OURS, open=partial(ours, pool="processes"), copies=2),
    make(name="torch-device", family="torch", open=pinned),
)
