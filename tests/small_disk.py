"""A file system of a size that a test chooses, which this process alone sees."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CLONE_NEWNS = 0x20000
MS_REMOUNT, MS_REC, MS_PRIVATE = 0x20, 0x4000, 0x40000
MNT_DETACH = 2


def own_mounts() -> None:
    """Keep the mounts of this process, which has one thread, to itself.

    Raises:
        OSError: it may not.
    """
    _check(_LIBC.unshare(CLONE_NEWNS))
    _check(_LIBC.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))


@contextlib.contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[Callable[[int], None]]:
    """Mount an empty file system of `nbytes` at `folder`, after :func:`own_mounts`; yield what changes its size."""

    def mount(nbytes: int, flags: int = 0) -> None:
        _check(_LIBC.mount(b"none", bytes(folder), b"tmpfs", ctypes.c_ulong(flags), f"size={nbytes}".encode()))

    mount(nbytes)
    try:
        yield lambda nbytes: mount(nbytes, MS_REMOUNT)
    finally:
        _check(_LIBC.umount2(bytes(folder), MNT_DETACH))


def _check(failed: int) -> None:
    if failed:
        raise OSError(ctypes.get_errno(), f"no file system can be mounted: {os.strerror(ctypes.get_errno())}")


_LIBC = ctypes.CDLL(None, use_errno=True)
