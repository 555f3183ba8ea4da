"""Maps after a pool, which run in the consumer's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..batch import NOTHING_LEFT, as_batch
from ..batch_layout import apart
from ..data_source.epoch.reading import with_mask
from ..data_source.epoch.runner import Give
from ..error_context import described, function_name, note_map, raise_if_of_signal_handler
from ..graph.columns import ColumnsNode
from ..graph.map import MapNode
from ..randomness import BatchKey


class ConsumerMaps(NamedTuple):
    """Maps after a pool, applied one after the other in the consumer's process, in its ``next``.

    The results of the last one are handed out unchanged: a view, a list, a tensor on another device. Only for an
    adapter that reads ahead of the loop, what the map keeps is copied. Their random numbers are the same as if the maps
    were in the source.
    """

    nodes: tuple[MapNode | ColumnsNode, ...]
    pad_mask: bool = False  # whether to append an array that marks padding
    give: Give | None = None  # brings the result of the last map out, if an adapter reads ahead of the loop

    def __call__(self, batch: Any, key: BatchKey, planned: int) -> Any:
        """Return the batch after all maps, or NOTHING_LEFT if lazy filters keep no sample of it.

        `key` is the key of the outermost map, `planned` the number of samples.
        """
        first = batch  # which the caller holds, too
        for above, node in zip(reversed(range(len(self.nodes))), self.nodes, strict=True):
            if batch is NOTHING_LEFT:
                return batch
            given = _parts(batch)
            try:
                made = [node.unchecked(given, key._replace(path=key.path + (0,) * above), planned)]
            except Exception as error:
                raise_if_of_signal_handler(error)
                note_map(error, function_name(node.fn))
                when = f"epoch {key.epoch}, batch {key.batch}"
                raise described(error, "behind the pool", when, {"epoch": key.epoch, "batch": key.batch}) from error
            others = () if first is given else first
            if above and made[0] is not NOTHING_LEFT:  # the next map may write to a column
                batch = _parts(made.pop())  # first: a list would hold the columns, too
                batch = apart(batch, given, others)
            else:
                batch = made.pop() if above or self.give is None else self.give(made, given, others)
        return with_mask(batch, key, planned) if self.pad_mask else batch


def _parts(result: Any) -> Any:
    """Return the result of a map as parts, to call the next map with. A single object is one part."""
    batch = as_batch(result)
    return batch if isinstance(batch, (tuple, Mapping)) else (batch,)
