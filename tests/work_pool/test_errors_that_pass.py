"""Exceptions that do not come again, of signal handlers or of the program: no sample is to blame for them."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.work_pool import AbstractWorkerPool
from batchup_ng.work_pool.task import TaskFuture
from tests.messages import raises, warns

from .pool_tasks import FailsAtFirst

pytestmark = pytest.mark.filterwarnings("ignore::batchup_ng.SampleWarning")
N, SIZE = 24, 4
WIDTHS = [1, 4096]  # numbers of a sample: batches of 32 bytes, and of 128 kB, which are made in reused memory


def rows(width: int = 1) -> bu.ArrayDataSource:
    """Return a source of the numbers below :data:`N`, each ``width`` times."""
    return bu.ArrayDataSource([np.repeat(np.arange(N)[:, None], width, axis=1)])


@pytest.fixture(params=["direct", "serial", "threads", "processes"])
def made_by(request: pytest.FixtureRequest, pools: list[AbstractWorkerPool]) -> Callable[[Any], Any]:
    """Return what gives a source to each pool in turn, and to none."""
    if request.param == "direct":
        return lambda source: source
    pool = {"serial": bu.SerialPool(), "threads": pools[0], "processes": pools[1]}[request.param]
    return pool.parallel_data_source


def taken(batches: Any) -> list[int]:
    """Return the rows that are handed out, each checked to be one row all over."""
    found = []
    for (x,) in batches:
        assert (x == x[:, :1]).all()
        found += x[:, 0].tolist()
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_an_exception_that_does_not_come_again_is_raised(
    made_by: Callable[[Any], Any], width: int, tmp_path: Path
) -> None:
    batches = made_by(rows(width).map(FailsAtFirst(9, 1, tmp_path))).batch_iterator(SIZE, on_error="raise")
    with raises(bu.BatchError) as caught:
        taken(batches)
    error = caught.value
    assert isinstance(error, ConnectionError)
    assert (error.row, error.batch, error.rows.tolist(), error.op) == (None, 2, [8, 9, 10, 11], "FailsAtFirst")
    assert (batches.stats()["batches"], batches.stats()["retried"], batches.errors) == (2, 0, [])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("action", ["skip", "replace", bu.ErrorPolicy(retries=1), bu.ErrorPolicy("skip", retries=3)])
def test_what_was_made_at_a_later_try_is_counted_and_listed(
    made_by: Callable[[Any], Any], width: int, action: Any, tmp_path: Path
) -> None:
    batches = made_by(rows(width).map(FailsAtFirst(9, 1, tmp_path))).batch_iterator(SIZE, on_error=action)
    assert taken(batches) == list(range(N))
    (error,) = batches.errors
    assert isinstance(error, ConnectionError)
    assert (error.row, error.batch, error.rows.tolist()) == (None, 2, [8, 9, 10, 11])
    stats = batches.stats()
    assert [stats[name] for name in ("samples", "failed", "replaced", "retried")] == [N, 0, 0, 1]


def test_what_was_retried_is_warned_of_once(made_by: Callable[[Any], Any], tmp_path: Path) -> None:
    source = made_by(rows().map(FailsAtFirst(9, 1, tmp_path)))
    with warns(bu.SampleWarning):
        taken(source.batch_iterator(SIZE, on_error="skip"))
    for file in tmp_path.iterdir():
        file.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken(source.batch_iterator(SIZE, on_error="skip"))


def test_no_batch_that_was_retried_goes_to_an_exclusion_list(tmp_path: Path) -> None:
    (tmp_path / "calls").mkdir()

    def fails(x: np.ndarray) -> Any:
        if 17 in x:
            raise ValueError("bad")
        return (x,)

    batches = rows().map(FailsAtFirst(9, 1, tmp_path / "calls")).map(fails).batch_iterator(SIZE, on_error="skip")
    assert taken(batches) == [row for row in range(N) if row != 17]
    assert [error.row for error in batches.errors] == [None, 17]
    assert bu.write_errors(batches, tmp_path / "bad.csv") == 1


# -- signals ---------------------------------------------------------------------------------------------------


class Preempted(Exception):
    """What the handler of a signal raises."""


def handlers() -> list[Any]:
    """Return handlers of several forms."""

    class Handler:
        def __call__(self, number: int, frame: Any) -> None:
            self.raises(number)

        def raises(self, number: int) -> None:
            raise Preempted(number)

    def once(*given: Any) -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise Preempted

    return [Handler(), Handler().__call__, once]


@pytest.fixture
def usr1() -> Iterator[None]:
    """Put the handler of the signal back."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


class Struck:
    """A map in which a signal arrives, in its call of a given number."""

    def __init__(self, at: int, bad: int = -1) -> None:
        self.calls = 0
        self.at = at
        self.bad = bad

    def __call__(self, x: np.ndarray) -> Any:
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGUSR1)
        if self.bad in x:
            raise ValueError("bad")
        return (x,)


@pytest.mark.parametrize("action", ["raise", "skip", "replace", bu.ErrorPolicy("skip", retries=2)])
@pytest.mark.parametrize("handler", handlers())
@pytest.mark.parametrize("at", [1, 2, 4])  # 4: while the samples of the second batch are read one by one
@pytest.mark.parametrize("where", ["direct", "serial", "behind the pool"])
@pytest.mark.usefixtures("usr1")
def test_the_exception_of_a_signal_handler_is_raised_as_it_is(where: str, at: int, handler: Any, action: Any) -> None:
    signal.signal(signal.SIGUSR1, handler)
    struck = Struck(at, bad=7 if where != "behind the pool" else -1)
    with bu.SerialPool() as pool:
        if where == "direct":
            batches = rows().map(struck).batch_iterator(SIZE, on_error=action)
        elif where == "serial":
            batches = pool.parallel_data_source(rows().map(struck), on_error=action).batch_iterator(SIZE)
        else:
            batches = pool.parallel_data_source(rows(), on_error=action).map(struck).batch_iterator(SIZE)
        with pytest.raises(Preempted) as caught:
            taken(batches)
        assert type(caught.value) is Preempted
        assert batches.errors == []


@pytest.mark.usefixtures("usr1")
def test_nor_is_it_lost_where_a_serial_task_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    signal.signal(signal.SIGUSR1, handlers()[0])
    begin, strikes = TaskFuture.begin, iter([True])

    def struck(future: TaskFuture) -> bool:
        if next(strikes, False):
            os.kill(os.getpid(), signal.SIGUSR1)
        return begin(future)

    monkeypatch.setattr(TaskFuture, "begin", struck)
    n_batches = N // SIZE
    with bu.SerialPool() as pool:
        source = pool.parallel_data_source(rows().map(Struck(-1, bad=9)), on_error="replace")
        for at in range(n_batches + 1):  # with the batch that is read beside the others, for a row in the place of 9
            strikes = itertools.chain([False] * at, [True])
            with pytest.raises(Preempted):
                taken(source.batch_iterator(SIZE, shuffle=7))


class SaysItLate(ValueError):
    """An error in whose text a signal arrives."""

    def __str__(self) -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        return "bad"


class NamedLate:
    """An accessor in whose names of samples a signal arrives."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, rows: Any) -> Any:
        return np.arange(N)[rows]

    def sample_name(self, row: int) -> str:
        os.kill(os.getpid(), signal.SIGUSR1)
        return str(row)


@pytest.mark.parametrize("where", ["text", "name"])
@pytest.mark.usefixtures("usr1")
def test_nor_is_it_lost_while_an_error_is_described(where: str) -> None:
    signal.signal(signal.SIGUSR1, handlers()[0])

    def bad(x: np.ndarray) -> Any:
        if 7 in x:
            raise (SaysItLate if where == "text" else ValueError)("bad")
        return (x,)

    data = NamedLate() if where == "name" else np.arange(N)
    with pytest.raises(Preempted):
        for _ in bu.ArrayDataSource([data]).map(bad).batch_iterator(SIZE, on_error="skip"):
            pass


@pytest.mark.usefixtures("usr1")
def test_a_function_that_looks_at_its_callers_frame_is_no_signal_handler(made_by: Callable[[Any], Any]) -> None:
    def evaluated(x: Any, caller: Any) -> Any:
        if 9 in x:
            raise ValueError("a bad row")
        return x

    def with_frame_of_caller(x: Any) -> Any:
        caller = sys._getframe(1)
        return evaluated(x, caller), caller.f_code.co_name

    batches = made_by(rows().map(lambda x: (with_frame_of_caller(x)[0],))).batch_iterator(SIZE, on_error="skip")
    assert taken(batches) == [row for row in range(N) if row != 9]
    assert [error.row for error in batches.errors] == [9]


def test_the_exception_of_a_signal_handler_is_no_files_fault(tmp_path: Path) -> None:
    class Reader:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, rows: Any) -> Any:
            try:
                os.kill(os.getpid(), signal.SIGUSR1)
            except Exception as error:
                raise bu.SampleReadError("cannot be read", "7.png") from error

    signal.signal(signal.SIGUSR1, handlers()[0])
    batches = bu.ArrayDataSource([Reader()]).batch_iterator(4, on_error="skip")
    with pytest.raises(Preempted):
        next(batches)
    assert batches.errors == []


class TooLate(TimeoutError, ValueError):
    """What a handler raises that much of what looks at files takes for an answer."""


def too_late(number: int, frame: Any) -> None:
    raise TooLate


def struck_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, but with a signal that arrives in its first call."""
    left = [None]

    def struck(*args: Any, **options: Any) -> Any:
        if left:
            left.clear()
            os.kill(os.getpid(), signal.SIGUSR1)
        return function(*args, **options)

    return struck


@pytest.mark.usefixtures("usr1")
def test_the_exception_of_a_signal_handler_is_no_file_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal.signal(signal.SIGUSR1, too_late)
    monkeypatch.setattr(Path, "read_text", struck_first(Path.read_text))
    with bu.SerialPool() as pool, pytest.raises(TooLate):
        pool.parallel_data_source(rows()).batch_iterator(SIZE)  # which asks how much memory is left
    batches = rows().batch_iterator(SIZE)
    for name in ("chmod", "stat", "fsync", "replace"):
        path = tmp_path / f"{name}.json"
        batches.save_state(path)
        next(batches)
        with monkeypatch.context() as patched:
            patched.setattr(os, name, struck_first(getattr(os, name)))
            with pytest.raises(TooLate):
                batches.save_state(path)
        rest = rows().batch_iterator(SIZE)
        rest.load_state(path)
        assert len(rest) == len(batches), name
    assert len(list(tmp_path.iterdir())) == 4


class ToldLate:
    """The function of a source, which is pickled as a signal arrives."""

    def __call__(self, batch_size: int) -> Any:
        return iter([(np.zeros(batch_size),)])

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return super().__reduce__()


@pytest.mark.usefixtures("usr1")
def test_nor_a_source_that_cannot_be_pickled(pools: list[AbstractWorkerPool]) -> None:
    signal.signal(signal.SIGUSR1, too_late)
    with pytest.raises(TooLate):
        pools[1].prefetch(bu.CallableDataSource(ToldLate())).batch_iterator(SIZE)


# -- errors of the program -------------------------------------------------------------------------------------


def misspelt(x: Any) -> Any:
    return (undefined(x),)  # type: ignore[name-defined]  # noqa: F821


def misspelt_at_some(x: Any) -> Any:
    if 9 in x:
        return (np.flaot32(x),)  # type: ignore[attr-defined]
    return (x,)


def imports(x: Any) -> Any:
    import no_such_module_of_any_kind  # noqa: F401

    return (x,)


def of_two(x: Any, y: Any) -> Any:
    return x, y


def bad_beside(x: Any) -> Any:
    if 8 in x:
        raise ValueError("bad")
    return misspelt_at_some(x)


def attribute_of(x: Any) -> Any:
    for row in x[:, 0]:
        assert (None if row == 9 else row).ndim == 0
    return (x,)


def too_large(x: Any) -> Any:
    return (np.empty(1 << 50, np.uint8) if 9 in x else x,)


PROGRAMS: dict[str, tuple[Any, type, int]] = {
    "NameError": (rows().map(misspelt), NameError, 0),
    "AttributeError": (rows().map(misspelt_at_some), AttributeError, 9),
    "ImportError": (rows().map(imports), ImportError, 0),
    "beside a bad sample": (rows().map(bad_beside), AttributeError, 9),
    "an attribute of None": (rows().map(attribute_of), AttributeError, 9),
    "MemoryError": (rows().map(too_large), MemoryError, 9),
}


@pytest.mark.parametrize("action", ["skip", "replace", bu.ErrorPolicy("skip", max_rate=1.0, retries=1)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_of_the_program_are_raised_at_once(made_by: Callable[[Any], Any], name: str, action: Any) -> None:
    source, kind, row = PROGRAMS[name]
    batches = made_by(source).batch_iterator(SIZE, on_error=action)
    with pytest.raises(bu.BatchError) as caught:
        taken(batches)
    assert isinstance(caught.value, kind)
    assert (caught.value.row, caught.value.batch, batches.errors) == (row, row // SIZE, [])
    assert "raises errors of the program, see ErrorPolicy.types" in str(caught.value)


@pytest.mark.parametrize("way", ["map", "map_samples", "collate"])
@pytest.mark.parametrize("action", ["skip", "replace", bu.ErrorPolicy("skip", types=TypeError)])
def test_a_wrong_signature_is_raised_at_once(made_by: Callable[[Any], Any], way: str, action: Any) -> None:
    batches = made_by(getattr(rows(), way)(of_two)).batch_iterator(SIZE, on_error=action)
    with pytest.raises(bu.MapCallError):
        next(batches)
    assert batches.errors == []


def test_errors_of_the_program_can_be_listed_as_a_samples_fault(made_by: Callable[[Any], Any]) -> None:
    policy = bu.ErrorPolicy("skip", types=(AttributeError, ValueError))
    batches = made_by(rows().map(bad_beside)).batch_iterator(SIZE, on_error=policy)
    assert taken(batches) == [row for row in range(N) if row not in (8, 9)]
    assert [(error.row, type(error.error)) for error in batches.errors] == [(8, ValueError), (9, AttributeError)]


def length_of(x: Any) -> Any:
    return (np.array([len(None if row == 9 else [row]) for row in x[:, 0]]),)  # type: ignore[arg-type]


def call_of(x: Any) -> Any:
    return (np.array([(of_two if row == 9 else int)(row) for row in x[:, 0]]),)  # raised inside of the map


def parsed(x: Any) -> Any:
    return (np.array([eval("1 +" if row == 9 else "1") for row in x[:, 0]]),)


@pytest.mark.parametrize("fn", [length_of, call_of, parsed])
def test_errors_that_data_may_cause_are_a_samples_fault(made_by: Callable[[Any], Any], fn: Any) -> None:
    batches = made_by(rows().map(fn)).batch_iterator(SIZE, on_error="skip")
    assert sum(len(x) for (x,) in batches) == N - 1
    assert [error.row for error in batches.errors] == [9]


def refuses(x: Any) -> Any:
    raise ValueError("refused")


def test_an_epoch_whose_first_batches_fail_whole_ends_there(pools: list[AbstractWorkerPool]) -> None:
    source = bu.ArrayDataSource([np.arange(2000)]).map(refuses)
    where = f"map 'refuses', {Path(__file__).name}:{refuses.__code__.co_firstlineno + 1};"
    with bu.SerialPool() as serial:
        for pool in (None, serial, *pools):
            made = source if pool is None else pool.parallel_data_source(source)
            batches = made.batch_iterator(60, on_error="skip")
            with raises(bu.TooManyErrors) as caught:
                next(batches)
            assert where in str(caught.value)
            assert len(batches.errors) == 120


def refuses_the_first(x: Any) -> Any:
    if x[0] < 180:
        raise ValueError("refused")
    return (x,)


@pytest.mark.parametrize("policy", [bu.ErrorPolicy("skip", max_rate=1.0), bu.ErrorPolicy("skip", max_errors=180)])
def test_a_limit_of_the_users_goes_before_that(policy: bu.ErrorPolicy) -> None:
    source = bu.ArrayDataSource([np.arange(240)]).map(refuses_the_first)
    assert [x[0] for (x,) in source.batch_iterator(60, on_error=policy)] == [180]
