"""Large arrays that all workers of a pool read from one place: a shared copy, or the file that an array maps.

A copy lies in the shared memory of the pool if there is room for it. Otherwise it lies in a temporary file without a
name, on a disk. Workers map both in the same way.

Ownership. A :class:`SharedCopies` belongs to one pool. The constants that use a :class:`Copy` own it. The last of them
may go on any thread and inside any code. Then its block of the shared memory is put on a list (one append, no lock),
and :meth:`SharedCopies.sweep` gives it back the next time. A file is closed at once, which deletes it. Workers get the
place of the copy. Each maps it privately, so no other process sees its writes. For an array over a file, workers get a
:class:`FilePart`. They open the file again, by the path of the memmap, which NumPy makes absolute.

Memory with a living copy is not copied again. The copy is found by the memory's address, then all bytes are compared.
Two sources over one array therefore share a copy, and an array that was written to since then gets a new one.
"""

from __future__ import annotations

import collections
import contextlib
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # NumPy 1
    byte_bounds = vars(np)["byte_bounds"]

from ...error_context import raise_if_of_signal_handler
from ...errors import ArgumentError, ArgumentTypeError, PoolClosed, SampleReadError, SerializationError
from ...memory.budget import BUDGET, Holder, Living
from ...memory.leases import Returned, on_lease
from ...memory.shared_file import SharedFile, private
from .protocol import Placed
from .shared_memory import Arena, ArenaFull

BYTES_COPIED_AT_ONCE = 1 << 26
"""Bytes copied at once. An interrupt can come between two pieces."""

BYTES_COMPARED_AT_ONCE = 1 << 20
"""Bytes compared at once, few enough to stay in the CPU's cache."""

ROOM_TO_SPARE = 0.8
"""Share of the free memory that a copy may take. The rest is for batches and the program."""


class Copy:
    """A copy that workers share: its place, its bytes, ``(n,) uint8``, and its own file, if it has one."""

    __slots__ = ("__weakref__", "bytes", "file", "placed")

    def __init__(self, placed: Placed, memory: np.ndarray, file: SharedFile | None = None) -> None:
        self.placed = placed
        self.bytes = memory
        self.file = file

    def release(self) -> None:
        """Let the memory go, while something may still refer to this object."""
        self.bytes = np.empty(0, np.uint8)


class SharedCopies(Holder):
    """The copies of one pool. Safe to use from several threads.

    `spill` is the folder for copies that do not fit into memory; None for the temporary folder.
    """

    def __init__(self, arena: Arena, spill: str | None = None) -> None:
        self.arena = arena
        self.spill = spill
        self._closed = False
        self._lock = threading.RLock()
        self._copies: weakref.WeakValueDictionary[tuple[int, int], Copy] = weakref.WeakValueDictionary()
        self._dropped: collections.deque[Returned] = collections.deque()
        self._living: Living[Copy] = Living()
        BUDGET.add(self)

    def copy(self, raw: memoryview) -> Copy:
        """Return the copy of `raw`. If there is none yet, make one.

        Raises :class:`ArenaFull` if neither the memory nor the folder has room; :class:`PoolClosed` if the pool was
        closed before or during the copy.
        """
        self.sweep()
        memory = np.frombuffer(raw, np.uint8)
        key = address_of(memory), memory.nbytes
        with self._lock:  # one at a time, otherwise two threads could copy the same array
            self._check_open()
            copy = self._copies.get(key)
            if copy is None or not _equal(memory, copy.bytes):
                copy = self._copies[key] = self._new(memory)
            return copy

    def _new(self, memory: np.ndarray) -> Copy:
        missing = memory.nbytes / ROOM_TO_SPARE - self._free()
        if 0 < missing <= BUDGET.returnable():
            BUDGET.give_back(missing)
        free = self._free()
        allowed = free * ROOM_TO_SPARE
        try:
            if memory.nbytes > allowed:
                raise ArenaFull(
                    f"of the {free:.0f} bytes of memory that are free {allowed:.0f} may be taken ({BUDGET.in_words()})"
                )
            block = self.arena.take(memory.nbytes, self._pieces(memory))
        except ArenaFull as full:
            return self._spilled(memory, str(full))
        copy = Copy(Placed(block.offset, memory.nbytes), on_lease(block, self._dropped)[: memory.nbytes])
        self._living.add(copy)
        return copy

    def _free(self) -> float:
        return min(BUDGET.free(), self.arena.span - self.arena.taken)

    def held(self) -> dict[str, int]:
        return {"copies": sum([copy.bytes.nbytes for copy in self._living.all()])}

    def _spilled(self, memory: np.ndarray, why: str) -> Copy:
        folder = self.spill or temporary_folder()
        if folder is None:
            raise ArenaFull(f"{why}, and the temporary folder lies in memory as well")
        try:
            file = SharedFile.in_folder(folder)
            try:
                file.reserve(0, memory.nbytes)
                end = 0
                for piece in self._pieces(memory):
                    end = file.write(piece, end)
                mapped = np.frombuffer(file.map(mmap.ACCESS_READ), np.uint8)
            except BaseException:
                file.close()  # otherwise the disk would be full as long as anything holds the traceback
                raise
        except OSError as error:
            raise_if_of_signal_handler(error)
            raise ArenaFull(f"{why}, and the folder {folder!r} has no room for a file: {error}") from error
        return Copy(Placed(0, memory.nbytes, *file.place), mapped, file)

    def _pieces(self, memory: np.ndarray) -> Iterator[memoryview]:
        for start in range(0, memory.nbytes, BYTES_COPIED_AT_ONCE):
            self._check_open()
            yield memory[start : start + BYTES_COPIED_AT_ONCE].data

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosed("the pool was closed before the arrays of a source were copied for it; make a new one")

    def sweep(self) -> None:
        """Give back the memory of unused copies."""
        with contextlib.suppress(IndexError):
            while True:
                self.arena.give_back(self._dropped.popleft().block)

    def close(self) -> None:
        """Refuse new copies, wait for the end of one under way, and release all. No worker may be left.

        Iterators of the program may refer to a copy much longer.
        """
        self._closed = True
        with self._lock:
            self._copies.clear()
            for copy in self._living.all():
                copy.release()
        self.sweep()


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    step = BYTES_COMPARED_AT_ONCE
    return all(np.array_equal(one[at : at + step], other[at : at + step]) for at in range(0, one.nbytes, step))


def checked_folder(spill: Any) -> str | None:
    """Return the user's folder for copies that do not fit into memory; None if the user named none.

    Raises :class:`ArgumentError` if it does not exist or lies in memory, :class:`ArgumentTypeError` if it is no path.
    """
    if spill is None:
        return None
    if not isinstance(spill, (str, os.PathLike)):
        raise ArgumentTypeError(f"spill must be the path of a folder, or None, not {spill!r}")
    folder = os.path.abspath(spill)
    if not os.path.isdir(folder):
        raise ArgumentError(f"spill must be a folder, and {folder!r} is none; make it first")
    if _lies_in_memory(folder):
        raise ArgumentError(f"spill must be a folder on a disk, and {folder!r} lies in memory (tmpfs); name another")
    return folder


def temporary_folder() -> str | None:
    """Return the temporary folder, or ``/var/tmp`` if the first lies in memory; None if both do."""
    folders = [tempfile.gettempdir(), "/var/tmp"]
    return next((folder for folder in folders if os.path.isdir(folder) and not _lies_in_memory(folder)), None)


def _lies_in_memory(folder: str) -> bool:
    """Return whether the file system of a folder keeps its files in memory; False if that is unknown."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mount, _, kind = line.partition(" - ")
            if mount.split()[2] == number:
                return kind.split()[0] in ("tmpfs", "ramfs")
    return False


# -- the memory of an array --------------------------------------------------------------------------------------


def memory_of(array: np.ndarray) -> tuple[np.ndarray, tuple[int, ...], int]:
    """Return the memory of an array, ``(n,) uint8``, with the strides and the offset of the array in it.

    Repeated rows and sliding windows have less memory than elements. If an array consists mostly of gaps, it is copied
    first, with its axes in the order of memory.
    """
    low, high = byte_bounds(array)
    if high - low > 2 * array.nbytes:
        array = array.copy(order="K")
        low, high = byte_bounds(array)
    return np.asarray(_Memory(low, high - low, array)), array.strides, address_of(array) - low


def address_of(array: np.ndarray) -> int:
    """Return the address of the first element of an array."""
    return int(array.__array_interface__["data"][0])


class _Memory:
    """Memory of an array, for NumPy. Nothing is written through it."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, address: int, nbytes: int, keep: np.ndarray) -> None:
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        self.array = keep


def words_for(raw: memoryview) -> str:
    """Describe the array that has this memory, in words."""
    owner = getattr(raw.obj, "base", None)
    of = f" of shape {owner.array.shape} and dtype {owner.array.dtype}" if isinstance(owner, _Memory) else ""
    return f"an array{of}, {raw.nbytes} bytes,"


# -- arrays over files -------------------------------------------------------------------------------------------


class FilePart(NamedTuple):
    """The part of a file that an array lies over.

    `start` is the offset of the first element in the part. `writable` says whether the array may be written to. If
    `inode` is 0, any file at the path is accepted.
    """

    path: str
    device: int
    inode: int
    offset: int
    nbytes: int
    start: int
    writable: bool


def file_part(array: np.ndarray) -> FilePart | None:
    """Return the part of a file that `array` lies over; None if it lies over none, or the file has lost its name.

    A copy-on-write memmap counts as an array without a file, because the file does not have its changes. Raises
    :class:`SerializationError` if the file was cut short.
    """
    root = _root_of(array)
    filename = getattr(root, "filename", None)
    if root is None or filename is None or root.mode == "c":
        return None
    low, high = byte_bounds(array)
    start, nbytes = int(root.offset) + low - address_of(root), high - low
    path = os.fspath(filename)
    try:
        found = os.stat(path)
    except OSError as error:
        raise_if_of_signal_handler(error)
        return None
    if _has_no_name(low):
        return None
    if found.st_size < start + nbytes:
        raise SerializationError(
            f"the file {path!r} has {found.st_size} bytes, and the array over it needs {start + nbytes}; it was "
            f"cut short after it was opened: write the file again, or open what is left of it"
        )
    at = address_of(array) - low
    return FilePart(path, found.st_dev, found.st_ino, start, nbytes, at, array.flags.writeable)


def _root_of(array: np.ndarray) -> np.memmap | None:
    """Return the memmap that mapped the file under `array`: the array itself, or the base of its views."""
    owner: Any = array
    while owner is not None:
        below = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
        if isinstance(owner, np.memmap) and isinstance(below, mmap.mmap):
            return owner
        owner = below
    return None


def _has_no_name(address: int) -> bool:
    """Return whether the file mapped at `address` was deleted, or another file has its name."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            low, _, high = line.partition(" ")[0].partition("-")
            if int(low, 16) <= address < int(high, 16):
                return line.rstrip("\n").endswith(" (deleted)")
    return False  # not Linux: the worker compares the device and inode of the path


def reopened(part: FilePart) -> np.ndarray:
    """Return the bytes of a part of a file, ``(nbytes,) uint8``, read-only if that is enough. Only in a worker.

    Changes reach neither the file nor another process. Raises :class:`SampleReadError` if the file cannot be read, or
    is another file than before.
    """
    key = part.path, part.device, part.inode, part.writable
    with _lock:
        mapping = _open.get(key)
        if mapping is None or len(mapping) < part.offset + part.nbytes:
            mapping = _open[key] = _mapped(part)
    return np.frombuffer(mapping, np.uint8, part.nbytes, part.offset)


_open: weakref.WeakValueDictionary[Any, mmap.mmap] = weakref.WeakValueDictionary()
"""The files that this worker has mapped, each once regardless of the number of its arrays."""
_lock = threading.Lock()


def _mapped(part: FilePart) -> mmap.mmap:
    try:
        with open(part.path, "rb") as file:
            found, needed, wrong = os.fstat(file.fileno()), part.offset + part.nbytes, ""
            if part.inode and (found.st_dev, found.st_ino) != (part.device, part.inode):
                wrong = (
                    "is another file than when the source was made parallel: it was replaced; open the new one and "
                    "make a new source of it"
                )
            elif found.st_size < needed:
                wrong = (
                    f"has {found.st_size} bytes, and {needed} are needed: it was cut short after the source was made "
                    f"parallel"
                )
            if wrong:
                raise SampleReadError(f"{part.path!r} {wrong}", part.path)
            return private(file.fileno()) if part.writable else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except SampleReadError:
        raise
    except OSError as error:
        raise SampleReadError(f"{part.path!r} cannot be opened in a worker process: {error}", part.path) from error
