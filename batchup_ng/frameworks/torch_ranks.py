"""Checks that the processes of a torch group do not all train on the same data.

PyTorch alone shards nothing. Lightning and Accelerate replace the sampler of a ``DataLoader``, but leave any other
iterable unchanged. Accelerate reads an ``IterableDataset`` in a ``DataLoader`` in process 0 only. That process sends
the others their parts. The checks run when an epoch begins, because Lightning starts the group in ``fit``.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from ..data_source.distributed import rank_from_torch
from ..errors import ArgumentError
from ..loader import Loader
from .ranks import RankCheck, warn_of_all

UNSHARDED_SAMPLERS = (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that give each process all samples."""

SHARDING_ATTRIBUTES = ("num_replicas", "num_processes", "world_size")
"""Attributes of samplers that give each process its part (PyTorch, Accelerate, others)."""


class TorchRanks(RankCheck):
    """The check of batches for PyTorch, which knows what Accelerate does with a data set."""

    def of_loader(self, loader: Loader) -> None:
        """Check as the base class does.

        Raises:
            ArgumentError: the loader has no ``shard=``; or it has one and Accelerate reads it in one process for all.
        """
        world = self.found()[1]
        if world == 1 or not _is_dispatched(loader):
            super().of_loader(loader)
        elif loader.shard_world() > 1:
            raise ArgumentError(
                f"accelerate reads this data set in process 0 of {world} only and sends the others their parts, so "
                f"with shard= the loader would leave out the rest; make the loader without shard=, or do not "
                f"pass the data set to accelerator.prepare"
            )


TORCH_RANKS = TorchRanks("torch.distributed", rank_from_torch)


class SamplerCheck:
    """Looks at the sampler of a ``DataLoader`` when an epoch begins; warns once."""

    def __init__(self) -> None:
        self._warned = False

    def check(self, torch_loader: Any, prepared: Any, shard: Any) -> None:
        """Check that the sampler of a ``DataLoader`` gives this process its part.

        Args:
            torch_loader: The ``DataLoader``.
            prepared: The loader of Accelerate around it; None if there is none.
            shard: None if each process may have all of the data.

        Raises:
            ArgumentError: all processes would train on the same data.
        """
        group, world = TORCH_RANKS.found()
        samplers = _samplers(torch_loader)
        by_accelerate = any(type(sampler).__name__ == "BatchSamplerShard" for sampler in samplers)
        if world > 1 and prepared is None and by_accelerate and any(type(each) is RandomSampler for each in samplers):
            raise ArgumentError(
                "this is base_dataloader of a loader of accelerate's, whose sampler draws another order in each "
                "process; pass the loader that accelerator.prepare returned"
            )
        if world == 1 or any(_shares_out(sampler) for sampler in samplers):
            return
        if shard is None:
            self._warn(group, world)
        elif all(type(sampler) in UNSHARDED_SAMPLERS for sampler in samplers):
            raise ArgumentError(
                f"the sampler of this DataLoader gives each of the {world} processes of {group} all of the "
                f"data; make the DataLoader with sampler=DistributedSampler(dataset), or pass the one that "
                f"accelerator.prepare returned, or shard=None if that is meant"
            )
        else:
            name = next(type(sampler).__name__ for sampler in samplers if type(sampler) not in UNSHARDED_SAMPLERS)
            self._warn(group, world, f"unless {name} gives each its part, ")

    def _warn(self, group: str, world: int, unless: str = "") -> None:
        if not self._warned:
            self._warned = True
            remedy = "pass shard=None if that is meant" if unless else ""
            warn_of_all(group, world, unless, remedy)


def _is_dispatched(loader: Loader) -> bool:
    """Return whether Accelerate is about to read `loader`, or a view of it, in one process for all."""
    accelerate = sys.modules.get("accelerate.data_loader")
    if accelerate is None:
        return False
    active = accelerate.GradientState().active_dataloader
    if not isinstance(active, accelerate.DataLoaderDispatcher):
        return False
    read = getattr(active.dataset, "loader", None)  # of a LoaderDataset
    return isinstance(read, Loader) and read._shared is loader._shared


def _samplers(torch_loader: Any) -> list[Any]:
    """Return the batch sampler and the samplers in it."""
    found: list[Any] = []
    todo = [torch_loader.batch_sampler, torch_loader.sampler]
    while todo:
        sampler = todo.pop()
        if sampler is not None and not any(sampler is each for each in found):
            found.append(sampler)
            todo += [getattr(sampler, "batch_sampler", None), getattr(sampler, "sampler", None)]
    return found


def _shares_out(sampler: Any) -> bool:
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.num_replicas > 1)
    return any(getattr(sampler, name, 1) not in (1, None) for name in SHARDING_ATTRIBUTES)
