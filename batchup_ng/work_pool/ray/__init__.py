"""Workers that are actors of a Ray cluster: on this machine or on many."""

from .pool import WorkerRayPool

__all__ = ["WorkerRayPool"]
