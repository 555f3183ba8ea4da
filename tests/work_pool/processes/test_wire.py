"""The sockets of all workers: what ends a wait, what is read, when the wire waits until it can write."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from batchup_ng.memory.leases import FRESH
from batchup_ng.work_pool.processes import protocol
from batchup_ng.work_pool.processes.process import WorkerProcess, hang_up
from batchup_ng.work_pool.processes.protocol import FrameReader, Kind
from batchup_ng.work_pool.processes.wire import Wire, WorkerHandle
from tests.work_pool.processes.serialization_helpers import MB


class Worker:
    """The other end of a worker's socket. What shows that its process ended is a pipe."""

    def __init__(self, wire: Wire) -> None:
        ours, self.sock = socket.socketpair()
        process = WorkerProcess(os.getpid(), ours, lambda timeout: 0)
        if process.death is not None:
            os.close(process.death)
        process.death, self._end = os.pipe()
        self.handle = WorkerHandle(0, process, 0.0, FRESH, None)
        wire.add(self.handle)

    def say(self, number: int, text: bytes = b"") -> None:
        protocol.write_frame(self.sock, protocol.pieces(Kind.RESULT, number, text))

    def end(self) -> None:
        os.close(self._end)  # the pipe becomes readable
        self._end = -1

    def close(self) -> None:
        assert self.handle.process.death is not None
        os.close(self.handle.process.death)
        if self._end >= 0:
            self.end()
        hang_up(self.sock)
        hang_up(self.handle.process.sock)


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire(threading.Lock())
    made.open()
    yield made
    made.close()


@pytest.fixture
def worker(wire: Wire) -> Iterator[Worker]:
    made = Worker(wire)
    assert wire.wait(0) == {None: False}, "a wait that has begun is ended, for it is without the worker"
    wire.woken()
    yield made
    made.close()


def numbers(found: tuple[list[Any], bool]) -> tuple[list[int], bool]:
    return [frame.number for frame in found[0]], found[1]


def test_a_call_of_wake_ends_one_wait_however_often_it_comes() -> None:
    wire = Wire(threading.Lock())
    wire.wake()  # before it is open: nothing to wake
    for _ in range(2):
        wire.open()
        assert wire.wait(0) == {}
        for _ in range(100_000):
            wire.wake()
        assert wire.wait(60) == {None: False}
        while wire.wait(0):
            wire.woken()
        wire.close()
        wire.wake()
        wire.close()


def test_messages_are_read_as_they_come_and_those_of_a_worker_that_ended_to_the_last(
    wire: Wire, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_READ", 1)
    worker.say(1)
    assert wire.wait(60) == {worker.handle: False}
    assert numbers(wire.read(worker.handle, False)) == ([1], False)
    large = bytes(protocol.READ_AHEAD - 100)
    for number in (2, 3, 4):
        worker.say(number, large)
    assert len(wire.read(worker.handle, False)[0]) < 3
    worker.end()
    assert wire.wait(60) == {worker.handle: True}, "once, though both of its descriptors are ready"
    found, gone = numbers(wire.read(worker.handle, True))
    assert gone
    assert found[-1] == 4


def test_a_worker_that_hung_up_is_gone_after_its_last_message(wire: Wire, worker: Worker) -> None:
    worker.say(1)
    worker.sock.send(b"half a message")
    hang_up(worker.sock)
    assert wire.wait(60) == {worker.handle: False}
    found: list[int] = []
    gone = False
    while not gone:
        new, gone = numbers(wire.read(worker.handle, False))
        found += new
    assert found == [1]


def test_a_full_socket_is_waited_for_until_all_is_written(wire: Wire, worker: Worker) -> None:
    writer = worker.handle.writer
    writer.add(protocol.pieces(Kind.TASK, 1, bytes(8 * MB)))
    assert not writer.write()
    assert wire.wait(0) == {}
    wire.watch(worker.handle)
    assert wire.wait(0) == {None: False}, "a wait that has begun is ended, for it is for messages only"
    wire.woken()
    assert wire.wait(0) == {}
    read = FrameReader(worker.sock)
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.extend([read.next(), read.next()]))
    thread.start()
    while worker.handle.watched:
        assert wire.wait(60) == {worker.handle: False}
        assert wire.read(worker.handle, False) == ([], False)
    thread.join(120)
    assert [frame.kind for frame in given] == [Kind.NUMBER, Kind.TASK]
    assert wire.wait(0) == {}


def test_a_worker_that_was_removed_is_waited_for_no_more(wire: Wire, worker: Worker) -> None:
    worker.say(1)
    wire.remove(worker.handle)
    assert wire.wait(0) == {}
    worker.handle.writer.add(protocol.pieces(Kind.TASK, 1, bytes(8 * MB)))
    assert not worker.handle.writer.write()  # another thread may send it a task while it is being ended
    wire.watch(worker.handle)
    worker.end()
    assert wire.wait(0) == {}
