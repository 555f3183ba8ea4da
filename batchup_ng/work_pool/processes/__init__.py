"""The process pool: channel, worker, launch, pool."""

from .pool import WorkerProcessPool

__all__ = ["WorkerProcessPool"]
