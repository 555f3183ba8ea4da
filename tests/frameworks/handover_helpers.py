"""What the tests of handing over share: an iterator ahead of its loop, batches as they come, a port."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.frameworks.handover import handed_over

from .framework_contract import FrameworkContract

SOURCE = bu.ArrayDataSource([np.arange(40)])


def ahead(batches: Any, convert: Any = lambda batch: batch, **options: Any) -> Any:
    return handed_over(batches, lambda iterator: AheadIterator(iterator, convert, **options))


def numbers(batches: Any) -> list[int]:
    return [int(x[0]) for (x,) in batches]


def port_for_later() -> int:
    """Return a port of this machine that is free, for a process that is yet to start.

    It is none of those that the system hands out: one of them may be another program's when it is to be used.
    """
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            return port
    raise OSError("no port is free")


class AsNumPy(FrameworkContract):
    def arrays(self, batch: Any) -> Any:
        return batch
