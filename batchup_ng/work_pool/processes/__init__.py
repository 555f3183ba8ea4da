"""Workers that are processes."""

from .pool import WorkerProcessPool

__all__ = ["WorkerProcessPool"]
