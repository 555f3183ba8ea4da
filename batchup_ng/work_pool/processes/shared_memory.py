"""The memory that the pool's process and its workers share: one mapping of a file without a name.

    consumer's process                                         worker
    ┌───────────────────────────────┐                          ┌──────────────────────────┐
    │ Arena: which bytes are taken  │     one memfd, mapped    │ SharedView: the same     │
    │  ├─ SlotPool: free slots ──── │ ◄──── by both sides ───► │ bytes, at another address│
    │  └─ extents of shared arrays  │                          │                          │
    └───────────────────────────────┘                          └──────────────────────────┘

Who owns what. The pool's process alone gives out and takes back; a worker only writes to the slot of its task. The
file has no name, so that nothing is left after any process is killed. It is as long as the machine's memory is large
and at first has no page in it; an extent's pages are made when it is taken, by a call that answers with an error where
there are none, so that no process meets a SIGBUS later; they go back to the system with the extent.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import errno
import mmap
import os
import resource
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...memory_pool import Block, Returned, on_lease, size_class
from ...system_limits import available
from .protocol import Placed

PAGE = 4096

_POPULATE_READ, _POPULATE_WRITE = 22, 23
"""``MADV_POPULATE_READ`` and ``_WRITE`` of Linux 5.14, which the standard library does not name."""


class Mapping:
    """Part of a file, mapped until nothing refers to it or to an array of it.

    Those of the standard library keep a descriptor open as long as an array of theirs lives, and hold the interpreter's
    lock while pages are made.

    Args:
        fd: The file, which may be closed afterwards.
        length: Bytes to map.
        offset: Where they begin, a multiple of the page size.
        private: Whether what is written stays in this process.
    """

    def __init__(self, fd: int, length: int, offset: int = 0, private: bool = False) -> None:
        self._length = length
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _LIBC.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset)
        if address == _FAILED:
            raise _last_error()
        self.address = int(address)
        _LIBC.madvise(self.address, length, getattr(mmap, "MADV_DONTDUMP", -1))  # a refusal changes nothing

    def __del__(self) -> None:
        if hasattr(self, "address"):
            _LIBC.munmap(self.address, self._length)

    def array(self, offset: int, size: int) -> np.ndarray:
        """Return bytes of the mapping, ``(size,) uint8``, writable, which keep it alive."""
        return np.asarray(_Bytes(self, self.address + offset, size))

    def populate(self, offset: int, size: int, write: bool = True) -> None:
        """Make the pages of a part, or without `write` map those that it has; an ``OSError`` where there is no memory.

        With ``errno.EINVAL`` the system, an older one, cannot say.
        """
        advice = _POPULATE_WRITE if write else _POPULATE_READ
        if size and _LIBC.madvise(self.address + offset, size, advice):
            error = _last_error()
            if write or error.errno != errno.EINVAL:
                raise error

    def remove(self, offset: int, size: int) -> None:
        """Give the pages of a part back to the system, for all processes that map the file."""
        if size and _LIBC.madvise(self.address + offset, size, mmap.MADV_REMOVE):
            raise _last_error()


class _Bytes:
    """The root of an array of a mapping."""

    __slots__ = ("__array_interface__", "_mapping")

    def __init__(self, mapping: Mapping, address: int, size: int) -> None:
        self._mapping = mapping
        data = address, False
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": data, "version": 3}


def _last_error() -> OSError:
    code = ctypes.get_errno() or errno.EINVAL
    return OSError(code, os.strerror(code))


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_FAILED = ctypes.c_void_p(-1).value
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


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
    """

    def __init__(self, span: int | None = None) -> None:
        self.span = span or _reasonable_span()
        self.fd = os.memfd_create("batchup_ng", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, self.span)
            self._map: Mapping | None = Mapping(self.fd, self.span)
        except BaseException:
            os.close(self.fd)
            raise
        self._room = [Extent(0, self.span)]  # in the order of their offsets, none touching the next
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, nbytes: int) -> Extent:
        """Return an extent of at least `nbytes`, whose pages are there.

        Raises:
            ArenaFull: there is no room, or the system has no memory for it.
        """
        extent = self._reserve(nbytes)
        try:
            self._populate(extent)
        except OSError as error:
            self.give_back(extent)
            raise ArenaFull(f"the system has no {nbytes} bytes of shared memory: {error}") from error
        return extent

    def store(self, pieces: Iterable[Any], nbytes: int) -> Extent:
        """Return an extent that holds `pieces`, one after the other, which together have `nbytes`.

        They go through the file, not the mapping: the system then need not clear the pages first, which halves the time
        (measured), and the interpreter's lock is free meanwhile. In the end this process maps them all: a page that one
        worker alone maps would be counted as that worker's own.

        Raises:
            ArenaFull: there is no room, or the system has no memory for it.
        """
        extent = self._reserve(nbytes)
        try:
            write_at(self.fd, pieces, extent.offset)
            self._open().populate(*extent, write=False)
        except BaseException as error:
            self.give_back(extent)
            if isinstance(error, OSError):
                raise ArenaFull(f"the system has no {nbytes} bytes of shared memory: {error}") from error
            raise
        return extent

    def _reserve(self, nbytes: int) -> Extent:
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        with self._lock:
            for i, (offset, room) in enumerate(self._room):
                if size <= room:
                    self._room[i : i + 1] = [Extent(offset + size, room - size)] if size < room else []
                    self.taken += size
                    return Extent(offset, size)
        raise ArenaFull(f"{size} bytes were asked for, and of {self.span} {self.taken} are taken")

    def _populate(self, extent: Extent) -> None:
        try:
            self._open().populate(*extent)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            os.posix_fallocate(self.fd, extent.offset, extent.size)  # an older Linux

    def _open(self) -> Mapping:
        if self._map is None:
            raise OSError(errno.EBADF, "the pool was closed")
        return self._map

    def give_back(self, extent: Extent) -> None:
        """Take an extent back: its pages go back to the system."""
        if self._map is None:
            return
        self._map.remove(*extent)
        with self._lock:
            self.taken -= extent.size
            i = bisect.bisect(self._room, extent)
            if i < len(self._room) and extent.offset + extent.size == self._room[i].offset:
                extent = Extent(extent.offset, extent.size + self._room.pop(i).size)
            if i and sum(self._room[i - 1]) == extent.offset:
                before = self._room.pop(i := i - 1)
                extent = Extent(before.offset, before.size + extent.size)
            self._room.insert(i, extent)

    def block(self, extent: Extent) -> Block:
        """Return the memory of an extent, which keeps the mapping alive."""
        mapping = self._open()
        return Block(mapping.address + extent.offset, extent.size, extent.offset, mapping)

    def array(self, extent: Extent) -> np.ndarray:
        """Return the bytes of an extent: ``(size,) uint8``."""
        return self._open().array(*extent)

    def close(self) -> None:
        """Close the file; what is out keeps its memory until nothing refers to it. May be called again."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            self._map = None
            os.close(fd)


def write_at(fd: int, pieces: Iterable[Any], at: int) -> None:
    """Write pieces of memory to a file, one after the other, from an offset on."""
    for piece in pieces:
        left = memoryview(piece).cast("B")
        while left:
            n = os.pwrite(fd, left, at)
            left, at = left[n:], at + n


class SharedView:
    """The memory that workers share with the pool, from a worker's side; `owner` is the number of the pool's process.

    Attributes:
        address: Where the shared memory begins in this process.
        bytes: All of it: ``(span,) uint8``; what is written there every process sees.
    """

    def __init__(self, fd: int, owner: int) -> None:
        self._fd = fd
        self._owner = owner
        self._map = Mapping(fd, os.fstat(fd).st_size)
        self.address = self._map.address
        self.bytes = self._map.array(0, os.fstat(fd).st_size)

    def private(self, places: Iterable[Placed]) -> dict[Placed, np.ndarray]:
        """Return the memory at `places`, ``(size,) uint8`` each; what is written there only this process sees.

        Neighbours are mapped together, in as few mappings as can be. Where the system promises no memory for so
        much private writing, the memory is that of all, read-only.
        """
        found: dict[Placed, np.ndarray] = {}
        runs: list[list[Placed]] = []
        for place in sorted(set(places), key=lambda place: (place.file, place.offset)):
            if runs and place.file == (last := runs[-1][-1]).file and place.offset <= last.offset + last.size + PAGE:
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            start = run[0].offset // PAGE * PAGE
            memory = self._mapped(run[0].file, start, max(place.offset + place.size for place in run) - start)
            found.update({place: memory[place.offset - start :][: place.size] for place in run})
        return found

    def _mapped(self, file: int, start: int, size: int) -> np.ndarray:
        # A file without a name is opened by way of the descriptor that the pool's process has of it.
        fd = self._fd if file < 0 else os.open(f"/proc/{self._owner}/fd/{file}", os.O_RDONLY)
        try:
            return Mapping(fd, size, start, private=True).array(0, size)
        except OSError:
            if file >= 0:
                return np.frombuffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ), np.uint8)
            memory = self.bytes[start : start + size]
            memory.flags.writeable = False
            return memory
        finally:
            if file >= 0:
                os.close(fd)

    def close(self) -> None:
        """Close the file; arrays of it stay as they are."""
        os.close(self._fd)


class Slot(NamedTuple):
    """A slot on lease: free again when nothing refers to its bytes any more.

    `offset` is where it begins in the shared file, `bytes` its bytes in this process: ``(size,) uint8``.
    """

    offset: int
    bytes: np.ndarray


class SlotPool:
    """The slots of an arena: extents that batches are written to, used again when nothing refers to the batch.

    The pool's process alone has one; safe to use from several threads. A lease may end in the middle of anything, so
    giving back is one append to a deque, without a lock.

    Args:
        arena: Where slots are cut from.
        max_bytes: Bytes that all slots together may have.

    Attributes:
        max_bytes: As above; may be changed.
        bytes: Bytes that they have.
        asked_for: Whether the user set `max_bytes`; then no warning says that it is too small.
        refused: Why there was no memory for a slot, with what it needed and what was free; empty if there always was.
    """

    def __init__(self, arena: Arena, max_bytes: int) -> None:
        self._arena = arena
        self.max_bytes = max_bytes
        self.asked_for = False
        self.bytes = 0
        self.refused = ""
        self._free: dict[int, collections.deque[Returned]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def take(self, nbytes: int) -> Slot | None:
        """Return a slot of at least `nbytes`; None where the budget or the system's memory has none."""
        size = size_class(nbytes)
        free = self._free.get(size)
        if free is None:
            free = self._free.setdefault(size, collections.deque())
        try:
            block = free.pop().block
        except IndexError:
            made = self._new(size)
            if made is None:
                return None
            block = made
        return Slot(block.offset, on_lease(block, free))

    def _new(self, size: int) -> Block | None:
        with self._lock:
            if self._closed:
                return None
            if self.bytes + size > self.max_bytes:
                self._release(self.bytes + size - self.max_bytes)
            if self.bytes + size > self.max_bytes:
                if not self.asked_for:
                    self._note(size, self.max_bytes - self.bytes, f"of the {self.max_bytes} that slots may have")
                return None
            self.bytes += size
        try:
            return self._arena.block(self._arena.take(size))
        except ArenaFull as error:
            with self._lock:
                self.bytes -= size
                self._note(size, available(), str(error.__cause__ or error))
            return None

    def _note(self, needed: int, free: float, why: str) -> None:
        self.refused = self.refused or f"{needed} bytes are needed for a batch, {free:.0f} bytes are free ({why})"

    def _release(self, nbytes: int) -> None:
        """Give free slots back to the arena until `nbytes` are gone, if there are so many."""
        for free in list(self._free.values()):
            while nbytes > 0:
                try:
                    block = free.pop().block
                except IndexError:
                    break
                self._arena.give_back(Extent(block.offset, block.size))
                self.bytes -= block.size
                nbytes -= block.size

    def close(self) -> None:
        """Release what is free; slots that are out keep their memory until nothing refers to them."""
        with self._lock:
            self._closed = True
            self._release(self.bytes)
            self._free = {}


def _reasonable_span() -> int:
    """Return the machine's memory in bytes, or what a limit on address space leaves of it."""
    span = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, share in ((resource.RLIMIT_AS, 4), (resource.RLIMIT_FSIZE, 1)):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            span = min(span, soft // share)
    return max(PAGE, span // PAGE * PAGE)

