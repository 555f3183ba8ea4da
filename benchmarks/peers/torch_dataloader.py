"""One ``DataLoader`` of PyTorch's, by itself and on a pool of ours.

All variants make the same object, of the data set that its users would have: a ``TensorDataset`` of arrays, a
``datasets.Dataset`` of a table, else a class with ``__getitem__``. PyTorch's workers stay from epoch to epoch, as ours
do.
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
    """A ``DataLoader`` that is made in the first epoch, on a pool or not."""

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
        """Workers of PyTorch's end with the last reference to the loader."""
        if hasattr(self.loader, "close"):
            self.loader.close()
        self.loader = None


def dataset_of(workload: Workload) -> Any:
    """The data set that users of PyTorch would make of such data."""
    import torch.utils.data

    data = open_data(workload)
    if workload.kind in ("arrays", "digits"):
        return torch.utils.data.TensorDataset(*[torch.from_numpy(column) for column in data.columns])
    if workload.kind == "table":
        import datasets  # type: ignore[import-untyped]  # ships no types
        import tqdm

        tqdm.tqdm.monitor_interval = 0  # or progress bars that are not even shown would start a thread
        return datasets.Dataset.from_dict(dict(zip("xy", data.columns, strict=True))).with_format("torch")
    return Samples(data, workload.samples)


def parts(batch: Any) -> Batch:
    """A batch by name, in its order."""
    return [batch["x"], batch["y"]]


def variants(suffix: str, workloads: tuple[str, ...], *needs: str) -> tuple[Variant, ...]:
    """The variants for some workloads."""
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
