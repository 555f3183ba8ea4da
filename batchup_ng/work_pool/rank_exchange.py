"""Brings the figures of all ranks of a training together, when each of them asks.

Ranks of ``torch.distributed`` exchange them through the store by which their group was made, with a time limit. This is
no collective operation of the group: if a rank does not take part, the others get an error, and the group still works.

In the store, each rank counts the exchanges that it has completed; the keys of an exchange have that number. A counter
says how many ranks take part. The last of them, which brings it to the number of ranks, completes the exchange for all.
A rank that leaves at its time limit takes itself off the counter, and does not count the exchange. So all ranks agree
on the number of the next one. A rank that completes an exchange deletes its keys of the one before, which all have
completed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..data_source.distributed import rank_from_torch
from ..errors import ArgumentError, ArgumentTypeError, RankTimeout
from ..explanation.ranks import RankFigures
from ..private_apis import store_of_torch
from ..validation import number_between

KEY = "batchup_ng/explain"
"""Beginning of the keys in a store."""

LONGEST = 86_400.0
"""Largest time limit in seconds."""

SHOWN = 8
"""Number of missing ranks that an error names."""

Gather = Callable[[Any], Sequence[Any]]
"""Returns the values of all ranks, in their order, for the value of this one."""

class Exchange:
    """An exchange that was asked for.

    Args:
        ranks: True for the ranks of ``torch.distributed``; or a function that is called with the figures of this rank,
            a list of plain values, and returns those of all ranks.
        timeout: Seconds to wait for the other ranks of ``torch.distributed``.

    Raises:
        ArgumentError: `ranks` is True, and the program has not initialized ``torch.distributed``.
        ArgumentTypeError: `ranks` is neither, or `timeout` is no number.
    """

    def __init__(self, ranks: Any, timeout: float) -> None:
        if ranks is not True and not callable(ranks):
            raise ArgumentTypeError(
                f"ranks must be True, False or a function that gathers values of all ranks, not {ranks!r:.80}; pass "
                f"ranks=True with torch.distributed"
            )
        seconds = number_between("timeout", timeout, 0.0, LONGEST)
        found = rank_from_torch()
        self.rank = 0 if found is None else found[0]
        if callable(ranks):
            self._gather: Gather = ranks
        elif found is None:
            raise ArgumentError(
                "ranks=True needs torch.distributed, and the program has not called init_process_group; or pass a "
                "function such as MPI.COMM_WORLD.allgather"
            )
        else:
            store = store_of_torch(sys.modules["torch.distributed"])
            self._gather = lambda own: gathered(store, own, *found, seconds)

    def figures(self, own: RankFigures) -> list[RankFigures]:
        """Return the figures of all ranks, in their order.

        Raises:
            RankTimeout: a rank did not take part within the time limit.
        """
        of_all = self._gather([*own])
        if not isinstance(of_all, (list, tuple)) or any(len(each) != len(own) for each in of_all):
            raise ArgumentError(
                f"ranks= must return a list with the values of each rank, {len(own)} of them, as "
                f"MPI.COMM_WORLD.allgather does, not {of_all!r:.200}"
            )
        return [RankFigures(*each)._replace(rank=rank) for rank, each in enumerate(of_all)]


def gathered(store: Any, own: Any, rank: int, world: int, seconds: float) -> list[Any]:
    """Return the values of all ranks, which they put into a store of ``torch.distributed``.

    Raises:
        RankTimeout: a rank did not take part within `seconds`.
    """
    own_count = f"{KEY}/completed/{rank}"
    done = store.add(own_count, 0)
    of, before = (f"{KEY}/{number}/" for number in (done, done - 1))
    store.set(f"{of}{rank}", json.dumps(own))
    if store.add(f"{of}count", 1) == world:
        store.set(f"{of}complete", "1")
    try:
        store.wait([f"{of}complete"], timedelta(seconds=seconds))
    except RuntimeError as error:
        missing = [each for each in range(world) if not store.check([f"{of}{each}"])]
        if store.add(f"{of}count", -1) < world - 1:
            raise _not_all(missing, world, seconds) from error
        store.add(f"{of}count", 1)  # the last rank came just now
        store.wait([f"{of}complete"], timedelta(seconds=seconds))
    found = [json.loads(store.get(f"{of}{each}")) for each in range(world)]
    if done:
        for name in (str(rank), *(["count", "complete"] if rank == 0 else [])):
            store.delete_key(f"{before}{name}")
    store.add(own_count, 1)
    return found


def _not_all(missing: list[int], world: int, seconds: float) -> RankTimeout:
    if not missing:  # the others came, and had given up before
        return RankTimeout(
            f"the ranks did not call explain(ranks=True) within {seconds:g} s of each other; call it on all ranks at "
            f"the same place of the program, or pass a larger timeout="
        )
    shown = ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN} more" if missing[SHOWN:] else "")
    who = f"{'rank' if len(missing) == 1 else 'ranks'} {shown} of {world}"
    return RankTimeout(
        f"{who} did not call explain(ranks=True) within {seconds:g} s; call it on all ranks, equally often, or pass a "
        f"larger timeout="
    )
