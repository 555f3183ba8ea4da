"""A program that trains with several ranks in one process, saves its state now and then, and may die.

Arguments: the folder, world, batch size, kind of pool, the step before which the process dies or the step at which it
ends, "die" or "end". It writes the digest of each batch to ``seen.jsonl``: the step, the rank, the digest, the rows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.time_machine.runs import loaders, noisy, print_of, rows_of


def main(folder: Path, world: int, size: int, pool: str, last: int, how: str) -> None:
    state = folder / "state.json"
    ranks = loaders(noisy(), size, world, folder / "run.json", pool=pool)
    if state.exists():
        for rank in ranks:
            rank.load_state(state)
    step = ranks[0].state_dict()["steps"]["step"]
    with (folder / "seen.jsonl").open("a", buffering=1) as seen:
        while True:
            for together in zip(*ranks, strict=True):
                if step == last:
                    if how == "die":
                        os.kill(os.getpid(), signal.SIGKILL)
                    for rank in ranks:
                        rank.close()
                    return
                for number, batch in enumerate(together):
                    seen.write(json.dumps([step, number, print_of(batch), rows_of(batch)]) + "\n")
                step += 1
                if step % 70 == 0:
                    ranks[0].save_state(state)


if __name__ == "__main__":
    place, *numbers, kind, until, end = sys.argv[1:]
    main(Path(place), *map(int, numbers), kind, int(until), end)  # type: ignore[call-arg,arg-type]
