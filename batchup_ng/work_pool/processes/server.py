"""The process that forks workers: imports the package once, stays single-threaded, does nothing else.

It reads requests from its socket, the number of tasks that the worker runs at once with descriptors attached: the
worker's end of a socket, its lifeline, the shared memory if there is some. It answers with the worker's number, or with
the number of the error for which none could be forked; when a worker ends it sends the number with the exit code. It
ends when its socket is closed; if the pool's process is gone the system kills it, as it does the workers. If it dies by
itself the workers live on, and nobody learns their exit codes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import signal
import socket
import struct
import sys
import traceback
from typing import NoReturn

from numpy import random as numpy_random  # here, for the import lock may be held for ever in a forked child

from . import parent_death, worker

STARTED = b"S"
ENDED = b"E"
FAILED = b"F"
MESSAGE = struct.Struct("<cii")
"""What the server sends: the kind, a worker's number, its exit code or (FAILED) the number of an error."""
REQUEST = struct.Struct("<II")
"""What it reads: how many descriptors come along, how many tasks the worker runs at once."""


def main(fd: int, life_fd: int) -> None:
    """Serve on the socket `fd` until its other end is closed: the whole life of the server.

    Args:
        fd: The server's end of its socket.
        life_fd: The pipe at whose end the system kills this process.
    """
    worker.ignore_interrupts()
    parent_death.hang_on(life_fd)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=fd) as sock, contextlib.suppress(ConnectionError):
        while True:
            ready = select.select([fd, wake_read], [], [])[0]
            if wake_read in ready:
                _drain(wake_read)
                _report_ended(sock)
            if fd in ready:
                request, fds, _, _ = socket.recv_fds(sock, REQUEST.size, 3)
                if not request:
                    return
                sent, threads = REQUEST.unpack(request)
                _start(sock, fds, sent, threads, own=[wake_read, wake_write, sock.fileno()])


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass


def _report_ended(sock: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        sock.sendall(MESSAGE.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


def _start(sock: socket.socket, fds: list[int], sent: int, threads: int, own: list[int]) -> None:
    """Fork a worker, or tell why that cannot be."""
    try:
        if len(fds) < sent:
            raise OSError(errno.EMFILE, "there was no room for the descriptors that came along")
        pid = os.fork()
    except OSError as error:
        _close_all(fds)
        sock.sendall(MESSAGE.pack(FAILED, 0, error.errno or 0))
        return
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _work(fds[0], fds[1], fds[2] if sent > 2 else -1, threads, close=own)
    _close_all(fds)
    sock.sendall(MESSAGE.pack(STARTED, pid, 0))


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _work(fd: int, life_fd: int, arena_fd: int, threads: int, close: list[int]) -> NoReturn:
    """Be a worker in a process that was just forked; never returns.

    Args:
        fd: The worker's end of its socket.
        life_fd: The pipe at whose end the system kills the worker.
        arena_fd: The shared memory; -1 if there is none.
        threads: How many tasks to run at once.
        close: Descriptors of the parent that the worker must not keep open.
    """
    code = 1
    try:
        for other in close:
            os.close(other)
        random.seed()  # or all workers would go on from the one state that they were forked with
        numpy_random.seed()
        worker.main(fd, life_fd, arena_fd, threads)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
