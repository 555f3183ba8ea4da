"""The calls of Windows, where there are some; elsewhere what comes nearest.

Any system can import it, for the tests compare its names with those of :mod:`.unix`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

HAS_PROCESS_POOLS = HAS_SHARED_FILES = HAS_LIVE_FIGURES = False
NOT_INHERITED = getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
NO_WAIT = 0
HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM)

LOCKED_BYTE = 2**43
"""Place of the byte of a file that a lock takes: beyond all data, because Windows refuses reads of locked bytes."""

_seeking = threading.Lock()
"""Held from a seek to the end of the read or write: a descriptor has one position."""


def after_fork_in_child(function: Callable[[], object]) -> None:
    """Do nothing: Windows has no forks."""


def held_in_forks(lock: Any) -> None:
    """Do nothing: Windows has no forks."""


def block_interrupts() -> None:
    """Do nothing: Windows hands Ctrl-C to a thread of its own, and Python to the main thread."""


def signal_at_end(fd: int, number: int) -> None:
    """Raise ``OSError``: Windows has no such signals."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


# -- files -------------------------------------------------------------------------------------------------------------


def pread(fd: int, length: int, offset: int) -> bytes:
    """Read at `offset`: at most `length` bytes."""
    with _seeking:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


def pwrite(fd: int, data: Any, offset: int) -> int:
    """Write at `offset`. Return the number of bytes."""
    with _seeking:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.write(fd, data)


def pread_into(fd: int, buffers: list[Any], offset: int) -> int:
    """Read from `offset` on into buffers, one after the other. Return the number of bytes."""
    done = 0
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        found = pread(fd, len(view), offset + done)
        view[: len(found)] = found
        done += len(found)
        if len(found) < len(view):
            break
    return done


def lock_file(fd: int, wait: bool = True) -> None:
    """Lock a file for this descriptor. Without `wait`, raise ``BlockingIOError`` if another has it."""
    import msvcrt

    while True:
        try:
            with _seeking:  # not while this thread waits: the holder of the lock may have to read
                os.lseek(fd, LOCKED_BYTE, os.SEEK_SET)
                return msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,no-any-return]  # Windows
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not wait:
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK)) from None
        time.sleep(0.01)


def unlock_file(fd: int) -> None:
    """Release the lock of :func:`lock_file`."""
    import msvcrt

    with _seeking:
        os.lseek(fd, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]  # Windows


def open_to_lock(folder: str) -> int:
    """Open a file beside the folder for :func:`lock_file`. Raises ``OSError`` if the folder is a link or none.

    If the process is killed, the system removes the file.
    """
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | NOT_INHERITED | getattr(os, "O_TEMPORARY", 0))


def close_lock(fd: int, folder: str) -> None:
    """Close the descriptor of :func:`open_to_lock`, and remove the file."""
    os.close(fd)
    with contextlib.suppress(OSError):  # the system has removed it, or another process has it open
        os.unlink(f"{folder}.lock")


def locks(fd: int, folder: str) -> bool:
    """Return True: a folder with an open file beside it may be removed, but that file stays. Raises as on Unix."""
    os.lstat(folder)
    return True


def synchronise(path: str) -> None:
    """Have the system write a file to the disk. Do nothing: Windows writes the names of a folder without a call."""
    if not os.path.isdir(path):
        handle = os.open(path, os.O_RDWR | NOT_INHERITED)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def reserve_pages(fd: int, offset: int, nbytes: int) -> None:
    """Raise ``OSError``: Windows has no call for it."""
    raise OSError(errno.ENOSYS, "this system has no call to reserve the pages of a file")


# -- memory ------------------------------------------------------------------------------------------------------------


def limit_on(name: str) -> float:
    """Return infinity: Windows has no such limits."""
    return math.inf


def addresses_in_use() -> int:
    """Return 0: not known."""
    return 0


class _MemoryStatus(ctypes.Structure):
    """``MEMORYSTATUSEX`` of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_ulong), ("load", ctypes.c_ulong), ("total", ctypes.c_ulonglong),
        ("others", ctypes.c_ulonglong * 6),
    )  # fmt: skip


def memory_of_machine() -> float:
    """Return the memory of the machine in bytes; infinity if it is not known."""
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    kernel = getattr(ctypes, "windll", None)
    if kernel is None or not kernel.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return math.inf
    return float(status.total)


def advise_will_need(places: list[tuple[int, int]]) -> None:
    """Do nothing: the system reads ahead without a call."""


def copy_segments(to: Any, segments: Any) -> int | None:
    """Return None: there is no such call, and no need. Windows refuses to cut a mapped file short."""
    return None


def voluntary_switches() -> float:
    """Return NaN: not counted."""
    return math.nan
