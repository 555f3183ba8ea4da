"""The process pool of batchup_ng by each way to start its workers; ``ours-default`` is the one that a user gets."""

from __future__ import annotations

from functools import partial

from benchmarks.peers.base import Variant
from benchmarks.peers.ours import open_feed, processes


def variants(kind: str) -> tuple[Variant, ...]:
    """The default and the other method, for data in memory, data mapped from a file, and none."""
    make = partial(Variant, module=__name__, family="ours", needs=("batchup_ng", "psutil"), copies=4)
    return (
        make(name="ours-default", open=partial(open_feed, pool=processes)),
        make(name="ours-spawn", open=partial(open_feed, pool=partial(processes, start_method="spawn"))),
    )
