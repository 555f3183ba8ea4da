"""A user's program one of whose samples never ends: it sees the error, closes its pool or not, and ends.

    python stuck.py --pool threads --act sleep

It says ``SampleTimeout`` when it has the error, ``end`` when nothing but its end is left to do.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import batchup_ng as bu
from tests.faults.mischief import AtRows


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", default="threads")
    parser.add_argument("--act", default="sleep")
    parser.add_argument("--close", action="store_true")
    options = parser.parse_args()
    threads = options.pool == "threads"
    pool = bu.WorkerThreadPool(2) if threads else bu.WorkerProcessPool(2, start_method=options.pool)
    source = bu.ArrayDataSource([np.arange(100)]).map(AtRows([50], options.act))
    try:
        for _ in pool.parallel_data_source(source, 4, timeout=0.1).batch_iterator(7):
            pass
    except bu.SampleTimeout:
        say("SampleTimeout")
    if options.close:
        pool.close()
    say("end")


if __name__ == "__main__":
    main()
