"""A PyTorch ``DataLoader``, alone and on a pool of ours.

All variants make the same object, from the data set that its users would have: a ``TensorDataset`` of arrays, a
``datasets.Dataset`` of a table, else a class with ``__getitem__``. PyTorch's workers stay for all epochs, as ours do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.peers.base import OURS, Variant
from benchmarks.peers.torch_loader import Samples
from benchmarks.workloads import open_data
from benchmarks.workloads.base import Batch, Workload


class LoaderFeed:
    """A ``DataLoader`` that the first epoch makes, with or without a pool."""

    def __init__(self, workload: Workload, workers: int, *, pooled: bool = False, in_workers: bool = False) -> None:
        import torch.utils.data

        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if in_workers else {}
        dataset, size = dataset_of(workload), workload.batch_size
        self.make: Callable[[], Any] = lambda: torch.utils.data.DataLoader(dataset, size, shuffle=True, **options)
        if pooled:
            from batchup_ng.frameworks.torch import from_dataloader

            plain = self.make
            self.make = lambda: from_dataloader(plain(), workers=workers)
        self.named = workload.kind == "table"
        self.loader: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        self.loader = self.loader or self.make()
        return map(parts, self.loader) if self.named else iter(self.loader)

    def close(self) -> None:
        """Drop the loader; PyTorch's workers end with the last reference."""
        if hasattr(self.loader, "close"):
            self.loader.close()
        self.loader = None


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
    """Return the columns of a batch by name, as a tuple in order."""
    return [batch["x"], batch["y"]]


def variants(suffix: str, workloads: tuple[str, ...], *needs: str) -> tuple[Variant, ...]:
    """Return the variants for some workloads."""
    theirs = partial(Variant, module=__name__, family="torch", workloads=workloads, needs=needs, usual=False, copies=2)
    ours = partial(theirs, family=OURS, needs=("batchup_ng", *needs))
    return (
        theirs(name=f"dataloader{suffix}", open=LoaderFeed),
        theirs(name=f"dataloader-workers{suffix}", open=partial(LoaderFeed, in_workers=True)),
        ours(name=f"ours-dataloader{suffix}", open=partial(LoaderFeed, pooled=True)),
    )


VARIANTS = (
    *variants("", ("arrays", "digits", "images", "python"), "torch"),
    *variants("-table", ("table",), "torch", "datasets"),
)
