"""A stream without a short last batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..batch import length
from .node import Streaming


def whole_batches(batches: Iterator[Any], options: Streaming) -> Iterator[Any]:
    """Return the batches of a stream, without a shorter last one if the user asks for that.

    As with rows that are planned, this goes before all maps and filters, which may change the length of a batch. An
    iterator may ignore the batch size: a batch is short if an earlier one is longer, too.
    """
    return _without_short_last(batches, options.batch_size) if options.drop_last else batches


def _without_short_last(batches: Iterator[Any], batch_size: int) -> Iterator[Any]:
    held, longest = None, 0
    for batch in batches:
        if held is not None:
            yield held
            longest = max(longest, length(held))
        held = batch
    if held is not None and length(held) >= min(batch_size, longest or batch_size):
        yield held
