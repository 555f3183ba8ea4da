"""Maps behind a pool, which run in the consumer's process, in its ``next``.

What they return is handed out as it is: a view, a list, a tensor on another device. Their random numbers are those that
the same maps would have in the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..batch import as_batch
from ..error_context import described, function_name, note_map
from ..randomness import BatchKey
from .epoch.reading import with_mask
from .map import MapDataSource


class ConsumerMaps(NamedTuple):
    """Maps that are applied, one after the other, to the batches that a pool made."""

    nodes: tuple[MapDataSource, ...]
    pad_mask: bool = False  # whether an array that marks what only pads goes at the end of what they return

    def __call__(self, batch: Any, key: BatchKey, planned: int) -> Any:
        """Return what becomes of a batch of so many planned samples, whose key is that of the outermost map."""
        for above, node in zip(reversed(range(len(self.nodes))), self.nodes, strict=True):
            try:
                batch = node.result_of(_parts(batch), key._replace(path=key.path + (0,) * above), planned)
            except Exception as error:
                note_map(error, function_name(node.fn))
                when = f"epoch {key.epoch}, batch {key.batch}"
                raise described(error, "behind the pool", when, {"epoch": key.epoch, "batch": key.batch}) from error
        return with_mask(batch, key, planned) if self.pad_mask else batch


def _parts(result: Any) -> Any:
    """Return what a map returned such that the next is called with its parts; a single object is one part."""
    batch = as_batch(result)
    return batch if isinstance(batch, (tuple, Mapping)) else (batch,)
