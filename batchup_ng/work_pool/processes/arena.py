"""The memory that the pool's process and its workers share: one mapping without a name.

    consumer's process                                         worker
    ┌───────────────────────────────┐                          ┌──────────────────────────┐
    │ Arena: which bytes are taken  │     one memfd, mapped    │ SharedView: the same     │
    │  ├─ SlotPool: free slots ──── │ ◄──── by both sides ───► │ bytes, at another address│
    │  └─ extents of shared arrays  │                          │                          │
    └───────────────────────────────┘                          └──────────────────────────┘

Who owns what. The pool's process alone gives out and takes back; a worker only writes where it was told to. The
file has no name, so that nothing is left whoever is killed. It is as long as the machine's memory is large and at first
has no page in it; an extent's pages are made when it is taken, by a call that answers with an error where there are
none, so that nobody meets a SIGBUS later. They are made as huge pages where the system has such (a quarter of
the time, measured), and go back to the system with the extent.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import mmap
import os
import resource
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...buffers import Block, on_lease, size_class

PAGE = 4096
HUGE = 1 << 21
_POPULATE_READ, _POPULATE_WRITE = 22, 23
"""``MADV_POPULATE_READ`` and ``_WRITE`` of Linux 5.14, which the standard library does not name."""


class ArenaFull(MemoryError):
    """The shared memory has no room for what was asked."""


class Extent(NamedTuple):
    """A piece of the shared file."""

    offset: int
    size: int


class Arena:
    """Gives out extents of a shared file; safe to use from several threads.

    Args:
        span: Bytes of address space: the most that all extents can have. None is the machine's memory.

    Attributes:
        fd: The file, for workers to inherit.
        span: Its length.
        taken: Bytes of all extents that are out.

    Raises:
        OSError: the system has no such files, or allows none of that length.
    """

    def __init__(self, span: int | None = None) -> None:
        self.span = span or _reasonable_span()
        self.fd = os.memfd_create("batchup_ng", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, self.span)
            self._map = shared_mapping(self.fd, self.span)
        except BaseException:
            os.close(self.fd)
            raise
        self._address = _address_of(self._map)
        self._room = [Extent(0, self.span)]  # in the order of their offsets, none touching the next
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, nbytes: int) -> Extent:
        """Return an extent of at least `nbytes`, whose pages are there.

        Raises:
            ArenaFull: there is no room, or the system has no memory for it.
        """
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        extent = self._reserve(size, HUGE if size >= HUGE else PAGE)
        try:
            self._populate(extent)
        except OSError as error:
            self.give_back(extent)
            raise ArenaFull(f"the system has no {nbytes} bytes of shared memory: {error}") from error
        return extent

    def store(self, pieces: Iterable[Any], nbytes: int) -> Extent:
        """Return an extent that holds `pieces`, one after the other, which together have `nbytes`.

        They go through the file, not the mapping: the system then need not clear the pages first, which halves the time
        (measured), and the interpreter's lock is free meanwhile. In the end this process maps them all (a quarter more
        time): a page that one worker alone maps would be counted as that worker's own.

        Raises:
            ArenaFull: there is no room, or the system has no memory for it.
        """
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        extent = self._reserve(size, HUGE if size >= HUGE else PAGE)
        at = extent.offset
        try:
            for piece in pieces:
                at += self._write(piece, at)
        except OSError as error:
            self.give_back(extent)
            raise ArenaFull(f"the system has no {nbytes} bytes of shared memory: {error}") from error
        except BaseException:
            self.give_back(extent)
            raise
        _LIBC.madvise(ctypes.c_void_p(self._address + extent.offset), ctypes.c_size_t(extent.size), _POPULATE_READ)
        return extent

    def _write(self, piece: Any, at: int) -> int:
        left = memoryview(piece).cast("B")
        done = 0
        while done < len(left):
            done += os.pwrite(self.fd, left[done:], at + done)
        return done

    def _reserve(self, size: int, alignment: int) -> Extent:
        with self._lock:
            for i, (offset, room) in enumerate(self._room):
                start = -(-offset // alignment) * alignment
                if start + size <= offset + room:
                    rest = [Extent(offset, start - offset), Extent(start + size, offset + room - start - size)]
                    self._room[i : i + 1] = [part for part in rest if part.size]
                    self.taken += size
                    return Extent(start, size)
        raise ArenaFull(f"{size} bytes were asked for, and of {self.span} {self.taken} are taken")

    def _populate(self, extent: Extent) -> None:
        if self._map is None:
            raise OSError("the pool was closed")
        # The call by ctypes lets go of the interpreter's lock, which that of the mmap module does not.
        if _LIBC.madvise(ctypes.c_void_p(self._address + extent.offset), ctypes.c_size_t(extent.size), _POPULATE_WRITE):
            code = ctypes.get_errno()
            if code != 22:
                raise OSError(code, os.strerror(code))
            os.posix_fallocate(self.fd, extent.offset, extent.size)  # an older Linux

    def give_back(self, extent: Extent) -> None:
        """Let go of an extent: its pages go back to the system."""
        if self._map is None:
            return
        _LIBC.madvise(ctypes.c_void_p(self._address + extent.offset), ctypes.c_size_t(extent.size), mmap.MADV_REMOVE)
        with self._lock:
            self.taken -= extent.size
            i = bisect.bisect(self._room, extent)
            if i < len(self._room) and extent.offset + extent.size == self._room[i].offset:
                extent = Extent(extent.offset, extent.size + self._room.pop(i).size)
            if i and self._room[i - 1].offset + self._room[i - 1].size == extent.offset:
                before = self._room.pop(i := i - 1)
                extent = Extent(before.offset, before.size + extent.size)
            self._room.insert(i, extent)

    def block(self, extent: Extent) -> Block:
        """Return the memory of an extent, which keeps the mapping alive."""
        return Block(self._address + extent.offset, extent.size, extent.offset, self._map)

    def array(self, extent: Extent) -> np.ndarray:
        """Return the bytes of an extent: ``(size,) uint8``."""
        return np.frombuffer(self._map, np.uint8, extent.size, extent.offset)

    def close(self) -> None:
        """Close the file; what is out keeps its memory until nothing refers to it. May be called again."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self._map = None
            os.close(fd)


class SharedView:
    """The arena from a worker's side.

    Args:
        fd: The file, which stays open.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = shared_mapping(fd, os.fstat(fd).st_size)
        self.address = _address_of(self._map)

    def array(self, offset: int, size: int) -> np.ndarray:
        """Return bytes of the file: ``(size,) uint8``; what is written there all see."""
        return np.frombuffer(self._map, np.uint8, size, offset)

    def private(self, offset: int, size: int) -> np.ndarray:
        """Return bytes of the file: ``(size,) uint8``; what is written there only this process sees."""
        mapping = mmap.mmap(self._fd, -(-size // PAGE) * PAGE, access=mmap.ACCESS_COPY, offset=offset)
        return np.frombuffer(mapping, np.uint8, size)

    def close(self) -> None:
        """Close the file; arrays of it stay as they are."""
        os.close(self._fd)


class SlotPool:
    """The slots of an arena: extents that batches are written to, used again when nothing refers to the batch.

    The pool's process alone has one; safe to use from several threads. A lease may end in the middle of anything, so
    giving back is one append to a deque, without a lock.

    Args:
        arena: Where slots are cut from.
        most_bytes: Bytes that all slots together may have.
    """

    def __init__(self, arena: Arena, most_bytes: int) -> None:
        self._arena = arena
        self.most_bytes = most_bytes
        self.bytes = 0
        self._free: dict[int, collections.deque[Block]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, nbytes: int) -> Block | None:
        """Return a slot of at least `nbytes`; None where the budget or the system's memory has none."""
        size = size_class(nbytes)
        try:
            return self._free_of(size).pop()
        except IndexError:
            return self._new(size)

    def _free_of(self, size: int) -> collections.deque[Block]:
        return self._free.get(size) or self._free.setdefault(size, collections.deque())

    def _new(self, size: int) -> Block | None:
        with self._lock:
            if self._closed:
                return None
            if self.bytes + size > self.most_bytes:
                self._release(self.bytes + size - self.most_bytes)
            if self.bytes + size > self.most_bytes:
                return None
            self.bytes += size
        try:
            return self._arena.block(self._arena.take(size))
        except ArenaFull:
            with self._lock:
                self.bytes -= size
            return None

    def _release(self, nbytes: int) -> None:
        """Give free slots back to the arena until `nbytes` are gone, if there are so many."""
        for free in list(self._free.values()):
            while nbytes > 0:
                try:
                    block = free.pop()
                except IndexError:
                    break
                self._arena.give_back(Extent(block.offset, block.size))
                self.bytes -= block.size
                nbytes -= block.size

    def give_back(self, block: Block) -> None:
        """Let a slot that was not handed on be used again."""
        self._free_of(block.size).append(block)

    def lease(self, block: Block) -> np.ndarray:
        """Return the bytes of a slot, ``(size,) uint8``; it is free when nothing refers to them any more."""
        return on_lease(block, self._free_of(block.size))

    def free_bytes(self) -> int:
        """Return how many bytes wait for use."""
        return sum(size * len(free) for size, free in list(self._free.items()))

    def close(self) -> None:
        """Release what is free; slots that are out keep their memory until nothing refers to them."""
        with self._lock:
            self._closed = True
            self._release(self.bytes)
            self._free = {}


def shared_mapping(fd: int, length: int) -> Any:
    """Map a file, of huge pages where the system has such."""
    mapping = mmap.mmap(fd, length)
    for advice in ("MADV_HUGEPAGE", "MADV_DONTDUMP"):
        try:
            mapping.madvise(getattr(mmap, advice))
        except (AttributeError, OSError):
            continue  # the kernel was built without
    return mapping


def _address_of(mapping: Any) -> int:
    return int(np.frombuffer(mapping, np.uint8, 1).__array_interface__["data"][0])


def _reasonable_span() -> int:
    """Return the machine's memory in bytes, or what a limit on address space leaves of it."""
    span = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, share in ((resource.RLIMIT_AS, 4), (resource.RLIMIT_FSIZE, 1)):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            span = min(span, soft // share)
    return max(HUGE, span // HUGE * HUGE)


_LIBC = ctypes.CDLL(None, use_errno=True)
