"""The options of one epoch, checked before anything starts."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..faults.policy import ErrorPolicy, error_policy
from ..randomness import OrderKey, numpy_rng
from ..sampling.plans.sharding import ALONE, START, Reached, Shard
from .distributed import shard_of

BLOCKS = "blocks"
"""What ``shuffle=`` says, alone or before a seed, to have neighbouring rows read together."""

NEWER = ("epoch", "drop_last")
"""Names of options that functions and sources of the user's are given if they take them; BatchUp did not have them."""

OF_TORCH = {
    "num_workers": "pass the number of workers as workers=",
    "collate_fn": "pass it as collate=",
    "prefetch_factor": "pass the number of batches that are made ahead as buffer=",
    "batch_buffer_size": "pass it as buffer=",
    **dict.fromkeys(["generator", "seed"], "pass it as shuffle=, best as an int seed"),
    **dict.fromkeys(["sampler", "batch_sampler"], "give it to the source: ArrayDataSource(data, sampler=...)"),
    "persistent_workers": "workers stay until the loader is closed",
    "multiprocessing_context": "pass a pool: pool=WorkerProcessPool(n, start_method=...)",
    "worker_init_fn": "seeds are set for each batch; what a map needs, make when it is first called",
    "pin_memory": "hand the loader to frameworks.torch.to_torch(loader, device='cuda')",
    "epoch": "pass the number of the first as start_epoch=",
}
"""What to do instead of options of PyTorch's ``DataLoader``, and of ours that have another name here."""


@dataclasses.dataclass(frozen=True)
class EpochOptions:
    """What ``batch_iterator`` was asked for."""

    batch_size: int
    shuffle: Any  # as the user gave it
    rng: Any  # the generator from which the order is drawn; None where the order is a function
    blocks: bool  # whether storage has a say in the order
    shuffled: bool  # whether the order is a function of the seed; else it is in order, where there is no `rng`
    seed: int  # of the order, or of the maps' randomness where the order has none
    epoch: int
    numbered: bool  # whether the user gave the number of the epoch
    drop_last: bool
    own: Mapping[str, Any]  # options for the user's own function
    place: tuple[int, ...] = ()  # child numbers from the root to the node, of children that have orders of their own
    shard: Shard = ALONE
    reached: Reached = START
    # Samples of a stream that each map has had so far, by its place in the graph; the maps count here.
    counted: dict[tuple[int, ...], int] = dataclasses.field(default_factory=dict)
    policy: ErrorPolicy | None = None  # None as the source says
    # Of an order by blocks, the block and window of each node that has an order; None until the epoch is prepared.
    chosen: tuple[tuple[int, int], ...] | None = None

    def child(self, number: int) -> EpochOptions:
        """Return the options for the child of that number, which has an order of its own."""
        return dataclasses.replace(self, place=(*self.place, number))

    def order_key(self, blocks: Mapping[int, tuple[int, int]] | None = None) -> OrderKey | None:
        """Return the key of the order at this node; None is in order."""
        return OrderKey(self.seed, self.epoch, self.place, blocks) if self.shuffled else None

    def drawing_rng(self) -> Any:
        """Return the generator to draw from at a node that can do nothing else; None is in order."""
        key = self.order_key()
        return self.rng if key is None else key.random_state("rng")

    @property
    def given(self) -> dict[str, Any]:
        """What the user gave of the options that functions and sources of the user's may be called with."""
        wanted = {"shuffle": self.shuffle is not None, "epoch": self.numbered, "drop_last": self.drop_last}
        return {**{name: getattr(self, name) for name, was_given in wanted.items() if was_given}, **self.own}

    def keywords_for(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the keywords to call a user's function with: what was given, of the newer options what it takes."""
        return {name: value for name, value in taken_by(fn, self.given).items() if name != "drop_last"}


class _NotGiven(int):
    """The number of an epoch where none was given: a state may give another, and the same twice is warned of."""


FIRST = _NotGiven(0)


def taken_by(fn: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to call a user's function with: all that BatchUp had, of newer ones those that it takes."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    known = {each.name for each in parameters}
    return {name: value for name, value in given.items() if name not in NEWER or takes_any or name in known}


def epoch_options(
    batch_size: Any,
    shuffle: Any = None,
    epoch: Any = FIRST,
    drop_last: Any = False,
    shard: Any = None,
    uneven: Any = "pad",
    pad_mask: Any = False,
    on_error: Any = None,
    own: Mapping[str, Any] | None = None,
) -> EpochOptions:
    """Return the options of an epoch, those of ``batch_iterator``, checked; `own` are for the user's own function.

    Raises:
        ArgumentError: the batch size is below 1, the epoch negative, or what is to be shared out is
            drawn from NumPy's global state.
        ArgumentTypeError: an option is of a wrong kind.
    """
    number = validation.not_negative("epoch", epoch)
    seeded, blocks = with_seed(shuffle)
    rng, shuffled, seed = _order(seeded)
    part = shard_of(shard, uneven, pad_mask)
    if part.world > 1 and (rng is numpy_rng.GLOBAL or draws_seed(shuffle)):
        raise ArgumentError(
            f"shuffle is {shuffle!r}, which draws from NumPy's global state, of which each of the processes that share "
            f"the epoch has its own; pass the same int to all of them, or ('blocks', int)"
        )
    return EpochOptions(
        batch_size=validation.positive_int("batch_size", batch_size),
        shuffle=shuffle,
        rng=rng,
        blocks=blocks,
        shuffled=shuffled,
        seed=seed,
        epoch=number,
        numbered=epoch is not FIRST,
        drop_last=validation.true_or_false("drop_last", drop_last),
        own=own or {},
        shard=part,
        policy=None if on_error is None else error_policy(on_error),
    )


def draws_seed(shuffle: Any) -> bool:
    """Return whether `shuffle` leaves the seed to NumPy's global state."""
    return shuffle is True or (isinstance(shuffle, str) and shuffle == BLOCKS)


def with_seed(shuffle: Any) -> tuple[Any, bool]:
    """Return what `shuffle` says of the seed, and whether storage has a say in the order."""
    if isinstance(shuffle, str) and shuffle == BLOCKS:
        return numpy_rng.seed_draw(numpy_rng.GLOBAL), True
    if isinstance(shuffle, tuple) and len(shuffle) == 2 and shuffle[0] == BLOCKS:
        return validation.not_negative("shuffle[1], a seed,", shuffle[1]), True
    return shuffle, False


def _order(shuffle: Any) -> tuple[Any, bool, int]:
    """Return the generator, whether the order is a shuffled function, and the seed that `shuffle` asks for."""
    if isinstance(shuffle, np.bool_):
        shuffle = bool(shuffle)
    if shuffle is None or shuffle is False:
        return None, False, 0
    if shuffle is not True and isinstance(shuffle, (int, np.integer)):
        return None, True, validation.not_negative("shuffle, a seed,", shuffle)
    rng = numpy_rng.check_rng(shuffle)
    return rng, False, numpy_rng.seed_from_state(rng)
