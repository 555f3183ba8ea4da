"""The memory that the pool's process and its workers share: one mapped file without a name, cut into blocks.

    consumer's process                                         worker
    ┌───────────────────────────────┐                          ┌──────────────────────────┐
    │ Arena: which bytes are taken  │  one SharedFile, mapped  │ SharedView: the same     │
    │  ├─ SlotPool: free slots ──── │ ◄──── by both sides ───► │ bytes, at another address│
    │  └─ copies of large arrays    │                          │                          │
    └───────────────────────────────┘                          └──────────────────────────┘

Ownership. Only the pool's process gives out blocks and takes them back. A worker only writes to the slot of its task.
The file (:mod:`~batchup_ng.memory.shared_file`) is as long as the machine's memory, and has no pages at first. The
pages of a block are made when the block is taken, and go back to the system with the block.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import math
import mmap
import threading
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from ...error_context import raise_if_of_signal_handler
from ...memory.budget import BUDGET, Holder, Living, Step
from ...memory.leases import Block, Returned, on_lease, size_class
from ...memory.paging import map_pages
from ...memory.shared_file import SharedFile, give_back, private
from ...platforms import system
from .protocol import Placed

PAGE = mmap.PAGESIZE


class ArenaFull(MemoryError):
    """The shared memory has no room for a block of this size."""


class Arena:
    """Gives out blocks of a shared file. Safe to use from several threads.

    All blocks together have at most `span` bytes, by default the machine's memory. `taken` is the bytes in use.
    """

    def __init__(self, span: int | None = None) -> None:
        self.span = span or _reasonable_span()
        self.file = SharedFile.nameless(self.span)
        self._map: mmap.mmap | None = self.file.map()
        self._room = [(0, self.span)]  # offsets and sizes, in order, none touching the next
        self._lock = threading.Lock()
        self.taken = 0

    def take(self, nbytes: int, pieces: Iterable[memoryview] | None = None) -> Block:
        """Return a block of at least `nbytes` with allocated pages that contain `pieces`, one after the other.

        The pieces are written to the file, not to the mapping. The system then does not clear the pages first, which
        halves the time (measured), and the write releases the interpreter's lock. Then this process maps the pages,
        because a page that only one worker maps would count as that worker's own. Raises :class:`ArenaFull`.
        """
        mapping = self._map
        if mapping is None:
            raise ArenaFull("the pool was closed")
        offset, size = self._reserve(nbytes)
        memory = np.frombuffer(mapping, np.uint8, size, offset)
        block = Block(memory.ctypes.data, size, offset, memory)
        try:
            if pieces is None:
                self.file.reserve(offset, size)
            for piece in pieces or ():
                start, offset = offset, self.file.write(piece, offset)
                map_pages(mapping, start, offset)
        except BaseException as error:
            self.give_back(block)
            raise_if_of_signal_handler(error)
            if isinstance(error, OSError):
                raise ArenaFull(f"the system has no {nbytes} bytes of shared memory: {error}") from error
            raise
        return block

    def _reserve(self, nbytes: int) -> tuple[int, int]:
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        with self._lock:
            for i, (offset, room) in enumerate(self._room):
                if size <= room:
                    self._room[i : i + 1] = [(offset + size, room - size)] if size < room else []
                    self.taken += size
                    return offset, size
        raise ArenaFull(f"{size} bytes were asked for, and of {self.span} {self.taken} are taken")

    def give_back(self, block: Block) -> None:
        """Take a block back. Its pages go back to the system."""
        mapping = self._map
        if mapping is None:
            return
        give_back(mapping, block.offset, block.size)
        with self._lock:
            self.taken -= block.size
            room: list[tuple[int, int]] = []
            for offset, size in sorted([*self._room, (block.offset, block.size)]):
                if room and sum(room[-1]) == offset:
                    offset, size = room[-1][0], room.pop()[1] + size
                room.append((offset, size))
            self._room = room

    def close(self) -> None:
        """Close the file. A block in use keeps its memory until nothing refers to it. May be called again."""
        self._map = None
        self.file.close()


class SharedView:
    """The shared memory in a worker. `bytes` is all of it, ``(span,) uint8``, the same for every process."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self.bytes = np.frombuffer(file.map(), np.uint8)
        self.address = self.bytes.ctypes.data

    def private(self, places: Collection[Placed]) -> dict[Placed, np.ndarray]:
        """Return the memory at `places`, ``(size,) uint8`` each. Only this process sees changes to it.

        It is read-only if :func:`~batchup_ng.memory.shared_file.private` maps it so. Raises ``OSError`` if the file of
        a copy is out of reach.
        """
        found = {place: _opened(place) for place in places if place.file is not None}
        shared = [place for place in places if place.file is None]
        if not shared:
            return found
        start = min(place.offset for place in shared)
        end = max(place.offset + place.size for place in shared)
        memory = np.frombuffer(private(self._file.fd, end - start, start), np.uint8)
        return {**found, **{place: memory[place.offset - start :][: place.size] for place in shared}}


def _opened(place: Placed) -> np.ndarray:
    """Return the bytes of a copy in a file of its own."""
    file = SharedFile.reached(place.file)
    if file is None:
        raise OSError(errno.ESTALE, f"the copy of an array is out of reach: {place.file}")
    return np.frombuffer(private(file.fd, place.size), np.uint8)


class Slot(NamedTuple):
    """A slot on lease: its offset in the shared file, and its bytes. It is free again when nothing refers to them."""

    offset: int
    bytes: np.ndarray


class SlotPool(Holder):
    """The slots of an arena: blocks for batches. A slot is used again when nothing refers to its batch.

    All slots together have at most `max_bytes`, and no more than the budget of the program leaves them. `refused` says
    why there was no memory for a slot, with the needed and the free bytes; empty if there always was. Safe to use from
    several threads. A lease may end inside any code, so a slot is returned by one append to a deque, without a lock.
    """

    def __init__(self, arena: Arena, max_bytes: int) -> None:
        self._arena = arena
        self._max_bytes = max_bytes
        self.bytes = 0
        self.refused = ""
        self._free: dict[int, collections.deque[Returned]] = {}
        self._blocks: Living[np.ndarray] = Living()
        self._lock = threading.Lock()
        self._closed = False
        BUDGET.add(self)

    def take(self, nbytes: int) -> Slot | None:
        """Return a slot of at least `nbytes`; None if the budget or the system's memory has no room."""
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
        is_within = BUDGET.within(size)
        with self._lock:
            if self._closed:
                return None
            self._release(self.bytes + size - self._max_bytes)
            if self.bytes + size > self._max_bytes:
                left = self._max_bytes - self.bytes
                self._note(size, left, f"of the {self._max_bytes} that slots may have")
                return None
            if not is_within:
                self._note(size, BUDGET.free(), BUDGET.in_words())
                return None
            self.bytes += size
        try:
            block = self._taken(size)
            self._blocks.add(block.keep)
            return block
        except ArenaFull as error:
            with self._lock:
                self.bytes -= size
            self._note(size, BUDGET.free(), str(error.__cause__ or error))
            return None

    def _taken(self, size: int) -> Block:
        """Return a block of the arena. The first time that the system has no pages, let others give some back."""
        try:
            return self._arena.take(size)
        except ArenaFull as error:
            if self.refused or error.__cause__ is None:  # not again and again; or the arena itself is full
                raise
        BUDGET.make_room(size)
        return self._arena.take(size)

    def held(self) -> dict[str, int]:
        if self._closed:
            return {"slots": sum([memory.nbytes for memory in self._blocks.all()])}
        free = sum([size * len(free) for size, free in list(self._free.items())])
        return {"slots": max(0, self.bytes - free), "free lists": free}

    def give_back(self, step: Step, nbytes: int) -> int:
        if step is not Step.FREE_LISTS:
            return 0
        if not self._lock.acquire(blocking=False):  # the budget holds signals back
            return 0
        try:
            before = self.bytes
            self._release(nbytes)
            return before - self.bytes
        finally:
            self._lock.release()

    def _note(self, needed: int, free: float, why: str) -> None:
        self.refused = self.refused or f"{needed} bytes are needed for a batch, {free:.0f} bytes are free ({why})"

    def _release(self, nbytes: int) -> None:
        """Return free slots to the arena until they amount to `nbytes`, or none is left."""
        for free in list(self._free.values()):
            with contextlib.suppress(IndexError):  # no more slots of this size
                while nbytes > 0:
                    block = free.pop().block
                    self._arena.give_back(block)
                    self.bytes -= block.size
                    nbytes -= block.size

    def close(self) -> None:
        """Release free slots. Slots in use keep their memory until nothing refers to them."""
        with self._lock:
            self._closed = True
            self._release(self.bytes)
            self._free = {}


def _reasonable_span() -> int:
    """Return the machine's memory in bytes, or less if there is a limit on address space or file size.

    The map takes address space at once, so it has a quarter of the limit, and leaves half of what is free to others.
    """
    span, addresses = system.memory_of_machine(), system.limit_on("RLIMIT_AS")
    if addresses < math.inf:
        span = min(span, addresses // 4, BUDGET.free() / 2)
    return max(PAGE, int(min(span, system.limit_on("RLIMIT_FSIZE"))) // PAGE * PAGE)
