"""There is little shared memory, or none (F16).

The pool's shared memory is a file without a name, on a file system of the kernel's own, which nobody can fill, mount
anew or make read-only. So each way to have too little of it is one that the pool itself meets: a limit of the system's
on this program, a system call that is refused, or a file of the same sort (tmpfs) on a file system that this program
has to itself and that is small. There a page that is not to be had is a SIGBUS for the process that touches it.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import itertools
import os
import resource
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu

from ..accounting import BATCH, SHUFFLE, balance, make_pool, source

BIG = (6 << 20) // BATCH
"""Bytes a row, so that a batch has 6 MB."""

KEPT = 8
"""Batches that the consumer keeps, so that slots must be had for more than those that are ahead."""

SHM = Path("/dev/shm")
ANOTHERS = SHM / "somebody elses"
FILLED_AT = 3
"""The batch at which somebody else takes all memory that there is."""


def bus_error(path: str) -> None:
    """Touch a page of a file that is not there."""
    memory_map = np.memmap(path, np.uint8, "w+", shape=(1 << 20,))
    os.truncate(path, 0)
    memory_map[0] = 1


def epochs(kind: str, batches: int, how: str, **details: Any) -> dict[str, Any]:
    """F16: so many batches of 6 MB, then three, all right; which way they came, and what was said of it.

    Args:
        kind: The pool.
        batches: How many.
        how: Which of :data:`SHORTAGES`.
        details: What that is called with.
    """
    at, told = SHORTAGES[how](**details), []

    def show(message: Any, category: type, *_: Any) -> None:
        told.append((category.__name__, str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        with make_pool(kind) as pool:
            transports = _epoch(pool, batches * BATCH, at)
            _epoch(pool, 3 * BATCH, None)
    if ANOTHERS.exists():
        ANOTHERS.unlink()
    return {"transport": transports, "told": told}


def _epoch(pool: Any, n: int, at: Callable[[int], object] | None) -> dict[str, int]:
    parallel = pool.parallel_data_source(source(BIG, n=n), 6)
    with parallel.batch_iterator(BATCH, shuffle=SHUFFLE) as iterator:
        balance(_keeping(iterator), width=BIG, n=n, at=at)
        transports: dict[str, int] = iterator.stats()["transport"]
        return transports


def _keeping(batches: Iterable[Any]) -> Iterator[Any]:
    kept: collections.deque[Any] = collections.deque(maxlen=KEPT)
    for batch in batches:
        kept.append(batch)
        yield batch


# -- shortages: each returns what to do at a batch, if anything ---------------------------------------------------


CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REC, MS_PRIVATE = 0x1, 0x4000, 0x40000


def small_file_system(megabytes: int, state: str) -> Callable[[int], None]:
    """Let the shared memory lie in ``/dev/shm``, and that be this program's own.

    Args:
        megabytes: Its size.
        state: ``full`` from the start, ``filled`` in mid-epoch by another, ``read-only``; empty for none of these.
    """
    libc, ulong = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong
    flags = ulong(MS_RDONLY if state == "read-only" else 0)
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/", None, ulong(MS_REC | MS_PRIVATE), None)
        or libc.mount(b"none", bytes(SHM), b"tmpfs", flags, f"size={megabytes}m".encode())
    ):
        raise OSError(ctypes.get_errno(), "no file system can be mounted here")

    def create(name: str, flags: int = 0) -> int:
        return os.open(SHM, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)

    os.memfd_create = create
    if state == "full":
        fill(ANOTHERS)
    return lambda batch: fill(ANOTHERS) if batch == FILLED_AT and state == "filled" else None


def fill(path: Path) -> None:
    """Write to a file until the file system is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def pages_refused(nth: int, code: str) -> None:
    """Let the making of pages fail from the `nth` time on, with the error number of that name."""
    number, count, allocate = getattr(errno, code), itertools.count(1), os.posix_fallocate

    def fallocate(fd: int, offset: int, size: int) -> None:
        if next(count) >= nth:
            raise OSError(number, os.strerror(number))
        allocate(fd, offset, size)

    os.posix_fallocate = fallocate


@contextlib.contextmanager
def no_pages() -> Iterator[None]:
    """Let the making of pages fail within."""
    whole = os.posix_fallocate
    try:
        pages_refused(1, "ENOMEM")
        yield
    finally:
        os.posix_fallocate = whole


def no_such_call(code: str, folder: bool = True) -> None:
    """Let the kernel refuse ``memfd_create`` to this program by a filter of system calls, as containers do.

    Args:
        code: The name of the error number.
        folder: Whether files may be made in the temporary folder.
    """
    number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
    load, equal, answer = 0x20, 0x15, 0x06
    refuse, allow = 0x00050000 | getattr(errno, code), 0x7FFF0000
    steps = [(load, 0, 0, 0), (equal, 0, 1, number), (answer, 0, 0, refuse), (answer, 0, 0, allow)]
    rules = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(rules)))
    libc, ulong = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong
    for option, value, pointer in ((38, 1, None), (22, 2, ctypes.addressof(program))):  # no new privileges; the filter
        if libc.prctl(option, ulong(value), ulong(pointer or 0), ulong(0), ulong(0)):
            raise OSError(ctypes.get_errno(), "the system takes no filter of system calls")
    with contextlib.suppress(OSError):
        raise AssertionError(f"memfd_create was not refused, and gave {os.memfd_create('x')}")

    def refuse(**_: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    if not folder:
        tempfile.TemporaryFile = refuse


def file_size(nbytes: int) -> None:
    """Set a limit on the size of files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))


def container(group: str) -> None:
    """Go into a control group, which has a limit on memory."""
    Path(group, "cgroup.procs").write_text(str(os.getpid()))


SHORTAGES: dict[str, Callable[..., Any]] = {
    "file system": small_file_system,
    "pages": pages_refused,
    "no memfd": no_such_call,
    "file size": file_size,
    "container": container,
}

SAYS = bu.SharedMemoryWarning.__name__
