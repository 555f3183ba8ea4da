"""Decoded chunks for all threads and processes of a program: the first that needs one decodes it, the others copy.

    one nameless file in memory, which each process maps
    ┌──────┬──────────────────────────────────────────────┬───────┬───────┬─────┐
    │ head │ for each slot: key, generation, owner, pages │ slot  │ slot  │ ... │
    └──────┴──────────────────────────────────────────────┴───────┴───────┴─────┘
    head: the hand; how many of the last bytes were given back; bytes of a slot
    key: number of the chunk + 1     generation: how often the slot was claimed     owner: process that decodes, or 0
    pages: whether the slot has pages

Ownership. The table changes only under a lock, `flock` on the file. The kernel releases the lock if its holder is
killed. A process owns a slot from its claim until it publishes the slot. Until then nobody else reads or writes the
slot, as long as the owner lives. The hand goes round the slots and claims the next slot without a living owner, so the
chunk that was decoded first is replaced first. A published slot is read without a lock. If its generation has
changed afterwards, the copy is not used.

Failures. A killed process leaves a slot with a dead owner, which the hand takes. The table is whole at every step: a
claim writes the owner first, a publication writes the owner last. If a process hangs before it publishes, the others
wait for a while, then claim another slot for its chunk. If there is no slot, the chunk is decoded into other memory. If
the lock cannot be acquired, the process goes on with a cache of its own. No wait is endless.

Room. The caches of a program have half of its free memory together. If that is less than their limits, each has an
equal part: for a new file, the process gives back the last slots of its other files, as it does if memory is short.
Other processes see that in the head.

A pickle names the place of its sender's file (:mod:`~batchup_ng.memory.shared_file`). If it is out of reach, on another
machine, or if the system has no such files, a process has its own cache.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ...memory import limits
from ...memory.budget import BUDGET, Holder, Living, Step
from ...memory.shared_file import Place, SharedFile, give_back
from ...platforms import system

MOST_SLOTS = 4096
"""Slots of a cache at most: each batch searches all keys."""

TABLE_BYTES = 33 * 4096
"""Bytes before the slots: the table, in whole pages."""

PART_OF_FREE = 0.5
"""Part of the free memory that the chunks of all caches may take; the rest is for batches and the remaining program."""

CHUNK_WAIT_SECONDS = 5.0
"""Seconds to wait for a chunk that another process decodes, and for the lock."""

SLOTS_FOR_A_CHUNK_AHEAD = 4
"""Slots that a cache must have for each chunk that is decoded ahead, so as not to replace chunks in use."""

DECODED_ELSEWHERE, CACHE_FULL = -1, -2
"""Answers instead of the number of a slot."""

PID_BITS = 22
"""Bits of a process number, which is at most 2^22 (proc(5), ``pid_max``)."""

Decode: TypeAlias = Callable[[int, np.ndarray], None]
"""A function of the number of a chunk and its memory, ``(nbytes,) uint8``."""

Use: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], None]
"""A function of the numbers of chunks, ``(n,) int64``, the slot of each, and all slots, ``(m, nbytes) uint8``."""


class ChunkCache(Holder):
    """The most recently decoded chunks, all of one size. No memory is taken before the first use.

    Args:
        limit: Bytes of chunks in all processes together; less if the memory that is free at the first use is short.
            The accessor lowers it to the bytes of all its chunks before the first use.
        place: The cache of another process.

    Attributes:
        is_idle: Whether no process needs it, so that a pickle of it needs no file.
    """

    def __init__(self, limit: int, place: Place | None = None) -> None:
        self.limit = limit
        self.is_idle = False
        self._place = place
        self._shares: dict[int, _Share] = {}
        _caches.add(self)
        BUDGET.add(self)

    def slots(self, nbytes: int) -> int:
        """Return how many chunks of `nbytes` may be kept."""
        return min(MOST_SLOTS, self.limit // nbytes)

    def room(self) -> int:
        """Return how many bytes of chunks may be kept, given the memory that is free now."""
        share = self._shares.get(os.getpid())
        return min(self.limit, _room_for_all()[0]) if share is None else share.room()

    def room_made(self) -> int:
        """Return the bytes of the file that this process has made for it."""
        share = self._shares.get(os.getpid())
        return share.room() if share is not None and share.is_first else 0

    def held(self) -> dict[str, int]:
        share = self._shares.get(os.getpid())
        return {"decoded chunks": TABLE_BYTES + share.room() if share is not None and share.is_first else 0}

    def untouched(self) -> int:
        share = self._shares.get(os.getpid())
        return 0 if share is None or not share.is_first else share.untouched()

    def give_back(self, step: Step, nbytes: int) -> int:
        share = self._shares.get(os.getpid())
        wanted = step is Step.CHUNKS and share is not None and share.is_first
        return share.give_back(nbytes) if wanted and share is not None else 0

    def copy(self, numbers: np.ndarray, nbytes: int, use: Use) -> np.ndarray:
        """Call `use` with the chunks that the cache has; return the numbers of the others."""
        try:
            return self._share().copy(numbers, nbytes, use)
        except _LockHeldError:
            return numbers

    def fetch(
        self, numbers: np.ndarray, nbytes: int, decode: Decode, use: Use, ahead: Sequence[int] = ()
    ) -> None:  # fmt: skip
        """Call `use` with each chunk, after `decode` has written the chunks that the cache lacks.

        `use` may be called again for a chunk; its last call gets the right bytes. Exceptions of both are raised. While
        others decode chunks that this call needs, it decodes one of the chunks `ahead`, if the cache has many slots.
        """
        try:
            self._share().fetch(numbers, nbytes, decode, use, ahead)
        except _LockHeldError:
            own = self._shares[os.getpid()] = _Share(self.limit)
            own.fetch(numbers, nbytes, decode, use)

    def close(self) -> None:
        """Let go of this process's memory once no thread reads it any more; the next use begins again."""
        self._shares = {}

    def _share(self) -> _Share:
        pid = os.getpid()
        share = self._shares.get(pid)
        if share is None:
            # After a fork, open the parent's file again: a lock belongs to the open file.
            inherited = [each.file.place for each in self._shares.values() if each.file and each.file.is_open()]
            share = self._shares.setdefault(pid, _Share(self.limit, next(iter(inherited), self._place)))
        return share

    def __reduce__(self) -> tuple[Any, ...]:
        file = None if self.is_idle else self._share().file
        return ChunkCache, (self.limit, None if file is None else file.place)


class _LockHeldError(Exception):
    """A hanging process holds the lock."""


class _Share:
    """The cache as one process has opened it."""

    def __init__(self, limit: int, place: Place | None = None) -> None:
        self.file = SharedFile.reached(place)
        self.is_first = self.file is None
        self.file = self.file or _new_file(limit)
        try:
            self._mapped = mmap.mmap(-1, TABLE_BYTES + _room(limit)) if self.file is None else self.file.map()
        except OSError as error:  # no address space is left for it: each chunk is decoded into other memory
            raise_if_of_signal_handler(error)
            self.file, self._mapped = None, mmap.mmap(-1, TABLE_BYTES)
        table = np.frombuffer(self._mapped, np.int64, 3 + 4 * MOST_SLOTS)
        self._hand, self._given, self._slot_bytes = table[:1], table[1:2], table[2:3]
        self._keys, self._generations, self._owners, self._pages = table[3:].reshape(4, MOST_SLOTS)
        self._me = _identity(os.getpid()) or os.getpid()
        self._lock = threading.Lock()

    def room(self) -> int:
        """Return the bytes of the slots that were not given back."""
        room = max(0, len(self._mapped) - TABLE_BYTES - int(self._given[0]))
        return min(room, MOST_SLOTS * int(self._slot_bytes[0]) or room)

    def untouched(self) -> int:
        """Return the bytes of the slots that have no pages yet; 0 if that is unknown."""
        return 0 if self.file is None else max(0, self.room() + TABLE_BYTES - self.file.taken())

    def give_back(self, nbytes: int) -> int:
        """Give back the last bytes, with the slots that they are in; return how many were given back."""
        with contextlib.suppress(_LockHeldError), self._locked(patience=0.0):
            size, before = int(self._slot_bytes[0]), self.room()
            n = self._used(size) if size else 0
            self._given[0] = len(self._mapped) - TABLE_BYTES - max(0, before - nbytes)
            for slot in range(self._used(size) if size else 0, n):
                if not self._owners[slot]:
                    self._drop(slot)
            return before - self.room()
        return 0

    def _drop(self, slot: int) -> None:
        """Take a chunk out, and give back the pages of its slot, which has no owner. The caller holds the lock."""
        self._keys[slot] = 0
        self._generations[slot] += 1
        if self._pages[slot]:
            self._pages[slot] = 0
            size, page = int(self._slot_bytes[0]), mmap.PAGESIZE
            first = -(-(TABLE_BYTES + slot * size) // page) * page
            end = (TABLE_BYTES + (slot + 1) * size) // page * page
            if first < end:
                give_back(self._mapped, first, end - first)

    def _used(self, nbytes: int) -> int:
        """Return how many slots of `nbytes` were not given back."""
        return min(MOST_SLOTS, max(0, len(self._mapped) - TABLE_BYTES - int(self._given[0])) // nbytes)

    def copy(self, numbers: np.ndarray, nbytes: int, use: Use) -> np.ndarray:
        memory = self._memory(nbytes)
        if not len(memory) or not len(numbers):
            return numbers
        with self._locked():
            n = self._used(nbytes)
            if not n:
                return numbers
            kept = (self._keys[:n] == numbers[:, None] + 1) & (self._owners[:n] == 0)
            found, slots = kept.any(1), kept.argmax(1)  # the first: a late process may have decoded the chunk again
            before = self._generations[slots]
        if found.any():
            use(numbers[found], slots[found], memory)
            with self._locked():
                found &= self._generations[slots] == before
        left: np.ndarray = numbers[~found]
        return left

    def fetch(
        self, numbers: np.ndarray, nbytes: int, decode: Decode, use: Use, ahead: Sequence[int] = ()
    ) -> None:  # fmt: skip
        progress = time.monotonic()
        ahead = ahead if ahead and self._used(nbytes) > SLOTS_FOR_A_CHUNK_AHEAD * len(ahead) else ()
        while len(numbers):
            late = time.monotonic() - progress > CHUNK_WAIT_SECONDS
            busy = [number for number in numbers.tolist() if not self._made(number, nbytes, decode, use, late)]
            left = self.copy(np.array(busy, np.int64), nbytes, use)
            if len(left) < len(numbers):
                progress = time.monotonic()
            elif any(self._made_ahead(number, nbytes, decode) for number in ahead):
                ahead = ()
            else:
                time.sleep(0.001)
            numbers = left

    def _made_ahead(self, number: int, nbytes: int, decode: Decode) -> bool:
        with unless_of_signal_handler():  # an error will come up again in the process that needs the chunk
            return self._made(number, nbytes, decode, lambda *_: None, late=False)
        return False

    def _made(self, number: int, nbytes: int, decode: Decode, use: Use, late: bool) -> bool:
        """Decode a chunk and use it. Unless `late`, return False if it is kept, or another process decodes it."""
        slot = self._claimed(number, nbytes, late)
        if slot == DECODED_ELSEWHERE:
            return False
        kept = number + 1 if self._has_pages(slot, nbytes) else 0
        try:
            memory = self._memory(nbytes)[slot : slot + 1] if kept else np.empty((1, nbytes), np.uint8)
            decode(number, memory[0])
            use(np.array([number]), np.array([0]), memory)  # while no other process can claim the slot
        except BaseException:
            kept = 0
            raise
        finally:
            if slot != CACHE_FULL:
                with self._locked():
                    self._keys[slot], self._owners[slot] = kept, 0
                    if slot >= self._used(nbytes):  # it was given back while the chunk was decoded
                        self._drop(slot)
        return True

    def _claimed(self, number: int, nbytes: int, late: bool) -> int:
        """Return a slot to decode a chunk into, or why there is none.

        DECODED_ELSEWHERE: :meth:`_made` returns False then. CACHE_FULL: all slots are in use.
        """
        with self._locked():
            self._slot_bytes[0] = nbytes
            n = self._used(nbytes)
            owners = self._owners[:n][self._keys[:n] == number + 1].tolist()
            if not late and any(owner == 0 or self._lives(owner) for owner in owners):
                return DECODED_ELSEWHERE
            for _ in range(n):
                slot = int(self._hand[0]) % n
                self._hand[0] = slot + 1
                if not self._lives(int(self._owners[slot])):
                    self._owners[slot] = self._me
                    self._generations[slot] += 1
                    self._keys[slot] = number + 1
                    return slot
        return CACHE_FULL

    def _has_pages(self, slot: int, nbytes: int) -> bool:
        """Return whether a slot has memory, and reserve it: writing to a slot without memory would be a SIGBUS."""
        if slot == CACHE_FULL:
            return False
        if self.file is not None and not self._pages[slot]:
            if not BUDGET.spares(nbytes):
                return False
            try:
                self.file.reserve(TABLE_BYTES + slot * nbytes, nbytes)
            except OSError as error:
                raise_if_of_signal_handler(error)
                return False
            self._pages[slot] = 1
        return True

    def _lives(self, owner: int) -> bool:
        return owner != 0 and (owner == self._me or owner == _identity(owner % (1 << PID_BITS)))

    def _memory(self, nbytes: int) -> np.ndarray:
        """Return all slots, ``(n, nbytes) uint8``."""
        n = min(MOST_SLOTS, (len(self._mapped) - TABLE_BYTES) // nbytes)
        return np.ndarray((n, nbytes), np.uint8, self._mapped, TABLE_BYTES)

    @contextlib.contextmanager
    def _locked(self, patience: float | None = None) -> Iterator[None]:
        """Hold the lock of this process's threads, then the lock of the file.

        Raises:
            _LockHeldError: a lock could not be acquired within `patience` seconds; by default
                :data:`CHUNK_WAIT_SECONDS`.
        """
        patience = CHUNK_WAIT_SECONDS if patience is None else patience
        until = time.monotonic() + patience
        if not self._lock.acquire(timeout=patience):
            raise _LockHeldError
        try:
            while self.file is not None:
                with contextlib.suppress(BlockingIOError):
                    system.lock_file(self.file.fd, wait=False)
                    break
                if time.monotonic() > until:
                    raise _LockHeldError
                time.sleep(0.0001)
            try:
                yield
            finally:
                if self.file is not None:
                    system.unlock_file(self.file.fd)
        finally:
            self._lock.release()


def _room(limit: int) -> int:
    """Return the bytes that the chunks of a new cache may take. Others give back all beyond an equal part."""
    left, part = _room_for_all()
    if limits.addresses_left() < math.inf:  # a chunk that is given back stays mapped
        return max(0, min(limit, left, (left + sum([cache.room_made() for cache in _caches.all()])) // _users()))
    for cache in sorted(_caches.all(), key=lambda cache: -cache.room_made()):
        missing, beyond = min(limit, part) - left, cache.room_made() - part
        if missing > 0 and beyond > 0:
            left += cache.give_back(Step.CHUNKS, min(missing, beyond))
    return max(0, min(limit, left))


def _room_for_all() -> tuple[int, int]:
    """Return the bytes that no cache has of the room for all, and the equal part of one more cache."""
    rooms = [room for cache in _caches.all() if (room := cache.room_made())]
    room = int(PART_OF_FREE * min(BUDGET.free() + sum(rooms), 1 << 60))
    return max(0, room - sum(rooms)), room // (len(rooms) + 1)


def _users() -> int:
    """Return how many caches of this process have room, or may need some."""
    return max(1, sum(not cache.is_idle for cache in _caches.all()))


_caches: Living[ChunkCache] = Living()
"""The caches of this process."""


def _new_file(limit: int) -> SharedFile | None:
    """Return a file for a new cache, with pages for its table; None if the system gives none, as by ``ulimit -f``."""
    with unless_of_signal_handler(OSError):
        file = SharedFile.nameless(TABLE_BYTES + _room(limit))
        file.reserve(0, TABLE_BYTES)
        return file
    return None


def _identity(pid: int) -> int:
    """Return a number that no other process has had since the machine started; 0 if the process has ended.

    It combines the process number, which the system uses again, with the start of the process, in ticks since the
    machine started (fields 1 and 22 of ``/proc/PID/stat``, proc(5)).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *others = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if state in (b"Z", b"X") else int(others[18]) << PID_BITS | pid
