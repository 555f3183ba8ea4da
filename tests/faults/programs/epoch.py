"""A user's program, to be struck by signals: iterates, says where it is, closes its pool.

    python epoch.py --pool forkserver --pause 0.02

It says ``numpy``, ``imported``, ``pool``, ``batch``, ``closing``, ``done``, each on a line, when it gets there; each of
its workers says ``inside`` before it can say nothing more.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
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
    parser.add_argument("--thread", action="store_true", help="start the pool's workers in a thread that then ends")
    parser.add_argument("--inside", choices=["lock", "stopped"], help="where each batch after the first stays for ever")
    parser.add_argument("--no-close", action="store_true", help="leave the pool to the end of the program")
    options = parser.parse_args()

    import numpy as np

    say("numpy")
    import batchup_ng as bu
    from batchup_ng.work_pool import prefetch_buffer

    prefetch_buffer.STALL_SECONDS = 3600.0  # a busy machine is no fault to tell of
    say("imported")

    def make() -> Any:
        if options.pool == "threads":
            return bu.WorkerThreadPool(2)
        return bu.WorkerProcessPool(2, start_method=options.pool)

    def start() -> Any:
        pool = make()
        assert pool.work_stream(iter([(len, ("abc",))])).retrieve() == 3  # workers may only be started for work
        return pool

    def work(rows: Any) -> Any:
        if options.inside and rows[0] > 0:
            stay(options.inside)
        time.sleep(options.last if options.last is not None and rows[0] > 0 else options.pause)
        return rows, np.full((len(rows), 30_000), 7, np.uint8)

    pool = in_thread(start) if options.thread else make()
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


def stay(where: str) -> None:
    """Never come back: from one call of C that keeps the interpreter's lock, or from standing still."""
    say("inside")
    if where == "lock":
        re.match(r"(a+)+$", "a" * 60 + "b")
    else:
        os.kill(os.getpid(), signal.SIGSTOP)


def in_thread(make: Any) -> Any:
    """Return what `make` returns in a thread that has ended since."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    return made[0]


if __name__ == "__main__":
    main()
