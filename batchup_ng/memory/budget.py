"""The memory budget of this program: what the library may take, and what each holder has.

    limit: bu.memory_limit(), BATCHUP_NG_MEMORY           system: free memory, container, limits on the process
                    └────────────── free() ──────────────────┘
                                      │ asked by
    slots · buffers · copies · cached rows · decoded chunks · read-ahead · worker processes

Counting. A :class:`Holder` says how many bytes it holds. Caches of rows and of decoded chunks take their pages later.
They count from the start with all the memory that they were promised. The system counts such pages as free, so
:meth:`MemoryBudget.free` subtracts them. Files on a disk do not count.

Giving back. If a request does not fit, holders give back in this order: free lists; then decoded chunks, which are
decoded again when they are needed; then all read-ahead goes down to one batch a worker. The first two give memory at
once, the third as batches are used: while `is_over` is set, each batch that arrives lets holders give back what has
become free. If that is not enough, a batch comes over a socket instead of a slot, and a copy of an array lies on a disk
or is an error that names the largest holders. A batch that the loop needs now is always made. So a limit never changes
rows or their order.

The system. Promises are made before workers start, and interpreters do not count. So caches ask :meth:`spares` while
they fill, and stop where little is left of the machine or the container.

Processes. The budget of the pool's process counts all memory that processes share. A worker process has a limit of its
own, a part of this one, for its own buffers. The number travels with the start of the worker.

Locks. The budget has none. A holder that needs its own lock to give back does not wait for it, because the thread that
asks may hold it. Signals are held back until the holders have answered.
"""

from __future__ import annotations

import enum
import itertools
import math
import os
import weakref
from typing import Any, Generic, TypeVar

from ..display import in_bytes
from ..platforms import system
from ..signals import InterruptsHeld
from ..validation import size_in_bytes
from . import limits

LIMIT_VARIABLE = "BATCHUP_NG_MEMORY"
"""The environment variable that sets the limit of a program which sets none itself."""

KINDS = ("slots", "buffers", "copies", "cached rows", "decoded chunks", "worker processes", "free lists")
"""Purposes of memory, in the order of the table."""

HOLDERS_NAMED = 3
"""Holders that an error names."""

SHARE_OF_ADDRESSES = 0.75
"""Part of the addresses that may be taken: threads' stacks and the allocator map some 100 MB that they never use."""

BYTES_BETWEEN_LOOKS = 4 << 20
"""Bytes that caches may take before the free memory of the system is looked at again."""

FEW_REFS = 64
"""Entries of a list below which the dead ones are not looked for."""

T = TypeVar("T")


class Living(Generic[T]):
    """A list of objects that does not keep them alive. Safe to use from several threads, without a lock.

    No code runs when one of them dies, because an interrupt could come there and be lost. So the dead ones are dropped
    when the list has grown to twice its size.
    """

    def __init__(self) -> None:
        self._refs: dict[int, weakref.ref[T]] = {}  # by their own identity, which no other has as long as they are here
        self._most = FEW_REFS

    def add(self, x: T) -> None:
        """Add an object."""
        new = weakref.ref(x)
        self._refs[id(new)] = new
        if len(self._refs) > self._most:
            for number, ref in list(self._refs.items()):
                if ref() is None:
                    self._refs.pop(number, None)
            self._most = max(FEW_REFS, 2 * len(self._refs))

    def all(self) -> list[T]:
        """Return the living objects, the first added first."""
        return [x for ref in list(self._refs.values()) if (x := ref()) is not None]


class Step(enum.IntEnum):
    """The kinds of memory to give back, in order."""

    FREE_LISTS = 1
    CHUNKS = 2
    READ_AHEAD = 3


class Holder:
    """An object that holds memory. By default it holds nothing."""

    def held(self) -> dict[str, int]:
        """Return the bytes that it holds or was promised, by kind."""
        return {}

    def untouched(self) -> int:
        """Return the bytes that it was promised and has not taken yet."""
        return 0

    def give_back(self, step: Step, nbytes: int) -> int:
        """Give back up to `nbytes`, or a little more, if `step` is for this holder; return how many."""
        return 0


class Claim(Holder):
    """A number of bytes that something outside this process holds. It counts as long as this object lives."""

    def __init__(self, kind: str, nbytes: int) -> None:
        self._kind = kind
        self.nbytes = nbytes

    def held(self) -> dict[str, int]:
        return {self._kind: self.nbytes}


class MemoryBudget:
    """The limit and the holders of one program. Safe to use from several threads.

    Attributes:
        is_over: Whether the holders may have more than the limit. Memory that becomes free is given back then.
    """

    is_over = False

    def __init__(self) -> None:
        self._holders: Living[Holder] = Living()
        self._limit: int | None = None
        self._is_set = False
        self._unlooked, self._spares = 0, True

    @property
    def limit(self) -> int | None:
        """The most bytes that all holders together may have; None if the system alone sets limits."""
        if not self._is_set:
            self.set_limit(os.environ.get(LIMIT_VARIABLE) or None, LIMIT_VARIABLE)
        return self._limit

    def set_limit(self, size: int | str | None, name: str = "size") -> None:
        """Set the limit. `name` stands for the argument in errors."""
        self._limit = None if size is None else size_in_bytes(name, size)
        self._is_set = True

    def add(self, holder: Holder) -> None:
        """Count a holder from now on, as long as it lives."""
        self._holders.add(holder)

    def table(self) -> dict[str, int]:
        """Return the bytes of each kind."""
        found = dict.fromkeys(KINDS, 0)
        for holder in self._holders.all():
            for kind, nbytes in holder.held().items():
                found[kind] += nbytes
        return found

    def free(self) -> float:
        """Return the bytes that may be taken now; infinity if nothing is known."""
        free = limits.available() - sum([holder.untouched() for holder in self._holders.all()])
        if system.limit_on("RLIMIT_AS") < math.inf:
            # Promised memory is mapped, so it counts there already.
            free = min(free, limits.addresses_left() * SHARE_OF_ADDRESSES)
        if self.limit is not None:
            free = min(free, self.limit - sum(self.table().values()))
        return max(0.0, free)

    def within(self, nbytes: int) -> bool:
        """Return whether `nbytes` more are within the limit. If not, let holders give back until they are.

        Returns at once if no limit is set: the system itself refuses memory then.
        """
        if self.limit is None:
            return True
        missing = sum(self.table().values()) + nbytes - self.limit
        return missing <= 0 or self.make_room(missing)

    def make_room(self, nbytes: int) -> bool:
        """Let holders give back `nbytes`, and read less ahead if that is not enough; return whether it was."""
        if self.give_back(nbytes) >= nbytes:
            return True
        for holder in self._holders.all():
            holder.give_back(Step.READ_AHEAD, nbytes)
        self.is_over = True
        return False

    def reclaim(self) -> None:
        """Give back what has become free, until the holders have no more than the limit."""
        missing = 0 if self.limit is None else sum(self.table().values()) - self.limit
        self.is_over = missing > 0 and self.give_back(missing) < missing

    def spares(self, nbytes: int) -> bool:
        """Return whether the system has memory to spare for `nbytes` of a cache.

        Looks again only after each :data:`BYTES_BETWEEN_LOOKS` bytes.
        """
        self._unlooked += nbytes
        if self._unlooked >= BYTES_BETWEEN_LOOKS:
            self._unlooked, self._spares = 0, limits.can_spare()
        return self._spares

    def returnable(self) -> int:
        """Return the bytes that holders can give back at once."""
        table = self.table()
        return table["free lists"] + table["decoded chunks"]

    def give_back(self, nbytes: float) -> int:
        """Let holders give back `nbytes` at once, as far as they can; return how many they gave."""
        given, wanted = 0, math.ceil(nbytes)
        with InterruptsHeld():
            for step, holder in itertools.product((Step.FREE_LISTS, Step.CHUNKS), self._holders.all()):
                if given < wanted:
                    given += holder.give_back(step, wanted - given)
        return given

    def in_words(self) -> str:
        """Return the largest holders and the limit, for an error."""
        largest = sorted(self.table().items(), key=lambda each: -each[1])[:HOLDERS_NAMED]
        held = ", ".join(f"{kind} {in_bytes(nbytes)}" for kind, nbytes in largest if nbytes)
        limit = "" if self.limit is None else f"the limit on memory is {self.limit} bytes; "
        return f"{limit}held already: {held or 'nothing'}"


BUDGET = MemoryBudget()
"""The budget of this program."""


class MemoryTable(dict[str, int]):
    """The bytes of each kind, as :func:`memory` returns them.

    Attributes:
        limit: The limit that was set, in bytes; None if none was.
        free: The bytes that may be taken now; infinity if nothing is known.
    """

    def __init__(self, held: dict[str, int], limit: int | None, free: float) -> None:
        super().__init__(held)
        self.limit = limit
        self.free = free

    def __repr__(self) -> str:
        limit = "none" if self.limit is None else in_bytes(self.limit)
        free = "unknown" if math.isinf(self.free) else in_bytes(self.free)
        rows = [*((kind, in_bytes(nbytes)) for kind, nbytes in self.items())]
        rows += [("total", in_bytes(sum(self.values()))), ("limit", limit), ("free", free)]
        return "\n".join(f"{name:<18}{text:>12}" for name, text in rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryTable, (dict(self), self.limit, self.free)


def memory() -> MemoryTable:
    """Return the memory that the library holds in this program, by purpose.

    The result is a dict of bytes by kind, which is printed as a table. Its attributes are ``limit``, None if none was
    set, and ``free``, the bytes that may be taken now. The kinds are:

    - ``slots``: batches of worker processes, in shared memory
    - ``buffers``: batches, and parts of them, in this process
    - ``copies``: the copies of large arrays that workers share
    - ``cached rows``: rows that :class:`~batchup_ng.Cached` may keep in memory
    - ``decoded chunks``: chunks of compressed files that may be kept
    - ``worker processes``: the part of the limit for the workers' own buffers
    - ``free lists``: slots and buffers that wait to be used again

    Cached rows and chunks count with all the memory that they were promised. Your own data, and files on disks, do not
    count.

    >>> list(memory())
    ['slots', 'buffers', 'copies', 'cached rows', 'decoded chunks', 'worker processes', 'free lists']
    """
    return MemoryTable(BUDGET.table(), BUDGET.limit, BUDGET.free())


def memory_limit(size: int | str | None) -> None:
    """Set how much memory the library may take in this program and its worker processes.

    Without a call, the environment variable ``BATCHUP_NG_MEMORY`` sets the limit; without it, free memory and the
    limits of the container and the process do, which always hold. Call it before you make pools and caches: they
    divide the free memory when they are made. A limit never changes rows or their order. A batch that the loop needs
    now is made even if it alone is larger, with a ``SharedMemoryWarning``. A lower limit is reached as batches are
    used; workers keep the part that they were given at their start.

    Args:
        size: Bytes as an int, or a string such as ``"500MB"``, ``"8GB"`` or ``"8GiB"``; None removes the limit.

    Raises:
        ArgumentError: `size` is not a size.
    """
    BUDGET.set_limit(size)
    BUDGET.within(0)
