"""``torch.utils.data.DataLoader`` in its best settings.

``torch-none`` and ``torch-workers`` read a sample at a time with the default collate, as most programs do;
``torch-getitems`` gives the data set ``__getitems__``, reads a batch at once and hands it over without a
copy of its own, which is the quickest that the public interface allows. Workers are persistent, the prefetch
factor is torch's default of 2, and the start method is the platform's: fork on Linux up to Python 3.13, which is
torch's quickest start, as workers inherit the arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import Batch, Feed, Variant
from benchmarks.readers import Reader, open_reader
from benchmarks.workloads import Workload


def variants(kind: str) -> tuple[Variant, ...]:
    """The same four for every workload."""
    make = partial(Variant, module=__name__, family="torch", needs=("torch",))
    return (
        make(name="torch-none", open=partial(_open, per_batch=False, in_workers=False)),
        make(name="torch-workers", open=partial(_open, per_batch=False, in_workers=True)),
        make(name="torch-getitems-none", open=partial(_open, per_batch=True, in_workers=False)),
        make(name="torch-getitems", open=partial(_open, per_batch=True, in_workers=True)),
    )


class SampleDataset:
    """A map-style data set."""

    def __init__(self, reader: Reader, samples: int) -> None:
        self.reader = reader
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        return self.reader.one(row)


class BatchDataset(SampleDataset):
    """The same with torch's hook for a whole batch; its result is already one batch."""

    def __getitems__(self, rows: list[int]) -> Batch:
        return self.reader.many(np.asarray(rows))


def tensors(batch: Batch) -> Batch:
    """The collate of :class:`BatchDataset`: tensors on the very memory of the arrays."""
    import torch

    return tuple([torch.from_numpy(array) for array in batch])


class TorchFeed:
    """A loader that is made in the first epoch."""

    def __init__(self, dataset: SampleDataset, options: dict[str, Any]) -> None:
        import torch.utils.data

        loader: Any = torch.utils.data.DataLoader  # its type wants a subclass of Dataset; its code does not
        self._make = partial(loader, dataset, shuffle=True, **options)
        self._loader: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self._loader = self._loader or self._make()
        return iter(self._loader)

    def close(self) -> None:
        """Workers end with the last reference to the loader."""
        self._loader = None


def _open(workload: Workload, workers: int, *, per_batch: bool, in_workers: bool) -> Feed:
    kind = BatchDataset if per_batch else SampleDataset
    options: dict[str, Any] = {"batch_size": workload.batch_size}
    if per_batch:
        options["collate_fn"] = tensors
    if in_workers:
        options.update(num_workers=workers, persistent_workers=True)
    return TorchFeed(kind(open_reader(workload), workload.samples), options)
