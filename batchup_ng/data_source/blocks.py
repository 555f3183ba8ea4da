"""The blocks of an order by blocks: proposed by the accessors, or kept by a state.

The block and the window belong to the order. An epoch chooses them once, when it is prepared, and its state keeps them.
If the accessors propose others later, the resumed epoch still has the blocks of its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, CacheWarning, StateError
from ..graph.node import Node, nodes_of
from ..sampling.block_shuffle import OrderBlocks
from ..warn import warn_consumer
from .epoch.state import OLD_ORDER, SavedEpoch, blocks_in
from .epoch_options import EpochOptions

BlocksOfNodes = list[tuple[Node, OrderBlocks]]
"""The nodes that have an order by blocks, each with its own."""

WARNED_OF_READS = "reads"
"""The warning of an order that reads blocks several times."""

MAX_READS_OF_A_BLOCK = 1.5
"""How often the ranks may read each block, all together, before a warning says so."""


def nodes_in_blocks(root: Node, options: EpochOptions) -> BlocksOfNodes:
    """Return the nodes that have an order by blocks, each with its own.

    These are the orders of the options, in the sequence of the nodes, or one for all of them. Without them the
    accessors propose block and window, and each rank has one group. A number of groups that the user chose shares the
    window, because one rank may have to read them all.
    """
    proposed = _proposed(root)
    orders = options.order_blocks
    if orders is None:
        return [(node, _grouped(*pair, options, options.groups or 1)) for node, pair in proposed]
    orders = orders * len(proposed) if len(orders) == 1 else orders
    nodes = zip([node for node, _ in proposed], orders, strict=True)
    return [(node, order if order.groups else _grouped(*order[:2], options)) for node, order in nodes]


def _grouped(block: int, window: int, options: EpochOptions, share: int = 1) -> OrderBlocks:
    """Return the order by these blocks for the ranks of some options. The groups share the window if they must."""
    groups = options.groups or options.shard.world
    if groups == 1:
        return OrderBlocks(block, window)
    return OrderBlocks(block, max(1, window // share), groups, options.batch_size)


def for_later_epochs(orders: tuple[OrderBlocks, ...] | None, options: EpochOptions) -> tuple[OrderBlocks, ...] | None:
    """Return the orders of the epochs after an epoch with these `orders`: the same blocks, in groups for the ranks of
    that epoch. None, if the user chose another number of groups: it shared another window, so the accessors propose.
    """
    if orders is None or (options.groups is not None and any(order.groups != options.groups for order in orders)):
        return None
    return tuple([OrderBlocks(order.block, order.window, 0) for order in orders])


def _proposed(root: Node) -> list[tuple[Node, tuple[int, int]]]:
    """Return the nodes that have an order by blocks, each with the block and the window that its accessors propose."""
    nodes = nodes_of(root, below_orders=False)
    proposed = [(node, pair) for node in nodes if (pair := node.order_blocks()) is not None]
    if not proposed:
        raise ArgumentError(
            "shuffle='blocks' is for accessors that say their natural_block, such as NpyRows, and this source has "
            "none: its samples may be read in any order; pass shuffle=True, or a seed"
        )
    return proposed


def order_by(orders: Sequence[OrderBlocks]) -> str:
    """Return the text for an order by these blocks in a state. Without groups, earlier versions wrote the same text."""
    shown = [tuple(order) if order.groups > 1 else order[:2] for order in orders]
    return f"blocks {shown[:1] if len(set(shown)) == 1 else shown}"


def saved_blocks(root: Node, saved: SavedEpoch) -> tuple[OrderBlocks, ...]:
    """Return the orders of a state.

    Raises:
        StateError: this source has another number of parts with an order.
    """
    proposed, found = [pair for _, pair in _proposed(root)], blocks_in(saved.order)
    if saved.order.startswith(OLD_ORDER):
        found = _of_version_2(root, proposed, found)
    if len(found) not in (1, len(proposed)):
        raise StateError(
            f"this state is of an order by the blocks of {len(found)} sources, and this one has {len(proposed)}; the "
            f"graph must be the same, and what it shares"
        )
    return tuple([OrderBlocks(*numbers) for numbers in found])


def _of_version_2(root: Node, proposed: list[Any], found: list[Any]) -> list[Any]:
    """Return the blocks of a state of version 2, whose list has each pair once; the block length names the node."""
    own = [node.natural_blocks() for node in nodes_of(root)]
    if found == sorted({each for each in own if each is not None}):
        return proposed
    windows = dict(found)
    if len(windows) == len(found) and set(windows) == {each[0] for each in own if each is not None}:
        nodes = [(node, node.natural_blocks()) for node in nodes_of(root, below_orders=False)]
        pairs = [node.order_blocks((each[0], windows[each[0]])) for node, each in nodes if each is not None]
        return [pair for pair in pairs if pair is not None]
    raise StateError(
        f"this state is of an order by the blocks {found}, which an earlier version took from the room in cache=; it "
        f"does not say which source had which; resume it with that version, or start the epoch again"
    )


def warn_of_reads(root: Node, options: EpochOptions, blocks: BlocksOfNodes) -> None:
    """Warn, once per source, of an order that reads blocks several times: by ranks, or for lack of room in a cache."""
    if WARNED_OF_READS in root.notes.warned:
        return
    world, size = options.shard.world, options.batch_size
    times = max(times_read(order, size, world, node.num_samples()) for node, order in blocks)
    crowded = [
        (kept, mixed)
        for owner, order in blocks
        for node in nodes_of(owner)
        if (kept := node.rows_kept()) < (mixed := order.block * order.window * groups_of_rank(order, size, world))
    ]
    if times > MAX_READS_OF_A_BLOCK or crowded:
        root.notes.warned.add(WARNED_OF_READS)
    if crowded:
        kept, mixed = crowded[0]
        warn_consumer(
            f"shuffle='blocks' mixes {mixed} rows at a time here, and the cache of decoded chunks has room for "
            f"{kept:.0f} of them, so that chunks are decoded again and again; raise cache= of the accessor, or mix "
            f"fewer: give the source sampler=BlockShuffleSampler(length, block, window=...) with a smaller window",
            CacheWarning,
        )
    if times > MAX_READS_OF_A_BLOCK:
        groups = blocks[0][1].groups
        warn_consumer(
            f"with shuffle='blocks' and shard= the {world} ranks together read each block about {times:.1f} times: the "
            f"order has {groups} groups of blocks, from batches of {blocks[0][1].batch_size}. To read each about once, "
            f"pass shuffle=('blocks', seed, groups) with a multiple of {world} as groups, far fewer than there are "
            f"blocks; an epoch that was begun keeps its groups. Or leave it so where reading is cheap (rows that are "
            f"mapped, not decoded)",
            CacheWarning,
        )


def groups_of_rank(order: OrderBlocks, batch_size: int, world: int) -> int:
    """Return how many groups the batches of one rank come from."""
    if batch_size != order.batch_size:
        return order.groups
    return order.groups // math.gcd(order.groups, world)


def times_read(order: OrderBlocks, batch_size: int, world: int, n_samples: float) -> float:
    """Return approximately how often all ranks together read a block.

    The batches of a window go to `sharing` ranks in rotation. The rows of each rank are a random part, so a rank skips
    a block that contains none of its rows. One block more is read for each border of two groups, which lies within it.
    """
    ranks = world * groups_of_rank(order, batch_size, world) // order.groups
    sharing = min(max(1, ranks), order.block * order.window / batch_size + 1)
    times = sharing * (1 - (1 - 1 / sharing) ** order.block) if sharing > 1 else 1.0
    return times + ((order.groups - 1) * order.block / n_samples if n_samples else 0)
