"""The iterator that hands out the batches of one epoch, whatever runner makes them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from ... import batch as batches
from ...batch_layout import finished
from ...errors import ArgumentTypeError, PoolClosed, ReentrantIteration, StateError
from ...faults.isolation import FAILURES, isolable, of_a_sample
from ...memory_pool import Buffers
from ...randomness import BatchKey, globals_seeded
from ...sampling.plans.epoch import BatchPlan
from ...sampling.plans.rows import planned_samples
from .accounting import Accounting
from .failures import Failures
from .state import CANNOT
from .state_file import read_state, write_state


class Engine(Protocol):
    """Makes batches in plan order; what stands between a plan and a :class:`BatchIterator`."""

    def __next__(self) -> Any:
        """Return the next batch, once it is in the accounting.

        Raises ``StopIteration`` at the end, or what went wrong in making it.
        """
        ...

    def check_caller(self) -> None:
        """Raise :class:`~batchup_ng.errors.ReentrantIteration` if this is called by what is making one of the
        batches."""
        ...

    def ready(self) -> int:
        """Return how many batches are made and wait."""
        ...

    def close(self) -> None:
        """End the work; may be called again, from any thread."""
        ...

    def abandon(self) -> None:
        """The same without waiting for anything: nobody refers to the iterator any more, and the collector runs."""
        ...


class StreamRunner:
    """Makes each batch when it is asked for, from an iterator, on the consumer's own thread."""

    def __init__(self, stream: Iterator[Any]) -> None:
        self._stream = stream

    def __next__(self) -> Any:
        return next(self._stream)

    def check_caller(self) -> None:
        return  # it is all on one thread, which the iterator looks at itself

    def ready(self) -> int:
        return 0

    def close(self) -> None:
        close = getattr(self._stream, "close", None)
        if close is not None:
            with contextlib.suppress(ValueError):  # the generator is running just now, on another thread
                close()

    def abandon(self) -> None:
        self.close()


def finished_stream(stream: Iterator[Any], buffers: Buffers) -> Iterator[Any]:
    """Yield the batches of a stream as they are handed out."""
    end = object()
    while True:
        batch = finished(next(stream, end), buffers)
        if batch is end:
            return
        yield batch
        del batch


class ReadsBatches(Protocol):
    """The part of a source that a runner needs."""

    def read(self, rows: Any, key: Any, buffers: Buffers) -> Any: ...


def walk(
    source: ReadsBatches,
    plan: BatchPlan,
    buffers: Buffers,
    failures: Failures,
    pad_mask: bool = False,
    seeded: bool = False,
) -> Iterator[Any]:
    """Yield the batches of `plan`, read one after the other: the reference that every pool must equal.

    Args:
        source: Reads them.
        plan: Says which.
        buffers: Where to take memory from.
        failures: What is done about samples that cannot be made; its accounting gets each batch, as a pool's does.
        pad_mask: Whether each ends with an array that marks what only pads.
        seeded: Whether global generators are seeded for each.
    """
    read, settle = reader(pad_mask, seeded), failures.accounting.settle
    for planned in plan:
        try:
            batch = read(source, planned.rows, planned.key, buffers)
        except FAILURES as error:
            if not of_a_sample(error) or not isolable(planned.rows):
                raise
            failure = error
        else:
            n = planned_samples(planned.rows, batch)
            settle(planned.number, n, n, 0, "memory")
            yield batch
            del batch
            continue
        verdict = failures.isolate(lambda rows, key: read(source, rows, key, buffers), plan, planned, failure)
        del failure  # its traceback holds this frame
        failures.check(planned, verdict)
        failures.enter(planned, verdict)
        if verdict.made:
            yield verdict.batch
        del verdict
    failures.check_some_delivered()


def entered(stream: Iterator[Any], accounting: Accounting) -> Iterator[Any]:
    """Yield the batches of a stream, each once it is in the accounting by the samples that it has."""
    for batch in stream:
        n = count_of(batch)
        accounting.settle(accounting.batches, n, n, 0, "memory")
        yield batch
        del batch


def reader(pad_mask: bool, seeded: bool) -> Callable[[ReadsBatches, Any, BatchKey, Buffers], Any]:
    """Return what makes a batch: the function of every task.

    Args:
        pad_mask: Whether each ends with an array that marks what only pads.
        seeded: Whether global generators are seeded for each, which is for the consumer's own thread.
    """
    read = read_masked if pad_mask else read_batch
    return functools.partial(_read_seeded, read) if seeded else read


def _read_seeded(read: Any, source: ReadsBatches, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
    with globals_seeded(key):
        return read(source, rows, key, buffers)


def read_batch(source: ReadsBatches, rows: Any, key: Any, buffers: Buffers) -> Any:
    """Return the batch of `rows`, as it is handed out: the task of every batch."""
    return finished(source.read(rows, key, buffers), buffers)


def read_masked(source: ReadsBatches, rows: Any, key: BatchKey, buffers: Buffers) -> Any:
    """Return the batch of `rows`, at its end an array that is False where a sample only pads: ``(n,) bool``.

    The n samples are those that were planned, less those that were left out as bad, whatever maps made of them.
    """
    batch = finished(source.read(rows, key, buffers), buffers)
    return with_mask(batch, key, planned_samples(rows, batch))


def with_mask(batch: Any, key: BatchKey, planned: int) -> Any:
    """Return a batch with an array at its end that is False where a sample only pads: ``(planned,) bool``."""
    # What pads was in the epoch before, so that its position is one that lies behind.
    mask = key.positions(planned) >= key.start
    return (*batch, mask) if isinstance(batch, (tuple, list)) else (batch, mask)


@dataclasses.dataclass(frozen=True)
class Epoch:
    """An epoch that has begun: what a :class:`BatchIterator` hands out.

    Attributes:
        runner: Makes the batches, and keeps the accounting.
        number: Number of the epoch.
        n_batches: Returns how many there are, an int or ``math.inf``; None where nobody can know.
        exact: Whether `n_batches` is a promise, which is checked at the end of the epoch.
        accounting: The accounting of the epoch.
        state: Returns the state of the epoch for what was handed out, from the accounting.
        reopen: Checks a state, then returns what opens the epoch as it goes on from it, once this one is closed.
    """

    runner: Engine
    number: int = 0
    n_batches: Callable[[], float] | None = None
    exact: bool = True
    accounting: Accounting = dataclasses.field(default_factory=Accounting)
    state: Callable[[Accounting], dict[str, Any]] | None = None
    reopen: Callable[[Any], Callable[[], Epoch]] | None = None


class BatchIterator(Iterator[Any]):
    """Hands out batches, each a tuple of arrays, in the order of the plan.

    A loop that is broken off ends the work as soon as nothing refers to the iterator; ``with`` or :meth:`close` do
    so at once. An exception that was raised in making a batch is raised here, in that batch's turn, after which
    the iterator is closed.

    Args:
        epoch: What it hands out.
    """

    def __init__(self, epoch: Epoch) -> None:
        self._delivered = 0
        self._samples = 0
        self._waited = 0.0
        self._inside: set[int] = set()  # the threads that are in next()
        self._begin(epoch)

    def _begin(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._runner = epoch.runner
        self._accounting = epoch.accounting
        self._ended = False
        self._broken_off = ""  # by what, where it was neither at its end nor closed by the consumer
        self._finalizer = weakref.finalize(self, epoch.runner.abandon)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            ReentrantIteration: this is called by what is just making a batch of this iterator, such as a map.
            PoolClosed: an interrupt (Ctrl-C), or the next of several ``epochs``, broke the epoch off; a loop that went
                on must not take that for its end.
        """
        if self._ended:
            if self._broken_off:
                raise PoolClosed(
                    f"this epoch was broken off by {self._broken_off} after {self._delivered} batches, so that its "
                    f"iterator is closed; make a new one"
                )
            raise StopIteration
        me = threading.get_ident()
        if me in self._inside:
            raise ReentrantIteration(
                "the next batch of this iterator was asked for by what is just making one of its batches (a map, or a "
                "generator); iterate over a second batch_iterator there"
            )
        self._runner.check_caller()
        self._inside.add(me)
        began = time.perf_counter()
        try:
            batch = next(self._runner)
        except BaseException as error:
            self.close()
            self._broken_off = "an interrupt" if type(error) is KeyboardInterrupt else ""
            if isinstance(error, StopIteration):
                self._balance()
            raise
        finally:
            self._waited += time.perf_counter() - began
            self._inside.discard(me)
        self._delivered += 1
        self._samples += count_of(batch)
        return batch

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self._epoch.number

    def __len__(self) -> int:
        """Return how many batches are left, where that is known.

        Raises:
            TypeError: the epoch never ends (or not before 2^63 batches), or only its end will tell.
        """
        total = None if self._epoch.n_batches is None else self._epoch.n_batches()
        if total is None:
            raise ArgumentTypeError("the number of batches of this stream is not known, so it has no len()")
        if total > sys.maxsize:
            raise ArgumentTypeError("this epoch never ends, so it has no len(); bound it with batchup_ng.take")
        return 0 if self._ended else max(0, int(total) - self._accounting.batches)

    def __reduce__(self) -> Any:
        raise ArgumentTypeError(
            f"a {type(self).__name__} cannot be pickled or copied, for what makes its batches belongs to this process; "
            f"send the source and state_dict() instead, and go on there with source.batch_iterator(..., state=state)"
        )

    def __repr__(self) -> str:
        total, ready = "", 0
        with contextlib.suppress(Exception):
            ready = self._runner.ready()
            n = math.inf if self._epoch.n_batches is None else self._epoch.n_batches()
            total = "" if n == math.inf else f"/{n}"
        state = "closed" if self._ended else f"{ready} buffered"
        return f"<{type(self).__name__}: {self._accounting.batches}{total} batches delivered, {state}>"

    def __bool__(self) -> bool:
        return True  # or Python would ask for the length, which some have not

    def __length_hint__(self) -> int:
        try:
            return len(self)
        except TypeError:
            return 0

    def __enter__(self) -> BatchIterator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the epoch and what was started for it; may be called again. ``next()`` then raises ``StopIteration``."""
        self._ended = True
        if self._finalizer.detach() is not None:
            self._runner.close()

    def break_off(self, by: str) -> None:
        """End the epoch as :meth:`close` does; ``next()`` then raises ``PoolClosed``, unless the epoch was over."""
        if not self._ended:
            self._broken_off = by
        self.close()

    # -- saving and resuming -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return how far the epoch is: what was handed out so far, not what was made ahead.

        It tells nothing of the pool: the same epoch goes on from it with another pool, other workers, another buffer,
        another number of ranks and, unless batches are what is in order (a choice of sources, the order of a
        generator), another batch size and ``drop_last=``. JSON can hold it, in at most 4 kB (beside the state of a
        stream's own iterator).

        It holds a digest of the source's samplers, with their weights, classes and lists of rows. The first call of all
        reads these arrays once, 0.7 s for 10^8 rows; what they gave is kept for later calls and epochs.

        Raises:
            StateError: the source only streams, or its order is drawn from a generator that is not NumPy's.
        """
        if self._epoch.state is None:
            raise StateError(CANNOT)
        return self._epoch.state(self._accounting)

    def load_state_dict(self, state: Any) -> None:
        """Go on from where `state` was taken, instead of from here; nothing that was handed out then is read again.

        Raises:
            StateError: the state is damaged, or is that of another source, order, seed or epoch; the iterator goes on
                as if nothing had been asked.
        """
        if self._epoch.reopen is None:
            self.state_dict()  # which tells why it cannot be
            raise AssertionError("state_dict did not raise")
        opened = self._epoch.reopen(state)
        self.close()
        self._begin(opened())

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to a file as JSON, which then holds what it held before or all of it, nothing else.

        A link is followed; permissions stay as they were, those of a new file are the umask's. Whoever is killed in the
        midst of it leaves one file ``.NAME.tmp`` beside it, which the next to save uses up.

        Raises:
            StateError: as :meth:`state_dict`.
            OSError: the file cannot be written.
        """
        write_state(path, self.state_dict())

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Go on from the state that a file holds: see :meth:`load_state_dict`.

        Raises:
            StateError: the file holds no state, or none of this epoch.
            OSError: the file cannot be read.
        """
        self.load_state_dict(read_state(path))

    # -- what happened -----------------------------------------------------------------------------------------

    @property
    def errors(self) -> list[Any]:
        """The samples that the error policy let pass so far: a list of :class:`~batchup_ng.SampleError`."""
        return list(self._accounting.errors)

    def stats(self) -> dict[str, Any]:
        """Return what happened so far.

        Returns:
            ``batches`` and ``samples`` delivered; ``failed``, the samples that were left out, and ``replaced``, those
            that another row stands for; ``wait_seconds``, for which the consumer stood in ``next()``; ``buffered``, the
            number of batches that are made and wait; ``transport``, how many batches came in shared memory
            (``"slots"``), through a pipe (``"pipe"``), in the message itself (``"inline"``), or were made in this
            process (``"memory"``); ``arrays``, how large arrays of the source reached the processes that make batches:
            as one copy in memory that all of them map (``"shared"``), as one in a temporary file (``"spilled"``), as
            files that they map (``"mapped"``), as a copy for each (``"sent"``), ``""`` where that was not needed.
        """
        return {
            "batches": self._delivered,
            "samples": self._samples,
            "failed": self._accounting.failed,
            "replaced": self._accounting.replaced,
            "wait_seconds": self._waited,
            "buffered": 0 if self._ended else self._runner.ready(),
            "transport": dict(self._accounting.transports),
            "arrays": self._accounting.arrays,
        }

    def _balance(self) -> None:
        """Raise :class:`~batchup_ng.errors.AccountingError` if not every planned sample was delivered or has failed."""
        if self._epoch.exact and self._epoch.n_batches is not None:
            self._accounting.balance(self._epoch.n_batches())


def count_of(batch: Any) -> int:
    """Return how many samples a batch has; 0 where that cannot be told."""
    if type(batch) is tuple and batch and type(batch[0]) is np.ndarray and batch[0].shape:
        return len(batch[0])  # nearly all batches, and in less time
    try:
        return batches.length(tuple(batch) if type(batch) is list else batch)
    except TypeError:
        return 0
