"""Rank and world of this process, given by the user or the launcher."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..sampling.plans.epoch import UNEVEN_OPTIONS, Shard
from ..warn import warn_consumer

LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("JAX", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Launchers with the variables that they set: rank, number of processes. Launchers that start the training processes
come before SLURM, because SLURM may have started only the launcher. Its variable is one that ``srun`` sets: in a batch
script that starts one process without ``srun``, ``SLURM_NTASKS`` counts tasks that were not started."""


def shard_of(shard: Any, uneven: Any, pad_mask: Any) -> Shard:
    """Return the shard for these options of ``batch_iterator``, checked."""
    validation.one_of("uneven", uneven, UNEVEN_OPTIONS)
    rank, world = (0, 1) if shard is None else _rank_and_world(shard)
    return Shard(rank, world, uneven, validation.true_or_false("pad_mask", pad_mask))


def _rank_and_world(shard: Any) -> tuple[int, int]:
    if isinstance(shard, str) and shard == "auto":
        return rank_from_torch() or rank_from_jax() or rank_from(os.environ)
    if not isinstance(shard, (tuple, list, np.ndarray)) or len(shard) != 2:
        raise ArgumentTypeError(f"shard must be (rank, world) or 'auto', not {shard!r}; shard=(0, 4) is the first of 4")
    rank = validation.integer("shard[0], the rank,", shard[0])
    world = validation.positive_int("shard[1], the world,", shard[1])
    if not 0 <= rank < world:
        raise ArgumentError(f"shard's rank must be at least 0 and below the world, {world}, not {rank}")
    return rank, world


def rank_from_torch() -> tuple[int, int] | None:
    """Return rank and world size if the program has initialized torch.distributed. Import nothing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def rank_from_jax() -> tuple[int, int] | None:
    """Return rank and number of processes if the program has called ``jax.distributed.initialize``. Import nothing."""
    jax: Any = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)  # another thread may be importing jax
    if not getattr(distributed, "is_initialized", bool)():  # older releases have no such function
        return None
    return jax.process_index(), jax.process_count()


def rank_from(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of processes from a launcher's variables, or (0, 1) if there are none."""
    return _launched(environment)[1:]


def known_group() -> tuple[str, int]:
    """Return the name of the group of processes that ``shard="auto"`` finds, and the number of its processes.

    Without a group, or with variables of a launcher that ``shard="auto"`` refuses, this is one process.
    """
    for name, found in (("torch.distributed", rank_from_torch()), ("jax.distributed", rank_from_jax())):
        if found is not None:
            return name, found[1]
    with contextlib.suppress(ArgumentError):
        launcher, _, world = _launched(os.environ)
        return launcher, world
    return "", 1


def warn_of_ranks(meant: bool) -> None:
    """Warn if a loader gives each of several processes all of the data, unless that is `meant`."""
    group, world = ("", 1) if meant else known_group()
    if world > 1:
        warn_consumer(
            f"this loader has no shard=, so that each of the {world} processes of {group} gets all of the data; pass "
            f"shard='auto', or shard=None if that is meant",
            UserWarning,
        )


def _launched(environment: Mapping[str, str]) -> tuple[str, int, int]:
    for launcher, rank_name, world_name in LAUNCHERS:
        rank, world = environment.get(rank_name), environment.get(world_name)
        if (rank is None and world is None) or (world is None and launcher == "SLURM"):
            continue
        numbers = [int(n) for n in (rank, world) if n is not None and n.isascii() and n.isdigit()]
        if len(numbers) == 2 and numbers[0] < numbers[1]:
            return launcher, numbers[0], numbers[1]
        raise ArgumentError(
            f"shard is 'auto', and the environment of {launcher} has {rank_name}={rank!r} and {world_name}={world!r}, "
            f"which are no rank and number of processes; pass shard=(rank, world)"
        )
    return "", 0, 1
