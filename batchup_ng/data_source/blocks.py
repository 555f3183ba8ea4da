"""The blocks of an order by blocks: proposed by the accessors, or kept by a state.

The block and the window belong to the order. An epoch chooses them once, when it is prepared, and its state keeps them.
If the accessors propose others later, the resumed epoch still has the blocks of its state.
"""

from __future__ import annotations

from ..errors import ArgumentError, CacheWarning, StateError
from ..graph.node import Node, nodes_of
from ..warn import warn_consumer
from .epoch.state import OLD_ORDER, SavedEpoch, blocks_in
from .epoch_options import EpochOptions

Blocks = tuple[tuple[int, int], ...]
"""The block and the window of each node that has an order by blocks."""

BlocksOfNodes = list[tuple[Node, tuple[int, int]]]
"""The nodes that have an order by blocks, each with its block and its window."""

WARNED_OF_READS = "reads"
"""The warning of an order that reads blocks several times."""

MAX_READS_OF_A_BLOCK = 1.5
"""How often the ranks may read each block, all together, before a warning says so."""


def nodes_in_blocks(root: Node, order_blocks: Blocks | None = None) -> BlocksOfNodes:
    """Return the nodes that have an order by blocks, each with its block and window.

    These are `order_blocks`, in the order of the nodes, or one pair for all of them. By default the accessors propose
    them.
    """
    nodes = nodes_of(root, below_orders=False)
    proposed = [(node, blocks) for node in nodes if (blocks := node.order_blocks()) is not None]
    if not proposed:
        raise ArgumentError(
            "shuffle='blocks' is for accessors that say their natural_block, such as NpyRows, and this source has "
            "none: its samples may be read in any order; pass shuffle=True, or a seed"
        )
    if order_blocks is None:
        return proposed
    pairs = order_blocks * len(proposed) if len(order_blocks) == 1 else order_blocks
    return [(node, pair) for (node, _), pair in zip(proposed, pairs, strict=True)]


def proposed_blocks(root: Node) -> Blocks:
    """Return the blocks that the accessors of a source propose."""
    return tuple([pair for _, pair in nodes_in_blocks(root)])


def order_by(blocks: Blocks) -> str:
    """Return the text for an order by these blocks in a state."""
    return f"blocks {[blocks[0]] if len(set(blocks)) == 1 else list(blocks)}"


def saved_blocks(root: Node, saved: SavedEpoch) -> Blocks:
    """Return the blocks of a state.

    Raises:
        StateError: this source has another number of parts with an order.
    """
    proposed = proposed_blocks(root)
    found = blocks_in(saved.order)
    if saved.order.startswith(OLD_ORDER):
        return _of_version_2(root, proposed, found)
    if len(found) not in (1, len(proposed)):
        raise StateError(
            f"this state is of an order by the blocks of {len(found)} sources, and this one has {len(proposed)}; the "
            f"graph must be the same, and what it shares"
        )
    return tuple(found)


def _of_version_2(root: Node, proposed: Blocks, found: list[tuple[int, int]]) -> Blocks:
    """Return the blocks of a state of version 2, whose list has each pair once; the block length names the node."""
    own = [node.natural_blocks() for node in nodes_of(root)]
    if found == sorted({each for each in own if each is not None}):
        return proposed
    windows = dict(found)
    if len(windows) == len(found) and set(windows) == {each[0] for each in own if each is not None}:
        nodes = [(node, node.natural_blocks()) for node in nodes_of(root, below_orders=False)]
        pairs = [node.order_blocks((each[0], windows[each[0]])) for node, each in nodes if each is not None]
        return tuple([pair for pair in pairs if pair is not None])
    raise StateError(
        f"this state is of an order by the blocks {found}, which an earlier version took from the room in cache=; it "
        f"does not say which source had which; resume it with that version, or start the epoch again"
    )


def warn_of_reads(root: Node, options: EpochOptions, blocks: BlocksOfNodes) -> None:
    """Warn, once per source, of an order that reads blocks several times: by ranks, or for lack of room in a cache."""
    if WARNED_OF_READS in root.notes.warned:
        return
    times = max(times_read(*pair, options.batch_size, options.shard.world) for _, pair in blocks)
    crowded = [
        (node.rows_kept(), block * window)
        for owner, (block, window) in blocks
        for node in nodes_of(owner)
        if node.rows_kept() < block * window
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
        warn_consumer(
            f"with shuffle='blocks' and shard= each rank reads about {times:.1f} times the rows that it hands out: its "
            f"batches have rows of all the blocks of a window. To read each block once, give each rank a subset of "
            f"neighbouring rows of its own, without shard=; or leave it so where reading is cheap (rows that are "
            f"mapped, not decoded)",
            CacheWarning,
        )


def times_read(block: int, window: int, batch_size: int, world: int) -> float:
    """Return approximately how often all ranks together read a block.

    The batches of a window go to `sharing` ranks in rotation. The rows of each rank are a random part, so a rank skips
    a block that contains none of its rows.
    """
    sharing = min(world, block * window / batch_size + 1)
    return sharing * (1 - (1 - 1 / sharing) ** block) if sharing > 1 else 1.0

