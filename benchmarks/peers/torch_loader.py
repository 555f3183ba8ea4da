"""``torch.utils.data.DataLoader``: in its best settings, and with a pool of ours in its place. Its workers stay.

``torch-none`` and ``torch-workers`` read one sample at a time with the default collate, as most programs do. The data
set of the others has ``__getitems__``: it reads a batch at once without a further copy, the fastest way that the public
interface allows. The start method is the platform's default unless the name says another.

The variants ``dataloader`` make the same object with and without our pool, from the data set that its users would have:
a ``TensorDataset`` of arrays, a ``datasets.Dataset`` of a table, else a class with ``__getitem__``.
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import OURS, Loaded, Variant
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


def as_it_is(anything: Any) -> Any:
    """Return the argument; the collate of :class:`Tensors`."""
    return anything


def tensors(batch: Batch) -> Batch:
    """Return tensors that share the memory of the arrays; the collate of :class:`Batches`."""
    import torch

    return tuple([torch.from_numpy(array) for array in batch])


def torch_loader(
    workload: Workload, workers: int, dataset: type[Samples] = Samples, each: Any = None, **options: Any
) -> Loaded:
    """Return PyTorch's loader, with workers unless ``in_workers=False``; `each` is applied to its batches."""
    import torch.utils.data

    if options.pop("in_workers", True):
        options |= {"num_workers": workers, "persistent_workers": True}
    loader: Any = torch.utils.data.DataLoader  # its type hint demands a subclass of Dataset, its code does not
    data, shuffle = dataset(open_data(workload), workload.samples), workload.order != "contiguous"
    return Loaded(partial(loader, data, workload.batch_size, shuffle=shuffle, **options), each)


def open_tensors(workload: Workload, workers: int) -> Loaded:
    """Return the feed of ``torch-tensors``."""
    multiprocessing.set_forkserver_preload(["torch", __name__])
    return torch_loader(workload, workers, Tensors, collate_fn=as_it_is, multiprocessing_context="forkserver")


def dataloader(workload: Workload, workers: int, *, pooled: bool = False, in_workers: bool = False) -> Loaded:
    """Return a ``DataLoader`` over the data set that PyTorch users would make, alone or on a pool of ours."""
    import torch.utils.data

    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if in_workers else {}
    make = partial(torch.utils.data.DataLoader, dataset_of(workload), workload.batch_size, shuffle=True, **options)
    each = parts if workload.kind == "table" else None
    if not pooled:
        return Loaded(make, each)
    from batchup_ng.frameworks.torch import from_dataloader

    return Loaded(lambda: from_dataloader(make(), workers=workers), each)


def dataset_of(workload: Workload) -> Any:
    """Return the data set that PyTorch users would make from the data."""
    import torch.utils.data

    data = open_data(workload)
    if workload.kind in ("arrays", "digits"):
        return torch.utils.data.TensorDataset(*[torch.from_numpy(column) for column in data.columns])
    if workload.kind == "table":
        import datasets  # type: ignore[import-untyped]  # ships no types
        import tqdm

        tqdm.tqdm.monitor_interval = 0  # otherwise even hidden progress bars start a thread
        return datasets.Dataset.from_dict(dict(zip("xy", data.columns, strict=True))).with_format("torch")
    return Samples(data, workload.samples)


def parts(batch: Any) -> Batch:
    """Return the columns of a batch by name, as a list in order."""
    return [batch["x"], batch["y"]]


make = partial(Variant, family="torch", needs=("torch",))
whole = partial(torch_loader, dataset=Batches, collate_fn=tensors)
DATALOADERS = tuple(
    make(name=f"{name}{suffix}", family=family, open=opened, needs=needs, workloads=kinds, copies=2, usual=False)
    for suffix, kinds, needs in (
        ("", ("arrays", "digits", "images", "python"), ("torch",)),
        ("-table", ("table",), ("torch", "datasets")),
    )
    for name, family, opened in (
        ("dataloader", "torch", dataloader),
        ("dataloader-workers", "torch", partial(dataloader, in_workers=True)),
        ("ours-dataloader", OURS, partial(dataloader, pooled=True)),
    )
)
VARIANTS = (
    make(name="torch-none", open=partial(torch_loader, in_workers=False)),
    make(name="torch-workers", open=torch_loader),
    make(name="torch-getitems-none", open=partial(whole, in_workers=False)),
    make(name="torch-getitems", open=whole),
    make(name="torch-forkserver", open=partial(whole, multiprocessing_context="forkserver"), copies=4, usual=False),
    make(name="torch-spawn", open=partial(whole, multiprocessing_context="spawn"), copies=4, usual=False),
    make(name="torch-tensors", open=open_tensors, copies=3, workloads=("arrays",), usual=False),
    *DATALOADERS,
)
