"""Files at URLs, by fsspec: reads ranges of several files at once, and retries where that may help.

Threads. All requests of a process run on fsspec's event loop, in its one thread; a reading thread waits for its own
requests. File systems that fsspec reads synchronously (ftp, sftp, memory) get one request at a time, from threads of
that loop. After a fork, fsspec makes its file systems, sessions and thread again.

Failures. A failure that may pass (a refused or broken connection, silence, an answer that is too short, a status of
500 or 429) is retried. A permanent one (no such file, no permission) is raised at once. No wait is endless: a web
server may be silent for :data:`SILENCE_SECONDS`, the libraries of other stores have limits of their own, and no try
takes longer than :data:`TRY_SECONDS`. An answer is trusted as little as a file. It is used only if its length is right
and, from a web server, if its headers name the part that was requested.

Functions import asyncio and fsspec, because modules that are always loaded import this one.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from ...error_context import shortened
from ...errors import ArgumentError, SampleReadError

REQUEST_TRIES = 5
"""Number of tries for one request."""

FIRST_PAUSE_SECONDS = 0.5
"""Seconds before the second try, plus or minus up to a half; each further pause is twice as long."""

RETRY_SECONDS = 30.0
"""Seconds after which a request that has failed twice is not tried again."""

SILENCE_SECONDS = 20.0
"""Seconds that a web server may be silent."""

TRY_SECONDS = 300.0
"""Seconds that one try may take."""

LOOK_AGAIN_SECONDS = 5.0
"""Seconds before a file at a URL is checked for changes again: a check before each batch would be slow."""

REQUESTS_AT_ONCE = 64
"""Requests in flight at once for one read."""

REQUEST_BYTES = 8 << 20
"""Bytes of a request; longer ranges are split into several requests at once."""

CHANGE_MARKS = (
    "ETag", "etag", "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created",
)  # fmt: skip
"""Names under which file systems report something that changes with a file, the most reliable first."""

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")

MAX_FILE_BYTES = 1 << 30
"""Bytes that a web server may announce at most for a file that is read whole."""

Range: TypeAlias = "tuple[RemoteFile, int, int]"
"""A file, the first byte, the number of bytes."""

Stamp: TypeAlias = "tuple[int, str]"
"""A file's size, and another mark from the server that changes with the file."""

_kept: dict[tuple[int, int], Any] = {}
"""The file systems of this process, and of the processes that it was forked from: ending the sessions of those here
would remove their connections from the parent's event loop."""


def is_remote(path: str) -> bool:
    """Return whether a path is a URL."""
    return URL.match(path) is not None


def read_ranges(ranges: Sequence[Range]) -> list[bytes | Exception]:
    """Return all bytes of each range, or the exception that prevented it."""
    systems = {url: _system(url) for url in {file.url for file, _, _ in ranges}}
    asks = [
        functools.partial(_part, *systems[file.url], start, min(REQUEST_BYTES, offset + size - start), file.stamp)
        for file, offset, size in ranges
        for start in range(offset, offset + size, REQUEST_BYTES)
    ]
    parts = iter(_at_once(systems, asks))
    return [_joined(list(islice(parts, -(-size // REQUEST_BYTES)))) for _, _, size in ranges]


def read_files(urls: Sequence[str]) -> list[bytes | Exception]:
    """Return the content of each file, or the exception that prevented it."""
    systems = {url: _system(url) for url in urls}
    whole = [functools.partial(_call, fs, "cat_file", path) for fs, path in systems.values()]
    found = dict(zip(systems, _at_once(systems, whole), strict=True))
    return [found[url] for url in urls]


def stamps_of(urls: Sequence[str]) -> list[Stamp | Exception]:
    """Return the stamp of each file, or the exception that prevented it."""
    systems = {url: _system(url) for url in urls}
    return _at_once(systems, [functools.partial(_stamp, *systems[url]) for url in urls])


def matching(pattern: str) -> list[str]:
    """Return the URLs that match a pattern with ``*``, sorted.

    Raises:
        ArgumentError: the server cannot list files.
        SampleReadError: the files cannot be listed; ``.source`` is the pattern.
    """
    fs, path = _system(pattern)
    if _is_http(fs):
        raise ArgumentError(
            f"a web server does not list its files, so {pattern!r} cannot be looked up; write numbers as {{000..099}}, "
            f"or pass a list"
        )
    fs.invalidate_cache()  # another listing, perhaps of another library, may be older than some of the files
    found = _at_once({pattern: (fs, path)}, [functools.partial(_call, fs, "glob", path)])[0]
    if isinstance(found, Exception):
        raise SampleReadError(f"the files of {pattern!r} cannot be listed ({found})", pattern) from found
    return sorted(fs.unstrip_protocol(each) for each in found)


class RemoteFile:
    """A file at a URL, with the methods of :class:`~batchup_ng.accessors.storage.open_file.OpenFile`.

    If `stamp` is given, parts of a file with another stamp are refused, as far as the server reports it.
    """

    scan_bytes = 8 * REQUEST_BYTES

    def __init__(self, url: str, stamp: Stamp | None = None) -> None:
        self.url, self.stamp = url, stamp

    def read(self, offset: int, size: int) -> bytes:
        """Return all `size` bytes from `offset` on."""
        return self.read_many([(offset, size)])[0]

    def read_many(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes at several places, fetched at once. A place is its first byte and its number of bytes."""
        found = read_ranges([(self, *place) for place in places])
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found  # type: ignore[return-value]  # mypy does not see that none is an exception

    def walk(self, size: int) -> Callable[[int, int], bytes]:
        """Return ``read(offset, n)`` for calls from front to back; near the end, at `size`, it returns fewer bytes."""
        start, block, step = 0, b"", REQUEST_BYTES // 8

        def read(offset: int, n: int) -> bytes:
            nonlocal start, block, step
            if offset + n > start + len(block):
                jumped = offset - (start + len(block)) > step  # over a large member: read little until the next
                step = REQUEST_BYTES // 8 if jumped else min(2 * step, self.scan_bytes)
                start, block = offset, self.read(offset, min(max(n, step), size - offset))
            return block[offset - start : offset - start + n]

        return read


class RemoteSystem:
    """An fsspec file system for zarr's own event loop: requests run on fsspec's loop, with retries."""

    async_impl = asynchronous = True

    def __init__(self, url: str) -> None:
        self._fs, self.path = _system(url)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return functools.partial(self._asked, name.lstrip("_"))

    async def _asked(self, name: str, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        from fsspec.asyn import get_loop

        ask = functools.partial(_call, self._fs, name, *args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_tried(ask), get_loop()))


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path of the file in it.

    Raises:
        ImportError: the library that it needs is not installed.
        ArgumentError: there is no file system for the URL, or it is the local one.
    """
    try:
        from fsspec import core
        from fsspec.implementations.local import LocalFileSystem

        if "::" in url:
            raise ValueError("URLs that are made of several are not followed")
        fs, path = core.url_to_fs(url)
    except ImportError as error:
        raise ImportError(
            f"{url!r} needs fsspec, by pip install 'batchup_ng[remote]', and the library of its store ({error})"
        ) from error
    except Exception as error:  # a file system may raise anything on its URL
        raise ArgumentError(
            f"{shortened(repr(url), 400)} is no URL that fsspec opens ({error}); pass one such as 's3://bucket/file', "
            f"or the path of a file"
        ) from error
    if isinstance(fs, LocalFileSystem):
        raise ArgumentError(f"{shortened(repr(url), 400)} is a file of this machine; pass its path, {path!r}")
    return _kept.setdefault((os.getpid(), id(fs)), fs), path


def _at_once(systems: dict[str, tuple[Any, str]], asks: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Return the answer to each of `asks`, or its exception."""
    if not asks:
        return []
    import asyncio

    from fsspec.asyn import get_loop, sync

    async def all_of() -> list[Any]:
        free = asyncio.Semaphore(REQUESTS_AT_ONCE if all(fs.async_impl for fs, _ in systems.values()) else 1)

        async def one(ask: Callable[[], Awaitable[Any]]) -> Any:
            async with free:
                return await _tried(ask)

        return await asyncio.gather(*map(one, asks), return_exceptions=True)

    return list(sync(get_loop(), all_of))


async def _tried(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of `ask`, after several tries if need be."""
    import asyncio

    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return await asyncio.wait_for(ask(), TRY_SECONDS)
        except Exception as error:
            cause, passed = _cause(error), time.monotonic() - began
        said = f"{type(cause).__name__}: {shortened(repr(str(cause))[1:-1], 300) or 'no answer in time'}"
        if _is_final(cause):
            if isinstance(cause, OSError):
                raise cause
            raise OSError(said) from cause
        if tries == REQUEST_TRIES or (tries > 1 and passed > RETRY_SECONDS):
            raise OSError(f"{tries} tries within {passed:.1f} s failed, the last by {said}") from cause
        await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (tries - 1) * (0.5 + secrets.randbelow(1000) / 1000))


def _cause(error: Exception) -> Exception:
    """Return the real cause of an error: fsspec reports any failure to look up a web server's file as "not found".
    """
    if not isinstance(error, FileNotFoundError):
        return error
    import asyncio

    cause = error.__cause__
    web = type(cause).__module__.startswith("aiohttp") or isinstance(cause, (ConnectionError, asyncio.TimeoutError))
    if isinstance(cause, Exception) and web and getattr(cause, "status", None) not in (404, 410):
        return cause
    return FileNotFoundError(errno.ENOENT, "No such file")


def _is_final(error: Exception) -> bool:
    """Return whether another try is useless."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (408, 425, 429)
    return isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError, RemoteError))


class RemoteError(OSError):
    """A server cannot do what the read needs."""


async def _call(fs: Any, name: str, *args: Any, stamp: Stamp | None = None, **kwargs: Any) -> Any:
    if not fs.async_impl:
        import asyncio

        return await asyncio.to_thread(getattr(fs, name), *args, **kwargs)
    if _is_http(fs) and name in ("cat_file", "info", "exists"):
        kwargs.update(_request(fs, name, kwargs, stamp))
    return await getattr(fs, f"_{name}")(*args, **kwargs)


async def _part(fs: Any, path: str, start: int, size: int, stamp: Stamp | None) -> bytes:
    raw: bytes = await _call(fs, "cat_file", path, stamp=stamp, start=start, end=start + size)
    if len(raw) != size:
        raise EOFError(f"{len(raw)} of {size} bytes came")
    return raw


async def _stamp(fs: Any, path: str) -> Stamp:
    fs.invalidate_cache(path)  # a listing may have left old facts
    told = await _call(fs, "info", path)
    if told.get("type", "file") != "file":
        raise IsADirectoryError(errno.EISDIR, "a folder, not a file")
    if told.get("size") is None:
        raise RemoteError("the server does not tell its size; download it")
    return int(told["size"]), next((str(told[mark]) for mark in CHANGE_MARKS if told.get(mark)), "")


def _joined(parts: list[Any]) -> bytes | Exception:
    failed = [part for part in parts if isinstance(part, Exception)]
    if failed:
        return failed[0]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_http(fs: Any) -> bool:
    return "HTTPFileSystem" in [kind.__name__ for kind in type(fs).__mro__]


def _is_asked(content_range: str, start: int | None, end: int | None, size: int | None) -> bool:
    """Return whether `content_range` names the bytes from `start` to `end` of a file, and the answer's `size` fits.
    A negative `start` counts from the end of the file.

    >>> _is_asked("bytes 10-19/50", 10, 20, 10), _is_asked("bytes 40-49/50", -10, None, 10)
    (True, True)
    >>> _is_asked("bytes 0-9/50", 10, 20, 10), _is_asked("bytes 0-9/50", None, None, 10)
    (False, False)
    """
    found = CONTENT_RANGE.fullmatch(content_range)
    if found is None or (start is None and end is None):
        return False
    first, last = int(found[1]), int(found[2])
    total = None if found[3] == "*" else int(found[3])
    if size not in (None, last + 1 - first) or (total is not None and last >= total):
        return False
    if start is not None and start < 0 and end is None:
        return total is not None and (first, last + 1) == (max(0, total + start), total)
    return first == (start or 0) and last + 1 == (total if end is None else end)


def _request(fs: Any, name: str, range_: dict[str, Any], stamp: Stamp | None) -> dict[str, Any]:
    """Return the options for a request to a web server, in addition to fsspec's configuration."""
    import aiohttp

    options: dict[str, Any] = {}
    if "timeout" not in fs.kwargs:
        options["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_SECONDS, sock_read=SILENCE_SECONDS)
    if name != "cat_file":
        return options
    start, end = range_.get("start"), range_.get("end")
    size = None if start is None or end is None else end - start
    in_parts = start is not None or end is not None

    async def look(response: Any) -> None:  # before any of the body is read
        status, told, headers = response.status, response.content_length, response.headers
        if status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, "No such file")
        response.raise_for_status()
        if stamp is not None:
            total, mark = headers.get("Content-Range", "").rpartition("/")[2], headers.get("ETag", stamp[1])
            same_time = mark == stamp[1] or headers.get("Last-Modified") == stamp[1]
            if total not in ("", "*", str(stamp[0])) or not same_time:
                raise RemoteError("it has changed since it was first opened; make the accessor and the source anew")
        if headers.get("Content-Encoding", "identity") != "identity":
            raise RemoteError("the server sends it compressed, and says nothing of its length; download it")
        if size is None:
            whole = told is not None or headers.get("Transfer-Encoding") == "chunked"
            if not whole or (told or 0) > MAX_FILE_BYTES:
                many = "does not tell how many bytes it sends" if told is None else f"sends {told} bytes"
                raise RemoteError(f"the server {many}; download it")
        if in_parts and status != 206 and (start or told != size):
            # A server without ranges would send the whole file, a redirecting one perhaps the page that says so.
            raise RemoteError(
                f"the server sent {told} bytes of {response.content_type} where {size or 'others'} were asked for: it "
                f"does not give parts of files, or not this file; download it"
            )
        if size is not None and told is None:
            raise RemoteError("the server does not tell how many bytes it sends; download it")
        if size not in (None, told):
            raise EOFError(f"{told} of {size} bytes would come")
        if status == 206 and not _is_asked(headers.get("Content-Range", ""), start, end, told):
            raise RemoteError(
                f"the server sent {shortened(repr(headers.get('Content-Range', 'a part')), 100)} where bytes {start} "
                f"to {'the end' if end is None else end} were asked for; download it"
            )

    headers = {**fs.kwargs.get("headers", {}), "Accept-Encoding": "identity"}
    return {**options, "headers": headers, "raise_for_status": look}
