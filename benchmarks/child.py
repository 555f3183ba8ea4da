"""Process side of the harness: makes one trial, then does a turn of it whenever it is told to.

The protocol is JSON lines: the parent's on stdin, one answer to each on the descriptor that stdout had at the
start. Descriptor 1 itself is pointed at stderr, since libraries print.

    {"module", "variant", "workers", "workload", "trial", "settings"}  ->  {"ready": true}
    {"turn": number}                                                   ->  the fields of outcome.Epoch
    {"close": true}, or the end of stdin          ->  leaves, with its whole process group at the latter

Any exception is answered as {"error": "Type: message"}, with the traceback on stderr. An end of stdin without ``close``
means that the parent is gone, so that nobody else is left to kill the group.

Methods that start each worker anew import this module there by its name, so that it must do nothing on import.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from typing import Any, TextIO

from benchmarks.peers.base import find
from benchmarks.trials import TRIALS
from benchmarks.workloads import Workload


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
    trial = TRIALS[request["trial"]](variant, workload, request["workers"], request["settings"])
    _answer(answers, {"ready": True})
    for message in map(json.loads, sys.stdin):
        if "close" in message:
            trial.close()
            return 0
        _answer(answers, asdict(trial.turn(message["turn"])))
    _leave_with_group()
    return 1


def _answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _leave_with_group() -> None:
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
