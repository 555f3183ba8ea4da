"""The calls of Linux and macOS."""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
import resource
import signal
from collections.abc import Callable
from typing import Any

HAS_PROCESS_POOLS = True
"""Whether a :class:`~batchup_ng.WorkerProcessPool` works here."""

HAS_SHARED_FILES = hasattr(os, "posix_fallocate")
"""Whether processes can share the pages of a file without a name."""

HAS_LIVE_FIGURES = os.path.exists("/proc/self/stat")
"""Whether ``python -m batchup_ng top`` can ask a program."""

NOT_INHERITED = os.O_CLOEXEC
"""Flags of ``os.open``: programs that this process starts do not get the descriptor; on Windows also bytes, no text."""

NO_WAIT = os.O_NONBLOCK
"""Flag of ``os.open``: the call does not wait for the other end of a pipe."""

HELD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""The signals with handlers that may raise, as Ctrl-C does."""


def after_fork_in_child(function: Callable[[], object]) -> None:
    """Call a function in each child that ``os.fork`` makes of this process."""
    os.register_at_fork(after_in_child=function)


def held_in_forks(lock: Any) -> None:
    """Let ``os.fork`` wait until it has the reentrant lock, so that no child finds half of what the lock guards."""

    def release(otherwise: Callable[[], object] = int) -> None:
        lock.release() if lock._is_owned() else otherwise()  # a signal handler may have ended the wait

    def release_in_child() -> None:
        release(lock._at_fork_reinit)

    os.register_at_fork(before=lock.acquire, after_in_parent=release, after_in_child=release_in_child)


def block_interrupts() -> None:
    """Make the calling thread never take Ctrl-C."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def signal_at_end(fd: int, number: int) -> None:
    """Have the system send a signal to this process when the other end of the pipe `fd` closes. Only Linux can."""
    fcntl.fcntl(fd, fcntl.F_SETSIG, number)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)


# -- files -------------------------------------------------------------------------------------------------------------


def pread(fd: int, length: int, offset: int) -> bytes:
    """Read at `offset`: at most `length` bytes."""
    return os.pread(fd, length, offset)


def pwrite(fd: int, data: Any, offset: int) -> int:
    """Write at `offset`. Return the number of bytes."""
    return os.pwrite(fd, data, offset)


def pread_into(fd: int, buffers: list[Any], offset: int) -> int:
    """Read from `offset` on into buffers, one after the other. Return the number of bytes."""
    return os.preadv(fd, buffers, offset)


def lock_file(fd: int, wait: bool = True) -> None:
    """Lock a file or a folder for this descriptor. Without `wait`, raise ``BlockingIOError`` if another has it."""
    fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def unlock_file(fd: int) -> None:
    """Release the lock of :func:`lock_file`."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def open_to_lock(folder: str) -> int:
    """Open a folder for :func:`lock_file`. Raises ``OSError`` if it is a link or no folder."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def close_lock(fd: int, folder: str) -> None:
    """Close the descriptor of :func:`open_to_lock`, and so release its lock."""
    os.close(fd)


def locks(fd: int, folder: str) -> bool:
    """Return whether the descriptor of :func:`open_to_lock` still belongs to the folder of this name.

    Raises ``FileNotFoundError`` if there is none.
    """
    return os.path.samestat(os.fstat(fd), os.lstat(folder))


def synchronise(path: str) -> None:
    """Have the system write a file, or the names in a folder, to the disk. Raises ``OSError`` if it cannot."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reserve_pages(fd: int, offset: int, nbytes: int) -> None:
    """Make the pages of a part of a file; bytes there stay. Raises ``OSError`` if there is no room.

    Only with :data:`HAS_SHARED_FILES`.
    """
    os.posix_fallocate(fd, offset, nbytes)


# -- memory ------------------------------------------------------------------------------------------------------------


def limit_on(name: str) -> float:
    """Return a limit on this process by the name of ``getrlimit(2)``: ``"RLIMIT_AS"``; infinity if there is none."""
    limit, _ = resource.getrlimit(getattr(resource, name))
    return math.inf if limit == resource.RLIM_INFINITY else limit


def addresses_in_use() -> int:
    """Return the bytes of addresses that this process uses; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        return 0


def memory_of_machine() -> float:
    """Return the memory of the machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


_LIBC = ctypes.PyDLL(None)
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_UNLOCKED = ctypes.CDLL(None)
if hasattr(_UNLOCKED, "process_vm_readv"):  # Linux
    _OF_SEGMENTS = (ctypes.c_void_p, ctypes.c_ulong)
    _UNLOCKED.process_vm_readv.argtypes = [ctypes.c_int, *_OF_SEGMENTS, *_OF_SEGMENTS, ctypes.c_ulong]
    _UNLOCKED.process_vm_readv.restype = ctypes.c_ssize_t


def advise_will_need(places: list[tuple[int, int]]) -> None:
    """Have the system begin to read mapped memory: the first address and the length of each part.

    The calls keep the interpreter's lock: releasing it for microseconds may cost milliseconds to get it back.
    """
    for address, length in places:
        _LIBC.madvise(address, length, mmap.MADV_WILLNEED)


def copy_segments(to: Any, segments: Any) -> int | None:
    """Copy parts of this process's memory. Return the number of bytes; None if the system has no such call.

    An access to a page that cannot be read ends the process; this call returns -1, or less than was asked for.

    Args:
        to: Address and length of the destination: ``(2,) uint64``.
        segments: Addresses and lengths of the parts: ``(n, 2) uint64``.
    """
    if not hasattr(_UNLOCKED, "process_vm_readv"):
        return None
    parts = segments.ctypes.data, len(segments)
    return int(_UNLOCKED.process_vm_readv(os.getpid(), to.ctypes.data, 1, *parts, 0))


def voluntary_switches() -> float:
    """Return how often this thread gave its CPU up to wait; NaN if the system does not count that."""
    of_thread = getattr(resource, "RUSAGE_THREAD", None)
    return math.nan if of_thread is None else resource.getrusage(of_thread).ru_nvcsw
