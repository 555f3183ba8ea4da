"""Chooses the pool for a ``DataLoader`` by making its first batches with a copy of the data set."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..error_context import raise_if_of_signal_handler, unless_of_signal_handler
from ..memory.leases import FRESH
from ..meters.cpu import timed
from ..randomness import BatchKey
from ..randomness.numpy_rng import globals_kept
from ..work_pool.choice import SHORT_EPOCH_SECONDS, TINY_BATCH_SECONDS, TOO_LARGE, Choice, copy_to_try
from ..work_pool.processes.serialization import dumps, load_result
from ..work_pool.processes.trial_copy import CopyToTry
from .torch_fetch import Fetch

TRIED, TRY_SECONDS, SLOW = 10, 0.05, 1.0
"""Limits of the trial: the most batches; seconds after which no further batch begins, without the first batch; seconds
of the first batch after which no other begins."""

SHORT_BATCH_SECONDS = 1e-3
"""Seconds. If a batch of a data set's own code takes less, the consumer's thread makes it: to send it from a process
takes some 0.4 ms of CPU time in all. Processes gain little then, and lose if the CPUs are busy."""


class Chosen(NamedTuple):
    """The pool, its number of workers, and the first batches."""

    choice: Choice
    workers: int | None
    ready: list[Any]


def chosen(fetch: Fetch, lists: Sequence[Any], workers: int | None, key: BatchKey, n_batches: float) -> Chosen:
    """Choose a pool for an epoch of `n_batches`: make batches of some lists of indices with a copy of `fetch`.

    Of a `TensorDataset`, which no read changes, no copy is made.

    If processes suit, return these batches too: the loop uses them while the processes start.
    """
    if fetch.init is not None:
        return Chosen(Choice("processes", "worker_init_fn is made for processes"), workers, [])
    copy = CopyToTry(fetch, [])
    try:
        if fetch.columns is None:
            copy = copy_to_try(fetch)
    except MemoryError:
        return Chosen(Choice("processes" if workers else "serial", TOO_LARGE), workers, [])
    except Exception as error:
        raise_if_of_signal_handler(error)
        why = f"the data set cannot be pickled, which processes need: {type(error).__name__}"
        return Chosen(Choice("threads", f"{why}; one, for it may not bear to be read by several"), 1, [])
    fetch = copy.value
    trial = _trial(fetch, lists, key)
    if not trial.seconds:
        return Chosen(Choice("serial", "no batch could be made to see how long it takes"), None, [])
    # The first batch imports, opens files and fills caches. Of the others, the fastest was delayed least.
    each = min(trial.seconds[1:] or trial.seconds)
    why = f"a batch takes {1e3 * each:.3g} ms"
    if each < (SHORT_BATCH_SECONDS if fetch.columns is None else TINY_BATCH_SECONDS):
        return Chosen(Choice("serial", f"{why}, not worth handing it over"), None, [])
    if fetch.columns is not None:
        return Chosen(Choice("threads", f"{why}, of copying tensors"), workers, [])
    if each * n_batches < SHORT_EPOCH_SECONDS:
        why = f"{why}, an epoch {1e3 * each * n_batches:.3g} ms, too short for a start of processes"
        return Chosen(Choice("serial", why), None, [])
    ready: list[Any] = []
    if not copy.has_changed():  # otherwise a row that came twice had been changed before
        with unless_of_signal_handler():  # a batch that cannot be loaded raises when it is due
            ready = [load_result(pickled) for pickled in trial.pickled]  # in their own memory, as from a process
    return Chosen(Choice("processes", f"{why}, of the data set's own code"), workers, ready)


class Trial(NamedTuple):
    """The first batches of an epoch, pickled, up to the first that cannot be pickled; and the seconds of each batch,
    without the time that other programs had the CPU.
    """

    pickled: list[bytes]
    seconds: list[float]


def _trial(fetch: Fetch, lists: Sequence[Any], key: BatchKey) -> Trial:
    """Make as many of the first batches as the choice needs. Stop at a batch that fails."""
    pickled: list[bytes] = []
    seconds: list[float] = []
    made: list[Any] = []

    def make(indices: Any) -> None:
        made.append(fetch(indices, FRESH))

    with unless_of_signal_handler():  # the error is raised when its batch is due
        for number, indices in enumerate(lists):
            with globals_kept(key._replace(batch=number)):
                took = timed(functools.partial(make, indices))
            seconds.append(took.seconds - took.queued)
            if fetch.columns is None and len(pickled) == number:
                with unless_of_signal_handler():
                    pickled.append(dumps(made[0]))  # at once: the next batch may be in the same memory
            made.clear()
            if sum(seconds[1:]) > TRY_SECONDS or seconds[0] > SLOW:
                break
    return Trial(pickled, seconds)
