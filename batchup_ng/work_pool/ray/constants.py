"""Objects that reach each actor once, through the object store of its node. The store has one copy for all actors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..processes.serialization import Packer
from ..processes.shared_arrays import FilePart, file_part
from ..processes.shared_constants import SharedConstant
from .actor import FileFacts

MOST_FILES = 1000
"""Largest number of an accessor's files that are compared on each node. If there are more, they are evenly spaced."""


class RayConstant(SharedConstant):
    """A value that reaches each node once. Its data in files is read there from files with the same paths.

    Attributes:
        ref: The object in Ray's store. It lives as long as this constant.
    """

    def __init__(self, value: Any, ray: Any) -> None:
        super().__init__(value, NodePacker)
        packed = self._packed
        files = [facts for path in packed.mapped for facts in facts_of(path)]
        self.arrays = "mapped" if files else ""
        if packed.buffers:
            self.arrays = "store"
        self.ref = ray.put((packed.pickled, files, [np.frombuffer(raw, np.uint8) for raw in packed.buffers]))


class NodePacker(Packer):
    """Records the files that a value reads, and sends arrays over files by path only."""

    def reducer_override(self, obj: Any) -> Any:
        if hasattr(type(obj), "file_paths"):  # an accessor over files
            self.mapped += obj.file_paths(spaced(len(obj)))
        return super().reducer_override(obj)

    def file_part(self, array: np.ndarray) -> FilePart | None:
        part = file_part(array)
        return None if part is None else part._replace(device=0, inode=0)  # valid only on this machine


def spaced(n: int) -> Sequence[int]:
    """Return at most :data:`MOST_FILES` of the numbers below `n`, evenly spaced."""
    return range(n) if n <= MOST_FILES else [k * n // MOST_FILES for k in range(MOST_FILES)]


def facts_of(path: str) -> list[FileFacts]:
    """Return the facts that a file must match on other nodes; none if this node cannot see it."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [(path, found.st_size, int(found.st_mtime))]
