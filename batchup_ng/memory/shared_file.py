"""A file without a name, whose pages several processes share.

    a process                                              another process
    ┌─────────────────────────────┐                        ┌──────────────────────────┐
    │ SharedFile, its descriptor  │ ── Place, a pickle ──► │ SharedFile, a descriptor │
    │  └─ map()                   │      the same pages    │  └─ map() or private()   │
    └─────────────────────────────┘                        └──────────────────────────┘

The file lies in memory (``memfd_create``). If the system has no such call, or a container forbids it, the file lies in
the temporary folder, without a name either. Nothing is left of it after any process is killed.

Pages. A file has no pages at first. A store to a mapped page that the system cannot allocate would be a SIGBUS, which
ends the process. So a user of the file makes pages first: by :meth:`SharedFile.reserve`, or by writing with
:meth:`SharedFile.write`. Both raise ``OSError`` if there is no room.

Publication. A reader must see a row, a chunk or a copy whole or not at all. So the writer writes all bytes, then what
says that they are there: a byte of a table, a key under a lock, the place that it sends. :meth:`SharedFile.write`
returns when all bytes are written, and raises otherwise. ``pwrite`` takes the system's locks, which order the writes
for other processors.

Handing over. A :class:`Place` names the descriptor of the process that sends it. The receiver opens the same file
through ``/proc``, and compares device and inode: the sender may have ended, and another process may have its number. A
place may be in any pickle, which goes through a queue of another library, a cluster, or a file. No descriptor can be
sent along there.

Ownership. A :class:`SharedFile` owns its descriptor, and closes it when nothing refers to it. Programs may close all
descriptors that they did not open, as daemons do. Then another file may have the number. So the object compares device
and inode before it writes to the descriptor, and before it closes it. A mapping outlives the object.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..platforms import system

NO_SUCH_CALL = (errno.ENOSYS, errno.EPERM)
"""Error numbers of a system call that the system lacks, or a container forbids."""

STAT_BLOCK_BYTES = 512
"""Bytes of a block that ``stat`` counts."""


class Place(NamedTuple):
    """A file that a process has open: the number of the process, the descriptor, the file's device and inode."""

    pid: int
    fd: int
    device: int
    inode: int


class SharedFile:
    """A file that processes share. Takes over the descriptor `fd`; -1 after :meth:`close`."""

    fd = -1

    def __init__(self, fd: int) -> None:
        found = os.fstat(fd)
        self._identity = found.st_dev, found.st_ino
        self.fd = fd

    @classmethod
    def nameless(cls, nbytes: int) -> SharedFile:
        """Return a file of `nbytes`, all zero, without pages: in memory, if possible, else in the temporary folder.

        Raises ``OSError`` if the system gives none.
        """
        if not system.HAS_SHARED_FILES:
            raise OSError(errno.ENOSYS, "this system has no call to reserve the pages of a file")
        fd = _in_memory()
        try:
            file = cls.in_folder(tempfile.gettempdir()) if fd < 0 else cls(fd)
        except OSError as error:
            raise_if_of_signal_handler(error)
            why = f"it allows no file in memory, and the temporary folder none either: {error}"
            raise OSError(errno.ENOSYS, why) from error
        os.ftruncate(file.fd, nbytes or 1)  # nothing can be mapped of an empty file
        return file

    @classmethod
    def in_folder(cls, folder: str) -> SharedFile:
        """Return an empty file without a name in a folder. Raises ``OSError`` if none can be made."""
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return cls(os.dup(file.fileno()))

    @classmethod
    def reached(cls, place: Place | None) -> SharedFile | None:
        """Return the file at a place, with a descriptor of this process; None if it is out of reach.

        It is out of reach from another machine, of another user, and when that process has ended or closed it.
        """
        if place is not None:
            with unless_of_signal_handler(OSError):
                file = cls(os.open(f"/proc/{place.pid}/fd/{place.fd}", os.O_RDWR))
                if file._identity == (place.device, place.inode):
                    return file
        return None

    @property
    def place(self) -> Place:
        """The place of this file, for another process."""
        return Place(os.getpid(), self.fd, *self._identity)

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return os.fstat(self.fd).st_size

    def taken(self) -> int:
        """Return the bytes of the pages that the file has; 0 if the descriptor was closed."""
        return os.fstat(self.fd).st_blocks * STAT_BLOCK_BYTES if self.is_open() else 0

    def is_open(self) -> bool:
        """Return whether the descriptor still belongs to this file."""
        return identity(self.fd) == self._identity

    def reserve(self, offset: int, nbytes: int) -> None:
        """Make the pages of a part. Bytes that were written there stay.

        Raises ``OSError`` if the system has no room, or the descriptor was closed.
        """
        self._check()
        system.reserve_pages(self.fd, offset, nbytes)

    def write(self, data: Any, offset: int) -> int:
        """Write all bytes of a buffer; return the offset of the end.

        Raises ``OSError`` if there is no room for all of them, or the descriptor was closed. Some may be written then.
        """
        self._check()
        view = memoryview(data).cast("B")
        while view:
            done = system.pwrite(self.fd, view, offset)
            if done == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view, offset = view[done:], offset + done
        return offset

    def _check(self) -> None:
        if not self.is_open():
            raise OSError(errno.EBADF, "the program has closed the descriptor of shared memory")

    def map(self, access: int = mmap.ACCESS_WRITE, nbytes: int = 0) -> mmap.mmap:
        """Map the first `nbytes`, or all of the file, for all processes to see changes. Core dumps leave it out."""
        mapping = mmap.mmap(self.fd, nbytes, access=access)
        with contextlib.suppress(AttributeError, OSError):
            mapping.madvise(mmap.MADV_DONTDUMP)
        return mapping

    def close(self, stat: Callable[..., Any] = os.fstat, close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor. May be called again. Mappings stay."""
        fd, self.fd = self.fd, -1
        try:
            found = stat(fd) if fd >= 0 else None
        except OSError:
            return
        if found is not None and (found.st_dev, found.st_ino) == self._identity:
            close(fd)

    def __del__(self, close: Callable[[SharedFile], None] = close) -> None:  # when Python ends, `os` may be gone
        close(self)


class LocalMemory:
    """Memory of this process, with the calls of a :class:`SharedFile`, for systems that have none without a name."""

    fd = -1
    place = None  # for other processes: each has its own

    def __init__(self, nbytes: int) -> None:
        self._mapping = mmap.mmap(-1, nbytes or 1)

    def taken(self) -> int:
        """Return its bytes."""
        return len(self._mapping)

    def reserve(self, offset: int, nbytes: int) -> None:
        """Do nothing: the memory is there."""

    def write(self, data: Any, offset: int) -> int:
        """Write all bytes of a buffer; return the offset of the end."""
        view = memoryview(data).cast("B")
        end = offset + len(view)
        self._mapping[offset:end] = view
        return end

    def map(self, access: int = mmap.ACCESS_WRITE, nbytes: int = 0) -> mmap.mmap:
        """Return the memory."""
        return self._mapping


def memory_for_all(nbytes: int) -> SharedFile | LocalMemory:
    """Return memory, all zero: shared by all processes of the program where the system has such files.

    Raises ``OSError`` if there is not enough.
    """
    return SharedFile.nameless(nbytes) if system.HAS_SHARED_FILES else LocalMemory(nbytes)


def _in_memory() -> int:
    """Return a descriptor of an empty file in memory; -1 if the system has no such call."""
    try:
        return os.memfd_create("batchup_ng", os.MFD_CLOEXEC)
    except AttributeError:
        return -1
    except OSError as error:
        raise_if_of_signal_handler(error)
        if error.errno not in NO_SUCH_CALL:
            raise
        return -1


def give_back(mapping: mmap.mmap, offset: int, nbytes: int) -> None:
    """Give the pages of a part of a mapped file back to the system. The part reads as zeros afterwards.

    Some file systems cannot do that; then the pages stay as long as the file.
    """
    with unless_of_signal_handler(OSError):
        mapping.madvise(mmap.MADV_REMOVE, offset, nbytes)


def private(fd: int, nbytes: int = 0, offset: int = 0) -> mmap.mmap:
    """Map a part of a file, by default all of it. Only this process sees changes to it.

    If the system does not promise memory for a copy of all its pages, the part is mapped read-only.
    """
    try:
        return mmap.mmap(fd, nbytes, access=mmap.ACCESS_COPY, offset=offset)
    except OSError as error:
        raise_if_of_signal_handler(error)
        return mmap.mmap(fd, nbytes, access=mmap.ACCESS_READ, offset=offset)


def identity(fd: int) -> tuple[int, int] | None:
    """Return the device and inode of an open file; None if the descriptor is closed.

    A program may close all descriptors that it did not open, as daemons do. Other files then have their numbers.
    """
    try:
        found = os.fstat(fd)
    except OSError as error:
        raise_if_of_signal_handler(error)
        return None
    return found.st_dev, found.st_ino
