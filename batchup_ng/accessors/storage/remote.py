"""Files at URLs, by fsspec: ranges of several files at once, each asked for again where that may help.

Who does what. All requests of a process run on fsspec's event loop, in its one thread; a thread that reads waits for
its own. File systems that fsspec reads synchronously (ftp, sftp, memory) are asked for one thing after the other, by
threads of that loop. fsspec makes its file systems, sessions and thread anew behind a fork.

What fails. Whatever may pass (a refused or broken connection, silence, an answer that is too short, a status of 500 or
429) is tried again; what will not (no such file, no permission) is raised at once. Nothing waits without end: a web
server may be silent for :data:`SILENCE`, the libraries of other stores have such limits of their own, and no try takes
longer than :data:`LONGEST_TRY`. What comes is trusted as little as a file is, and used only if its length is right
and, from a web server, it says that it is the part that was asked for.
"""

from __future__ import annotations

import asyncio
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

TRIES = 5
"""How often something is asked for."""

FIRST_PAUSE = 0.5
"""Seconds before the second try, give or take a half; before each further one it is twice as long."""

PATIENCE = 30.0
"""Seconds after which nothing is tried a third time."""

SILENCE = 20.0
"""Seconds that a web server may be silent for."""

LONGEST_TRY = 300.0
"""Seconds that a try may take."""

LOOK_AGAIN = 5.0
"""Seconds for which a file at a URL is taken to be what it was, so that not every batch has to ask."""

AT_ONCE = 64
"""Requests that are under way at once for one reading."""

PIECE = 8 << 20
"""Bytes of a request; what is longer is read by several at once."""

MARKS = ("ETag", "etag", "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "modified", "created")
"""Under what names file systems tell by what a change of a file is noticed, the surest first."""

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")

LARGEST_FILE = 1 << 30
"""Bytes of a file that is read whole."""

Range: TypeAlias = "tuple[RemoteFile, int, int]"
"""A file, where to begin, how many bytes."""

Stamp: TypeAlias = "tuple[int, str]"
"""By what a change of a file is noticed: its size, and what else the server tells."""

_kept: dict[tuple[int, int], Any] = {}
"""The file systems of this process; and of those that it was forked from, since to end their sessions here would take
their connections from the event loop there."""


def is_remote(path: str) -> bool:
    """Return whether a path is a URL."""
    return URL.match(path) is not None


def read_ranges(ranges: Sequence[Range]) -> list[bytes | Exception]:
    """Return the bytes of each range, all of them, or why they cannot be had."""
    systems = {url: _system(url) for url in {file.url for file, _, _ in ranges}}
    asks = [
        functools.partial(_part, *systems[file.url], start, min(PIECE, offset + size - start), file.stamp)
        for file, offset, size in ranges
        for start in range(offset, offset + size, PIECE)
    ]
    parts = iter(_at_once(systems, asks))
    return [_joined(list(islice(parts, -(-size // PIECE)))) for _, _, size in ranges]


def read_files(urls: Sequence[str]) -> list[bytes | Exception]:
    """Return the content of each file, or why it cannot be had."""
    systems = {url: _system(url) for url in urls}
    whole = [functools.partial(_call, fs, "cat_file", path) for fs, path in systems.values()]
    found = dict(zip(systems, _at_once(systems, whole), strict=True))
    return [found[url] for url in urls]


def stamps_of(urls: Sequence[str]) -> list[Stamp | Exception]:
    """Return by what a change of each file is noticed; or why it cannot be."""
    systems = {url: _system(url) for url in urls}
    return _at_once(systems, [functools.partial(_stamp, *systems[url]) for url in urls])


def matching(pattern: str) -> list[str]:
    """Return the URLs that match a pattern with ``*``, sorted.

    Raises:
        ArgumentError: the server cannot list files.
        SampleReadError: they cannot be had; ``.source`` is the pattern.
    """
    fs, path = _system(pattern)
    if _is_http(fs):
        raise ArgumentError(
            f"a web server does not list its files, so {pattern!r} cannot be looked up; write numbers as {{000..099}}, "
            f"or pass a list"
        )
    found = _at_once({pattern: (fs, path)}, [functools.partial(_call, fs, "glob", path)])[0]
    if isinstance(found, Exception):
        raise SampleReadError(f"the files of {pattern!r} cannot be listed ({found})", pattern) from found
    return sorted(fs.unstrip_protocol(each) for each in found)


class RemoteFile:
    """A file at a URL, with the methods of :class:`~batchup_ng.accessors.storage.open_file.OpenFile`.

    Where `stamp` is given, parts of a file that has another are refused, as far as their server tells.
    """

    scan_bytes = 8 * PIECE

    def __init__(self, url: str, stamp: Stamp | None = None) -> None:
        self.url, self.stamp = url, stamp

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes at a place, all of them."""
        return self.read_many([(offset, size)])[0]

    def read_many(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes at several places, each where it begins and how many bytes, all at once."""
        found = read_ranges([(self, *place) for place in places])
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found  # type: ignore[return-value]  # mypy does not see that none is an exception

    def walk(self, size: int) -> Callable[[int, int], bytes]:
        """Return what reads a file of so many bytes from front to back, as ``os.pread`` does but for its order."""
        start, block, step = 0, b"", PIECE // 8

        def read(offset: int, n: int) -> bytes:
            nonlocal start, block, step
            if offset + n > start + len(block):
                jumped = offset - (start + len(block)) > step  # over a large member: read little until the next one
                step = PIECE // 8 if jumped else min(2 * step, self.scan_bytes)
                start, block = offset, self.read(offset, min(max(n, step), size - offset))
            return block[offset - start : offset - start + n]

        return read


class RemoteSystem:
    """What zarr asks of a file system of fsspec's, from an event loop of its own; with our tries, on fsspec's loop."""

    async_impl = asynchronous = True

    def __init__(self, url: str) -> None:
        self._fs, self.path = _system(url)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return functools.partial(self._asked, name.lstrip("_"))

    async def _asked(self, name: str, *args: Any, **kwargs: Any) -> Any:
        from fsspec.asyn import get_loop

        ask = functools.partial(_call, self._fs, name, *args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_tried(ask), get_loop()))


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and what that calls the file.

    Raises:
        ImportError: the library that it needs is not installed.
        ArgumentError: there is none, or it is that of this machine.
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
    except Exception as error:  # whatever a file system makes of its URL
        raise ArgumentError(
            f"{shortened(repr(url), 400)} is no URL that fsspec opens ({error}); pass one such as 's3://bucket/file', "
            f"or the path of a file"
        ) from error
    if isinstance(fs, LocalFileSystem):
        raise ArgumentError(f"{shortened(repr(url), 400)} is a file of this machine; pass its path, {path!r}")
    return _kept.setdefault((os.getpid(), id(fs)), fs), path


def _at_once(systems: dict[str, tuple[Any, str]], asks: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Return the answer to each of `asks`, or the exception for it."""
    if not asks:
        return []
    from fsspec.asyn import get_loop, sync

    async def all_of() -> list[Any]:
        free = asyncio.Semaphore(AT_ONCE if all(fs.async_impl for fs, _ in systems.values()) else 1)

        async def one(ask: Callable[[], Awaitable[Any]]) -> Any:
            async with free:
                return await _tried(ask)

        return await asyncio.gather(*map(one, asks), return_exceptions=True)

    return list(sync(get_loop(), all_of))


async def _tried(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return what `ask` gives, by several tries."""
    began, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            return await asyncio.wait_for(ask(), LONGEST_TRY)
        except Exception as error:
            cause, passed = _cause(error), time.monotonic() - began
        said = f"{type(cause).__name__}: {shortened(repr(str(cause))[1:-1], 300) or 'no answer in time'}"
        if _is_final(cause):
            if isinstance(cause, OSError):
                raise cause
            raise OSError(said) from cause
        if tries == TRIES or (tries > 1 and passed > PATIENCE):
            raise OSError(f"{tries} tries within {passed:.1f} s failed, the last by {said}") from cause
        await asyncio.sleep(FIRST_PAUSE * 2 ** (tries - 1) * (0.5 + secrets.randbelow(1000) / 1000))


def _cause(error: Exception) -> Exception:
    """Return what went wrong: fsspec calls whatever happens as it looks for a file of a web server that there is none.
    """
    if not isinstance(error, FileNotFoundError):
        return error
    cause = error.__cause__
    web = type(cause).__module__.startswith("aiohttp") or isinstance(cause, (ConnectionError, asyncio.TimeoutError))
    if isinstance(cause, Exception) and web and getattr(cause, "status", None) not in (404, 410):
        return cause
    return FileNotFoundError(errno.ENOENT, "No such file")


def _is_final(error: Exception) -> bool:
    """Return whether there is no use in another try."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (408, 425, 429)
    return isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotImplementedError, RemoteError))


class RemoteError(OSError):
    """A server does not do what is needed."""


async def _call(fs: Any, name: str, *args: Any, stamp: Stamp | None = None, **kwargs: Any) -> Any:
    if not fs.async_impl:
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
    fs.invalidate_cache(path)  # of what a listing told
    told = await _call(fs, "info", path)
    if told.get("type", "file") != "file":
        raise IsADirectoryError(errno.EISDIR, "a folder, not a file")
    if told.get("size") is None:
        raise RemoteError("the server does not tell its size; download it")
    return int(told["size"]), next((str(told[mark]) for mark in MARKS if told.get(mark)), "")


def _joined(parts: list[Any]) -> bytes | Exception:
    failed = [part for part in parts if isinstance(part, Exception)]
    if failed:
        return failed[0]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_http(fs: Any) -> bool:
    return "HTTPFileSystem" in [kind.__name__ for kind in type(fs).__mro__]


def _is_asked(content_range: str, start: int | None, end: int | None, size: int | None) -> bool:
    """Return whether an answer of `size` bytes says that it is the part of a file from `start` to `end`, or from its
    end if `start` is negative.

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
    """Return with what options a web server is asked, beside those that fsspec was configured with."""
    import aiohttp

    options: dict[str, Any] = {}
    if "timeout" not in fs.kwargs:
        options["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    if name != "cat_file":
        return options
    start, end = range_.get("start"), range_.get("end")
    size = None if start is None or end is None else end - start
    in_parts = start is not None or end is not None

    async def look(response: Any) -> None:  # before anything of the body is read
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
            if not whole or (told or 0) > LARGEST_FILE:
                many = "does not tell how many bytes it sends" if told is None else f"sends {told} bytes"
                raise RemoteError(f"the server {many}; download it")
        if in_parts and status != 206 and (start or told != size):
            # A server without ranges would send all of the file, one that redirects perhaps the page that says so.
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
