"""Pools of threads and processes, the work stream, and the sources whose batches the pools make."""

from typing import TYPE_CHECKING

from ..faults.policy import ErrorPolicy
from ..lazy_names import on_first_use
from .base import AbstractWorkerPool
from .parallel import ParallelDataSource
from .prefetch import PrefetchDataSource
from .serial import SerialPool
from .stream import WorkStream
from .threads import WorkerThreadPool

__all__ = [
    "AbstractWorkerPool",
    "ErrorPolicy",
    "ParallelDataSource",
    "PrefetchDataSource",
    "SerialPool",
    "WorkStream",
    "WorkerProcessPool",
    "WorkerRayPool",
    "WorkerThreadPool",
]

if TYPE_CHECKING:
    from .explaining import explained as explained
    from .processes import WorkerProcessPool
    from .ray import WorkerRayPool
    from .tuning import Tuner as Tuner
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            ".explaining": ["explained"],
            ".processes": ["WorkerProcessPool"],
            ".ray": ["WorkerRayPool"],
            ".tuning": ["Tuner"],
        },
    )
