"""Process side of the harness: opens one feed, then runs a turn of its trial on each request.

Messages are JSON, in both directions. The argument is the descriptor of the pipe:

    {"module", "variant", "workers", "workload", "trial", "settings"}  ->  {"ready": true}
    {"turn": number}                                                   ->  the fields of records.Epoch
    {"close": true}                                                    ->  exits without an answer

An exception is answered by {"error": "Type: message"}, with the traceback on stderr. If the pipe ends without
``close``, the parent is dead. Then this process kills its own group, because no other process can.

The start method ``spawn`` imports this module in each worker, so the import must have no effects.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.peers import find
from benchmarks.trials import TRIALS
from benchmarks.workloads.base import Workload


def main() -> int:
    """Serve the parent until it sends ``close``."""
    pipe = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)
    try:
        _serve(pipe)
    except Exception as error:
        traceback.print_exc()
        _answer(pipe, {"error": f"{type(error).__name__}: {error}"})
        return 1
    return 0


def _serve(pipe: Connection) -> None:
    request = _message(pipe)
    workload = Workload(**request["workload"])
    feed = find(request["module"], request["variant"]).open(workload, request["workers"])
    _answer(pipe, {"ready": True})
    while "close" not in (message := _message(pipe)):
        _answer(pipe, asdict(TRIALS[request["trial"]](feed, workload, message["turn"], request["settings"])))
    feed.close()


def _message(pipe: Connection) -> dict[str, Any]:
    try:
        message: dict[str, Any] = json.loads(pipe.recv_bytes())
    except EOFError:
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        raise
    return message


def _answer(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


if __name__ == "__main__":
    sys.exit(main())
