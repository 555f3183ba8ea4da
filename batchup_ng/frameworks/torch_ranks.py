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
from ..warn import warn_consumer

UNSHARDED_SAMPLERS = (BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers that give each process all samples."""

SHARDING_ATTRIBUTES = ("num_replicas", "num_processes", "world_size")
"""Attributes of samplers that give each process its part (PyTorch, Accelerate, others)."""


class RankCheck:
    """Looks at the group when an epoch begins; warns once."""

    def __init__(self) -> None:
        self._warned = False

    def of_loader(self, loader: Loader, dataset: Any) -> None:
        """Check that `loader`, which is iterated over as `dataset`, gives this process the right part.

        Raises:
            ArgumentError: all processes would train on the same data, or a part of the data would be left out.
        """
        world = _world()
        if world == 1:
            return
        shared_out = loader.shard_world() > 1
        if _is_dispatched(dataset):
            if shared_out:
                raise ArgumentError(
                    f"accelerate reads this data set in process 0 of {world} only and sends the others their parts, so "
                    f"with shard= the loader would leave out the rest; make the loader without shard=, or do not "
                    f"pass the data set to accelerator.prepare"
                )
        elif not shared_out and not loader.shard_given:
            raise ArgumentError(
                f"this loader has no shard=, so that each of the {world} processes of torch.distributed would train on "
                f"all of the data in the same order; make it with shard='auto', or with shard=None if that is meant"
            )
        elif not shared_out:
            self._warn(world)

    def of_sampler(self, torch_loader: Any, prepared: Any, shard: Any) -> None:
        """Check that the sampler of a ``DataLoader`` gives this process its part.

        Args:
            torch_loader: The ``DataLoader``.
            prepared: The loader of Accelerate around it; None if there is none.
            shard: None if each process may have all of the data.

        Raises:
            ArgumentError: all processes would train on the same data.
        """
        world = _world()
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
            self._warn(world)
        elif all(type(sampler) in UNSHARDED_SAMPLERS for sampler in samplers):
            raise ArgumentError(
                f"the sampler of this DataLoader gives each of the {world} processes of torch.distributed all of the "
                f"data; make the DataLoader with sampler=DistributedSampler(dataset), or pass the one that "
                f"accelerator.prepare returned, or shard=None if that is meant"
            )
        else:
            name = next(type(sampler).__name__ for sampler in samplers if type(sampler) not in UNSHARDED_SAMPLERS)
            self._warn(world, f"unless {name} gives each its part, ")

    def _warn(self, world: int, unless: str = "") -> None:
        if not self._warned:
            self._warned = True
            remedy = "; pass shard=None if that is meant" * bool(unless)
            message = f"{unless}each of the {world} processes of torch.distributed trains on all of the data{remedy}"
            warn_consumer(message, UserWarning)


def _world() -> int:
    group = rank_from_torch()
    return 1 if group is None else group[1]


def _is_dispatched(dataset: Any) -> bool:
    """Return whether Accelerate is about to read `dataset` in one process for all."""
    accelerate = sys.modules.get("accelerate.data_loader")
    if accelerate is None:
        return False
    active = accelerate.GradientState().active_dataloader
    return isinstance(active, accelerate.DataLoaderDispatcher) and active.dataset is dataset


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
