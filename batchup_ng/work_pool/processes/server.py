"""The process that forks workers: imports the package once, stays single-threaded, does nothing else.

It reads requests from its socket, a number (the threads of the worker) with the worker's end of a socket attached, and
answers with the worker's number; when a worker ends it sends the number with the exit code. It ends when its socket
is closed, on purpose or because the pool's process died; its workers see the end of their own sockets.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import struct
import sys
import traceback
from typing import NoReturn

import numpy as np

from . import worker

STARTED = b"S"
ENDED = b"E"
_MESSAGE = struct.Struct("<cii")
REQUEST = struct.Struct("<I")


def main(fd: int) -> None:
    """Serve on the socket `fd` until its other end is closed: the whole life of the server."""
    worker.ignore_interrupts()
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
                request, fds, _, _ = socket.recv_fds(sock, REQUEST.size, 2)
                if not request:
                    return
                _start(sock, fds, REQUEST.unpack(request)[0], [wake_read, wake_write, sock.fileno()])


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
        sock.sendall(_MESSAGE.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


def _start(sock: socket.socket, fds: list[int], threads: int, own: list[int]) -> None:
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run_forked(fds[0], fds[1] if len(fds) > 1 else -1, threads, close=own)
    for fd in fds:
        os.close(fd)
    sock.sendall(_MESSAGE.pack(STARTED, pid, 0))


def run_forked(fd: int, arena_fd: int, threads: int, close: list[int]) -> NoReturn:
    """Be a worker in a process that was just forked; never returns.

    Args:
        fd: The worker's end of its socket.
        arena_fd: The shared memory; -1 where there is none.
        threads: How many tasks to run at once.
        close: Descriptors of the parent that the worker must not keep open.
    """
    code = 1
    try:
        for other in close:
            os.close(other)
        random.seed()  # or all workers would go on from the one state that they were forked with
        np.random.seed()
        worker.main(fd, arena_fd, threads)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
