"""Batches that a thread converts ahead: the contract, the thread, interrupts, the end."""

from __future__ import annotations

import gc
import itertools
import json
import math
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolClosed, ReentrantIteration
from batchup_ng.frameworks import ahead as module
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.frameworks.handover import handed_over
from tests.messages import raises
from tests.threads import frees_at_once
from tests.work_pool.processes.serialization_helpers import wait_until

from .handover_helpers import SOURCE, AsNumPy, ahead, numbers


class TestAhead(AsNumPy):
    """Batches that a thread converts ahead."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return ahead(loader)


class TestAheadOfSlowLoops(AsNumPy):
    """Batches that a thread converts where the loop takes its time."""

    def handed_over(self, loader: bu.Loader) -> Any:
        return ahead(loader, always=False)


def test_figures_after_a_resume_leave_out_the_run_before() -> None:
    source = bu.ArrayDataSource([np.arange(12)])
    first = source.batch_iterator(4)
    next(first)
    with ahead(source.batch_iterator(4, state=first.state_dict())) as iterator:
        next(iterator)
        assert (iterator.stats()["batches"], iterator.stats()["samples"]) == (1, 4)
        assert len(iterator) == 1


def test_what_is_ahead_is_bounded() -> None:
    made, another = [], threading.Semaphore(0)

    def batches() -> Any:
        for number in range(50):
            made.append(number)
            another.release()
            yield (np.array([number]),)

    with ahead(batches(), depth=2) as iterator:
        next(iterator)
        for _ in range(3):  # the one that was handed out, and two
            assert another.acquire(timeout=60)
        assert not another.acquire(timeout=0.1)
        assert len(made) == 3


@pytest.mark.parametrize(
    ("pool", "quick_seconds", "expected"),
    [
        ("threads", 0.0, {"MainThread", "handover"}),
        ("threads", math.inf, {"MainThread"}),
        ("serial", 0.0, {"MainThread"}),
    ],
)
def test_where_the_thread_works(
    pool: str, quick_seconds: float, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUICK_SECONDS", quick_seconds)
    names = set()
    made: list[Any] = []  # the iterator of the pool's batches

    def convert(batch: Any) -> Any:
        if pool == "threads" and not names:
            wait_until(made[0].buffered)  # another batch is made, so that the thread can help
        names.add(threading.current_thread().name)
        return batch

    def view(iterator: Any) -> Any:
        made.append(iterator)
        return AheadIterator(iterator, convert, always=False)

    with bu.Loader(SOURCE, 4, pool=pool) as loader:
        assert numbers(handed_over(loader, view)) == list(range(0, 40, 4))
    assert names == expected


@frees_at_once
def test_a_batch_that_the_loop_is_done_with_is_freed_by_the_thread() -> None:
    """TensorFlow and JAX let others have the interpreter's lock meanwhile, for which the loop would wait."""
    freed: list[str] = []
    some = threading.Semaphore(0)
    taken = 0

    class Batch:
        def __del__(self) -> None:
            freed.append(threading.current_thread().name)
            some.release()

    with ahead(Batch() for _ in range(99)) as iterator:  # not to its end, where the thread ends and frees no more
        for batch in iterator:  # noqa: B007  # the loop holds it, as a training does
            taken += 1
            if taken > 2:  # the last batch but one goes to the thread
                assert some.acquire(timeout=120)
            if taken == 8:
                break
        assert freed == ["handover"] * 6
        del batch


def test_the_length_and_the_state_count_what_was_handed_out() -> None:
    with ahead(SOURCE.batch_iterator(8, shuffle=1)) as iterator:
        assert len(iterator) == 5
        first = [int(n) for _ in range(2) for n in next(iterator)[0]]
        assert len(iterator) == 3
        rest = SOURCE.batch_iterator(8, shuffle=1, state=iterator.state_dict())
        assert sorted(first + [int(n) for (x,) in rest for n in x]) == list(range(40))
        assert iterator.stats()["batches"] == 2


def test_a_file_counts_what_was_handed_out(tmp_path: Path) -> None:
    with ahead(SOURCE.batch_iterator(4)) as batches:
        next(batches)
        batches.save_state(tmp_path / "state.json")
        assert json.loads((tmp_path / "state.json").read_text()) == batches.state_dict()


def test_what_fails_on_the_thread_is_raised_in_its_turn() -> None:
    def convert(batch: Any) -> Any:
        if 16 in batch[0]:
            raise ZeroDivisionError("of the thread")
        return batch

    iterator = ahead(SOURCE.batch_iterator(8), convert)
    assert [int(next(iterator)[0][0]) for _ in range(2)] == [0, 8]
    with raises(ZeroDivisionError):
        next(iterator)
    with raises(PoolClosed):
        next(iterator)


def test_an_end_that_is_met_again_and_again_does_not_grow() -> None:
    with bu.Loader(SOURCE, 8, pool="serial") as loader:
        batches = iter(ahead(loader))
        assert len(list(batches)) == 5
        depths = []
        for _ in range(4):
            with pytest.raises(StopIteration) as caught:
                next(batches)
            depths.append(len(caught.traceback))
        assert len(set(depths)) == 1


def test_the_thread_ends_with_the_last_reference() -> None:
    iterator = ahead(SOURCE.batch_iterator(8))
    next(iterator)
    (thread,) = [each for each in threading.enumerate() if each.name == "handover"]
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None
    thread.join(timeout=60)
    assert not thread.is_alive()


LEFT_OPEN = """
import threading, time
from batchup_ng.frameworks.ahead import AheadIterator

second = threading.Event()

def convert(batch):
    if batch == 1:
        second.set()
        time.sleep(0.5)
        print("converted")
    return batch

batches = AheadIterator(iter(range(5)), convert)
next(batches)
second.wait()
"""


@pytest.mark.in_turn
def test_a_program_ends_when_its_thread_has_converted_a_batch() -> None:
    """A thread that Python ends in the middle of compiled code, such as that of JAX, aborts the program."""
    command, root = [sys.executable, "-c", LEFT_OPEN], Path(bu.__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "converted\n", "")


def test_an_interrupt_while_a_batch_is_received_loses_nothing() -> None:
    interrupts = [KeyboardInterrupt]

    def receive(batch: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return batch

    with ahead(SOURCE.batch_iterator(8), receive=receive) as iterator:
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert numbers(iterator) == [0, 8, 16, 24, 32]


@pytest.mark.parametrize("always", [True, False])
def test_each_batch_goes_to_one_of_three_threads(always: bool) -> None:
    with bu.WorkerThreadPool(2) as pool:
        for _ in range(20):
            iterator = ahead(pool.parallel_data_source(SOURCE).batch_iterator(1), always=always)
            with ThreadPoolExecutor(3) as threads:
                found = [each.result() for each in [threads.submit(numbers, iterator) for _ in range(3)]]
            assert sorted(itertools.chain(*found)) == list(range(40))


def test_what_is_making_a_batch_cannot_ask_for_the_next() -> None:
    iterator: Any = None

    def convert(batch: Any) -> Any:
        return next(iterator)

    iterator = AheadIterator(SOURCE.batch_iterator(8), convert, always=False)
    with iterator, pytest.raises(ReentrantIteration):
        next(iterator)


def test_a_consumer_that_waits_ends_with_the_iterator() -> None:
    waits, go_on = threading.Event(), threading.Event()

    def batches() -> Any:
        yield (np.arange(1),)
        waits.set()
        go_on.wait(60)
        yield (np.arange(1),)

    iterator = AheadIterator(batches(), lambda batch: batch)
    with ThreadPoolExecutor(2) as threads:
        next(iterator)
        waiting = threads.submit(next, iterator, "end")
        assert waits.wait(60)
        closing = threads.submit(iterator.close)
        assert waiting.result(60) == "end"
        go_on.set()
        closing.result(60)


def test_a_signal_that_comes_as_python_forgets_the_thread_arrives() -> None:
    """``threading`` keeps a weak set of its threads, in whose callback an exception would be printed and lost."""

    class Rang(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Rang

    def strike(frame: Any, event: str, argument: Any) -> None:
        names = frame.f_locals
        if event == "call" and frame.f_code.co_name == "_remove" and "selfref" in names:
            if names["selfref"]() is not threading._dangling:  # type: ignore[attr-defined]  # of another weak set
                return
            sys.setprofile(None)
            struck.append(True)
            signal.raise_signal(signal.SIGUSR1)

    struck: list[bool] = []
    gc.collect()
    gc.disable()  # it would find threads of tests before, wherever it runs
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with bu.Loader([np.arange(64)], 4, pool="threads", workers=1) as loader:
            batches = handed_over(loader, lambda iterator: AheadIterator(iterator, lambda batch: batch))
            sys.setprofile(strike)
            with pytest.raises(Rang):
                for _ in batches:
                    pass
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGUSR1, before)
        gc.enable()
    assert struck == [True]
