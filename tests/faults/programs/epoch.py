"""A user's program, to be struck by signals: iterates, says where it is, closes its pool.

    python epoch.py --pool forkserver --pause 0.02

It says ``numpy``, ``imported``, ``pool``, ``batch``, ``closing``, ``done``, each on a line, when it gets there.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", default="forkserver")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds that a batch takes")
    parser.add_argument("--last", type=float, default=None, help="seconds that each batch after the first takes")
    parser.add_argument("--think", type=float, default=0.0, help="seconds that the consumer takes for a batch")
    parser.add_argument("--batches", type=int, default=10**9, help="batches to take before the pool is closed")
    parser.add_argument("--thread", action="store_true", help="make the pool in a thread that then ends")
    parser.add_argument("--no-close", action="store_true", help="leave the pool to the end of the program")
    options = parser.parse_args()

    import numpy as np

    say("numpy")
    import batchup_ng as bu

    say("imported")

    def make() -> Any:
        if options.pool == "threads":
            return bu.WorkerThreadPool(2)
        return bu.WorkerProcessPool(2, start_method=options.pool)

    def work(rows: Any) -> Any:
        time.sleep(options.last if options.last is not None and rows[0] > 0 else options.pause)
        return rows, np.full((len(rows), 30_000), 7, np.uint8)

    pool = in_thread(make) if options.thread else make()
    say("pool")
    source = bu.ArrayDataSource([np.arange(100_000)], repeats=-1).map(work)
    for n, (rows, payload) in enumerate(pool.parallel_data_source(source, 6).batch_iterator(7)):
        assert rows[0] == 7 * n
        assert (payload == 7).all()
        say("batch")
        time.sleep(options.think)
        if n + 1 == options.batches:
            break
    say("closing")
    if not options.no_close:
        pool.close()
    say("done")


def in_thread(make: Any) -> Any:
    """Return what `make` returns in a thread that has ended since."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    return made[0]


if __name__ == "__main__":
    main()
