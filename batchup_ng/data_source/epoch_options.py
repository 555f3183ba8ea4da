"""The options of one epoch. They are checked before anything starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import validation
from ..errors import ArgumentError
from ..faults.policy import ErrorPolicy, error_policy
from ..graph.user import taken_by
from ..private_apis import GLOBAL_RNG
from ..randomness import OrderKey, numpy_rng
from ..sampling.block_shuffle import OrderBlocks
from ..sampling.plans.drawn import DrawnKey
from ..sampling.plans.epoch import ALONE, START, Reached, Shard
from ..sampling.plans.shortened import Skipped
from .distributed import shard_of

SHUFFLE_BLOCKS = "blocks"
"""The value of ``shuffle=``, alone or before a seed, for an order that reads neighbouring rows together."""

FIRST_EPOCH = dict.fromkeys(["epoch", "start", "initial_epoch"], "pass the number of the first as start_epoch=")
"""Advice for other names of the number of the first epoch."""

ADVICE_ON_TORCH_OPTIONS = {
    "num_workers": "pass the number of workers as workers=",
    "collate_fn": "pass it as collate=",
    "prefetch_factor": "pass the number of batches that are made ahead as buffer=",
    "batch_buffer_size": "pass it as buffer=",
    **dict.fromkeys(["generator", "seed"], "pass it as shuffle=, best as an int seed"),
    **dict.fromkeys(["sampler", "batch_sampler"], "give it to the source: source.sample(sampler)"),
    "persistent_workers": "workers stay until the loader is closed",
    "multiprocessing_context": "pass a pool: pool=WorkerProcessPool(n, start_method=...)",
    "worker_init_fn": "seeds are set for each batch; what a map needs, make when it is first called",
    "pin_memory": "hand the loader to frameworks.torch.to_torch(loader, device='cuda')",
    **FIRST_EPOCH,
    "epochs": "loop over loader.epochs(n)",
    **dict.fromkeys(
        ["val", "validation", "validation_data"],
        "make a second loader of it: bu.Loader(validation, 256); the two share one pool",
    ),
}
"""Advice for options of PyTorch's ``DataLoader``, and for options of this library that have another name here."""

ADVICE_ON_EPOCH_OPTIONS = {**validation.ELSEWHERE, "start_epoch": "pass the number of the epoch as epoch="}
"""Advice for options that ``batch_iterator`` and ``plan`` do not have."""

ADVICE_ON_EPOCHS_OPTIONS = {
    **validation.ELSEWHERE,
    **FIRST_EPOCH,
}
"""Advice for options that ``epochs`` does not have."""


@dataclasses.dataclass(frozen=True)
class EpochOptions:
    """The arguments of ``batch_iterator``, checked."""

    batch_size: int
    shuffle: Any  # as the user gave it
    generator: Any  # the order is drawn from it, or the seed when the epoch opens; None if it is not used
    by_blocks: bool  # whether storage influences the order
    groups: int | None  # of such an order; None: as many as ranks
    shuffled: bool  # whether the order is a function of the seed; if False and `generator` is None, it is in order
    seed: int  # of the order, or of the maps' randomness if the order has no seed
    epoch: int
    numbered: bool  # whether the user gave the number of the epoch
    drop_last: bool
    own: Mapping[str, Any]  # options for the user's own function
    order_path: tuple[int, ...] = ()  # child numbers from the root to the node, only of children with their own order
    shard: Shard = ALONE
    reached: Reached = START
    # Number of samples of a stream that each map has received, by its place in the graph. The maps count here.
    counted: dict[tuple[int, ...], int] = dataclasses.field(default_factory=dict)
    policy: ErrorPolicy | None = None  # None: the source's own
    # For an order by blocks: that of each node that has an order. None until the epoch is prepared.
    order_blocks: tuple[OrderBlocks, ...] | None = None
    skipped: tuple[Skipped, ...] = ()  # batches to leave out, of any epochs
    history: Any = None  # a `History` of changes of weights and rows; None if there are none

    def child(self, number: int) -> EpochOptions:
        """Return the options for child `number`, which has its own order."""
        return dataclasses.replace(self, order_path=(*self.order_path, number))

    def opened(self, seed: int | None = None) -> EpochOptions:
        """Return the options of an epoch that opens. If `shuffle` says so, draw its seed, or take `seed` of a state."""
        if not draws_seed(self.shuffle) or self.generator is None:
            return self
        seed = numpy_rng.seed_draw(self.generator) if seed is None else seed
        return dataclasses.replace(self, generator=None, shuffled=True, seed=seed)

    def order_key(self, blocks: Mapping[int, Any] | None = None) -> OrderKey | None:
        """Return the key of the order at this node, or None if it is in order."""
        if self.generator is not None:
            return DrawnKey(rng=self.generator)
        return OrderKey(self.seed, self.epoch, self.order_path, blocks) if self.shuffled else None

    @property
    def given(self) -> dict[str, Any]:
        """The options given by the user that are passed on to the user's functions and sources."""
        wanted = {"shuffle": self.shuffle is not None, "epoch": self.numbered, "drop_last": self.drop_last}
        return {**{name: getattr(self, name) for name, was_given in wanted.items() if was_given}, **self.own}

    def keywords_for(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """Return the keywords for a user's function: the given options, newer ones only if it accepts them."""
        return {name: value for name, value in taken_by(fn, self.given).items() if name != "drop_last"}


class _NotGiven(int):
    """The default number of an epoch. A state may replace it, and a repeated epoch gives a warning."""


EPOCH_0 = _NotGiven(0)


def epoch_options(
    batch_size: Any,
    shuffle: Any = None,
    epoch: Any = EPOCH_0,
    drop_last: Any = False,
    shard: Any = None,
    uneven: Any = "pad",
    pad_mask: Any = False,
    on_error: Any = None,
    own: Mapping[str, Any] | None = None,
) -> EpochOptions:
    """Check the options of ``batch_iterator`` and return them. `own` are for the user's own function.

    Raises:
        ArgumentError: the batch size is below 1, the epoch is negative, or several ranks share an order that is drawn
            from NumPy's global state.
        ArgumentTypeError: an option is of a wrong kind.
    """
    number = validation.not_negative("epoch", epoch)
    order, blocks = without_blocks(shuffle)
    generator, shuffled, seed = _order(order)
    part = shard_of(shard, uneven, pad_mask)
    if part.world > 1 and generator is GLOBAL_RNG:
        raise ArgumentError(
            f"shuffle is {shuffle!r}, which draws from NumPy's global state, of which each of the processes that share "
            f"the epoch has its own; pass the same int to all of them, or ('blocks', int)"
        )
    groups = None if not blocks else validation.positive_int("shuffle[2], a number of groups,", *blocks)
    return EpochOptions(
        batch_size=validation.positive_int("batch_size", batch_size),
        shuffle=shuffle,
        generator=generator,
        by_blocks=blocks is not None,
        groups=groups,
        shuffled=shuffled,
        seed=seed,
        epoch=number,
        numbered=epoch is not EPOCH_0,
        drop_last=validation.true_or_false("drop_last", drop_last),
        own=own or {},
        shard=part,
        policy=None if on_error is None else error_policy(on_error),
    )


def draws_seed(shuffle: Any) -> bool:
    """Return whether an epoch with this `shuffle` draws a seed when it opens."""
    own = isinstance(shuffle, (bool, np.bool_)) and bool(shuffle)
    return own or isinstance(shuffle, np.random.Generator) or (isinstance(shuffle, str) and shuffle == SHUFFLE_BLOCKS)


def without_blocks(shuffle: Any) -> tuple[Any, tuple[Any, ...] | None]:
    """Return `shuffle` without ``"blocks"``, and what stood behind it and the seed; None if it had no ``"blocks"``.

    ``"blocks"`` alone draws a seed, as True does.
    """
    if isinstance(shuffle, str) and shuffle == SHUFFLE_BLOCKS:
        return True, ()
    if isinstance(shuffle, tuple) and len(shuffle) in (2, 3) and shuffle[0] == SHUFFLE_BLOCKS:
        return validation.not_negative("shuffle[1], a seed,", shuffle[1]), shuffle[2:]
    return shuffle, None


def with_seed(shuffle: Any, seed: Any) -> Any:
    """Return `shuffle`, which draws a seed or has one, with this seed."""
    blocks = without_blocks(shuffle)[1]
    return seed if blocks is None else (SHUFFLE_BLOCKS, seed, *blocks)


def _order(shuffle: Any) -> tuple[Any, bool, int]:
    """Return the generator for `shuffle`, whether the order is a function of a known seed, and the seed."""
    if isinstance(shuffle, np.bool_):
        shuffle = bool(shuffle)
    if shuffle is None or shuffle is False:
        return None, False, 0
    if shuffle is not True and isinstance(shuffle, (int, np.integer)):
        return None, True, validation.not_negative("shuffle, a seed,", shuffle)
    rng = numpy_rng.check_rng(shuffle)
    return rng, False, numpy_rng.seed_from_state(rng)
