"""Process side of the harness: opens one variant, then runs an epoch whenever it is told to.

The protocol is JSON lines: the parent's on stdin, one answer to each on the descriptor that stdout had at the
start. Descriptor 1 itself is pointed at stderr, since libraries print.

    {"module", "variant", "workers", "workload"}  ->  {"ready": true}
    {"epoch": number}                             ->  the fields of outcome.Epoch
    {"close": true}, or the end of stdin          ->  leaves, with its whole process group at the latter

Any exception is answered as {"error": "Type: message"}, with the traceback on stderr. An end of stdin without ``close``
means that the parent is gone, so that nobody else is left to kill the group.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict
from typing import Any, TextIO

from benchmarks.outcome import Epoch
from benchmarks.peers.base import Feed, find
from benchmarks.workloads import Workload, probe


class Unfair(RuntimeError):
    """The peer did not deliver each sample once, as it is."""


def main() -> int:
    """Serve the parent until it says close."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        return _serve(answers)
    except Exception as error:
        traceback.print_exc()
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
        return 1


def _serve(answers: TextIO) -> int:
    request = json.loads(sys.stdin.readline())
    workload = Workload.from_json(request["workload"])
    variant = find(request["module"], workload.kind, request["variant"])
    feed = variant.open(workload, request["workers"])
    _answer(answers, {"ready": True})
    for message in map(json.loads, sys.stdin):
        if "close" in message:
            feed.close()
            return 0
        number: int = message["epoch"]
        check_x = number == 0 and variant.same_pixels
        _answer(answers, asdict(run_epoch(feed, number, workload, check_x=check_x)))
    _leave_with_group()
    return 1


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _leave_with_group() -> None:
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)


def run_epoch(feed: Feed, number: int, workload: Workload, *, check_x: bool) -> Epoch:
    """Consume one epoch, touching each batch in the same small way whoever made it.

    Args:
        feed: The loader.
        number: The epoch's number, from 0.
        workload: What it must deliver.
        check_x: Whether to sum a value of each sample too; only asked of the first epoch, being dearer than a touch.

    Raises:
        Unfair: Count or sums are not those of the workload.
    """
    begin = time.perf_counter()
    first = 0.0
    count = samples = nbytes = y_sum = x_sum = 0
    for x, y in feed.epoch(number):
        if count == 0:
            first = time.perf_counter() - begin
        int(x[(0,) * x.ndim])
        count += 1
        samples += len(x)
        nbytes += x.nbytes + y.nbytes
        y_sum += int(y.sum())
        if check_x:
            x_sum += int(probe(x).sum())
    seconds = time.perf_counter() - begin
    _check("samples", samples, workload.samples)
    _check("sum of y", y_sum, workload.y_sum)
    if check_x:
        _check("sum of x", x_sum, workload.x_sum)
    return Epoch(seconds=seconds, first_batch_seconds=first, batches=count, samples=samples, bytes=nbytes)


def _check(what: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise Unfair(f"{what} of an epoch must be {wanted}; the peer delivered {got}")


if __name__ == "__main__":
    sys.exit(main())
