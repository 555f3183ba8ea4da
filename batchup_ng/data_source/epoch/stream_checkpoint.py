"""Where an epoch of a source that only streams is saved and entered again.

It is, where the user's own iterator can be: its state goes into that of the epoch, with the samples that each map had.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from ...errors import ArgumentError, StateError
from ...faults.policy import RAISE
from ...sampling.plans.sharding import Reached
from ..epoch_options import EpochOptions
from .accounting import Accounting
from .checkpoint import Fingerprinted, Resumable, resumed
from .iterator import Engine, Epoch
from .state import CANNOT, SavedEpoch


class RunsStreams(Fingerprinted, Protocol):
    """The part of a source by which an epoch without a plan is opened."""

    def heeds_shuffle(self) -> bool: ...

    def stream_count(self, options: EpochOptions) -> float | None: ...

    def stream_owner(self) -> Any:
        """Return what saves and puts back the user's own iterator; None if that cannot be."""
        ...

    def start_stream(self, options: EpochOptions, accounting: Accounting) -> Engine:
        """Return what makes the batches, and enters them in the accounting."""
        ...


def open_stream(source: RunsStreams, options: EpochOptions, state: Any) -> Epoch:
    """Return an epoch of a source that only streams.

    It is saved and entered again only by way of the user's own iterator, where that can.

    Args:
        source: Makes the batches.
        options: What was asked for.
        state: From where on; None from the beginning.

    Raises:
        ArgumentError: the epoch was to be shared out, shuffled, or to leave out bad samples, which an iterator cannot.
        StateError: the state is damaged, or is that of another source; or the source cannot be resumed.
    """
    if options.shard.world > 1 or options.shard.pad_mask:
        raise ArgumentError(
            "shard= shares out batches by their number, and this source only streams; let its function or iterator "
            "give each rank its own"
        )
    if (options.shuffled or options.rng is not None) and not source.heeds_shuffle():
        raise ArgumentError(
            "shuffle= cannot change the order of batches that come from an iterator (IteratorDataSource); leave it out "
            "and shuffle where they are made, or use CallableDataSource, whose function is given shuffle="
        )
    if options.policy is not None and options.policy is not RAISE:
        raise ArgumentError(
            "on_error= reads the samples of a failed batch again, and this source only streams; catch the error in the "
            "function or iterator that makes its batches"
        )
    return _checked_stream(source, options, state)()


def _checked_stream(source: RunsStreams, asked: EpochOptions, state: Any) -> Callable[[], Epoch]:
    """Check a state; return what then opens the epoch, which puts the user's own iterator back."""
    options, owner, saved = dataclasses.replace(asked, counted={}), source.stream_owner(), None
    resumable = owner is not None and not options.drop_last
    if state is not None:
        if not resumable:
            raise StateError(CANNOT)
        options, saved = resumed(source, options, state, "stream")
        options = dataclasses.replace(options, counted=_counted(saved))

    def opened() -> Epoch:
        accounting = Accounting()
        if saved is not None:
            owner.load_state_dict(saved.inner["iterator"])
            accounting.carry(saved.batches, saved.counts)
        total = source.stream_count(options)
        n_batches = None if total is None else lambda: total
        if not resumable:
            return Epoch(source.start_stream(options, accounting), options.epoch, n_batches, False, accounting)
        return _saved_stream(source, options, accounting, n_batches, reopen)

    def reopen(state: Any) -> Callable[[], Epoch]:
        return _checked_stream(source, asked, state)

    return opened


def _saved_stream(
    source: RunsStreams,
    options: EpochOptions,
    accounting: Accounting,
    n_batches: Callable[[], float] | None,
    reopen: Callable[[Any], Callable[[], Epoch]],
) -> Epoch:
    """Return the epoch of a stream that can be saved."""
    owner = source.stream_owner()
    before, first = accounting.delivered, inner_state(owner, options)
    runner = source.start_stream(options, accounting)
    if not hasattr(runner, "latest_state"):
        runner = _Saving(runner, lambda: inner_state(owner, options))
    latest = runner.latest_state  # the iterator may be ahead of what was handed out

    def state_now(now: Accounting) -> dict[str, Any]:
        inner = latest() or first
        batches, counts = now.counted()
        reached = Reached(options.reached.samples + counts["delivered"] - before, batches)
        return Resumable(source, options, "stream").state(reached, counts, inner)

    return Epoch(runner, options.epoch, n_batches, False, accounting, state_now, reopen)


class _Saving:
    """A runner on the consumer's own thread that tells the state of a stream after what it handed out.

    The user's iterator is asked for its state before each batch too: if the batch then fails, in a map or by an
    interrupt, the iterator is past it, and the batch was not handed out.

    Args:
        runner: Makes the batches.
        now: Returns the state of the stream as it is now.
    """

    def __init__(self, runner: Engine, now: Callable[[], Any]) -> None:
        self._runner = runner
        self._now = now
        self._before: Any = None  # while a batch is made, and after one that failed

    def __next__(self) -> Any:
        self._before = self._now()
        try:
            batch = next(self._runner)
        except StopIteration:
            self._before = None
            raise
        self._before = None
        return batch

    def latest_state(self) -> Any:
        """Return the state of the stream after the batch that was handed out last."""
        return self._now() if self._before is None else self._before

    def check_caller(self) -> None:
        self._runner.check_caller()

    def ready(self) -> int:
        return self._runner.ready()

    def close(self) -> None:
        self._runner.close()

    def abandon(self) -> None:
        self._runner.abandon()


def inner_state(owner: Any, options: EpochOptions) -> dict[str, Any] | None:
    """Return the state of a stream as it is now: that of the user's own iterator, the samples that each map had.

    It is a copy, for the iterator may hand out what it goes on to change. None where there is none.
    """
    if owner is None:
        return None
    counted = [[list(path), n] for path, n in sorted(options.counted.items())]
    return {"iterator": _copied(owner.state_dict()), "counted": counted}


def _copied(state: Any) -> Any:
    """Return a copy of what JSON can hold; what cannot be copied is returned as it is, for it is refused later."""
    try:
        return copy.deepcopy(state)
    except Exception:  # whatever an object of the user's raises
        return state


def _counted(saved: SavedEpoch) -> dict[tuple[int, ...], int]:
    """Return the samples that each map had, as a state tells them."""
    try:
        saved.inner["iterator"]
        return {tuple(map(int, path)): int(n) for path, n in saved.inner["counted"]}
    except (TypeError, ValueError, KeyError) as error:
        raise StateError(f"this state is damaged: it does not tell how far its stream is: {error!r:.100}") from error
