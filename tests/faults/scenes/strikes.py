"""A signal whose handler raises strikes at one step of the library's code after the other (F13).

Python deals with signals where a function begins, behind a call and at the end of a loop's body. :class:`Strike` raises
the signal at such places, and in each line. Whatever it hits, the epoch goes on whole, or says ``PoolClosed``; the next
epoch is whole; a state goes on without a sample too many or too few.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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

    Attributes:
        done: Whether there were so many steps.
        where: The step that was struck.
    """

    def __init__(self, n: int, number: int) -> None:
        self._left = n
        self._number = number
        self.done = False
        self.where = ""

    def __enter__(self) -> Strike:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: Any, event: str, _: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE):
            self._left -= 1
            if self._left < 0:
                sys.setprofile(None)
                self.done = True
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({event})"
                if "DBG" in __import__("os").environ: __import__("traceback").print_stack(frame)
                signal.raise_signal(self._number)


N = 24
BATCH = 5


def rows(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch[0][:, 0]]


def wide(width: int) -> bu.AbstractDataSource:
    """Return a source of `N` rows: row k is `width` times k."""
    return bu.ArrayDataSource([np.repeat(np.arange(N), width).reshape(N, width)])


def each_strike(act: Callable[[Strike], None], every: int, first: int, number: int) -> int:
    """Call `act` with a strike at steps `first`, `first + every`, ... until one comes too late; return how many came."""
    n = first
    while True:
        strike = Strike(n, number)
        try:
            act(strike)
        except BaseException as error:
            raise AssertionError(f"struck at step {n}, {strike.where}") from error
        if not strike.done:
            return n // every
        n += every


def handled(number: int) -> None:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else ring)


def a_loader(kind: str, width: int, number: int, every: int, first: int) -> int:
    """Loops over a loader are struck in `iter` and `next`, and go on; each sample is counted."""
    handled(number)
    with make_pool(kind) as pool:
        loader = bu.Loader(wide(width), BATCH, shuffle=7, pool=pool, buffer=3)
        assert sorted(rows(loader)) == list(range(N))

        @functools.lru_cache(maxsize=4)
        def expected(epoch: int) -> list[int]:
            return rows(wide(width).batch_iterator(BATCH, shuffle=7, epoch=epoch))

        def act(strike: Strike) -> None:
            got: list[int] = []
            iterator, came = None, False
            first = loader.epoch
            try:
                with strike:
                    iterator = iter(loader)
                    for batch in iterator:
                        got += rows([batch])
                        del batch
            except (KeyboardInterrupt, Rang):
                came = True
            assert came == strike.done, "the exception of the handler was swallowed"
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

        return each_strike(act, every, first, number)
