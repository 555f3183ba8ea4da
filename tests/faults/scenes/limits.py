"""Descriptors, processes and memory run out (F17)."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np

import batchup_ng as bu
from batchup_ng.work_pool.processes import fork_server

from ..accounting import BATCH, BATCHES, N, make_pool, whole
from ..hunting import all_workers, send

DESCRIPTORS = 64
"""The limit on them."""


use = functools.partial(whole, width=9000, n=70, buffer=4)
"""Takes an epoch of a pool and asserts that it is the serial iterator's."""


def told(error: BaseException) -> dict[str, Any]:
    """Return what an error says by itself: its causes are not what a user looks at first."""
    return {"typed": isinstance(error, bu.BatchupError), "says": f"{type(error).__name__}: {error}"}


def tried(pool: Any) -> dict[str, Any] | None:
    """Take an epoch of a pool; return what it says if it cannot."""
    try:
        use(pool)
    except Exception as error:
        return told(error)
    finally:
        gc.collect()
    return None


# -- descriptors -------------------------------------------------------------------------------------------------


class FewDescriptors:
    """Leaves few descriptors free, by the system's limit, until that is lifted to what is allowed at most.

    Args:
        free: How many.
    """

    def __init__(self, free: int) -> None:
        self._hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, self._hard))
        self._fillers: list[int] = []
        with contextlib.suppress(OSError):
            while True:
                self._fillers.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(self._fillers.pop())

    def lower(self) -> None:
        """Set the limit again: what was opened meanwhile has numbers beyond it, which then serve nobody else."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, self._hard))

    def lift(self) -> None:
        """Raise the limit as far as is allowed; may be called again."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._hard, self._hard))

    def __enter__(self) -> FewDescriptors:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lift()
        for fd in self._fillers:
            os.close(fd)


def few_descriptors(kind: str, numbers: list[int]) -> dict[str, Any]:
    """F17: fewer and fewer descriptors are free: the pool works or says what is short; then the limit is lifted.

    Returns:
        For each number of them what the pool said, None if it worked.
    """
    found = {}
    for free in numbers:
        with make_pool(kind) as pool, FewDescriptors(free) as few:
            found[free] = tried(pool)
            few.lift()
            use(pool)
    return found


def made_without_descriptors(kind: str) -> bool:
    """F17: a pool is made when no descriptor is free; when there are some again, it works."""
    make_pool(kind).close()  # the modules of the pool load now: a file that is read takes a descriptor
    with FewDescriptors(0) as few, make_pool(kind) as pool:
        few.lift()
        use(pool)
    return True


def no_descriptor_for_a_new_worker(kind: str, killed: int, lifted_after: float | None) -> dict[str, Any]:
    """F17: workers die when no descriptor is free for others.

    Args:
        kind: The pool, which has two workers.
        killed: How many of them die.
        lifted_after: Seconds until there are descriptors again; None if that is after the epoch.
    """
    with FewDescriptors(0) as few, contextlib.ExitStack() as stack:
        few.lift()
        pool = stack.enter_context(make_pool(kind))

        def strike(batch: int) -> None:
            if batch == 10:
                pids = all_workers(kind, 2)[:killed]
                few.lower()
                for pid in pids:
                    send(pid)
                if lifted_after is not None:
                    timer = threading.Timer(lifted_after, few.lift)
                    timer.start()
                    stack.callback(timer.join)

        try:
            said = {"completed": whole(pool, 9000, pause=0.002, buffer=4, at=strike) == BATCHES}
        except Exception as error:
            said = told(error)
        few.lift()
        gc.collect()
        if "completed" in said:
            use(pool)
            all_workers(kind, 2)  # the dead have been replaced
            use(pool)
    with make_pool(kind) as pool:
        use(pool)
    return said


# -- processes ---------------------------------------------------------------------------------------------------

STRANGER = 20_000 + os.getpid() % 40_000
"""Number of a user of whom the machine has no process, not even of another run of these tests."""


CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24


def give_up(*powers: int) -> None:
    """Give up powers of root's, for this program and all that it starts."""
    libc, ulong = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    refused = libc.capget(header, sets)
    for power in powers:
        refused = refused or libc.prctl(24, ulong(power), ulong(0), ulong(0), ulong(0))  # those that a program gains
        for i in range(3):
            sets[i + 3 * (power // 32)] &= ~(1 << power % 32)
    if refused or libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "powers cannot be given up here")


class FewProcesses:
    """Lets the system start only so many more processes and threads for this program, until that is lifted.

    Args:
        group: A control group that limits them; None for a limit on the processes of another user, whose this program
            is meanwhile. It then gives up the two powers of root's that would let it exceed that limit, for good.
    """

    def __init__(self, group: str | None) -> None:
        self._group = None if group is None else Path(group)

    def __enter__(self) -> FewProcesses:
        if self._group is None:
            give_up(CAP_SYS_ADMIN, CAP_SYS_RESOURCE)
            os.setresuid(STRANGER, 0, 0)
        else:
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
        return self

    def allow(self, more: int | None) -> None:
        """Set how many more there may be than now; None for any number."""
        if self._group is not None:
            now = int((self._group / "pids.current").read_text())
            (self._group / "pids.max").write_text("max" if more is None else str(now + more))
        else:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            soft = hard if more is None else len(os.listdir("/proc/self/task")) + more
            resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))

    def __exit__(self, *exc: object) -> None:
        self.allow(None)
        if self._group is None:
            os.setresuid(0, 0, 0)
        else:
            (self._group.parent / "cgroup.procs").write_text(str(os.getpid()))


def few_processes(kind: str, group: str | None, numbers: list[int]) -> dict[str, Any]:
    """F17: the system starts only so many processes for us: the pool works or says what is short; then it may.

    Returns:
        For each number of them what the pool said, None if it worked.
    """
    found = {}
    fork_server.give_back(fork_server._servers[0])  # the program's, started by a user who has no limit
    with FewProcesses(group) as few:
        for more in numbers:
            with make_pool(kind) as pool:
                few.allow(more)
                found[more] = tried(pool)
                few.allow(None)
                use(pool)
    return found


# -- memory ------------------------------------------------------------------------------------------------------


class TooBig:
    """A map that asks for more memory than there is, or makes a result for which there is too little left."""

    def __init__(self, how: str, pid: int) -> None:
        self.how = how
        self.pid = pid

    def __call__(self, rows: np.ndarray) -> Any:
        if 200 not in rows:
            return (rows,)
        if self.how == "absurd" or os.getpid() == self.pid:
            return rows, np.empty(1 << 50, np.uint8)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]  # a lower one could not be raised where this is tried again
        resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), hard))
        return rows, [bytes([i]) * ((40 << 20) // len(rows)) for i in range(len(rows))]


def no_memory_in_a_worker(kind: str, how: str) -> dict[str, Any]:
    """F17: a worker has no memory for its batch, or none to pack it."""
    with make_pool(kind) as pool:
        rows = bu.ArrayDataSource([np.arange(N)]).map(TooBig(how, os.getpid()))
        iterator = pool.parallel_data_source(rows, 4).batch_iterator(BATCH)
        delivered = 0
        try:
            for _ in iterator:
                delivered += 1
        except bu.BatchError as error:
            found = {"row": error.row, "memory": isinstance(error, MemoryError), "says": str(error)}
        else:
            raise AssertionError(f"a result for which there is no memory was delivered, among {delivered} batches")
        iterator.close()
        whole(pool)
        return found | {"delivered": delivered}
