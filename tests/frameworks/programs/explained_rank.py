"""One of several processes of a gloo group, with a planted straggler: prints what its explanations say of the ranks."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch.distributed

import batchup_ng as bu

MS = 1e-3
BATCHES = 16


def nap(ms: float) -> Any:
    """Return a map that waits."""

    def waits(x: np.ndarray) -> np.ndarray:
        time.sleep(ms * MS)
        return x

    return waits


def compute(ms: float) -> None:
    """Use a CPU."""
    end = time.thread_time() + ms * MS
    while time.thread_time() < end:
        pass


def looped(map_ms: float, step: Any, lockstep: bool, batches: int = BATCHES) -> bu.Loader:
    """Return a loader after an epoch. In lockstep, all ranks reduce a gradient in each step."""
    source = bu.ArrayDataSource([np.arange(4 * batches)])
    loader = bu.Loader(source.map(nap(map_ms), on=0), 4, pool="threads", workers=1)
    gradient = torch.zeros(4)
    for _ in loader:
        step()
        if lockstep:
            torch.distributed.all_reduce(gradient)
    return loader


def asked(loader: bu.Loader, **options: Any) -> Any:
    """Return what the explanation says of the ranks, or the error."""
    with loader:
        try:
            why = loader.explain(trial=False, **options)
        except bu.BatchupError as error:
            return f"{type(error).__name__}: {error}"
    told = why.to_dict()
    json.dumps(told, allow_nan=False)
    return {"ranks": told["ranks"], "straggler": told["straggler"], "text": str(why)}


def main(file: str, rank: int, world: int) -> None:
    """Plant a straggler, the last rank, in several ways."""
    slow = rank == world - 1
    alone = asked(looped(1, lambda: None, False), ranks=True)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    found = {
        "no group": alone,
        "data in lockstep": asked(looped(20 if slow else 0, lambda: time.sleep(2 * MS), True), ranks=True),
        "data": asked(looped(20 if slow else 0, lambda: time.sleep(2 * MS), False), ranks=True),
        "step": asked(looped(0, lambda: time.sleep((20 if slow else 2) * MS), False), ranks=True),
        "step in lockstep": asked(looped(0, lambda: compute(20 if slow else 2), True), ranks=True),
    }
    again = looped(1, lambda: None, False)
    if not slow:  # the others ask, and the last rank does not
        try:
            again.explain(trial=False, ranks=True, timeout=0.3)
        except bu.RankTimeout as error:
            found["one does not ask"] = str(error)
    torch.distributed.barrier()
    found["after that"] = asked(again, ranks=True)
    found["one has too few"] = asked(looped(1, lambda: None, False, 3 if slow else BATCHES), ranks=True)
    print(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
