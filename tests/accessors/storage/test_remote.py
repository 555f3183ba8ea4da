"""How files at URLs are read: at once, again where that may help, and trusted as little as a file is."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.accessors.storage import remote
from batchup_ng.accessors.storage.remote import RemoteFile, read_files, read_ranges, stamps_of
from batchup_ng.errors import ArgumentError, SampleReadError
from tests.messages import raises

from .remote_server import (
    Fault,
    Handler,
    Server,
    delays,
    hangs,
    meets,
    refuses,
    resets,
    sends_the_begin,
    serving,
    shortens,
    tells,
    truncates,
)
from .test_tar import write

fsspec = pytest.importorskip("fsspec", reason="needs fsspec")
pytest.importorskip("aiohttp", reason="needs aiohttp")

CONTENT = np.random.default_rng(0).bytes(10_000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Try again at once, keep indices in a folder of the test's; be as patient as a busy machine needs it."""
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(remote, "RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 250.0)
    monkeypatch.setattr(remote, "LOOK_AGAIN_SECONDS", 3600.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of one file."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x").write_bytes(CONTENT)
    with serving(tmp_path / "files") as server:
        yield server


def part(server: Server, offset: int, size: int, name: str = "x") -> remote.Range:
    """Return what asks for a part of a file."""
    return RemoteFile(server.url(name)), offset, size


def ranges(server: Server, n: int = 6) -> tuple[list[remote.Range], list[bytes]]:
    """Return some ranges of the file, and what they hold."""
    places = [(k * 1000, 100 + k) for k in range(n)]
    return [part(server, *place) for place in places], [CONTENT[at : at + size] for at, size in places]


def test_ranges_are_read_at_once(server: Server) -> None:
    asked, expected = ranges(server)
    server.fails("GET x", meets(6), 6)
    assert read_ranges(asked) == expected
    assert (server.faults, server.gets()) == ([], 6)


def test_a_long_range_is_read_in_parts_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUEST_BYTES", 1000)
    server.fails("GET x", meets(10), 10)
    assert RemoteFile(server.url("x")).read(0, 10_000) == CONTENT
    assert read_ranges([part(server, 5, 0), part(server, 999, 1002)]) == [b"", CONTENT[999:2001]]


def test_no_more_than_so_many_are_asked_for_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUESTS_AT_ONCE", 2)
    asked, expected = ranges(server)
    room, had_room = threading.Semaphore(2), list[bool]()

    def counted(handler: Handler, content: bytes) -> bool:
        had_room.append(room.acquire(blocking=False))
        delays(0.01)(handler, content)
        room.release()
        return True

    server.fails("GET x", counted, 6)
    assert read_ranges(asked) == expected
    assert had_room == [True] * 6


PASSING: dict[str, Fault] = {
    "500": refuses(500), "503": refuses(503), "429": refuses(429), "reset": resets, "truncated": truncates,
    "too short": shortens, "late": delays(0.05),
}  # fmt: skip


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again_and_nothing_else_is(fault: Fault, server: Server) -> None:
    asked, expected = ranges(server)
    server.fails("GET x", fault, 4)
    assert read_ranges(asked) == expected
    again = 0 if fault is PASSING["late"] else 4
    assert (server.faults, server.gets()) == ([], 6 + again)
    server.fails("GET x", fault, 4)
    assert read_files([server.url("x")]) == [CONTENT] or fault is shortens  # which says so, and is believed


@pytest.mark.parametrize("fault", [refuses(503), resets], ids=["refused", "reset"])
def test_facts_are_asked_for_again(fault: Fault, server: Server) -> None:
    server.fails("(HEAD|GET) x", fault, 4)  # by fsspec both ways, one after the other
    assert [stamp[0] for stamp in stamps_of([server.url("x")])] == [len(CONTENT)]  # type: ignore[index]
    assert server.faults == []


def test_a_silent_server_is_waited_for_no_longer_than_that(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(remote, "REQUEST_TRIES", 100)  # on a busy machine an answer may take longer than a second
    asked, expected = ranges(server)
    until = threading.Event()
    server.fails("GET x", hangs(until), 2)
    assert read_ranges(asked) == expected
    monkeypatch.setattr(remote, "REQUEST_TRIES", 5)
    monkeypatch.setattr(remote, "SILENCE_SECONDS", 0.05)
    server.fails("GET x", hangs(until), 10**3)
    server.fails("HEAD x", hangs(until), 10**3)
    (error,) = read_ranges(asked[:1])
    assert "5 tries within" in str(error)
    assert "Timeout" in str(error)
    with raises(SampleReadError):
        bu.NpyRows(server.url("x"))
    until.set()


def test_tries_end_when_patience_does(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "RETRY_SECONDS", 0.0)
    server.fails("GET x", refuses(500), 10**3)
    (error,) = read_ranges(ranges(server, 1)[0])
    assert re.match(r"2 tries within \d+\.\d s failed, the last by ClientResponseError: 500", str(error))


def test_one_range_that_fails_leaves_the_others(server: Server) -> None:
    asked, expected = ranges(server)
    server.fails("GET lost", refuses(500), 10**3)
    first, *others, last = read_ranges([part(server, 0, 1, "lost"), *asked, part(server, 0, 1, "gone")])
    assert others == expected
    assert str(first).startswith("5 tries within")
    assert isinstance(last, FileNotFoundError)
    assert (server.gets("lost"), server.gets("gone")) == (5, 1)


@pytest.mark.parametrize("status", [403, 404, 416])
def test_what_will_not_pass_is_told_at_once(status: int, server: Server) -> None:
    server.fails("(GET|HEAD) x", refuses(status), 10**3)
    (error,) = read_ranges(ranges(server, 1)[0])
    assert isinstance(error, FileNotFoundError) == (status == 404)
    assert server.gets() == 1
    with raises(SampleReadError) as caught:
        bu.NpyRows(server.url("x"))
    assert caught.value.source == server.url("x")
    assert (server.gets(), server.asked["HEAD x"]) == (2, 1)


def test_pauses_grow_and_differ(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.5)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(5):
        server.fails("GET x", refuses(503), 4)
        assert read_ranges(ranges(server, 1)[0]) == ranges(server, 1)[1]
    for k in range(4):
        of_one = pauses[k::4]
        assert all(0.25 * 2**k <= pause <= 0.75 * 2**k for pause in of_one)
        assert len(set(of_one)) > 1


def test_a_server_without_ranges_gives_whole_files_only(server: Server) -> None:
    server.ranges = False
    assert read_files([server.url("x")]) == [CONTENT]
    assert read_ranges([part(server, 0, len(CONTENT))]) == [CONTENT]
    (error,) = read_ranges([part(server, 0, 5)])
    assert "the server sent 10000 bytes of" in str(error)
    assert "it does not give parts of files, or not this file; download it" in str(error)
    assert server.gets() == 3


def test_a_page_that_says_what_went_wrong_is_no_data(server: Server) -> None:
    def page(handler: Handler, content: bytes) -> None:
        handler.answer(200, b"<html>Please log in</html>", {"Content-Type": "text/html"})

    server.fails("GET x", page)
    (error,) = read_ranges(ranges(server, 1)[0])
    assert "the server sent 26 bytes of text/html where 100 were asked for" in str(error)

    def moved(handler: Handler, content: bytes) -> None:
        handler.answer(302, b"", {"Location": server.url("login")})

    (server.folder / "login").write_bytes(b"<html>Please log in</html>")
    server.ranges = False
    server.fails("GET x", moved)
    (error,) = read_ranges(ranges(server, 1)[0])
    assert "where 100 were asked for" in str(error)


def test_a_length_that_is_not_told_is_an_error(server: Server) -> None:
    def untold(handler: Handler, content: bytes) -> None:
        handler.close_connection = True
        handler.send_response(200)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)

    server.fails("(HEAD|GET) x", untold, 10)
    with raises(SampleReadError):
        bu.NpyRows(server.url("x"))


def test_no_more_is_read_than_was_asked_for(server: Server) -> None:
    def sends(status: int, headers: dict[str, str], much: bytes) -> Fault:
        def answer(handler: Handler, content: bytes) -> None:
            handler.close_connection = True
            handler.send_response(status)
            for header in headers.items():
                handler.send_header(*header)
            handler.end_headers()
            with suppress(OSError):  # nobody reads it
                handler.wfile.write(much)

        return answer

    much = bytes(10**7)
    whole, some = lambda: read_files([server.url("x")]), lambda: read_ranges([part(server, 0, 5)])
    for read, status, headers, told in [
        (some, 206, {}, "does not tell how many bytes"),
        (some, 206, {"Content-Length": "5", "Content-Encoding": "gzip"}, "sends it compressed"),
        (some, 418, {}, "418"),
        (whole, 200, {}, "does not tell how many bytes"),  # which may be cut off
        (whole, 200, {"Content-Length": str(2 << 30)}, "sends 2147483648 bytes"),
        (whole, 200, {"Content-Length": "5", "Content-Encoding": "gzip"}, "sends it compressed"),
    ]:
        server.fails("GET x", sends(status, headers, much))
        asked = server.gets()
        (error,) = read()
        assert told in str(error)
        assert server.gets() == asked + 1
        assert error.__cause__ is not error


@pytest.mark.parametrize(
    ("status", "content_range"),
    [
        (206, ""), (206, "bytes 0-9/{whole}"), (206, "bytes 10-29/{whole}"), (206, "bytes 11-20/{whole}"),
        (206, "bytes 10-19/12"), (206, "bytes 10-19/9999"), (206, "bytes */{whole}"), (206, "lines 10-19/{whole}"),
        (206, f"bytes {'9' * 5000}-19/{{whole}}"), (200, ""), (203, ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_of_the_part_asked_for_is_refused(
    server: Server, status: int, content_range: str
) -> None:
    stamp = stamps_of([server.url("x")])[0]
    assert not isinstance(stamp, Exception)
    server.fails("GET x", tells(status, content_range), 2)
    for file in (RemoteFile(server.url("x"), stamp), RemoteFile(server.url("x"))):
        (found,) = read_ranges([(file, 10, 10)])
        if content_range == "bytes 10-19/9999" and file.stamp is None:
            assert found == CONTENT[10:20]  # who asks does not know the size
        else:
            assert isinstance(found, remote.RemoteError)
    assert server.gets() == 2
    server.fails("GET x", tells(206, "bytes 0-4999/{whole}"))
    (found,) = read_files([server.url("x")])
    assert isinstance(found, remote.RemoteError), "a part for the whole"
    server.fails("GET x", tells(206, "bytes 10-19/*"))
    assert read_ranges([part(server, 10, 10)]) == [CONTENT[10:20]]
    assert read_files([server.url("x")]) == [CONTENT]


@pytest.mark.parametrize("width", [5, 5000])
def test_rows_from_elsewhere_are_an_error_in_every_pool(server: Server, pools: list[Any], width: int) -> None:
    np.save(server.folder / "x.npy", np.arange(40 * width).reshape(40, width))
    source = bu.ArrayDataSource([bu.NpyRows(server.url("x.npy"))])
    server.fails(r"GET x.npy", sends_the_begin, 10**6)
    for pool in [None, *pools]:
        made = source if pool is None else pool.parallel_data_source(source)
        with raises(bu.BatchError):
            next(made.batch_iterator(16))


def test_a_file_is_looked_at_again_after_a_while(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(server.folder / "x.npy", np.arange(10))
    rows = bu.NpyRows(server.url("x.npy"))
    for row in range(10):
        assert rows[row] == row
    assert server.asked["HEAD x.npy"] == 1
    assert pickle.loads(pickle.dumps(rows))[3] == 3
    assert server.asked["HEAD x.npy"] == 2, "another process does not know when it was looked at"
    os.utime(server.folder / "x.npy", ns=(1, 1))
    with raises(SampleReadError):
        rows[3]
    assert server.asked["HEAD x.npy"] == 2, "what came tells"
    monkeypatch.setattr(remote, "LOOK_AGAIN_SECONDS", 0.0)
    with raises(SampleReadError):
        rows[3]


def tar_at(server: Server, n: int = 300, size: int = 10) -> tuple[str, Path]:
    """Serve a tar of `n` members; return its URL and where it lies."""
    path = write(server.folder / "x.tar", [(f"{row}.bin", bytes([row % 256]) * size) for row in range(n)])
    return server.url("x.tar"), path


def test_headers_of_a_tar_are_read_by_few_requests_and_once(server: Server, tmp_path: Path) -> None:
    url, path = tar_at(server)
    assert bu.TarShards(url)[-1] == bytes([299 % 256]) * 10
    assert server.gets("x.tar") < 5
    assert (tmp_path / "caches" / "batchup_ng").stat().st_mode & 0o777 == 0o700
    server.asked.clear()
    assert len(bu.TarShards(url)) == 300
    assert server.asked == {"HEAD x.tar": 1}, "nothing but whether it is what it was"
    os.utime(path, ns=(1, 1))
    assert len(bu.TarShards(url)) == 300
    assert server.gets("x.tar") > 0
    assert not (server.folder / "x.tar.index").exists()


def test_joined_tars_are_refused_by_their_first_bytes_behind_the_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "REQUEST_BYTES", 8192)
    url, path = tar_at(server, 3)
    path.write_bytes(path.read_bytes() + write(server.folder / "y.tar", [("3.bin", bytes(1 << 20))]).read_bytes())
    sent: list[int] = []
    server.fails("GET x.tar", lambda handler, content: sent.append(len(content)) or True, 10**3)
    with raises(SampleReadError):
        bu.TarShards(url, index=False)
    assert sum(sent) < path.stat().st_size / 5


def test_large_members_of_a_tar_are_passed_over(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUEST_BYTES", 8192)
    url, path = tar_at(server, 10, 200_000)
    sent: list[int] = []
    server.fails("GET x.tar", lambda handler, content: sent.append(len(content)) or True, 10**3)
    assert len(bu.TarShards(url, index=False)) == 10
    assert sum(sent) < path.stat().st_size / 10
    sent.clear()
    monkeypatch.setattr(remote, "REQUEST_BYTES", 8 << 20)
    assert len(bu.TarShards(url, index=False)) == 10
    assert len(sent) < 5


@pytest.mark.parametrize("index", [True, False])
def test_an_index_beside_the_tar_is_used(index: bool, server: Server, tmp_path: Path) -> None:
    url, path = tar_at(server)
    bu.TarShards(path)
    os.utime(path, ns=(1, 1))  # as an upload has
    assert len(bu.TarShards(url, index=index)) == 300
    assert server.gets("x.tar") == 4, "whether it is that of this tar"
    assert len(bu.TarShards(f"{url}?signature=1", index=False)) == 300
    assert server.gets("x.tar") == 8
    server.asked.clear()
    (server.folder / "x.tar.index").write_bytes(b"damaged")
    assert len(bu.TarShards(url, index=index)) == 300
    assert server.gets("x.tar") > 0
    assert (tmp_path / "caches").exists() == index


def test_an_index_of_another_tar_or_that_is_too_large_is_left(server: Server, tmp_path: Path) -> None:
    url, path = tar_at(server, 3)
    write(tmp_path / "y.tar", [(f"{row}.bin", bytes([row]) * (30 - 10 * row)) for row in range(3)])
    assert (tmp_path / "y.tar").stat().st_size == path.stat().st_size
    bu.TarShards(tmp_path / "y.tar")
    (tmp_path / "y.tar.index").replace(f"{path}.index")
    assert bu.TarShards(url, index=False)[:] == [bytes([row]) * 10 for row in range(3)]
    write(tmp_path / "y.tar", [("0.bin", bytes(20_000))])
    bu.TarShards(tmp_path / "y.tar")
    (tmp_path / "y.tar.index").replace(f"{path}.index")
    assert len(bu.TarShards(url, index=False)) == 3
    server.asked.clear()
    os.truncate(f"{path}.index", 1 << 20)
    assert len(bu.TarShards(url, index=False)) == 3
    assert server.gets(".index") == 0


def test_patterns_are_for_stores_that_list_files(server: Server) -> None:
    with raises(ArgumentError):
        bu.FileBytes(server.url("*.tar"))
    assert bu.FileBytes(server.url("{x,x}?what=[1]"))[:] == [CONTENT] * 2


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "local:///etc/passwd", "zip://x::file:///etc/passwd.zip", "nonsense://x"]
)
def test_some_urls_are_refused(url: str) -> None:
    with raises(ArgumentError):
        bu.NpyRows(url)
    with raises(ArgumentError):
        bu.FileBytes([url])[0]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with raises(ImportError):
        bu.NpyRows("s3://b/x")
