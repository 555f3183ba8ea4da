"""A signal whose handler raises strikes at one step of the library's code after the other (F13).

Python deals with signals where a function begins, behind a call and at the end of a loop's body. :class:`Strike` raises
the signal at such places, and in each line. Whatever it hits, the epoch goes on whole, or says ``PoolClosed``; the next
epoch is whole; a state goes on without a sample too many or too few.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import batchup_ng as bu

from ..accounting import make_pool

PACKAGE = str(Path(bu.__file__).parent)


class Rang(Exception):
    """What the handler of a program's own raises."""


def ring(number: int, frame: Any) -> None:
    raise Rang


class Strike:
    """Within it the signal comes at the `n`-th step of the library's code in this thread.

    Args:
        n: Which step, from 0.
        number: The signal.
        lines: Whether each line is a step; if not, each call is, and each return from a function in C.

    Attributes:
        done: Whether there were so many steps.
        where: The step that was struck.
    """

    def __init__(self, n: int, number: int, lines: bool) -> None:
        self._left = n
        self._number = number
        self._lines = lines
        self._collects = False
        self.done = False
        self.where = ""

    def __enter__(self) -> Strike:
        gc.callbacks.append(self._note_collection)
        if self._lines:
            sys.settrace(self._trace)
        else:
            sys.setprofile(self._profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        if self._note_collection in gc.callbacks:
            gc.callbacks.remove(self._note_collection)

    def _note_collection(self, phase: str, _: Any) -> None:
        """Note whether the collector runs: it throws away generators, where Python does not deal with signals."""
        self._collects = phase == "start"

    def _profile(self, frame: Any, event: str, _: Any) -> None:
        # Not a generator that is thrown away half-way: Python does not deal with signals there.
        if event in ("call", "c_return") and of_library(frame) and frame.f_code.co_name != "<genexpr>":
            self._step(frame)

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if not of_library(frame):
            return None
        if event == "line" and not leaves_with(frame):
            self._step(frame)
        return self._trace

    def _step(self, frame: Any) -> None:
        self._left -= 1
        if self._left < 0 and not self.done and not self._collects and not in_finalizer(frame):
            sys.settrace(None)
            sys.setprofile(None)
            self.done = True
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            signal.raise_signal(self._number)


def of_library(frame: Any) -> bool:
    return bool(frame.f_code.co_filename.startswith(PACKAGE))


def in_finalizer(frame: Any) -> bool:
    """Return whether it runs because an object is collected: Python swallows what is raised there."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False


def leaves_with(frame: Any) -> bool:
    """Return whether the line is a ``with`` that is left: an exception there would leave a lock held.

    Python deals with signals before it, where the lock is given back, and behind it.
    """
    code = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 12 : 2]
    code = code.lstrip(bytes([dis.opmap.get("SWAP", 0)]))  # below lies the value of a ``return``; two from 3.14 on
    return len(code) >= 3 and set(code[:3]) == {dis.opmap["LOAD_CONST"]}


N = 24
BATCH = 5


def rows(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch[0][:, 0]]


def wide(width: int) -> bu.AbstractDataSource:
    """Return a source of `N` rows: row k is `width` times k."""
    return bu.ArrayDataSource([np.repeat(np.arange(N), width).reshape(N, width)])


class Steps(NamedTuple):
    """Which steps are struck, by which signal."""

    every: int = 1
    first: int = 0
    number: int = signal.SIGALRM
    lines: bool = False


def each_strike(act: Callable[[Strike], None], steps: Steps) -> int:
    """Call `act` with a strike at each of the steps, until one comes too late; return how many came."""
    every, n, number, lines = steps
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else ring)
    while True:
        strike = Strike(n, number, lines)
        try:
            act(strike)
        except BaseException as error:
            raise AssertionError(f"struck at step {n}, {strike.where}") from error
        if not strike.done:
            return n // every
        n += every


SIGNALS = (signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGTERM)

RAISED = (KeyboardInterrupt, Rang)


class Noticed:
    """Within it a strike may come, whose exception must arrive; it goes no further."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike

    def __enter__(self) -> None:
        self._strike.__enter__()

    def __exit__(self, kind: type | None, *exc: object) -> bool:
        self._strike.__exit__()
        arrived = kind is not None and issubclass(kind, RAISED)
        assert arrived or kind or not self._strike.done, "the exception of the handler was swallowed"
        return arrived


def source_of(pool: Any, width: int) -> Any:
    return wide(width) if pool is None else pool.parallel_data_source(wide(width), 3)


def an_iterator(kind: str, width: int, steps: Steps) -> int:
    """One loop over an iterator is struck, and goes on; its state goes on as well."""
    with contextlib.nullcontext() if kind == "none" else make_pool(kind) as pool:
        source = source_of(pool, width)
        expected = rows(source.batch_iterator(BATCH, shuffle=7))

        def act(strike: Strike) -> None:
            got: list[int] = []
            iterator, ended = source.batch_iterator(BATCH, shuffle=7), False
            with Noticed(strike):
                for batch in iterator:
                    got += rows([batch])
                    del batch
                    iterator.state_dict()
                ended = True
            state = iterator.state_dict()
            try:
                more = rows(iterator)
            except bu.PoolClosed:
                assert not ended
                more = rows(source.batch_iterator(BATCH, shuffle=7, state=state))
            assert got + more == expected, f"{got} + {more}"

        return each_strike(act, steps)


def a_state(kind: str, width: int, steps: Steps) -> int:
    """The loading of a state is struck: what follows is the rest from the state, or from where the loop was."""
    with contextlib.nullcontext() if kind == "none" else make_pool(kind) as pool:
        source = source_of(pool, width)
        expected = rows(source.batch_iterator(BATCH, shuffle=7))
        other = source.batch_iterator(BATCH, shuffle=7)
        next(other), next(other), next(other)
        state = other.state_dict()
        other.close()
        loader = None if pool is None else bu.Loader(wide(width), BATCH, shuffle=7, pool=pool, buffer=3)

        def of_an_iterator(strike: Strike) -> None:
            iterator = source.batch_iterator(BATCH, shuffle=7)
            next(iterator)
            with Noticed(strike):
                iterator.load_state_dict(state)
            try:
                more = rows(iterator)
            except bu.PoolClosed:
                assert strike.done
            else:
                assert more == expected[15:] or (strike.done and more == expected[5:]), more

        def of_a_loader(strike: Strike) -> None:
            loader.load_state_dict({"epoch": 0, "seed": None, "batches": None})
            next(iter(loader))
            with Noticed(strike):
                loader.load_state_dict({"epoch": 0, "seed": None, "batches": state})
            wanted = {"epoch": 0, "seed": None, "batches": state}
            if not strike.done:
                assert loader.state_dict() == wanted
            more = rows(loader)
            epoch_1 = rows(wide(width).batch_iterator(BATCH, shuffle=7, epoch=1))
            assert more == expected[15:] or (strike.done and more == epoch_1), more

        n = each_strike(of_an_iterator, steps)
        return n if loader is None else n + each_strike(of_a_loader, steps)


def an_end(kind: str, width: int, steps: Steps) -> int:
    """The end of a loader is struck; a second ``close`` leaves nothing."""

    def act(strike: Strike) -> None:
        with make_pool(kind) as pool:
            loader = bu.Loader(wide(width), BATCH, shuffle=7, pool=pool, buffer=3)
            iterator = iter(loader)
            next(iterator)
            with Noticed(strike):
                loader.close()
                pool.close()
            loader.close()
            pool.close()
        try:
            next(iterator)
        except bu.PoolClosed:
            return
        raise AssertionError("a batch after the end")

    return each_strike(act, steps)


def a_stream(kind: str, width: int, steps: Steps) -> int:
    """A stream of results, and one of batches that a worker makes ahead, are struck, and go on."""

    def numbers(batch_size: int) -> Iterator[Any]:
        for k in range(6):
            yield (np.full((batch_size, width), k),)

    with make_pool(kind) as pool:
        ahead = pool.prefetch(bu.CallableDataSource(numbers), 3)

        def of_results(strike: Strike) -> None:
            got: list[int] = []
            stream = None
            with Noticed(strike):
                stream = pool.work_stream(((pow, (k, 2)) for k in range(9)), 4)
                for square in stream:
                    got.append(square)
            if stream is not None:
                with contextlib.suppress(bu.PoolClosed):
                    got += stream
                    assert got == [k * k for k in range(9)], got

        def of_batches(strike: Strike) -> None:
            got: list[int] = []
            iterator = None
            with Noticed(strike):
                iterator = ahead.batch_iterator(2)
                for batch in iterator:
                    got.append(int(batch[0][0, 0]))
            if iterator is not None:
                with contextlib.suppress(bu.PoolClosed):
                    got += [int(batch[0][0, 0]) for batch in iterator]
                    assert got == list(range(6)), got

        n = each_strike(of_results, steps)
        return n + (each_strike(of_batches, steps) if kind in ("serial", "threads") else 0)


def a_loader(kind: str, width: int, steps: Steps) -> int:
    """Loops over a loader are struck in `iter` and `next`, and go on; each sample is counted."""
    with make_pool(kind) as pool:
        loader = bu.Loader(wide(width), BATCH, shuffle=7, pool=pool, buffer=3)
        assert sorted(rows(loader)) == list(range(N))

        @functools.lru_cache(maxsize=4)
        def expected(epoch: int) -> list[int]:
            return rows(wide(width).batch_iterator(BATCH, shuffle=7, epoch=epoch))

        def act(strike: Strike) -> None:
            got: list[int] = []
            iterator = None
            first = loader.epoch
            with Noticed(strike):
                iterator = iter(loader)
                for batch in iterator:
                    got += rows([batch])
                    del batch
            state = loader.state_dict()
            ahead = bu.Loader(wide(width), BATCH, shuffle=7, pool="serial")
            ahead.load_state_dict(state)
            rest = rows(ahead)
            if state["epoch"] == first and len(got) < N:
                assert got + rest == expected(first), f"a state: {got} + {rest}"
            else:
                assert (len(got), rest) == (N, expected(first + 1)), f"a state at the end: {got} + {rest}"
            if strike.done and iterator is not None:
                with contextlib.suppress(bu.PoolClosed):
                    got += rows(iterator)
                    assert got == expected(first), f"the same loop: {got}"
            after = rows(loader)
            assert after == expected(first + 1) or (after == expected(first) and not got), f"the next loop: {after}"

        return each_strike(act, steps)


def epochs_of_a_loader(kind: str, width: int, steps: Steps) -> int:
    """A loop over the batches of two epochs is struck, and goes on; its state goes on as well."""
    expected = [n for epoch in range(2) for n in rows(wide(width).batch_iterator(BATCH, shuffle=7, epoch=epoch))]
    with make_pool(kind) as pool:

        def act(strike: Strike) -> None:
            got: list[int] = []
            iterator = None
            with bu.Loader(wide(width), BATCH, shuffle=7, pool=pool, buffer=3) as loader:
                with Noticed(strike):
                    iterator = loader.epochs(2)
                    for batch in iterator:
                        got += rows([batch])
                        del batch
                ahead = bu.Loader(wide(width), BATCH, shuffle=7, pool="serial")
                ahead.load_state_dict(loader.state_dict())
                rest = rows(ahead.epochs(2))
                assert got + rest == expected, f"a state: {got} + {rest}"
                if strike.done and iterator is not None:
                    with contextlib.suppress(bu.PoolClosed):
                        got += rows(iterator)
                        assert got == expected, f"the same loop: {got}"

        return each_strike(act, steps)


class Breaks:
    """A map that lets `strike` begin and raises a ``KeyboardInterrupt`` itself, in its third call."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._calls = 0

    def __call__(self, x: np.ndarray) -> Any:
        self._calls += 1
        if self._calls == 3:
            self._strike.__enter__()
            raise KeyboardInterrupt
        return (x,)


def a_second_signal(kind: str, width: int, where: str) -> int:
    """F13: what an exception in `where` undoes is struck at each step; return how many strikes came."""
    expected = [rows(wide(width).batch_iterator(BATCH, shuffle=7, epoch=epoch)) for epoch in range(2)]

    def act(strike: Strike) -> None:
        breaks, got = Breaks(strike), []
        source = wide(width).map(breaks) if where == "the source" else wide(width)
        with make_pool(kind) as pool, bu.Loader(source, BATCH, shuffle=7, pool=pool, buffer=3) as loader:
            iterator = iter(loader.map(breaks) if where == "the loop" else loader)
            try:
                for batch in iterator:
                    got += rows([batch])
            except RAISED:
                pass
            finally:
                strike.__exit__()
            state = loader.state_dict()
            rest = rows(source.batch_iterator(BATCH, shuffle=7, state=state["batches"]))
            assert (got, got + rest) == (expected[0][: 2 * BATCH], expected[0]), f"a state: {got} + {rest}"
            try:
                more = rows(iterator)
            except bu.PoolClosed:
                pass
            else:
                raise AssertionError(f"the same loop went on: {more}")
            assert rows(loader) == expected[1], "the next loop"

    return each_strike(act, Steps())


def a_second_signal_in_a_stream() -> int:
    """F13: what an exception in a task undoes is struck at each step; return how many strikes came."""

    def act(strike: Strike) -> None:
        def task(k: int) -> int:
            if k == 3:
                strike.__enter__()
                raise KeyboardInterrupt
            return k

        with make_pool("serial") as pool:
            stream = pool.work_stream(((task, (k,)) for k in range(9)), 4)
            got = []
            try:
                for k in stream:
                    got.append(k)
            except RAISED:
                pass
            finally:
                strike.__exit__()
            with contextlib.suppress(bu.PoolClosed):
                got += stream
                raise AssertionError(f"the stream went on: {got}")
            assert got == [0, 1, 2]

    return each_strike(act, Steps())


ACTS = {act.__name__: act for act in (a_loader, epochs_of_a_loader, an_iterator, a_state, an_end, a_stream)}


def each_act(kind: str, width: int, every: int, first: int, number: int, lines: bool) -> dict[str, int]:
    """F13: each use of a pool is struck at one step after the other; return how many strikes came to each."""
    acts = {name: act for name, act in ACTS.items() if kind != "none" or act in (an_iterator, a_state)}
    steps = Steps(every, first, number, lines)
    return {name: act(kind, width, steps._replace(every=max(1, every // 4) if act in (an_end, a_state) else every))
            for name, act in acts.items()}  # fmt: skip
