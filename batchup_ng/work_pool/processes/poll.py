"""Waits for descriptors: the ``selectors`` module without what a dispatcher does not need, in a third of the time."""

from __future__ import annotations

import contextlib
import select
import socket
from typing import Any

_HAS_EPOLL = hasattr(select, "epoll")
"""Whether the system has the one that does not look at each descriptor each time; it counts in seconds."""


class Poll:
    """Descriptors that are waited for, each with what it stands for, and a way to end the wait.

    Raises:
        OSError: the system has no descriptors for it.
    """

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}
        with contextlib.ExitStack() as opened:
            poll: Any = select.epoll() if _HAS_EPOLL else select.poll()
            if _HAS_EPOLL:
                opened.callback(poll.close)
            self._ears, self._mouth = socket.socketpair()
            self._poll = poll
            opened.pop_all()
        for end in (self._ears, self._mouth):
            end.setblocking(False)
        self.watch(self._ears.fileno(), None)

    def wake(self) -> None:
        """End the wait: what is found is None. From any thread; nothing happens once this is closed."""
        with contextlib.suppress(OSError):
            self._mouth.send(b"w")  # a full socket will end it as well

    def woken(self) -> None:
        """Take note of all that called :meth:`wake` so far."""
        with contextlib.suppress(BlockingIOError):
            self._ears.recv(4096)

    def watch(self, fd: int, found: Any, writing: bool = False) -> None:
        """Wait until `fd` can be read or, if so asked, written; what it stands for is `found`."""
        events = select.POLLIN | (select.POLLOUT if writing else 0)
        if fd in self._found:
            self._poll.modify(fd, events)
        else:
            self._poll.register(fd, events)
        self._found[fd] = found

    def forget(self, fd: int) -> None:
        """Wait for `fd` no longer."""
        del self._found[fd]
        with contextlib.suppress(OSError):
            self._poll.unregister(fd)

    def wait(self, seconds: float | None) -> list[Any]:
        """Return what the descriptors stand for that are ready, waiting for one, that long at most; None for ever."""
        try:
            ready = self._poll.poll(seconds if seconds is None or _HAS_EPOLL else seconds * 1000)
        except InterruptedError:
            return []
        return [self._found[fd] for fd, _ in ready if fd in self._found]

    def close(self) -> None:
        """Let go of the descriptors."""
        self._found.clear()
        self._ears.close()
        self._mouth.close()
        if _HAS_EPOLL:
            self._poll.close()
