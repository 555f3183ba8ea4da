"""The pipe by which the system kills workers when the pool's process is gone.

The pool's process holds the end for writing, to which nothing is written. Each worker opens the other end again and
asks the system for a SIGKILL when something happens there; all that can happen is that the last end for writing is
closed. So a worker is ended even in the middle of a call in C that holds the interpreter's lock, or when it was
stopped. (``PR_SET_PDEATHSIG`` fires when the *thread* that started the worker ends.)

Who owns what. A :class:`ParentDeath` belongs to a launcher, which closes it after its workers have ended. A fork of the
user's closes its copy at once, or it would keep the workers alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import weakref


class ParentDeath:
    """Both ends of the pipe, in the pool's process: `fd`, which workers are given, and `held`, which no other may have.

    Both are -1 once they were closed.
    """

    def __init__(self) -> None:
        self.fd, self.held = os.pipe()
        self._file = identity(self.fd)
        _open.add(self)

    def close(self) -> None:
        """Close both ends; workers that still live are killed. May be called again."""
        self.release()
        fd, self.fd = self.fd, -1
        self._close(fd)

    def release(self) -> None:
        """Close the end for writing."""
        held, self.held = self.held, -1
        self._close(held)

    def _close(self, fd: int) -> None:
        if fd >= 0 and identity(fd) == self._file:
            os.close(fd)


def identity(fd: int) -> tuple[int, int] | None:
    """Return what no other open file has; None if the descriptor is closed.

    A program may have closed all descriptors that it did not know, as daemons do; others have their numbers then.
    """
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_open: weakref.WeakSet[ParentDeath] = weakref.WeakSet()


def _release_in_a_fork() -> None:
    for pipe in list(_open):
        pipe.release()


os.register_at_fork(after_in_child=_release_in_a_fork)


def hang_on(fd: int) -> None:
    """Be killed by the system when the last end for writing of the pipe `fd` is closed, where it can; closes `fd`."""
    with contextlib.suppress(AttributeError, OSError):
        # Opened again, for the signal is a matter of the open file, which all workers share.
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(own, fcntl.F_SETFL, fcntl.fcntl(own, fcntl.F_GETFL) | os.O_ASYNC)
        poll = select.poll()
        poll.register(own, 0)
        if poll.poll(0):  # it was closed before
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(fd)
