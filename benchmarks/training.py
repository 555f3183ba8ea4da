"""A trial on a device: steps of a network like ResNet-50 (He et al., "Deep residual learning", 2016) in bfloat16."""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Mapping
from itertools import count, islice, pairwise
from statistics import mean, median
from typing import Any

from benchmarks.peers.base import Feed
from benchmarks.processes import CpuMeter
from benchmarks.records import Epoch
from benchmarks.workloads.base import Batch, Workload

CLASSES = 1000


def training(feed: Feed, workload: Workload, number: int, settings: Mapping[str, float]) -> Epoch:
    """Train for some steps, over as many epochs as they need. The delivered batches are on the device.

    Settings: ``steps``; ``warm``, earlier steps during which libraries choose their algorithms; ``width``, the
    channels of the first layer, 64 in ResNet-50. Figures: ``step_seconds``, of the device for the median step;
    ``busy``, the share of the time that the device spent on steps; ``gap_seconds`` and ``longest_gap_seconds``, between
    two steps; ``cpu_seconds``, of all processes.
    """
    trainer = _trainer(int(settings["width"]))
    asked = time.perf_counter()
    batches = _endless(feed, number)
    trainer.step(*next(batches))
    first = time.perf_counter() - asked
    for batch in islice(batches, int(settings["warm"])):
        trainer.step(*batch)
    trainer.wait()
    meter, begin = CpuMeter(), time.perf_counter()
    samples = nbytes = 0
    stamps = []
    for x, y in islice(batches, int(settings["steps"])):
        samples, nbytes = samples + len(x), nbytes + x.nbytes + y.nbytes
        start = trainer.stamp()
        trainer.step(x, y)
        stamps.append((start, trainer.stamp()))
    trainer.wait()
    seconds, cpu_seconds = time.perf_counter() - begin, meter.seconds()
    batches.close()
    steps = [trainer.between(*stamp) for stamp in stamps]
    gaps = [trainer.between(before[1], after[0]) for before, after in pairwise(stamps)]
    figures = {
        "step_seconds": median(steps),
        "busy": sum(steps) / (sum(steps) + sum(gaps)),
        "gap_seconds": mean(gaps),
        "longest_gap_seconds": max(gaps),
        "cpu_seconds": cpu_seconds,
    }
    return Epoch(
        seconds=seconds, first_batch_seconds=first, batches=len(steps), samples=samples, bytes=nbytes, figures=figures
    )


def _endless(feed: Feed, number: int) -> Generator[Batch, None, None]:
    """Yield the batches of one epoch after the other. No two turns have the same epochs."""
    for epoch in count(1000 * number):
        yield from feed.epoch(epoch)


class Trainer:
    """A network on a GPU. Without a GPU it runs on the CPU, to test the trial itself."""

    def __init__(self, width: int) -> None:
        import torch

        self._torch = torch
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.backends.cudnn.benchmark = True
        self._network = _network(width).to(self._device, memory_format=torch.channels_last)
        self._optimiser = torch.optim.SGD(self._network.parameters(), lr=0.01, momentum=0.9)

    def step(self, x: Any, y: Any) -> None:
        """Begin a step with x, ``(n, 3, h, w) uint8``, and y, ``(n,) int64``, both on the device."""
        torch = self._torch
        self._optimiser.zero_grad()
        with torch.autocast(self._device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self._network(x.to(torch.bfloat16) / 255), y % CLASSES)
        loss.backward()
        self._optimiser.step()

    def wait(self) -> None:
        """Wait until the device has finished all work."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()

    def stamp(self) -> Any:
        """Return a mark of the current point in the device's work."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, one: Any, other: Any) -> float:
        """Return the seconds from one mark to another."""
        return other - one if self._device.type != "cuda" else one.elapsed_time(other) / 1000


_trainer = functools.cache(Trainer)


def _network(width: int) -> Any:
    """Return a network like ResNet-50; with `width` 64 it is ResNet-50."""
    from torch import nn

    class Bottleneck(nn.Module):  # type: ignore[misc, unused-ignore]  # Any without torch
        def __init__(self, n_in: int, n: int, stride: int) -> None:
            super().__init__()
            self.inner = nn.Sequential(
                *convolution(n_in, n, 1), nn.ReLU(), *convolution(n, n, 3, stride), nn.ReLU(), *convolution(n, 4 * n, 1)
            )
            self.beside = nn.Sequential(*(convolution(n_in, 4 * n, 1, stride) if n_in != 4 * n else ()))

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.inner(x) + self.beside(x))

    def convolution(n_in: int, n_out: int, size: int, stride: int = 1) -> tuple[Any, Any]:
        return nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False), nn.BatchNorm2d(n_out)

    layers = [*convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    n_in = width
    for stage, depth in enumerate((3, 4, 6, 3)):
        for place in range(depth):
            layers.append(Bottleneck(n_in, width << stage, 2 if stage and not place else 1))
            n_in = 4 * width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, CLASSES))
