"""``torch.utils.data.DataLoader`` by each way to start its workers.

All read whole batches (``__getitems__``) by workers that stay, torch's quickest setting. ``...-tensors`` hold the
data as tensors instead of NumPy arrays: these travel to started (not forked) workers by shared memory that torch makes
once, where an array is pickled anew for each worker; they also let the fork server import torch, once for all
workers. It is the best that a program can do which knows of both. Data mapped from a file are opened by each worker
itself, since a pickled ``numpy.memmap`` is a copy.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.base import Batch, Variant
from benchmarks.peers.torch_loader import BatchDataset, tensors
from benchmarks.readers import ArrayReader, open_reader
from benchmarks.workloads import Workload


def variants(kind: str) -> tuple[Variant, ...]:
    """Each method, and those that pickle with tensors too where there are data to hold."""
    make = partial(Variant, module=__name__, family="torch", needs=("torch", "psutil"), copies=4)
    methods = ("fork", "forkserver", "spawn")
    plain = [make(name=f"torch-{method}", open=partial(_open, method=method)) for method in methods]
    held = [
        make(name=f"torch-{method}-tensors", open=partial(_open_tensors, method=method)) for method in methods[1:]
    ]
    return (*plain, *(held if kind == "arrays" else ()))


class TorchStarter:
    """A loader that is made in the first epoch.

    Args:
        dataset: A data set with ``__getitems__``; None where there are no data.
        batch_size: Samples of a batch.
        collate: Makes tensors of what the data set gives.
        workers: How many processes.
        method: How they are started.
    """

    def __init__(self, dataset: Any, batch_size: int, collate: Any, workers: int, method: str) -> None:
        self._dataset = dataset
        self._options = {"batch_size": batch_size, "collate_fn": collate, "shuffle": True}
        self._workers = workers
        self._method = method
        self._loader: Any = None
        self._noted = Path()

    def epoch(self, number: int) -> Iterator[Batch]:
        if self._loader is None:
            self._make(self._dataset, self._options)
        return iter(self._loader)

    def _make(self, dataset: Any, options: dict[str, Any]) -> None:
        import torch.utils.data

        self._noted = Path(tempfile.mkdtemp(prefix="workers-"))
        loader: Any = torch.utils.data.DataLoader  # its type wants a subclass of Dataset; its code does not
        self._loader = loader(
            dataset,
            num_workers=self._workers,
            persistent_workers=True,
            multiprocessing_context=self._method,
            worker_init_fn=partial(note_worker, str(self._noted)),
            **options,
        )

    def workers(self) -> Sequence[int]:
        return sorted(int(path.name) for path in self._noted.iterdir())

    def ready(self) -> Sequence[int]:
        self._make(Numbers(self._workers), {"batch_size": 1})
        for _ in iter(self._loader):  # batch k is of worker k
            pass
        return self.workers()

    def close(self) -> None:
        """Workers end with the last reference to the loader."""
        self._loader = None


class Numbers:
    """A data set without data."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, row: int) -> int:
        return row


class TensorDataset:
    """Arrays held as tensors, indexed by whole batches."""

    def __init__(self, reader: ArrayReader) -> None:
        import torch

        self._images = torch.from_numpy(reader.images)
        self._labels = torch.from_numpy(reader.labels)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitems__(self, rows: list[int]) -> Batch:
        import torch

        places = torch.from_numpy(np.asarray(rows))
        return self._images[places], self._labels[places]


def as_it_is(batch: Batch) -> Batch:
    """The collate of :class:`TensorDataset`."""
    return batch


def note_worker(folder: str, number: int) -> None:
    """Leave a worker's process id as the name of a file; torch calls it in each worker, before its first sample."""
    Path(folder, str(os.getpid())).touch()


def _open(workload: Workload, workers: int, *, method: str) -> TorchStarter:
    import torch  # noqa: F401  # imported before the clock starts, as by every program that uses it

    dataset = None if workload.kind == "none" else BatchDataset(open_reader(workload), workload.samples)
    return TorchStarter(dataset, workload.batch_size, tensors, workers, method)


def _open_tensors(workload: Workload, workers: int, *, method: str) -> TorchStarter:
    multiprocessing.set_forkserver_preload(["torch", __name__])
    return TorchStarter(TensorDataset(ArrayReader(workload)), workload.batch_size, as_it_is, workers, method)
