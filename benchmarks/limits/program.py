"""One program under a limit, in a process of its own: it prints its peak as JSON.

    python -m benchmarks.limits.program NAME FOLDER SCALE

Peaks are proportional (PSS), of anonymous and shared memory of this process and its children. Pages of files on disks
do not count. The baseline is subtracted: the same measure when all processes of the pool are up, and each has read one
row of small data of the same kind. They have loaded the libraries then. It includes the arrays of the program.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import batchup_ng as bu
from benchmarks.limits.settings import MB, SETTINGS

INTERVAL = 0.05
"""Seconds between two looks, besides the time of a look."""


STEP = 0.03
"""Seconds of the consumer's step after each batch, during which the pool makes batches ahead."""


def memory_of_all() -> int:
    """Return the bytes of anonymous and shared memory of this process and its children, each shared page once."""
    total, this = 0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total


class Watch:
    """A thread that looks at the memory of all processes until it is stopped, and keeps the peak and its holders."""

    def __init__(self) -> None:
        self.peak, self.held, self.counted = 0, dict[str, int](), 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL):
            held, now = dict(bu.memory()), memory_of_all()
            self.counted = max(self.counted, sum(held.values()))
            if now > self.peak:
                self.peak, self.held = now, held

    def stop(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join()


def used(name: str, folder: Path, seconds: float) -> None:
    """Read a row of the small data in this process, for it to load the libraries and to use them once.

    It takes some time, in order that each worker has to.
    """
    SETTINGS[name].source(folder, bu).samples_by_indices_nomapping(np.arange(1))
    time.sleep(seconds)


def first_numbers(batch: Any) -> np.ndarray:
    """Return the first number of each row of the last column of a batch. It is the row, except in images."""
    last = list(batch.values())[-1] if isinstance(batch, dict) else batch[-1]
    return np.asarray(last).reshape(len(last), -1)[:, 0]


def main(name: str, folder: Path, scale: float) -> dict[str, Any]:
    """Run one setting, and return its figures in bytes."""
    setting = SETTINGS[name]
    rows = max(4, int(setting.batch * scale))
    own = setting.source(folder, bu) if name in ("threads", "copies") else None  # arrays of the program
    with setting.pool(bu) as pool:
        tasks = [(used, (name, folder / "small", 0.5))] * (4 * pool.at_once)
        with pool.work_stream(iter(tasks)) as stream:
            for _ in stream.retrieve_iter():
                pass
        baseline = memory_of_all()
    bu.memory_limit(int(setting.limit * scale * MB))
    watch = Watch()
    began, samples, wrong = time.monotonic(), 0, 0
    iterator: Any = None
    try:
        source = own or setting.source(folder, bu)
        with setting.pool(bu) as pool:
            batches = pool.parallel_data_source(source)
            for _ in range(2):
                epoch = 0
                iterator = batches.batch_iterator(rows)
                for batch in iterator:
                    numbers = first_numbers(batch)
                    wrong += name != "images" and numbers.tolist() != list(range(epoch, epoch + len(numbers)))
                    epoch += len(numbers)
                    time.sleep(STEP)
                samples += epoch
    finally:
        watch.stop()
    return {
        "name": name, "limit": bu.memory().limit, "baseline": baseline, "peak": watch.peak - baseline,
        "counted": watch.counted, "held": watch.held, "seconds": time.monotonic() - began, "samples": samples,
        "wrong": wrong, "transport": iterator.stats()["transport"],
    }  # fmt: skip


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))))
