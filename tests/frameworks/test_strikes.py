"""An exception at any line of ``next``, ``iter`` or ``close`` of what hands batches over loses nothing in silence."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import batchup_ng as bu
from batchup_ng.errors import PoolClosed
from batchup_ng.frameworks import ahead, handover
from batchup_ng.frameworks.ahead import AheadIterator
from batchup_ng.frameworks.handover import converted, handed_over
from batchup_ng.work_pool import AbstractWorkerPool
from tests.messages import raises

from ..faults.scenes import strikes as signals
from .strikes import VIEWS, Interrupt, Strike, struck_at_each_line, taken

SOURCE = bu.ArrayDataSource([np.arange(10)])
ALL = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def to_torch(batches: Any) -> Any:
    from batchup_ng.frameworks.torch import to_torch

    return to_torch(batches)


def to_jax(batches: Any) -> Any:
    from batchup_ng.frameworks.jax import to_jax

    return to_jax(batches)


ADAPTERS = {
    "ahead": lambda batches: handed_over(batches, lambda it: AheadIterator(it, lambda batch: batch)),
    "for slow loops": lambda batches: handed_over(batches, lambda it: AheadIterator(it, lambda batch: batch, 2, False)),
    "received": lambda batches: handed_over(
        batches, lambda it: AheadIterator(it, lambda batch: batch, receive=lambda batch: batch)
    ),
    "converted": lambda batches: converted(batches, lambda batch: batch),
    "ahead of a map": lambda batches: handed_over(
        converted(batches, lambda batch: batch), lambda it: AheadIterator(it, lambda batch: batch, 2, False)
    ),
    "torch": to_torch,
    "jax": to_jax,
}


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(ahead, "QUICK_SECONDS", 0.0)  # every loop is a slow one
    if request.param in ("torch", "jax") and find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return ADAPTERS[request.param]


def files() -> set[str]:
    return {ahead.__file__, handover.__file__, str(VIEWS)}


def values(batch: Any) -> list[int]:
    return [int(n) for n in batch[0]]


def test_an_epoch_goes_on_or_says_that_it_does_not(adapter: Any) -> None:
    outcomes = []

    def run() -> None:
        seen: list[Any] = []
        with adapter(SOURCE.batch_iterator(4)) as iterator:
            ended = taken(iterator, values, seen)
            state = iterator.state_dict()
            assert next(iterator, "end") == "end" if ended else _is_closed(iterator)
        rest = [values(batch) for batch in SOURCE.batch_iterator(4, state=state)]
        assert seen + rest == ALL
        assert not (ended and rest)
        outcomes.append(ended)

    for _ in struck_at_each_line(run, files()):
        pass
    assert len(outcomes) > 20
    assert sum(outcomes) > len(outcomes) / 2  # most of the time it goes on


def _is_closed(iterator: Any) -> bool:
    with raises(PoolClosed):
        next(iterator)
    return True


@pytest.mark.parametrize("pool", ["serial", "threads", "processes"])
def test_a_loader_goes_on_from_the_state_that_was_saved_after_a_strike(
    adapter: Any, pool: str, pools: list[AbstractWorkerPool], in_full: bool
) -> None:
    """The program that saves a checkpoint when a signal comes, and goes on."""
    made: Any = pool if pool == "serial" else pools[pool == "processes"]
    row = 20_000  # numbers: batches of which the memory is lent again
    data = np.repeat(np.arange(10, dtype=np.float32), row).reshape(10, row)

    def run() -> None:
        with bu.Loader([data], 4, pool=made) as loader:
            batches, seen = adapter(loader), []
            state = None
            while state is None:
                try:
                    for batch in batches:
                        seen.append([int(part[0]) for part in batch[0]])
                    state = loader.state_dict()
                except (Strike, Interrupt):
                    state = loader.state_dict()
            with bu.Loader([data], 4, pool=made) as again:
                again.load_state_dict(state)
                rest = [[int(part[0]) for part in x] for (x,) in again] if again.epoch == 0 else []
        assert seen + rest == ALL

    for _ in struck_at_each_line(run, {ahead.__file__, handover.__file__}, 1 if in_full else 13):
        pass


def test_close_can_be_called_again(adapter: Any) -> None:
    """The fixture that looks for threads sees whether anything is left."""

    def run() -> None:
        iterator = adapter(SOURCE.batch_iterator(4))
        next(iterator)
        try:
            iterator.close()
        except (Strike, Interrupt):
            iterator.close()

    for _ in struck_at_each_line(run, files()):
        pass


@pytest.mark.parametrize("always", [True, False])
def test_a_second_signal_as_a_lost_batch_is_dealt_with_loses_none_in_silence(always: bool) -> None:
    def act(strike: signals.Strike) -> None:
        def convert(batch: Any) -> Any:
            if 4 in batch[0] and not strike.done:
                strike.__enter__()
                raise Interrupt
            return batch

        iterator, seen = AheadIterator(SOURCE.batch_iterator(4), convert, always=always), []
        iterator._let_thread_fill = lambda number: None  # a strike is for this thread alone
        with iterator:
            try:
                for batch in iterator:
                    seen.append(values(batch))
            except (Interrupt, signals.Rang):
                pass
            finally:
                strike.__exit__()
            assert seen == ALL[:1]
            assert [values(batch) for batch in SOURCE.batch_iterator(4, state=iterator.state_dict())] == ALL[1:]
            with raises(PoolClosed):
                next(iterator)

    before = signal.getsignal(signal.SIGALRM)
    try:
        assert signals.each_strike(act, signals.Steps()) > 10
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [MemoryError(), StopIteration(), KeyboardInterrupt(), ValueError("a")])
@pytest.mark.parametrize("always", [True, False])
def test_what_a_conversion_raises_is_never_followed_by_the_end(error: BaseException, always: bool) -> None:
    def convert(batch: Any) -> Any:
        if 4 in batch[0]:
            raise error
        return batch

    for iterator in (
        AheadIterator(SOURCE.batch_iterator(4), convert, always=always),
        AheadIterator(iter([(np.arange(4),), (np.arange(4, 8),)]), convert, always=always),
        converted(SOURCE.batch_iterator(4), convert),
        converted(iter([(np.arange(4),), (np.arange(4, 8),)]), convert),
    ):
        with iterator if hasattr(iterator, "close") else SOURCE.batch_iterator(4):
            assert values(next(iterator)) == ALL[0]
            with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
                next(iterator)
            for _ in range(2):
                with raises(PoolClosed):
                    next(iterator)


def test_a_generator_that_failed_is_not_at_its_end() -> None:
    def batches() -> Any:
        yield (np.arange(4),)
        raise ValueError("of the generator")

    for name, adapter in ADAPTERS.items():
        if name in ("torch", "jax") and find_spec(name) is None:
            continue
        iterator = adapter(batches())
        next(iterator)
        with raises(ValueError):
            next(iterator)
        with raises(PoolClosed):
            next(iterator)
