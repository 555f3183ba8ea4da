"""Pools of threads and processes, the work stream, and the sources whose batches the pools make."""

from ..faults.policy import ErrorPolicy
from .base import AbstractWorkerPool
from .parallel import ParallelDataSource
from .prefetch import PrefetchDataSource
from .processes import WorkerProcessPool
from .ray import WorkerRayPool
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
