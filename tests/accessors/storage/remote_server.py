"""A web server of the tests' own, on the loopback address, which misbehaves as it is told."""

from __future__ import annotations

import email.utils
import hashlib
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

Fault: TypeAlias = "Callable[[Handler, bytes], bool | None]"
"""What is done instead of an answer, given what would be answered; it returns True if that is to be sent after all."""

PATIENCE = 600.0
"""Seconds that a request waits for others at most."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, with ranges.

    Attributes:
        right: The status and headers of what would be answered.
    """

    right: tuple[int, dict[str, str]] = (404, {})
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/").partition("?")[0]
        path = self.server.folder / name
        self.server.asked[f"{self.command} {name}"] += 1
        fault = self.server.fault_of(self.command, name)
        if not path.is_file():
            if fault is None or fault(self, b""):
                self.answer(404, b"there is no such file")
            return
        content, facts = path.read_bytes(), path.stat()
        whole = len(content)
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if self.server.ranges else None
        headers = {
            "ETag": f'"{hashlib.md5(content).hexdigest()}-{facts.st_mtime_ns}"',
            "Last-Modified": email.utils.formatdate(facts.st_mtime, usegmt=True),
        }
        status = 200
        if found is not None:
            first, last = found.groups()
            start = int(first) if first else whole - int(last)
            end = min(int(last), whole - 1) if first and last else whole - 1
            if start >= whole:
                self.answer(416, b"")
                return
            status, content = 206, content[start : end + 1]
            headers["Content-Range"] = f"bytes {start}-{end}/{whole}"
        self.right = status, headers
        if fault is None or fault(self, content):
            self.server.count(len(content) if self.command == "GET" else 0)
            self.answer(status, content, headers)

    do_HEAD = do_GET

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None, length: int = -1) -> None:
        """Send an answer, whose length may be told wrongly."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content) if length < 0 else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Serves the files of a folder, each request by a thread of its own.

    Attributes:
        folder: Where the files are.
        ranges: Whether parts of files are given.
        asked: How often what was asked for: ``"GET x.tar"``.
        sent: Bytes of files that were sent.
        faults: What is done instead of an answer to the next requests whose command and name match a pattern.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.ranges = True
        self.asked: Counter[str] = Counter()
        self.sent = 0
        self.faults: list[tuple[str, Fault]] = []
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def url(self, name: str = "") -> str:
        """Return the URL of a file."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def path(self, url: str) -> Path:
        """Return the file of a URL."""
        return self.folder / url.removeprefix(self.url())

    def gets(self, ending: str = "") -> int:
        """Return how many requests for files with such names there were, those for their facts left out."""
        return sum(n for what, n in self.asked.items() if what.startswith("GET") and what.endswith(ending))

    def fails(self, pattern: str, fault: Fault, times: int = 1) -> None:
        """Do `fault` instead of an answer to the next so many requests that match, such as ``"GET x.tar"``."""
        self.faults += [(pattern, fault)] * times

    def fault_of(self, command: str, name: str) -> Fault | None:
        """Return what to do instead of an answer, once."""
        with self._lock:
            for place, (pattern, fault) in enumerate(self.faults):
                if re.fullmatch(pattern, f"{command} {name}"):
                    del self.faults[place]
                    return fault
        return None

    def count(self, n_bytes: int) -> None:
        """Take note of the bytes of an answer."""
        with self._lock:
            self.sent += n_bytes

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take note of a connection, which the pools' workers may keep open."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *args: Any) -> None:
        """Say nothing of who hung up."""


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Serve a folder; ends the server's threads, and fsspec's."""
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.hang_up()


def refuses(status: int) -> Fault:
    """Answer with an error."""
    return lambda handler, content: handler.answer(status, b"not now")


def truncates(handler: Handler, content: bytes) -> None:
    """Send half of what was told, and hang up."""
    handler.close_connection = True
    handler.answer(handler.right[0], content[: len(content) // 2], handler.right[1], len(content))


def shortens(handler: Handler, content: bytes) -> None:
    """Send half, and tell so."""
    handler.answer(handler.right[0], content[: len(content) // 2], handler.right[1])


def sends_the_begin(handler: Handler, content: bytes) -> None:
    """Send as many bytes as are asked for, from the begin of the file, and tell so."""
    whole = (handler.server.folder / handler.path.lstrip("/")).read_bytes()
    told = {**handler.right[1], "Content-Range": f"bytes 0-{len(content) - 1}/{len(whole)}"}
    handler.answer(handler.right[0], whole[: len(content)], told)


def tells(status: int, content_range: str) -> Fault:
    """Send what is asked for, with another status, and a ``Content-Range`` with the field ``{whole}``, or none."""

    def answer(handler: Handler, content: bytes) -> None:
        told = {name: value for name, value in handler.right[1].items() if name != "Content-Range"}
        whole = (handler.server.folder / handler.path.lstrip("/")).stat().st_size
        handler.answer(
            status, content, told | ({"Content-Range": content_range.format(whole=whole)} if content_range else {})
        )

    return answer


def resets(handler: Handler, content: bytes) -> None:
    """Break the connection."""
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def hangs(until: threading.Event) -> Fault:
    """Say nothing until something happens, then hang up."""

    def wait(handler: Handler, content: bytes) -> None:
        handler.close_connection = True
        until.wait(PATIENCE)

    return wait


def meets(parties: int) -> Fault:
    """Answer once so many requests are there at the same time."""
    barrier = threading.Barrier(parties, timeout=PATIENCE)
    return lambda handler, content: barrier.wait() >= 0


def delays(seconds: float) -> Fault:
    """Answer late."""

    def wait(handler: Handler, content: bytes) -> bool:
        time.sleep(seconds)
        return True

    return wait
