"""Arrays over files, told by path, offset and shape.

What crosses the boundary is a :class:`Stretch` of a file, never its bytes. The worker opens the file again, by the path
that the map was made with, which NumPy makes absolute. It maps the file so that nothing that is written there reaches
the file or another process: a map over a batch that writes to its source harms nobody.

A path may come to mean another file. The device and the number of the file go with the path: a worker that finds
another file there, or a shorter one, fails with an error that names it. A file that had lost its name before the source
was sent is sent as data: nobody else can cut it short any more.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from ...errors import SampleReadError, SerializationError
from .shared_arrays import span_of


class Stretch(NamedTuple):
    """A part of a file.

    Attributes:
        path: Absolute.
        device: Number of the device that the file is on.
        inode: Number of the file on it.
        offset: Where the part begins.
        nbytes: How many bytes it has.
        writable: Whether the array over it may be written to.
    """

    path: str
    device: int
    inode: int
    offset: int
    nbytes: int
    writable: bool


def stretch_of(array: np.ndarray) -> tuple[Stretch, int] | None:
    """Return the part of a file that `array` lies over, with where in it the first element is; None if it is none.

    A memmap that was opened to be copied on write is none, for the file does not have what was written to it.

    Raises:
        SerializationError: the file was cut short.
    """
    root = _root_of(array)
    filename = getattr(root, "filename", None)
    if root is None or filename is None or root.mode == "c":
        return None
    low, high = span_of(array)
    start = int(root.offset) + low - span_of(root)[0]
    path = os.fspath(filename)
    try:
        found = os.stat(path)
    except OSError:
        return None
    if _has_no_name(low):
        return None
    if found.st_size < start + high - low:
        raise SerializationError(
            f"the file {path!r} has {found.st_size} bytes, and the array over it needs {start + high - low}; it was "
            f"cut short after it was opened: write the file again, or open what is left of it"
        )
    stretch = Stretch(path, found.st_dev, found.st_ino, start, high - low, array.flags.writeable)
    return stretch, array.__array_interface__["data"][0] - low


def _root_of(array: np.ndarray) -> np.memmap | None:
    """Return the memmap that `array` is, or is a view of: the one that the file was mapped for."""
    owner: Any = array
    while owner is not None:
        below = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if isinstance(owner, np.memmap) and isinstance(below, mmap.mmap):
            return owner
        owner = below
    return None


def _has_no_name(address: int) -> bool:
    """Return whether the file that is mapped at `address` was deleted, or another took its name."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                low, _, high = line.partition(" ")[0].partition("-")
                if int(low, 16) <= address < int(high, 16):
                    return line.rstrip("\n").endswith(" (deleted)")
    except OSError:
        pass  # not Linux: the worker compares the numbers that the path has now
    return False


def reopened(stretch: Stretch) -> np.ndarray:
    """Return the bytes of a part of a file: ``(nbytes,) uint8``, read-only if that is enough.

    Raises:
        SampleReadError: the file cannot be read, or is not the one that it was.
    """
    with _lock:
        mapping = _open.get(stretch[:3] + stretch[-1:])
        if mapping is None or len(mapping) < stretch.offset + stretch.nbytes:
            mapping = _mapped(stretch)
            _open[stretch[:3] + stretch[-1:]] = mapping
    return np.frombuffer(mapping, np.uint8, stretch.nbytes, stretch.offset)


_open: weakref.WeakValueDictionary[Any, mmap.mmap] = weakref.WeakValueDictionary()
"""The files that this worker has mapped, each once however many arrays lie over it."""
_lock = threading.Lock()


def _mapped(stretch: Stretch) -> mmap.mmap:
    try:
        with open(stretch.path, "rb") as file:
            found = os.fstat(file.fileno())
            _check_same(stretch, found)
            return _private(file.fileno(), stretch.writable)
    except SampleReadError:
        raise
    except OSError as error:
        message = f"{stretch.path!r} cannot be opened in a worker process: {error}"
        raise SampleReadError(message, stretch.path) from error


def _check_same(stretch: Stretch, found: os.stat_result) -> None:
    if (found.st_dev, found.st_ino) != (stretch.device, stretch.inode):
        raise SampleReadError(
            f"{stretch.path!r} is another file than when the source was made parallel: it was replaced; open the new "
            f"one and make a new source of it",
            stretch.path,
        )
    if found.st_size < stretch.offset + stretch.nbytes:
        raise SampleReadError(
            f"{stretch.path!r} has {found.st_size} bytes, and {stretch.offset + stretch.nbytes} are needed: it was cut "
            f"short after the source was made parallel",
            stretch.path,
        )


def _private(fd: int, writable: bool) -> mmap.mmap:
    if writable:
        try:
            return mmap.mmap(fd, 0, access=mmap.ACCESS_COPY)
        except OSError:
            pass  # more than the system promises memory for, should all of it be written to; it need not be
    return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
