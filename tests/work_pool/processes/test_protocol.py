"""Frames: whole again however they are cut."""

from __future__ import annotations

import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchup_ng.memory.leases import BufferPool
from batchup_ng.work_pool.processes import protocol
from batchup_ng.work_pool.processes.protocol import FrameReader, FrameWriter, Kind
from batchup_ng.work_pool.processes.serialization import dump


@given(st.lists(st.lists(st.integers(0, 90_000), max_size=4), min_size=1, max_size=4), st.integers(1000, 70_000))
def test_frames_arrive_whole_however_little_the_socket_takes(sizes: list[list[int]], step: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        reader, got = FrameReader(theirs), []
        for number, lengths in enumerate(sizes):
            obj = [np.arange(n, dtype=np.uint8) for n in lengths]
            whole = b"".join(bytes(piece) for piece in protocol.pieces(Kind.RESULT, number, *dump(obj)))
            for start in range(0, len(whole), step):
                ours.sendall(whole[start : start + step])
                got += reader.read() or []
        assert [frame.number for frame in got] == list(range(len(sizes)))
        for frame, lengths in zip(got, sizes, strict=True):
            for array, n in zip(frame.load(), lengths, strict=True):
                np.testing.assert_array_equal(array, np.arange(n, dtype=np.uint8))
                assert array.flags.writeable or n == 0


@pytest.mark.parametrize("n", [1, 1000, 300_001])
def test_a_writer_goes_on_where_the_socket_stopped_it(n: int) -> None:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    got: list[Any] = []
    with ours, theirs:
        ours.setblocking(False)
        writer = FrameWriter(ours)
        reading = threading.Thread(target=lambda: got.extend(read_all(theirs, 3)))
        for number in range(3):
            writer.add(protocol.pieces(Kind.RESULT, number, *dump((np.arange(n), number))))
            writer.write()
        reading.start()
        while writer.waiting:
            writer.write()
        reading.join(120)
    assert len(got) == 3
    for number, (array, tag) in enumerate(got):
        assert tag == number
        np.testing.assert_array_equal(array, np.arange(n))


def read_all(sock: socket.socket, n: int) -> list[Any]:
    reader = FrameReader(sock, BufferPool())
    frames = [reader.next() for _ in range(n)]
    return [frame.load() for frame in frames if frame is not None]


def test_the_end_of_the_socket_is_the_end_of_the_frames() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(bytes(protocol.pieces(Kind.READY, 5)[0])[:-1])
        ours.close()
        assert FrameReader(theirs).next() is None
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        ours.setblocking(False)
        writer = FrameWriter(ours)
        writer.add(protocol.pieces(Kind.RESULT, 1, *dump(np.arange(10))))
        writer.write()
        assert not writer.waiting
