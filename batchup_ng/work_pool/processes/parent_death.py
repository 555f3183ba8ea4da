"""A pipe that makes the system kill workers when the pool's process is gone.

The pool's process holds the write end and never writes to it. Each worker opens the read end again and asks the system
for a SIGKILL on any event there. The only possible event is that the last write end is closed. A worker is therefore
killed even in a call in C that holds the interpreter's lock, or while it is stopped. (``PR_SET_PDEATHSIG`` fires when
the *thread* that started the worker ends.)

Ownership. A :class:`ParentDeath` belongs to a launcher, which closes it after its workers have ended. A fork by the
user closes its copy at once, otherwise it would keep the workers alive.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import weakref

from ...memory.shared_file import identity
from ...platforms import system


class ParentDeath:
    """Both ends of the pipe, in the pool's process.

    Workers get `fd`. No other process may have `held`. Both are -1 once they are closed.
    """

    def __init__(self) -> None:
        self.fd, self.held = os.pipe()
        self._file = identity(self.fd)
        _open.add(self)

    def close(self) -> None:
        """Close both ends. The system kills workers that still live. May be called again."""
        self.release()
        fd, self.fd = self.fd, -1
        self._close(fd)

    def release(self) -> None:
        """Close the write end."""
        held, self.held = self.held, -1
        self._close(held)

    def _close(self, fd: int) -> None:
        if fd >= 0 and identity(fd) == self._file:
            os.close(fd)


_open: weakref.WeakSet[ParentDeath] = weakref.WeakSet()


def _release_in_a_fork() -> None:
    for pipe in list(_open):
        pipe.release()


system.after_fork_in_child(_release_in_a_fork)


def hang_on(fd: int) -> None:
    """Have the system kill this process when the last write end of the pipe `fd` closes, if it can. Close `fd`."""
    with contextlib.suppress(AttributeError, OSError):
        # Opened again, because the signal belongs to the open file, which all workers share.
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        system.signal_at_end(own, signal.SIGKILL)
        poll = select.poll()
        poll.register(own, 0)
        if poll.poll(0):  # the write end was already closed
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(fd)
