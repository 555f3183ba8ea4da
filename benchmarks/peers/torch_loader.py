"""``torch.utils.data.DataLoader`` in its best settings.

``torch-none`` and ``torch-workers`` read one sample at a time with the default collate, as most programs do. The data
set of the others has ``__getitems__``: it reads a batch at once without a further copy, the fastest way that the public
interface allows. Workers stay. The start method is the platform's default unless the name says another.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import Variant
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Data, Workload


class Samples:
    """A map-style data set."""

    def __init__(self, data: Data, samples: int) -> None:
        self.data, self.samples = data, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        return self.data.sample(row)


class Batches(Samples):
    """A map-style data set with torch's hook for whole batches."""

    def __getitems__(self, rows: list[int]) -> Batch:
        return self.data.batch(np.asarray(rows))


class Tensors(Samples):
    """Columns held as tensors, indexed by whole batches."""

    def __init__(self, data: Data, samples: int) -> None:
        import torch

        self.samples, self.columns = samples, [torch.from_numpy(column) for column in data.columns]

    def __getitems__(self, rows: list[int]) -> Batch:
        return tuple([column[rows] for column in self.columns])


def as_it_is(batch: Batch) -> Batch:
    """Return the batch unchanged; the collate of :class:`Tensors`."""
    return batch


def tensors(batch: Batch) -> Batch:
    """Return tensors that share the memory of the arrays; the collate of :class:`Batches`."""
    import torch

    return tuple([torch.from_numpy(array) for array in batch])


class Loaded:
    """A loader that the first epoch makes by calling ``make``."""

    make: Callable[[], Any]
    loader: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self.loader = self.loader or self.make()
        return iter(self.loader)

    def close(self) -> None:
        """Drop the loader; its workers end with the last reference."""
        self.loader = None


class TorchFeed(Loaded):
    """PyTorch's own loader."""

    def __init__(self, workload: Workload, workers: int, dataset: type[Samples] = Samples, **options: Any) -> None:
        import torch.utils.data

        options = {"batch_size": workload.batch_size, **options}
        if options.pop("in_workers", True):
            options |= {"num_workers": workers, "persistent_workers": True}
        loader: Any = torch.utils.data.DataLoader  # its type hint demands a subclass of Dataset, its code does not
        options["shuffle"] = workload.order != "contiguous"
        self.make = partial(loader, dataset(open_data(workload), workload.samples), **options)


def open_tensors(workload: Workload, workers: int) -> TorchFeed:
    """Return the feed of ``torch-tensors``."""
    multiprocessing.set_forkserver_preload(["torch", __name__])
    return TorchFeed(workload, workers, Tensors, collate_fn=as_it_is, multiprocessing_context="forkserver")


make = partial(Variant, module=__name__, family="torch", needs=("torch",))
whole = partial(TorchFeed, dataset=Batches, collate_fn=tensors)
VARIANTS = (
    make(name="torch-none", open=partial(TorchFeed, in_workers=False)),
    make(name="torch-workers", open=TorchFeed),
    make(name="torch-getitems-none", open=partial(whole, in_workers=False)),
    make(name="torch-getitems", open=whole),
    make(name="torch-forkserver", open=partial(whole, multiprocessing_context="forkserver"), copies=4, usual=False),
    make(name="torch-spawn", open=partial(whole, multiprocessing_context="spawn"), copies=4, usual=False),
    make(name="torch-tensors", open=open_tensors, copies=3, workloads=("arrays",), usual=False),
)
