"""Arrays that stay with the consumer: workers ask for their rows."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng.errors import ArgumentError, BatchupError, PoolClosed, SerializationError
from batchup_ng.work_pool.processes import asking, protocol, served
from batchup_ng.work_pool.processes.protocol import Kind, Placed
from batchup_ng.work_pool.processes.served import Offer, ServedArray, Server
from batchup_ng.work_pool.processes.shared_memory import Arena, Extent
from tests.extent import quick
from tests.work_pool.processes.serialization_helpers import MB, sent


class Task:
    """A task of a worker that is in this process, with a slot."""

    def __init__(self, server: Server, arena: Arena) -> None:
        self._server = server
        self._extent = arena.take(4 * MB)
        self.slot = arena.array(self._extent)
        self.inline = 0

    def ask(self, payload: Any) -> protocol.Frame:
        done = threading.Event()
        answers: list[protocol.Frame] = []

        def reply(frame: list[Any]) -> None:
            answers.append(sent(frame))
            done.set()

        self._server.submit(sent(protocol.encode(Kind.ASK, 7, payload)), reply)
        assert done.wait(20)
        assert (answers[0].kind, answers[0].number) == (Kind.ANSWER, 7)
        self.inline += sum(len(buffer) for buffer in answers[0].buffers)
        return answers[0]

    def placed(self, array: np.ndarray) -> Placed | None:
        at = array.__array_interface__["data"][0] - self.slot.__array_interface__["data"][0]
        return Placed(self._extent.offset + at, array.nbytes) if 0 <= at < self._extent.size else None


@pytest.fixture
def task() -> Iterator[Task]:
    arena = Arena(16 * MB)
    server = Server(arena)
    made = asking.CURRENT.task = Task(server, arena)
    yield made
    asking.CURRENT.task = None
    server.close()
    server.close()
    arena.close()


ARRAYS = [
    np.arange(600).reshape(100, 6),
    np.asfortranarray(np.arange(600.0).reshape(100, 3, 2)),
    np.arange(200, dtype=">i4")[::2],
    np.array([f"row {i}" for i in range(100)]),
    np.zeros(100, [("a", "u1"), ("b", "<f8")]),
    np.zeros((100, 0)),
]
KEYS = st.one_of(
    st.integers(-100, 99),
    st.slices(100),
    st.lists(st.integers(-100, 99)),
    st.lists(st.integers(-100, 99)).map(lambda rows: np.array(rows, np.int32)),
    st.lists(st.booleans(), min_size=100, max_size=100).map(np.array),
)


def test_a_served_array_is_indexed_as_the_array_is(task: Task) -> None:
    @given(st.sampled_from(range(len(ARRAYS))), KEYS)
    def check(i: int, key: Any) -> None:
        offer = Offer(ARRAYS[i])
        served = ServedArray(offer.number, ARRAYS[i].shape, ARRAYS[i].dtype)
        expected = ARRAYS[i][np.array(key, np.intp) if key == [] else key] if isinstance(key, list) else ARRAYS[i][key]
        got = served[key]
        np.testing.assert_array_equal(got, expected)
        assert (np.shape(got), np.asarray(got).dtype) == (np.shape(expected), np.asarray(expected).dtype)

    check()


def test_a_served_array_tells_of_itself_what_the_array_would(task: Task) -> None:
    array = ARRAYS[1]
    offer = Offer(array)
    served = ServedArray(offer.number, array.shape, array.dtype)
    for name in ("shape", "dtype", "ndim", "size", "nbytes"):
        assert getattr(served, name) == getattr(array, name)
    assert len(served) == len(array)
    np.testing.assert_array_equal(np.asarray(served), array)
    np.testing.assert_array_equal(np.asarray(served, np.float32), array.astype(np.float32))
    for key in ((3,), (3, 1), (slice(2, 9), 1), ([5, 1], slice(None), 0)):
        np.testing.assert_array_equal(served[key], array[key])
    with pytest.raises(ArgumentError, match="without a copy"):
        served.__array__(copy=False)
    assert repr(served) == "ServedArray((100, 3, 2) float64, in the consumer's process)"


def test_large_arrays_are_read_whole_in_pieces(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "AT_ONCE", MB)
    array = np.arange(400_000).reshape(-1, 5)
    offer = Offer(array)
    np.testing.assert_array_equal(np.asarray(ServedArray(offer.number, array.shape, array.dtype)), array)


@pytest.mark.parametrize("i", range(len(ARRAYS)))
def test_rows_are_written_to_the_slot_if_they_are_wanted_there(task: Task, i: int) -> None:
    array = ARRAYS[i]
    offer = Offer(array)
    served = ServedArray(offer.number, array.shape, array.dtype)
    rows = np.array([5, -1, 0, 5])
    shape = (4, *array.shape[1:])
    in_slot: np.ndarray = np.ndarray(shape, array.dtype, task.slot, 64)
    served.read_into(rows, in_slot)
    np.testing.assert_array_equal(in_slot, array[rows])
    assert task.inline <= 64  # the numbers of rows travel by value, the rows themselves do not
    elsewhere = np.empty(shape, array.dtype)
    served.read_into(rows, elsewhere)
    np.testing.assert_array_equal(elsewhere, array[rows])


def test_what_cannot_be_answered_is_an_error_in_the_worker(task: Task) -> None:
    offer = Offer(ARRAYS[0])
    served = ServedArray(offer.number, (100, 6), int)
    for rows in ([100], [-101]):
        with pytest.raises(IndexError, match="out of range for 100 rows"):
            served[rows]
    with pytest.raises(IndexError, match="row 100 is out of range"):
        ServedArray(offer.number, (101, 6), int)[[100]]  # the consumer's process does not believe the worker
    with pytest.raises(ArgumentError, match="do not go into"):
        asking.ask(("rows", offer.number, np.array([1])), Placed(0, 3))
    with pytest.raises(ArgumentError, match="a worker asked for 'files'"):
        asking.ask(("files", offer.number, np.array([1])))
    with pytest.raises(ArgumentError, match="out must be"):
        served.read_into(np.array([1]), np.empty((1, 5), int))
    del offer
    with pytest.raises(PoolClosed, match="is gone"):
        served[3]
    with pytest.raises(SerializationError, match="cannot be part of a result"):
        copy.deepcopy(served)
    asking.CURRENT.task = None
    with pytest.raises(BatchupError, match="on a thread that runs no task"):
        served[3]


def test_a_server_settles_when_all_it_was_asked_is_written() -> None:
    arena = Arena(16 * MB)
    server = Server(arena)
    assert server.settle()
    array = np.arange(100_000).reshape(-1, 10)
    offer = Offer(array)
    extent = arena.take(MB)
    place = (extent.offset, 8 * 10 * 1000)
    answers: list[Any] = []
    for i in range(20):
        payload = ("rows", offer.number, np.arange(i, i + 1000), place)
        server.submit(sent(protocol.encode(Kind.ASK, i, payload)), answers.append)
    assert server.settle()
    assert len(answers) == 20
    written = arena.array(Extent(*place)).view(int).reshape(-1, 10)
    np.testing.assert_array_equal(written, array[19:1019])
    server.close()
    server.submit(sent(protocol.encode(Kind.ASK, 0, None)), answers.append)
    assert server.settle()
    assert len(answers) == 20
    del written
    arena.close()


@pytest.mark.parametrize(
    ("method", "threads"), quick([("forkserver", 3)], [("spawn", 1), ("spawn", 3), ("forkserver", 1)])
)
def test_batches_of_served_arrays_are_those_of_the_source(method: str, threads: int) -> None:
    batch = batches_from()
    pictures = np.random.default_rng(0).integers(0, 255, (500, 9, 9, 3), dtype=np.uint8)
    scaled = bu.ImageArrayUInt8ToFloat32(pictures)
    source = bu.ArrayDataSource([pictures, scaled, np.arange(500)])
    with bu.WorkerProcessPool(2, threads=threads, start_method=method) as pool:
        constant = pool.shared_constant(source, arrays="served")
        assert constant.arrays == "served"
        tasks = [(batch, (constant, i)) for i in range(0, 500, 50)]
        for i, (x, y, rows) in enumerate(pool.work_stream(iter(tasks)).retrieve_iter()):
            assert rows.tolist() == list(range(50 * i, 50 * i + 50))
            np.testing.assert_array_equal(x, pictures[rows])
            np.testing.assert_array_equal(y, scaled[rows])
        assert pool._dispatcher.copies.arena.taken == pool._dispatcher.slots.bytes, "nothing but slots"


def batches_from() -> Any:
    """Return a function that makes a batch of 50 samples, for which workers need not import this file."""
    return lambda source, start: source.samples_by_indices(np.arange(start, start + 50))


def test_a_source_with_a_way_of_its_own_can_be_served() -> None:
    class Pairs(bu.ArrayDataSource):
        def samples_by_indices_nomapping(self, indices: Any) -> Any:
            x = self.data[0]
            return x[indices], x[(indices + 1) % len(x), :2]

    array = np.random.default_rng(0).random((300, 50))
    with bu.WorkerProcessPool(1) as pool:
        constant = pool.shared_constant(Pairs([array]), arrays="served")
        ((x, after),) = pool.work_stream(iter([(batches_from(), (constant, 250))])).retrieve_iter()
        assert constant.arrays == "served"
    np.testing.assert_array_equal(x, array[250:])
    np.testing.assert_array_equal(after, np.roll(array, -1, 0)[250:, :2])
