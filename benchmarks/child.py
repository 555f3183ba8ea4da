"""Process side of the harness: opens one feed, then runs a turn of its trial on each request.

The argument is the descriptor of a pipe. Messages are pickles:

    (open, workload, workers, trial, settings)  ->  None, when the feed is open
    number of a turn                            ->  a records.Epoch
    None                                        ->  exits without an answer

An exception is answered by its text, "Type: message", with the traceback on stderr. If the pipe ends before None, the
parent is dead. Then this process kills its own group, because no other process can.

The start method ``spawn`` imports this module in each worker, so the import must have no effects.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.trials import TRIALS


def main() -> int:
    """Serve the parent until it sends None."""
    pipe = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)
    try:
        open_feed, workload, workers, trial, settings = _message(pipe)
        feed = open_feed(workload, workers)
        pipe.send(None)
        while (number := _message(pipe)) is not None:
            pipe.send(TRIALS[trial](feed, workload, number, settings))
        feed.close()
    except Exception as error:
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {error}")
        return 1
    return 0


def _message(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        raise


if __name__ == "__main__":
    sys.exit(main())
