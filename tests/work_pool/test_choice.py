"""Which pool suits which work."""

from __future__ import annotations

import decimal
import gc
import itertools
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.data_source.epoch_options import epoch_options
from batchup_ng.work_pool import choice, lock_looks, prefetch_buffer
from batchup_ng.work_pool.choice import Choice, suited
from batchup_ng.work_pool.parallel import ParallelNode
from batchup_ng.work_pool.processes import trial_copy
from tests.extent import quick
from tests.messages import raises, warns
from tests.threads import needs_lock

TOO_BUSY = "too busy to tell"


def in_python(x: Any) -> Any:
    total = 0
    for number in range(60_000):
        total += number
    return (x,)


def asleep(x: Any) -> Any:
    time.sleep(0.002)
    return (x,)


def choose(source: Any, batch_size: int, shuffle: Any, timeout: float | None = None) -> Choice:
    return choice.choose(source, epoch_options(batch_size, shuffle), timeout=timeout).choice


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the trials not end early where the machine is busy."""
    monkeypatch.setattr(choice, "MAX_SECONDS", 3600.0)


@pytest.fixture
def source() -> bu.ArrayDataSource:
    return bu.ArrayDataSource([np.arange(80_000)])


def test_tiny_work_stays_on_the_thread(source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "TINY_BATCH_SECONDS", 1.0)  # seconds, which no machine is too busy for
    kind, why = choose(source, 8, True)
    assert kind == "serial"
    assert "less than handing it over" in why


@needs_lock
@pytest.mark.in_turn
def test_python_work_needs_processes(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(in_python), 8, True)
    assert kind == "processes"
    assert "of it with the interpreter's lock" in why or TOO_BUSY in why


def test_python_work_suits_threads_where_there_is_no_lock(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "has_lock", lambda: False)
    monkeypatch.setattr(choice, "SHORT_EPOCH_SECONDS", 0.0)
    monkeypatch.setattr(choice, "TINY_BATCH_SECONDS", 0.0)
    monkeypatch.setattr(choice, "LOCK_SHARE", 0.0)  # of work on a CPU, which on a busy machine is little
    assert choose(source.map(in_python), 8, True).kind == "threads"
    kind, why = suited(in_python, range(2))
    assert kind == "threads"
    assert "this interpreter has no lock" in why
    assert choice.lock_share(lambda: in_python(0), 0.01, 0.01) == 0.0


def test_one_batch_that_the_machine_disturbs_does_not_decide(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed, calls = choice.timed, itertools.count()

    def disturbed(run: Any) -> Any:
        found = timed(run)
        return found._replace(seconds=0.05, ran=0.049, queued=0.0) if next(calls) == 1 else found

    monkeypatch.setattr(choice, "timed", disturbed)
    assert choose(source.map(asleep), 8, False).kind == "threads"
    assert next(calls) > 2


def test_work_that_lets_the_lock_go_suits_threads(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(asleep), 8, False)
    assert kind == "threads"
    assert re.search(r"a batch takes .* ms, \d+% of it on a CPU", why)


@pytest.mark.parametrize("rows", [1, 16, 80])
def test_no_processes_are_started_for_a_short_epoch(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "SLOW_BATCH_SECONDS", 3600.0)  # these are made twice, which tells how often they are
    calls: list[int] = []

    def make(item: int) -> None:
        calls.append(item)
        in_python(item)

    assert choose(bu.ArrayDataSource([np.arange(rows)]).map(in_python), 8, True).kind == "threads"
    kind, why = suited(make, range(2), 2)
    assert (kind, len(calls)) == ("threads", 2)
    assert "too short for a start of processes" in why


def test_what_cannot_be_tried_goes_to_threads(source: bu.ArrayDataSource, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        assert "cannot be pickled" in choose(source.map(lambda x: (file.name, x)), 8, True).why
    assert "ZeroDivisionError" in choose(source.map(lambda x: (1 // 0,)), 8, True).why
    assert "only streams" in choose(bu.CallableDataSource(lambda *_, **__: iter([])), 8, True).why


def test_an_empty_source_can_be_tried() -> None:
    assert choose(bu.ArrayDataSource([np.arange(0)]), 8, True) == ("serial", "there are no batches")


def test_nothing_is_tried_that_may_hang(source: bu.ArrayDataSource) -> None:
    kind, why = choose(source.map(lambda x: time.sleep(1000)), 8, True, timeout=1.0)
    assert kind == "processes"
    assert "timeout=" in why
    lock = threading.Lock()
    assert choose(source.map(lambda x: (lock and x,)), 8, True, timeout=1.0).kind == "threads"


class Counts:
    """A data set that writes to an array of its own, large enough to be shared with a copy."""

    def __init__(self) -> None:
        self.seen = np.zeros(100_000)

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> float:
        self.seen[index] += 1
        return float(self.seen[index])


def test_a_data_set_that_writes_is_not_written_to() -> None:
    data = Counts()
    kind, why = choose(bu.ArrayDataSource([bu.MapStyle(data)]), 8, False)
    assert not data.seen.any()
    assert (kind, "ValueError" in why) == ("threads", True)


class CountsInTensors:
    """A data set that changes its tensors in place, of sizes on both sides of what is shared; one has gaps."""

    def __init__(self, torch: Any) -> None:
        self.small = torch.ones(80)
        self.large = torch.ones(80, 1250)
        self.with_gaps = torch.ones(80, 20)[:, ::2]

    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(float(each[index].mul_(2).sum()) for each in (self.small, self.large, self.with_gaps))


@pytest.mark.parametrize("n_rows", [8, 80])
def test_tensors_that_a_data_set_writes_to_stay_as_they_are(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    data = CountsInTensors(torch)
    source = bu.ArrayDataSource([bu.MapStyle(data)])
    tried = choice.choose(source, epoch_options(n_rows, False))
    assert tried.ready_made == []
    assert all(bool((each == 1).all()) for each in (data.small, data.large, data.with_gaps))
    with bu.Loader(source, 8) as loader:
        assert [column.tolist() for column in next(iter(loader))] == [[2.0] * 8, [2500.0] * 8, [20.0] * 8]


def test_tensors_that_are_only_read_keep_the_batches_that_were_tried() -> None:
    torch = pytest.importorskip("torch")
    data = torch.full((80, 1250), float("nan"))
    data[:, 0] = torch.arange(80)
    source = bu.ArrayDataSource([bu.MapStyle(list(data)), torch.arange(80)]).map(asleep_on_both)
    tried = choice.choose(source, epoch_options(8, False))
    assert tried.ready_made[0][1][1].tolist() == [*range(8)]


def asleep_on_both(x: Any, y: Any) -> Any:
    time.sleep(0.002)
    return x, y


def test_tensors_too_large_for_a_copy_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    data = CountsInTensors(torch)
    monkeypatch.setattr(trial_copy, "ROOM_TO_SPARE", 1e-9)
    kind, why = choose(bu.ArrayDataSource([bu.MapStyle(data)]), 8, False)
    assert (kind, "too large" in why) == ("threads", True)
    assert bool((data.large == 1).all())
    kind, why = choose(bu.ArrayDataSource([torch.ones(80, 1250)]), 8, False)  # a column is only read
    assert "too large" not in why


@pytest.mark.in_turn
def test_trying_changes_nothing(source: bu.ArrayDataSource) -> None:
    calls = []

    def drawing(x: Any) -> Any:
        calls.append(len(x))
        return (x, np.random.rand(len(x)))

    state = np.random.get_state(legacy=False)
    choose(source.map(drawing), 8, True)
    assert calls == []  # the copy has a list of its own
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


FILES = (choice.__file__, lock_looks.__file__)
"""The modules that choose."""


def interrupted_at(line: int, run: Callable[[], object]) -> bool:
    """Run under an interrupt at the line of that number that this thread runs in :data:`FILES`; return if it came.

    Of a loop, the first three rounds count.
    """
    lines, rounds = itertools.count(1), Counter[int]()
    came = False

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal came
        if frame.f_code.co_filename not in FILES:
            return None
        rounds[frame.f_lineno] += event == "line"
        if event == "line" and not came and rounds[frame.f_lineno] <= 3 and next(lines) == line:
            came = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return came


@pytest.mark.filterwarnings("ignore:.*/proc/thread-self/schedstat")  # the interrupt came before it was closed
def test_an_interrupt_at_any_line_arrives(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch, in_full: bool
) -> None:
    monkeypatch.setattr(choice, "FEWEST_LOOKED_AT", 1)
    monkeypatch.setattr(choice, "CERTAIN", -1.0)
    monkeypatch.setattr(choice, "SLOW_BATCH_SECONDS", 3600.0)
    python = source.map(in_python)
    for line in itertools.count(1, 1 if in_full else 9):
        try:
            came = interrupted_at(line, lambda: choose(python, 8, True))
        except KeyboardInterrupt:
            came = True
        else:
            assert not came, f"the interrupt at line {line} was swallowed"
        if not came:
            break
    assert line > 50


@needs_lock
def test_an_interrupt_while_the_second_thread_starts_arrives(
    source: bu.ArrayDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Raised(Exception):
        pass

    def handler(number: int, frame: Any) -> None:
        raise Raised

    def start(thread: threading.Thread) -> None:
        handler(signal.SIGUSR1, sys._getframe())

    monkeypatch.setattr(choice, "SHORT_EPOCH_SECONDS", 0.0)
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(Raised):
        choose(source.map(in_python), 8, True)


def test_an_error_on_the_second_thread_arrives() -> None:
    calls = []

    def make(item: int) -> None:
        calls.append(item)
        in_python(item)
        if len(calls) == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        suited(make, range(6))


# What was made to find out is handed out


def with_process(x: Any, rng: bu.SampleRng) -> Any:
    return x, rng.random(len(x)), np.full(len(x), os.getpid())


def with_global(x: Any) -> Any:
    return x, np.random.random(len(x)), np.full(len(x), os.getpid())


def with_warning(x: Any) -> Any:
    if 3 in x:
        warnings.warn("a bad sample", UserWarning, stacklevel=1)
    return x, -x, np.full(len(x), os.getpid())


class InBlocks:
    """Rows that are their numbers, and that are read in blocks."""

    natural_block, natural_window = 10, 2

    def __len__(self) -> int:
        return 100

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(100)[rows]


def tries_three(monkeypatch: pytest.MonkeyPatch, kind: str, n: int = 3) -> None:
    """Let the choice be `kind` once the first `n` batches were made."""

    def suited(make: Callable[[Any], object], items: Any, n_batches: float) -> Choice:
        for item in items[:n]:
            make(item)
        return Choice(kind, "the test says so")

    monkeypatch.setattr(choice, "suited", suited)


OPTIONS: dict[str, Any] = {
    "in order": {},
    "by a seed": {"shuffle": 7},
    "by a generator": {"shuffle": 7},
    "in blocks": {"shuffle": ("blocks", 7)},
    "a part": {"shuffle": 7, "shard": (1, 3), "pad_mask": True},
}


def options_of(order: str) -> dict[str, Any]:
    return {**OPTIONS[order], **({"shuffle": np.random.RandomState(7)} if "generator" in order else {})}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("kind", "order"),
    quick(
        [*[("threads", order) for order in OPTIONS], ("processes", "by a seed")],
        [("processes", order) for order in OPTIONS],
    ),
)
def test_batches_that_were_tried_are_the_first_of_the_epoch(
    kind: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = bu.ArrayDataSource([InBlocks()])
    plain = source.map(with_process, rng="sample")
    resumes = "generator" not in order
    for data in (plain, source.map(with_global)):
        if data is not plain and (kind, order) != ("processes", "by a seed"):
            continue  # only there are the global generators those of a plain loop
        tries_three(monkeypatch, kind)
        with (
            bu.Loader(data, 8, pool="serial", **options_of(order)) as one,
            bu.Loader(data, 8, workers=1, **options_of(order)) as chosen,
        ):
            for _ in range(2):
                expected, given = list(one), list(chosen)
                assert len(expected) == len(given)
                for left, right in zip(expected, given, strict=True):
                    for i in (0, 1, *range(3, len(left))):
                        np.testing.assert_array_equal(left[i], right[i], strict=True)
                if kind == "processes":
                    here = [bool((batch[2] == os.getpid()).all()) for batch in given]
                    assert here == [number < 3 and not _ for number in range(len(given))]
        if resumes:
            with bu.Loader(data, 8, workers=1, **options_of(order)) as chosen:
                chosen.load_state_dict(_state_after(2, data, options_of(order)))
                rest = list(chosen)
                assert len(rest) == len(given) - 2
                for left, right in zip(rest, expected_epoch(data, options_of(order))[2:], strict=True):
                    np.testing.assert_array_equal(left[0], right[0], strict=True)
                    np.testing.assert_array_equal(left[1], right[1], strict=True)


def expected_epoch(data: Any, options: dict[str, Any]) -> list[Any]:
    with bu.Loader(data, 8, pool="serial", **options) as loader:
        return list(loader)


def _state_after(n: int, data: Any, options: dict[str, Any]) -> Any:
    with bu.Loader(data, 8, pool="serial", **options) as loader:
        for _ in zip(range(n), loader, strict=False):
            pass
        return loader.state_dict()


def test_a_batch_that_was_tried_and_warned_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_three(monkeypatch, "threads")
    source = bu.ArrayDataSource([np.arange(6)]).map(with_warning)
    with bu.Loader(source, 2, workers=1) as loader, warns(UserWarning):
        given = list(loader)
    assert [x.tolist() for x, _, _ in given] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.in_turn
def test_a_batch_that_was_tried_is_made_once(tmp_path: Path) -> None:
    """The real choice, of batches that take long."""

    def slow(x: Any) -> Any:
        with open(tmp_path / "log", "a") as log:
            log.write(f"{x[0]}\n")
        time.sleep(0.15)
        return (x,)

    # One worker: of two, one may begin the next epoch before the other has written its line of this one.
    with bu.Loader(bu.ArrayDataSource([np.arange(16)]).map(slow), 2, workers=1) as loader:
        given = [x.tolist() for (x,) in loader]
    assert given == [[i, i + 1] for i in range(0, 16, 2)]
    log = (tmp_path / "log").read_text().split()
    assert sorted(map(int, log[:8])) == list(range(0, 16, 2))  # then the next epoch begins


def test_batches_that_were_tried_are_dropped_where_others_are_wanted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_three(monkeypatch, "threads")
    with bu.Loader(bu.ArrayDataSource([np.arange(20)]).map(with_process, rng="sample"), 4, shuffle=1) as loader:
        number_3 = loader.batch(3)
        given = list(loader)
    for left, right in zip(given[3], number_3, strict=True):
        np.testing.assert_array_equal(left, right, strict=True)
    assert sorted(np.concatenate([batch[0] for batch in given]).tolist()) == list(range(20))


def test_an_error_in_a_batch_that_was_tried_is_raised_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(x: Any) -> Any:
        if 5 in x:
            raise ValueError("five")
        return (x,)

    tries_three(monkeypatch, "threads")
    source = bu.ArrayDataSource([np.arange(8)]).map(bad)
    with bu.Loader(source, 2, on_error="skip") as loader, warns(bu.SampleWarning):
        given = [x.tolist() for (x,) in loader]
    assert given == [[0, 1], [2, 3], [4], [6, 7]]
    assert len(loader.errors) == 1


def test_a_batch_that_is_made_beside_the_measure_has_the_context_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    here = threading.get_ident()

    def seventh(x: Any) -> Any:
        return x, [str(decimal.Decimal(1) / 7)] * len(x), np.full(len(x), threading.get_ident())

    def suited(make: Callable[[Any], object], items: Any, n_batches: float) -> Choice:
        lock_looks.looks_at(lambda: make(items[0]), 1.0)
        return Choice("threads", "the test says so")

    monkeypatch.setattr(choice, "suited", suited)
    with decimal.localcontext() as context, bu.Loader(bu.ArrayDataSource([np.arange(4)]).map(seventh), 4) as loader:
        context.prec = 3
        ((_, words, threads),) = loader
    assert words == ["0.143"] * 4
    assert here not in threads


@pytest.mark.parametrize("kind", ["serial", "threads"])
@pytest.mark.parametrize("by_generator", [False, True])
def test_what_is_drawn_from_global_generators_comes_from_there(
    kind: str, by_generator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawing(x: Any) -> Any:
        return x, np.random.random(len(x)), np.full(len(x), random.random())

    tries_three(monkeypatch, kind)
    given = []
    for pool in (kind, "auto"):
        random.seed(1)
        np.random.seed(1)
        shuffle = np.random.RandomState(3) if by_generator else None
        workers = {} if pool == "serial" else {"workers": 1}
        source = bu.ArrayDataSource([np.arange(40)]).map(drawing)
        with bu.Loader(source, 8, shuffle=shuffle, pool=pool, **workers) as loader:
            given.append(list(loader))
    for left, right in zip(*given, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_large_batches_that_are_tried_take_no_more_memory_than_those_that_are_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefetch_buffer, "MAX_BYTES_AHEAD", 5000)
    tries_three(monkeypatch, "threads", 6)
    source = bu.ArrayDataSource([np.zeros((60, 200))])
    tried = choice.choose(source, epoch_options(1))
    assert len(tried.ready_made) == 2  # of 1600 bytes: three fit, two are held at least


class Unpicklable:
    """Rows of a user's source."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> Any:
        raise TypeError("these rows stay here")


class WithItsOwnRows(bu.data_source.AbstractDataSource):
    """A source of a user's, with BatchUp's methods."""

    is_random_access = True

    def num_samples(self, **kwargs: Any) -> int:
        return 10

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Any:
        return (Unpicklable(np.arange(i, min(i + batch_size, 10))) for i in range(0, 10, batch_size))

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        return (indices.rows,)


def test_rows_of_a_users_source_may_be_what_cannot_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_three(monkeypatch, "threads")
    with bu.Loader(WithItsOwnRows(), 4) as loader:
        assert [x.tolist() for (x,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_two_threads_may_ask_for_the_last_batch_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    class Taken(list[Any]):
        """As if another thread took the last one just now."""

        def __len__(self) -> int:
            return 1

    tries_three(monkeypatch, "threads")
    with bu.Loader(bu.ArrayDataSource([np.arange(6)]), 2) as loader:
        node: Any = loader._pool_node()
        node.setup = node.setup._replace(ready_made=Taken())
        assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3], [4, 5]]


def test_a_loop_that_is_left_early_holds_no_batch_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tries_three(monkeypatch, "threads")
    tried: list[Any] = []

    def note(source: Any, made: Any, hand_out: Any = ParallelNode.hand_out_first) -> None:
        tried.extend(weakref.ref(batch[0]) for _, batch in made)
        hand_out(source, made)

    monkeypatch.setattr(ParallelNode, "hand_out_first", note)
    with bu.Loader(bu.ArrayDataSource([np.arange(60)]), 2, buffer=1) as loader:
        iterator = iter(loader)
        next(iterator)
        assert [ref() is not None for ref in tried] == [False, True, True]
        iterator.close()
        gc.collect()
        assert [ref() is not None for ref in tried] == [False, False, False]


def test_a_close_during_the_choice_starts_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def suited(make: Callable[[Any], object], items: Any, n_batches: float) -> Choice:
        make(items[0])
        loader.close()
        return Choice("threads", "the test says so")

    monkeypatch.setattr(choice, "suited", suited)
    loader = bu.Loader(bu.ArrayDataSource([np.arange(6)]), 2)
    before = {*threading.enumerate()}
    with raises(bu.PoolClosed):
        list(loader)
    assert not {*threading.enumerate()} - before
