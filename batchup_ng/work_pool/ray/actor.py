"""The actor, one worker on a node of the cluster.

An actor owns only its constants and the memory that its tasks reuse. It requests nothing from its pool. Its arguments
and results consist of numbers, bytes and arrays, so Ray has nothing to pickle by value.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import numpy as np

from ..._version import __version__
from ...errors import ClusterError
from ...meters import stopwatch
from ..processes.execution import TaskRunner
from ..processes.protocol import Frame, Kind
from ..processes.serialization import SMALLEST_APART
from ..processes.shared_constants import WORKER_CONSTANTS

FileFacts = tuple[str, int, int]
"""The path of a file, its size in bytes, the second of its last change."""


class Greeting(NamedTuple):
    """The answer of an actor that has started."""

    version: str
    node: str
    address: str
    pid: int


class Actor:
    """One worker. Its calls run one at a time, in the order of sending.

    Args:
        number: Number of its seat, which no other actor of the pool has. Ray keeps it when it starts the actor again.
    """

    def __init__(self, number: int) -> None:
        import ray

        WORKER_CONSTANTS.worker = number
        stopwatch.name_this_thread(number)
        node = ray.get_runtime_context().get_node_id()
        self._here: tuple[str, str] = node, ray.util.get_node_ip_address()
        self._runner = TaskRunner(None, 1, f"(on node {self._here[1]})\n")

    def greet(self) -> tuple[Any, ...]:
        """Return a :class:`Greeting`."""
        return tuple(Greeting(__version__, *self._here, os.getpid()))

    def keep(self, number: int, constant: tuple[bytes, list[FileFacts], list[Any]]) -> None:
        """Load a constant: its pickle, the files that it reads, its arrays. Large arrays are read-only."""
        pickled, files, arrays = constant
        buffers = [each if each.nbytes >= SMALLEST_APART else bytearray(each) for each in arrays]
        WORKER_CONSTANTS.put(CheckedFrame(Kind.CONSTANT, number, pickled, buffers, files, self._here[1]))

    def forget(self, number: int) -> None:
        """Drop a constant."""
        WORKER_CONSTANTS.forget(number)

    def run(self, task: list[Any]) -> tuple[int, bytes, list[Any], bytes]:
        """Run a task. It is one argument, because Ray is slow with each argument.

        Args:
            task: The greeting of the intended actor, the kind, the number, the pickle, its memory.

        Returns:
            The kind of the answer, its pickle, the memory of its large arrays, the times of a batch. If the intended
            actor died while it was idle, and Ray started this one instead: ``READY``, no bytes, the greeting of this
            actor.
        """
        greeting, kind, number, pickled, buffers = task
        if greeting != self.greet():
            return int(Kind.READY), b"", list(self.greet()), b""
        kind, _, pickled, memory = self._runner.answer(Frame(Kind(kind), number, pickled, buffers))
        times = stopwatch.packed(stopwatch.taken())
        return int(kind), pickled, [np.frombuffer(each, np.uint8) for each in memory], times


class CheckedFrame(Frame):
    """A constant that loads only if the files that it reads are the same here as at the pool."""

    __slots__ = ("_files", "_node")

    def __init__(
        self, kind: Kind, number: int, pickled: bytes, buffers: list[Any], files: list[FileFacts], node: str
    ) -> None:
        super().__init__(kind, number, pickled, buffers)
        self._files = files
        self._node = node

    def load(self) -> Any:
        for path, nbytes, changed in self._files:
            check_file(path, nbytes, changed, self._node)
        try:
            return super().load()
        except Exception as error:  # it concerns all samples, so no policy may skip some
            raise ClusterError(
                f"node {self._node} cannot load the source ({type(error).__name__}: {error}); install there what it "
                f"imports, or have Ray send it: runtime_env={{'py_modules': [...]}} of the first pool, or of ray.init"
            ) from error


def check_file(path: str, nbytes: int, changed: int, node: str) -> None:
    """Raise a :class:`ClusterError` if a file is missing here or differs from the pool's file."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ClusterError(
            f"node {node} cannot read {path!r} ({error.strerror}), which the source needs; put it there, or on storage "
            f"that all nodes share"
        ) from error
    if (found.st_size, int(found.st_mtime)) != (nbytes, changed):
        there, here = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) for at in (found.st_mtime, changed))
        raise ClusterError(
            f"node {node} has another {path!r} than there was where the pool is when the source was made parallel: "
            f"{found.st_size} bytes, changed {there} UTC, not {nbytes} bytes, changed {here}; copy the file with its "
            f"time, share the storage, or make the source parallel again if it was changed"
        )
